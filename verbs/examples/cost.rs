//! How many instructions a request costs in this library: `cost (with | without) N LIST` posts N lists of LIST WRITEs
//! and polls each by one call, with a provider that does nothing, through this library or past it. Two runs under
//! callgrind, with N and with 2 N, and their difference by N, say what one list costs:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/cost with 1280 1
//! ```

#[path = "../tests/provider/mod.rs"]
mod provider;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asked = match &words[..] {
        [how, count, list] if how == "with" || how == "without" => {
            Some(how == "with").zip(count.parse::<u64>().ok()).zip(list.parse().ok())
        }
        _ => None,
    };
    let Some(((through, count), list)) = asked.filter(|(_, list)| (1..=16).contains(list)) else {
        eprintln!("cost: expected (with | without) N LIST, LIST of 1 to 16, got {words:?}");
        std::process::exit(2);
    };
    let mut program = provider::Program::new(through);
    (0..count).for_each(|_| program.run(list));
}
