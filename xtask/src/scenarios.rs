//! What the main program must show, as data: command lines, exit statuses, and what its JSON has to say.
//!
//! Each row is one promise of the README seen from outside, on the wall clock, with real threads.

use serde_json::Value;

/// One run of `shmem_put_bw`.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name, also of its files under `<target>/ci`.
    pub name: &'static str,
    /// How the PEs are spread over processes.
    pub how: How,
    /// Arguments; `--json` is added.
    pub args: &'static str,
    /// Exit status.
    pub exit: i32,
    /// Longest time it may take, start-up included; then it is killed and has failed.
    pub limit_ms: u64,
    /// What must hold of its JSON.
    pub holds: &'static [Holds],
    /// What should hold of its wall-clock figures on a machine that does nothing else.
    pub figures: &'static [Holds],
}

/// How the PEs of a run are spread over processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All in one.
    Threads,
    /// Two, started by `shunt run`.
    ShuntRun,
    /// Two, started by hand with `--rank`, `--world` and `--root`.
    TwoShells,
    /// Two, started by `shunt run`, whose NICs are the interposer's: through libibverbs and libmlx5.
    SoftRdma,
    /// One with all PEs, whose NICs are the interposer's, two for each PE.
    SoftRdmaThreads,
}

/// A condition on the JSON object.
#[derive(Clone, Copy, Debug)]
pub enum Holds {
    /// A number is exactly this.
    Is(&'static str, u64),
    /// A number is at least this.
    AtLeast(&'static str, u64),
    /// The first number differs from the second by at most this share of it.
    Within(&'static str, &'static str, f64),
    /// Every planned fault did something.
    EveryFaultHit,
    /// A text is exactly this.
    Says(&'static str, &'static str),
    /// Some switch went to this path, written "local>remote".
    SwitchTo(&'static str),
    /// In this phase, sending rails carry their part: all of them but so many, which carry nothing.
    RailsIdle(usize, usize),
    /// In this phase, at least this percentage of the fault-free bandwidth was delivered.
    Keeps(usize, f64),
}

/// Nothing lost, nothing doubled, nothing out of order, nothing written late; and the faults did happen.
const CLEAN: &[Holds] = &[
    Holds::Is("puts_lost", 0),
    Holds::Is("signals_duplicated", 0),
    Holds::Is("order_violations", 0),
    Holds::Is("ghost_writes", 0),
    Holds::EveryFaultHit,
];

/// Far above any run's own time; only a hang reaches it.
const HANG_MS: u64 = 60_000;

/// A run in one process that must end clean.
const fn clean(name: &'static str, args: &'static str) -> Scenario {
    Scenario { name, how: How::Threads, args, exit: 0, limit_ms: HANG_MS, holds: CLEAN, figures: &[] }
}

/// A run in two processes that must end clean.
const fn clean_processes(name: &'static str, how: How, args: &'static str) -> Scenario {
    Scenario { how, ..clean(name, args) }
}

/// A run in two processes that must end for want of a path, its faults hit.
const fn lost(name: &'static str, args: &'static str) -> Scenario {
    Scenario { how: How::ShuntRun, exit: 3, holds: &[Holds::EveryFaultHit], ..clean(name, args) }
}

/// All of them, shortest story first.
pub const SCENARIOS: &[Scenario] = &[
    clean("default", ""),
    Scenario {
        name: "port-down-up",
        how: How::Threads,
        args: "--duration 2500ms --inject 500ms:0.0:down --inject 1500ms:0.0:up",
        exit: 0,
        limit_ms: HANG_MS,
        holds: &[
            Holds::Is("puts_lost", 0),
            Holds::Is("signals_duplicated", 0),
            Holds::Is("order_violations", 0),
            Holds::Is("ghost_writes", 0),
            Holds::EveryFaultHit,
            Holds::AtLeast("failovers", 1),
            Holds::AtLeast("switchbacks", 1),
        ],
        figures: &[Holds::Within("gb_s_after", "gb_s_before", 0.1)],
    },
    clean("receiver-port", "-n 0 --duration 1500ms --inject 300ms:1.0:down --inject 900ms:1.0:up"),
    clean(
        "both-primaries",
        "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.0:down --inject 900ms:0.0:up \
             --inject 900ms:1.0:up",
    ),
    clean("flap", "-n 0 --duration 2s --inject 300ms:0.0:flap=50ms/10"),
    clean("acks-dropped", "-n 0 --duration 1500ms --inject 300ms:0.0:drop-acks=10ms"),
    clean("acks-dropped-for-ever", "-n 0 --duration 1500ms --inject 300ms:0.0:drop-acks"),
    clean("blackhole", "-n 0 --duration 1500ms --inject 300ms:0.0:blackhole-tx"),
    clean("late-placement", "-n 0 --duration 1500ms --inject 300ms:1.0:placement-delay=2ms"),
    clean(
        "late-placement-and-port-down",
        "-n 0 --duration 1500ms --inject 200ms:1.0:placement-delay=2ms --inject 500ms:0.0:down",
    ),
    Scenario {
        name: "crossed-rails",
        how: How::Threads,
        args: "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.1:down",
        exit: 0,
        limit_ms: HANG_MS,
        holds: &[
            Holds::Is("puts_lost", 0),
            Holds::Is("signals_duplicated", 0),
            Holds::Is("order_violations", 0),
            Holds::Is("ghost_writes", 0),
            Holds::EveryFaultHit,
            Holds::SwitchTo("0.1>1.0"),
        ],
        figures: &[],
    },
    Scenario {
        holds: &[
            Holds::Is("puts_lost", 0),
            Holds::Is("signals_duplicated", 0),
            Holds::Is("order_violations", 0),
            Holds::Is("ghost_writes", 0),
            Holds::EveryFaultHit,
            Holds::RailsIdle(0, 0),
            Holds::RailsIdle(1, 1),
            Holds::RailsIdle(2, 2),
        ],
        figures: &[Holds::Keeps(1, 85.0), Holds::Keeps(2, 72.0)],
        ..clean(
            "eight-rails",
            "-n 0 --rails 8 --rail-gbps 0.5 --size 16K --window 32 --duration 2400ms --inject 800ms:0.0:down \
             --inject 1600ms:0.3:down",
        )
    },
    clean(
        "no-path-for-a-while",
        "-n 0 --duration 2s --inject 500ms:0.0:down --inject 501ms:1.0:down --inject 502ms:0.1:down \
             --inject 700ms:0.0:up",
    ),
    Scenario {
        name: "all-paths-down",
        how: How::Threads,
        args: "-n 0 --duration 10s --inject 300ms:0.0:down --inject 300ms:0.1:down",
        exit: 3,
        // That the give-up time is kept is held in virtual time (tests/bounds.rs); here only a hang fails. The run is
        // told to last 10 s, so its own time in the output shows when the peer was given up.
        limit_ms: HANG_MS,
        holds: &[Holds::EveryFaultHit],
        figures: &[],
    },
    Scenario {
        name: "without-fault-tolerance",
        how: How::Threads,
        args: "-n 0 --duration 10s --ft off --inject 300ms:0.0:down",
        exit: 3,
        limit_ms: 10_000,
        holds: &[Holds::EveryFaultHit],
        figures: &[],
    },
    Scenario { how: How::Threads, ..lost("peer-killed", "-n 0 --duration 10s --inject 300ms:1:peer-killed") },
    clean(
        "agent-and-clock",
        "-n 0 --duration 1500ms --inject 200ms:0:clock-jump=60m --inject 300ms:1:agent-stalled=200ms \
             --inject 350ms:0:oob-cut=300ms --inject 400ms:0.0:down --inject 900ms:0.0:up",
    ),
    clean_processes(
        "processes-port-down-up",
        How::ShuntRun,
        "-e 64K -f 8 -n 20 --duration 1500ms --inject 300ms:0.0:down --inject 800ms:0.0:up",
    ),
    clean_processes(
        "processes-both-primaries",
        How::ShuntRun,
        "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.0:down --inject 900ms:0.0:up \
             --inject 900ms:1.0:up",
    ),
    clean_processes(
        "processes-blackhole",
        How::ShuntRun,
        "-n 0 --duration 1500ms --inject 300ms:0.0:blackhole-tx",
    ),
    lost("processes-all-paths-down", "-n 0 --duration 10s --inject 300ms:0.0:down --inject 300ms:0.1:down"),
    lost("processes-peer-killed", "-n 0 --duration 10s --inject 300ms:1:peer-killed"),
    clean_processes(
        "two-shells",
        How::TwoShells,
        "-n 0 --duration 1200ms --inject 300ms:1.0:down --inject 700ms:1.0:up",
    ),
];

/// What figures over the interposer's soft NICs are labelled with.
const INTERPOSER: Holds = Holds::Says("clock", "soft NIC (interposer), wall time");

/// A run through libibverbs and libmlx5 that must end clean.
const fn clean_mlx5(name: &'static str, args: &'static str) -> Scenario {
    const HOLDS: &[Holds] = &[
        Holds::Is("puts_lost", 0),
        Holds::Is("signals_duplicated", 0),
        Holds::Is("order_violations", 0),
        Holds::Is("ghost_writes", 0),
        Holds::EveryFaultHit,
        Holds::Says("verdict", "clean"),
        INTERPOSER,
    ];
    Scenario { holds: HOLDS, ..clean_processes(name, How::SoftRdma, args) }
}

/// A run through libibverbs and libmlx5 that must end for want of a path, its faults hit.
const fn lost_mlx5(name: &'static str, args: &'static str) -> Scenario {
    Scenario { how: How::SoftRdma, holds: &[Holds::EveryFaultHit, INTERPOSER], ..lost(name, args) }
}

/// The same verdicts through libibverbs and libmlx5, on the soft NICs that the interposer shows to them.
pub const SOFT_RDMA: &[Scenario] = &[
    clean_mlx5("mlx5-clean", "-e 64K -f 8 -n 20 --duration 500ms --watch"),
    clean_mlx5("mlx5-port-down-up", "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 800ms:0.0:up"),
    clean_mlx5(
        "mlx5-both-primaries",
        "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.0:down --inject 900ms:0.0:up \
             --inject 900ms:1.0:up",
    ),
    clean_mlx5("mlx5-blackhole", "-n 0 --duration 1500ms --inject 300ms:0.0:blackhole-tx"),
    clean_mlx5("mlx5-flap", "-n 0 --duration 1500ms --inject 300ms:0.0:flap=50ms/10"),
    clean_mlx5("mlx5-acks-dropped", "-n 0 --duration 1500ms --inject 300ms:0.0:drop-acks=10ms"),
    clean_mlx5("mlx5-acks-dropped-for-ever", "-n 0 --duration 1500ms --inject 300ms:0.0:drop-acks"),
    clean_mlx5("mlx5-receiver-port", "-n 0 --duration 1500ms --inject 300ms:1.0:down --inject 900ms:1.0:up"),
    clean_mlx5("mlx5-late-placement", "-n 0 --duration 1500ms --inject 300ms:1.0:placement-delay=2ms"),
    clean_mlx5(
        "mlx5-late-placement-and-port-down",
        "-n 0 --duration 1500ms --inject 200ms:1.0:placement-delay=2ms --inject 500ms:0.0:down",
    ),
    clean_mlx5(
        "mlx5-crossed-rails",
        "-n 0 --duration 1500ms --inject 300ms:0.0:down --inject 300ms:1.1:down",
    ),
    clean_mlx5(
        "mlx5-no-path-for-a-while",
        "-n 0 --duration 2s --inject 500ms:0.0:down --inject 501ms:1.0:down --inject 502ms:0.1:down \
             --inject 700ms:0.0:up",
    ),
    clean_mlx5(
        "mlx5-agent-and-clock",
        "-n 0 --duration 1500ms --inject 200ms:0:clock-jump=60m --inject 300ms:1:agent-stalled=200ms \
             --inject 350ms:0:oob-cut=300ms --inject 400ms:0.0:down --inject 900ms:0.0:up",
    ),
    clean_mlx5("mlx5-nic-gone", "-n 0 --duration 1500ms --inject 300ms:0.0:nic-gone"),
    clean_mlx5(
        "mlx5-firmware-silent",
        "-n 0 --duration 1500ms --inject 200ms:0.0:fw-timeout=100ms --inject 250ms:0.0:down",
    ),
    lost_mlx5("mlx5-all-paths-down", "-n 0 --duration 10s --inject 300ms:0.0:down --inject 300ms:0.1:down"),
    lost_mlx5("mlx5-peer-killed", "-n 0 --duration 10s --inject 300ms:1:peer-killed"),
    lost_mlx5("mlx5-without-fault-tolerance", "-n 0 --duration 10s --ft off --inject 300ms:0.0:down"),
    Scenario {
        how: How::SoftRdmaThreads,
        ..clean_mlx5("mlx5-one-process", "-n 0 --duration 1s --inject 300ms:0.0:down --inject 600ms:0.0:up")
    },
    Scenario {
        exit: 1,
        holds: &[Holds::AtLeast("puts_lost", 1), Holds::Says("verdict", "broken"), INTERPOSER],
        ..clean_mlx5("mlx5-sabotage", "-n 0 --duration 500ms --inject 200ms:1.0:corrupt")
    },
    Scenario {
        exit: 1,
        holds: &[Holds::Is("puts_lost", 0), Holds::Says("verdict", "not exercised"), INTERPOSER],
        // Nothing posts atomics: a fault that cannot strike is told from one that did no harm.
        ..clean_mlx5("mlx5-not-exercised", "-n 0 --duration 500ms --inject 200ms:0.0:lost-atomic-response")
    },
];

impl Scenario {
    /// As it would be typed.
    pub fn command_line(&self) -> String {
        match self.how {
            How::Threads => format!("shmem_put_bw {}", self.args),
            How::ShuntRun => format!("shunt run -n 2 -- shmem_put_bw {}", self.args),
            How::TwoShells => {
                format!("shmem_put_bw --rank 0|1 --world 2 --root HOST:PORT {}", self.args)
            }
            How::SoftRdma => {
                let run = "shunt run -n 2 -- shunt soft-rdma run --nics 2 -- shmem_put_bw --nic mlx5";
                format!("{run} {}", self.args)
            }
            How::SoftRdmaThreads => {
                format!("shunt soft-rdma run --nics 4 -- shmem_put_bw --nic mlx5 {}", self.args)
            }
        }
    }
}

impl Holds {
    /// What is wrong with `json`, if this does not hold of it.
    pub fn broken(&self, json: &Value) -> Option<String> {
        let number = |key: &str| json.get(key).and_then(Value::as_f64);
        let shown = |key: &str| json.get(key).map_or_else(|| "missing".to_owned(), Value::to_string);
        match *self {
            Self::Is(key, want) => {
                (number(key) != Some(want as f64)).then(|| format!("{key} is {}, not {want}", shown(key)))
            }
            Self::AtLeast(key, least) => {
                let enough = number(key).is_some_and(|value| value >= least as f64);
                (!enough).then(|| format!("{key} is {}, not at least {least}", shown(key)))
            }
            Self::Within(key, of, share) => {
                let near = |(value, of): (f64, f64)| (value - of).abs() <= share * of;
                let holds = number(key).zip(number(of)).is_some_and(near);
                (!holds)
                    .then(|| format!("{key} is {}, not within {share} of {of}, {}", shown(key), shown(of)))
            }
            Self::Says(key, want) => {
                let met = json.get(key).and_then(Value::as_str);
                (met != Some(want)).then(|| format!("{key} is {}, not {want:?}", shown(key)))
            }
            Self::EveryFaultHit => every_fault_hit(json),
            Self::SwitchTo(path) => {
                let went = list(json, "switches").any(|switch| switch.get("to").is_some_and(|to| to == path));
                (!went).then(|| format!("no switch to {path}"))
            }
            Self::RailsIdle(phase, want) => {
                let share = |rail: &Value| rail["shares"][phase].as_f64();
                let shares: Option<Vec<f64>> = list(json, "rails").map(share).collect();
                let idle = shares.map(|shares| shares.iter().filter(|share| **share == 0.0).count());
                (idle != Some(want) || list(json, "rails").next().is_none())
                    .then(|| format!("rails that carry nothing in phase {phase}: {idle:?}, not {want}"))
            }
            Self::Keeps(phase, least) => {
                let kept = list(json, "phases").nth(phase).and_then(|phase| phase["percent"].as_f64());
                let enough = kept.is_some_and(|percent| percent >= least);
                (!enough).then(|| format!("phase {phase} keeps {kept:?} % of the bandwidth, not {least}"))
            }
        }
    }
}

fn list<'j>(json: &'j Value, key: &str) -> impl Iterator<Item = &'j Value> {
    json.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn every_fault_hit(json: &Value) -> Option<String> {
    if json.get("faults").and_then(Value::as_array).is_none() {
        return Some("no list of faults".to_owned());
    }
    let idle =
        list(json, "faults").find(|fault| fault.get("hits").and_then(Value::as_u64).unwrap_or(0) == 0)?;
    Some(format!("a planned fault did nothing: {idle}"))
}

/// Everything that is wrong with a finished run. `exit` is `None` if it was killed.
pub fn judge(scenario: &Scenario, exit: Option<i32>, json: Option<&Value>) -> Vec<String> {
    let mut wrong = Vec::new();
    if exit != Some(scenario.exit) {
        let met =
            exit.map_or_else(|| format!("killed after {} ms", scenario.limit_ms), |code| code.to_string());
        wrong.push(format!("exit status {met}, not {}", scenario.exit));
    }
    match json {
        Some(json) => wrong.extend(scenario.holds.iter().filter_map(|holds| holds.broken(json))),
        None => wrong.push("no JSON was written".to_owned()),
    }
    wrong
}

/// What a run's wall-clock figures miss. Printed, never failed on: they say as much of the machine's load as of ours.
pub fn remarks(scenario: &Scenario, json: &Value) -> Vec<String> {
    scenario.figures.iter().filter_map(|holds| holds.broken(json)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_condition_sees_what_it_is_about() {
        let good = json!({
            "puts_lost": 0, "failovers": 2, "gb_s_before": 1.0, "gb_s_after": 0.95,
            "faults": [{ "kind": "down", "hits": 1 }], "switches": [{ "to": "0.1>1.0" }],
            "verdict": "clean",
            "phases": [{ "percent": 100.0 }, { "percent": 87.0 }],
            "rails": [{ "shares": [60.0, 0.0] }, { "shares": [40.0, 100.0] }],
        });
        let bad = json!({
            "puts_lost": 1, "failovers": 0, "gb_s_before": 1.0, "gb_s_after": 0.85,
            "faults": [{ "kind": "down", "hits": 1 }, { "kind": "up", "hits": 0 }],
            "switches": [{ "to": "0.1>1.1" }], "verdict": "broken",
            "phases": [{ "percent": 100.0 }, { "percent": null }],
            "rails": [{ "shares": [60.0, 10.0] }, { "shares": [40.0, 90.0] }],
        });
        for holds in [
            Holds::Is("puts_lost", 0),
            Holds::AtLeast("failovers", 1),
            Holds::Within("gb_s_after", "gb_s_before", 0.1),
            Holds::EveryFaultHit,
            Holds::SwitchTo("0.1>1.0"),
            Holds::Says("verdict", "clean"),
            Holds::RailsIdle(1, 1),
            Holds::Keeps(1, 85.0),
        ] {
            assert_eq!(holds.broken(&good), None, "{holds:?}");
            assert!(holds.broken(&bad).is_some(), "{holds:?}");
            assert!(holds.broken(&json!({})).is_some(), "{holds:?} of an empty object");
        }
    }

    #[test]
    fn a_wrong_exit_a_hang_and_a_missing_file_are_seen() {
        let scenario = clean("x", "");
        let json = json!({ "puts_lost": 0, "signals_duplicated": 0, "order_violations": 0, "ghost_writes": 0,
                           "faults": [] });
        assert!(judge(&scenario, Some(0), Some(&json)).is_empty());
        assert!(judge(&scenario, Some(1), Some(&json))[0].contains("exit status 1"));
        assert!(judge(&scenario, None, Some(&json))[0].contains("killed"));
        assert_eq!(judge(&scenario, Some(0), None), ["no JSON was written"]);
    }

    #[test]
    fn names_are_unique_and_fit_a_file() {
        let all: Vec<&Scenario> = SCENARIOS.iter().chain(SOFT_RDMA).collect();
        for (i, scenario) in all.iter().enumerate() {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(scenario.name.chars().all(fits), "{}", scenario.name);
            assert!(all[..i].iter().all(|other| other.name != scenario.name), "{}", scenario.name);
        }
    }
}
