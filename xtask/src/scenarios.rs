//! What a run of the main program is, and what its exit status and JSON have to say.

use serde_json::Value;

/// One run of a main program.
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
    /// Another exit status that will do, and what must hold of the JSON then.
    pub or: Option<(i32, &'static [Holds])>,
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
    /// Two, each on a host of its own ([`netns`](crate::netns)), with two rails: a cable, and one that is routed.
    TwoHosts {
        /// The primary is the one that is routed.
        routed: bool,
    },
    /// One with all PEs, whose NICs are the interposer's, two for each PE.
    SoftRdmaThreads,
    /// `moe_pressure`: all ranks in one.
    Moe,
    /// `moe_pressure`: four ranks, each a process, whose NICs are the interposer's.
    MoeSoftRdma,
}

/// A condition on the JSON object.
#[derive(Clone, Copy, Debug)]
pub enum Holds {
    /// A number is exactly this.
    Is(&'static str, u64),
    /// A number is at least this.
    AtLeast(&'static str, u64),
    /// A number is at most this.
    AtMost(&'static str, u64),
    /// The first number is the second, or less by at most this.
    Short(&'static str, &'static str, u64),
    /// Two numbers are the same.
    Same(&'static str, &'static str),
    /// The first number differs from the second by at most this share of it.
    Within(&'static str, &'static str, f64),
    /// Every planned fault did something.
    EveryFaultHit,
    /// The first planned fault did something; the run may have ended before the others.
    FirstFaultHit,
    /// A text is exactly this.
    Says(&'static str, &'static str),
    /// Some switch was made for this cause.
    Cause(&'static str),
    /// There were switches, and none for this cause.
    NoCause(&'static str),
    /// Some switch went to this path, written "local>remote".
    SwitchTo(&'static str),
    /// In this phase, sending rails carry their part: all of them but so many, which carry nothing.
    RailsIdle(usize, usize),
    /// In this phase, at least this percentage of the fault-free bandwidth was delivered.
    Keeps(usize, f64),
}

impl Scenario {
    /// The arguments one by one, as a shell takes them apart.
    pub fn words(&self) -> Vec<String> {
        shlex::split(self.args).unwrap_or_else(|| panic!("{}: quotes that do not match", self.name))
    }

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
            How::TwoHosts { routed } => {
                let rails = if routed { "ROUTED,CABLE" } else { "CABLE,ROUTED" };
                let run = format!("shunt soft-rdma run --roce {rails} -- shmem_put_bw --nic mlx5");
                format!("{run} --rank 0|1 --world 2 --root HOST:PORT {}", self.args)
            }
            How::SoftRdmaThreads => {
                format!("shunt soft-rdma run --nics 4 -- shmem_put_bw --nic mlx5 {}", self.args)
            }
            How::Moe => format!("moe_pressure {}", self.args),
            How::MoeSoftRdma => {
                let run = "shunt run -n 4 -- shunt soft-rdma run --nics 2 -- moe_pressure --nic auto";
                format!("{run} {}", self.args)
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
            Self::AtMost(key, most) => {
                let few = number(key).is_some_and(|value| value <= most as f64);
                (!few).then(|| format!("{key} is {}, not at most {most}", shown(key)))
            }
            Self::Short(key, of, by) => {
                let near = |(value, of): (f64, f64)| value <= of && of - value <= by as f64;
                let holds = number(key).zip(number(of)).is_some_and(near);
                let (met, full) = (shown(key), shown(of));
                (!holds).then(|| format!("{key} is {met}, not {of}, {full}, or less by at most {by}"))
            }
            Self::Same(key, other) => (number(key).is_none() || number(key) != number(other))
                .then(|| format!("{key} is {}, and {other} {}", shown(key), shown(other))),
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
            Self::FirstFaultHit => {
                let hits = list(json, "faults").next().and_then(|fault| fault["hits"].as_u64());
                (hits.unwrap_or(0) == 0)
                    .then(|| "the first planned fault did nothing, or there is none".to_owned())
            }
            Self::Cause(cause) => {
                let seen = list(json, "switches").any(|switch| switch["cause"] == cause);
                (!seen).then(|| format!("no switch for {cause}"))
            }
            Self::NoCause(cause) => {
                let mut causes = list(json, "switches").map(|switch| &switch["cause"]).peekable();
                (causes.peek().is_none() || causes.any(|met| met == cause))
                    .then(|| format!("a switch for {cause}, or none at all"))
            }
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
    let other = scenario.or.filter(|(status, _)| exit == Some(*status));
    let (status, conditions) = other.unwrap_or((scenario.exit, scenario.holds));
    let mut wrong = Vec::new();
    if exit != Some(status) {
        let met =
            exit.map_or_else(|| format!("killed after {} ms", scenario.limit_ms), |code| code.to_string());
        wrong.push(format!("exit status {met}, not {}", scenario.exit));
    }
    match json {
        Some(json) => wrong.extend(conditions.iter().filter_map(|holds| holds.broken(json))),
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
    use crate::scenarios_list::{SCENARIOS, SOFT_RDMA, TWO_HOSTS, clean};
    use serde_json::json;

    #[test]
    fn each_condition_sees_what_it_is_about() {
        let good = json!({
            "puts_lost": 0, "failovers": 2, "signals_posted": 2, "gb_s_before": 1.0, "gb_s_after": 0.95,
            "signals_applied": 1, "uncertain": 64,
            "faults": [{ "kind": "down", "hits": 1 }, { "hits": 1 }],
            "switches": [{ "to": "0.1>1.0", "cause": "overdue" }],
            "verdict": "clean",
            "phases": [{ "percent": 100.0 }, { "percent": 87.0 }],
            "rails": [{ "shares": [60.0, 0.0] }, { "shares": [40.0, 100.0] }],
        });
        let bad = json!({
            "puts_lost": 1, "failovers": 0, "signals_posted": 2, "gb_s_before": 1.0, "gb_s_after": 0.85,
            "signals_applied": 3, "uncertain": 65,
            "faults": [{ "kind": "down", "hits": 0 }, { "hits": 1 }],
            "switches": [{ "to": "0.1>1.1", "cause": "port-down" }], "verdict": "broken",
            "phases": [{ "percent": 100.0 }, { "percent": null }],
            "rails": [{ "shares": [60.0, 10.0] }, { "shares": [40.0, 90.0] }],
        });
        for holds in [
            Holds::Is("puts_lost", 0),
            Holds::AtLeast("failovers", 1),
            Holds::AtMost("uncertain", 64),
            Holds::Short("signals_applied", "signals_posted", 1),
            Holds::Same("failovers", "signals_posted"),
            Holds::Within("gb_s_after", "gb_s_before", 0.1),
            Holds::EveryFaultHit,
            Holds::FirstFaultHit,
            Holds::SwitchTo("0.1>1.0"),
            Holds::Cause("overdue"),
            Holds::NoCause("port-down"),
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
        let all: Vec<&Scenario> = SCENARIOS.iter().chain(SOFT_RDMA).chain(TWO_HOSTS).collect();
        for (i, scenario) in all.iter().enumerate() {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(scenario.name.chars().all(fits), "{}", scenario.name);
            assert!(all[..i].iter().all(|other| other.name != scenario.name), "{}", scenario.name);
        }
    }
}
