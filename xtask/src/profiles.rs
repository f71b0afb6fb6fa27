//! `cargo xtask profiles`: the main program's runs on every kind of device, and the same through libibverbs.

use crate::run_scenarios;
use crate::scenarios::{Holds, How, Scenario};
use crate::scenarios_list::{SCENARIOS, SOFT_RDMA};
use anyhow::{Result, bail};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::Path;

pub const SUMMARY: &str = "the main program's runs on every kind of device";
pub const HELP: &str = "profiles [NAME]... [--short] [--list]

Runs the scenarios of xtask/src/scenarios_list.rs on what `cargo build --release` made, with NICs of each kind (NAME:
only of these): `shmem_put_bw --profile NAME`, and through libibverbs `shunt soft-rdma run --profile NAME`. Verdicts
have to be the same on each; the last table says what came of it, as docs/SOFT_RDMA.md has it.

  --short  some of the scenarios, as in CI
  --list   the kinds of devices";

/// As soft-nic/hca/src/profile/table.rs has them, but the one that takes everything.
const NAMES: &[&str] = &["cx5", "cx6dx", "cx7", "bf3", "vf", "ib-ar", "strict"];

/// What CI runs on each: a clean start with a table, a port that goes and comes, acknowledgements lost for ever.
const SHORT: &[&str] = &["default", "port-down-up", "acks-dropped", "mlx5-clean", "mlx5-port-down-up"];

/// What is asked of one kind.
#[derive(Default)]
struct Told {
    name: &'static str,
    own: Count,
    /// Through libibverbs and libmlx5; `None` where a machine has none.
    mlx5: Option<Count>,
}

/// What differs from the verdicts on `soft`, and why.
enum Differs {
    /// It says nothing there.
    Left,
    /// It may also end as uncertain, with the operation named; nothing is doubled, out of order or late.
    MayBeUncertain,
    /// What is left out on purpose may be a signal as well as a put: both are atomics there. It is found either way.
    MayBeASignal,
}

/// The weaker rows of the README's table, and one that is stronger.
fn differs(profile: &str, scenario: &Scenario) -> Option<Differs> {
    let asks = |words: &[&str]| words.iter().any(|word| scenario.args.contains(word));
    match profile {
        "cx5" | "ib-ar" if scenario.name == "sabotage-skip-atomic" => Some(Differs::MayBeASignal),
        // Neither the responder's count nor the order of ledger words: a signal that is no absolute value is uncertain.
        // Who answers "applied" without knowing is wrong at times.
        "cx5" if asks(&["--uncertain applied", "--uncertain not"]) => Some(Differs::Left),
        "cx5" if asks(&["--signal add", "--signal cleared", "--mode amo"]) => Some(Differs::MayBeUncertain),
        // The mode is of masked atomics too, which a virtual function has not: they fail with the NIC's syndrome.
        "vf" if asks(&["--mode amo"]) => Some(Differs::Left),
        // Signals go as atomics: there the answer of one may be lost.
        "cx5" | "ib-ar" if scenario.name == "mlx5-not-exercised" => Some(Differs::Left),
        _ => None,
    }
}

/// Puts and signals that a stream has under way at most (`--window`): who ends as uncertain lost sight of no others.
const WINDOW: u64 = 64;

/// What may be said of a run that ends as uncertain, exit status 3: the fault struck, at most a window is in doubt,
/// nothing is missing but of that window, and nothing else is wrong.
const UNCERTAIN: &[Holds] = &[
    Holds::Says("verdict", "uncertain"),
    Holds::FirstFaultHit,
    Holds::AtLeast("uncertain", 1),
    Holds::AtMost("uncertain", WINDOW),
    Holds::AtMost("puts_lost", WINDOW),
    Holds::Short("signals_applied", "signals_posted", WINDOW),
    Holds::Is("signals_duplicated", 0),
    Holds::Is("fetches_wrong", 0),
    Holds::Is("order_violations", 0),
    Holds::Is("ghost_writes", 0),
];

/// What is said of a run of which one put or one signal was left out, exit status 1.
const ONE_LEFT_OUT: &[Holds] = &[
    Holds::Says("verdict", "broken"),
    Holds::FirstFaultHit,
    Holds::AtMost("puts_lost", 1),
    Holds::Short("signals_applied", "signals_posted", 1),
    Holds::Is("signals_duplicated", 0),
];

/// MoE layers make their NICs themselves, all of one kind.
fn fits(scenario: &Scenario, short: bool) -> bool {
    !matches!(scenario.how, How::Moe | How::MoeSoftRdma) && (!short || SHORT.contains(&scenario.name))
}

fn chosen(all: &[Scenario], profile: &str, short: bool) -> Vec<Scenario> {
    let judged = |scenario: &Scenario| match differs(profile, scenario) {
        None => Some(*scenario),
        Some(Differs::Left) => None,
        Some(Differs::MayBeUncertain) => Some(Scenario { or: Some((3, UNCERTAIN)), ..*scenario }),
        Some(Differs::MayBeASignal) => Some(Scenario { or: Some((1, ONE_LEFT_OUT)), ..*scenario }),
    };
    all.iter().filter(|scenario| fits(scenario, short)).filter_map(judged).collect()
}

fn on(name: &'static str, short: bool) -> Result<Told> {
    println!("\n-- {name}");
    let own = run_scenarios::on_profile(name, &chosen(SCENARIOS, name, short))?;
    let has_mlx5 = Path::new("/etc/libibverbs.d/mlx5.driver").exists();
    let mlx5 =
        has_mlx5.then(|| run_scenarios::on_profile(name, &chosen(SOFT_RDMA, name, short))).transpose()?;
    Ok(Told { name, own, mlx5 })
}

