//! What the engine itself costs a page, on lanes that execute at once: `transfer_cost PAGES TRANSFERS`. To be run under
//! a counter of instructions, which collects in one of the two functions that are named for what they measure:
//! `valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*until_the_doorbell*' transfer_cost 64 1000`.

#[path = "../tests/cost/rig.rs"]
mod rig;

use rig::Rig;

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    let mut rig = Rig::new(number(1));
    for _ in 0..number(2) {
        rig.until_the_doorbell();
        rig.until_the_end();
    }
}