fn table(all: &[Told]) -> String {
    let cell = |count: &Count| match count.failed {
        0 => format!("all {}", count.passed),
        _ => format!("{} of {}", count.passed, count.passed + count.failed),
    };
    let row = |told: &Told| {
        let mlx5 = told.mlx5.as_ref().map_or_else(|| "no libmlx5 here".to_owned(), cell);
        format!("| `{}` | {} | {mlx5} |\n", told.name, cell(&told.own))
    };
    let head =
        "| profile | in-process soft NICs | libibverbs and libmlx5, interposer |\n| --- | --- | --- |\n";
    all.iter().fold(head.to_owned(), |text, told| text + &row(told))
}

fn these(names: &[&'static str], short: bool) -> Result<Count> {
    let all = names.iter().map(|name| on(name, short)).collect::<Result<Vec<_>>>()?;
    println!("\n{}", table(&all));
    let counts = all.iter().flat_map(|told| [Some(told.own), told.mlx5]).flatten();
    let mut sum = Count::default();
    counts.for_each(|count| sum += count);
    Ok(sum)
}

pub fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--list") {
        NAMES.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    let short = args.iter().any(|arg| arg == "--short");
    let mut names = Vec::new();
    for arg in args.iter().filter(|arg| *arg != "--short") {
        match NAMES.iter().find(|name| **name == arg.as_str()) {
            Some(name) => names.push(*name),
            None => return sh::usage(format!("no device is called '{arg}'; there are {}", NAMES.join(" "))),
        }
    }
    let count = these(if names.is_empty() { NAMES } else { &names }, short)?;
    println!("{} passed, {} failed", count.passed, count.failed);
    if count.failed > 0 { bail!("{} failed", count.failed) } else { Ok(()) }
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    these(NAMES, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::judge;
    use serde_json::json;

    #[test]
    fn names_are_those_of_the_soft_nic() {
        let table = include_str!("../../soft-nic/hca/src/profile/table.rs");
        let theirs =
            table.lines().filter_map(|line| line.trim().strip_prefix("name: \"")?.strip_suffix("\","));
        assert_eq!(theirs.skip(1).collect::<Vec<_>>(), NAMES);
    }

    #[test]
    fn what_ci_runs_is_there_and_the_rest_is_refused() {
        let names: Vec<&str> = SCENARIOS.iter().chain(SOFT_RDMA).map(|scenario| scenario.name).collect();
        assert!(SHORT.iter().all(|name| names.contains(name)), "{names:?}");
        assert!(run(&["cx8".to_owned()]).is_err());
    }

    #[test]
    fn only_what_is_documented_may_differ() {
        let all = || SCENARIOS.iter().chain(SOFT_RDMA);
        for profile in NAMES {
            let left = all().filter(|scenario| differs(profile, scenario).is_some()).count();
            assert_eq!(left > 0, ["cx5", "ib-ar", "vf"].contains(profile), "{profile}");
            let fitting = SOFT_RDMA.iter().filter(|scenario| fits(scenario, false)).count();
            assert_eq!(chosen(SOFT_RDMA, profile, false).len() < fitting, left > 0, "{profile}");
        }
        let clean =
            |scenario: &Scenario| !scenario.args.contains("--signal") && !scenario.args.contains("amo");
        let puts = all().filter(|scenario| clean(scenario) && scenario.name != "mlx5-not-exercised");
        assert!(
            puts.clone().count() > 20 && puts.into_iter().all(|scenario| differs("cx5", scenario).is_none())
        );
    }

    #[test]
    fn a_run_that_ends_as_uncertain_has_a_window_in_doubt_and_nothing_else_wrong() {
        let lost = |scenario: &&Scenario| scenario.name == "lost-atomic-response";
        let scenario =
            *chosen(SCENARIOS, "cx5", false).iter().find(lost).expect("a scenario that may be uncertain");
        let good = json!({
            "verdict": "uncertain", "uncertain": 1, "puts_lost": 64, "signals_posted": 164, "signals_applied": 100,
            "signals_duplicated": 0, "fetches_wrong": 0, "order_violations": 0, "ghost_writes": 0,
            "faults": [{ "hits": 1 }, { "hits": 0 }],
        });
        assert_eq!(judge(&scenario, Some(3), Some(&good)), Vec::<String>::new());
        for (key, value) in [
            ("verdict", json!("no path left")),
            ("uncertain", json!(0)),
            ("uncertain", json!(65)),
            ("puts_lost", json!(65)),
            ("signals_applied", json!(99)),
            ("signals_applied", json!(165)),
            ("signals_duplicated", json!(1)),
            ("fetches_wrong", json!(1)),
            ("order_violations", json!(1)),
            ("ghost_writes", json!(1)),
            ("faults", json!([{ "hits": 0 }, { "hits": 1 }])),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            assert_eq!(judge(&scenario, Some(3), Some(&bad)).len(), 1, "{key}");
        }
        let wide = |scenario: &Scenario| scenario.args.contains("--window") && scenario.or.is_some();
        assert!(!NAMES.iter().any(|name| chosen(SCENARIOS, name, false).iter().any(wide)), "another window");
    }

    #[test]
    fn a_failure_shows_in_the_table() {
        let told = Told { name: "vf", own: Count::of(3, 0), mlx5: Some(Count::of(2, 1)) };
        assert!(table(&[told]).ends_with("| `vf` | all 3 | 2 of 3 |\n"));
    }
}
