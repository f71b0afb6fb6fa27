//! The programs, and what each must say at its end.

use super::compiled;
use crate::python::{self, Interpreter};
use anyhow::Result;
use shunt_task::sh;
use std::path::PathBuf;

/// Ranks of most.
pub const RANKS: usize = 4;
/// Ranks of `kv_disagg` that are decoders: the first ones, and all on machine a.
const DECODERS: usize = RANKS / 2;
/// What a verdict says if nothing is wrong.
const CLEAN: &str = "\"verdict\": \"clean\"";
/// Seconds that a program may take until all have gone back, a busy machine thought of.
const SECONDS: &str = "90";

/// What the programs need of this build.
pub struct Ready {
    pub folder: PathBuf,
    pub shunt: PathBuf,
    /// None where only what is compiled is asked for.
    pub python: Option<Interpreter>,
}

impl Ready {
    /// Everything.
    pub fn make() -> Result<Self> {
        Ok(Self { python: Some(python::of_processes()?), ..Self::compiled()? })
    }

    /// The C and CUDA programs.
    pub fn compiled() -> Result<Self> {
        let folder = compiled::all()?;
        Ok(Self { folder, shunt: sh::target_dir().join("release/shunt"), python: None })
    }
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `nvshmem-compat/conformance/hosts`.
    C,
    /// A family of `nvshmem-compat/programs`.
    Cuda(&'static str),
    /// `moe_pressure` with these arguments.
    Moe(&'static str),
    /// `transfer_bw` with these arguments.
    Transfer(&'static str),
    /// `moe_proxy` with these arguments.
    Proxy(&'static str),
    /// `kv_disagg` with these arguments: decoders on machine a, prefillers on machine b. On one machine it starts its
    /// processes itself.
    Kv(&'static str),
    /// `python/tests/processes.py`.
    Python,
}

/// A program, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub name: &'static str,
    pub ranks: usize,
    pub program: Program,
}

const fn job(name: &'static str, program: Program) -> Job {
    Job { name, ranks: RANKS, program }
}

const fn cuda(name: &'static str, family: &'static str) -> Job {
    job(name, Program::Cuda(family))
}

const C: Job = job("c", Program::C);
const RMA: Job = cuda("cuda-rma", "rma");
const COLLECTIVE: Job = cuda("cuda-collective", "collective");
pub const SIGNAL: Job = cuda("cuda-signal", "signal");
pub const AMO: Job = cuda("cuda-amo", "amo");
const MOE: Job = job("moe-low-latency", Program::Moe("--iters 2000"));
const MOE_NORMAL: Job = job("moe-normal", Program::Moe("--mode normal --ranks-per-node 2 --iters 800"));
const TRANSFER: Job = Job { ranks: 2, ..job("transfer", Program::Transfer("--duration 6s")) };
const TRANSFER_READ: Job =
    Job { ranks: 2, ..job("transfer-read", Program::Transfer("--mode read --duration 6s")) };
const PROXY: Job = job("moe-proxy", Program::Proxy("--layers 100"));
const KV: Job = job("kv", Program::Kv("--layer-time 2ms"));
const PYTHON: Job = job("python", Program::Python);

/// What CI runs.
pub const SHORT: &[Job] = &[C, RMA, COLLECTIVE, MOE, MOE_NORMAL, TRANSFER, PROXY, KV, PYTHON];
/// What CI runs of those that are compiled, where the rest has scenarios of its own.
pub const COMPILED: &[Job] = &[C, RMA, SIGNAL, TRANSFER, PROXY, KV];
/// All there is.
pub const ALL: &[Job] = &[
    C,
    RMA,
    COLLECTIVE,
    SIGNAL,
    AMO,
    cuda("cuda-wait", "wait"),
    cuda("cuda-order", "order"),
    cuda("cuda-qp", "qp"),
    cuda("cuda-teams", "teams"),
    cuda("cuda-stream", "stream"),
    MOE,
    MOE_NORMAL,
    TRANSFER,
    TRANSFER_READ,
    PROXY,
    KV,
    PYTHON,
];

/// Whose hand takes ports down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// The program's own: soft NICs fail on request.
    Own,
    /// Somebody else's: links.
    Links,
}

impl Job {
    /// Whether it starts its own processes on one machine.
    pub fn starts_its_own(&self) -> bool {
        matches!(self.program, Program::Kv(_))
    }

    /// What is typed for a rank; all ranks of one machine get the same, without a rank. `meet`: where ranks of Python's
    /// own group and of `kv_disagg` find each other.
    pub fn words(&self, ready: &Ready, hand: Hand, meet: &str, rank: usize) -> Vec<String> {
        let at = |name: &str| ready.folder.join(name).display().to_string();
        let own = hand == Hand::Own;
        match self.program {
            Program::C if own => vec![at("hosts"), SECONDS.into(), "0".into()],
            Program::C => vec![at("hosts"), SECONDS.into()],
            Program::Cuda(family) => vec![at(family)],
            Program::Moe(args) => {
                let faults = if own { "--faults down=30ms --every 200ms" } else { "--faults none" };
                released("moe_pressure", &format!("--nic mlx5 {faults} {args}"))
            }
            Program::Transfer(args) => {
                released("transfer_bw", &format!("--nic mlx5 {args}{}", faults(hand, "1s", "3s")))
            }
            Program::Proxy(args) => {
                let ranks = self.ranks;
                released(
                    "moe_proxy",
                    &format!("--nic mlx5 --ranks {ranks} {args}{}", faults(hand, "300ms", "800ms")),
                )
            }
            Program::Kv(args) if own => released(
                "kv_disagg",
                &format!("--nic mlx5 --requests 600 {args}{}", faults(hand, "1s", "2s")),
            ),
            Program::Kv(args) => {
                released("kv_disagg", &format!("--nic mlx5 --end {rank} {} {args}", role(meet, rank)))
            }
            Program::Python => {
                let script = sh::root().join("python/tests/processes.py").display().to_string();
                let python = ready.python.as_ref().map(|python| python.program.display().to_string());
                let words = [python.unwrap_or_default(), script, "--meet".into(), meet.into()];
                words.into_iter().chain((!own).then(|| "--links".to_owned())).collect()
            }
        }
    }

    /// What it is started with.
    pub fn environment(&self, hand: Hand) -> Vec<(&'static str, &'static str)> {
        let mut usual = vec![
            ("NVSHMEM_SYMMETRIC_SIZE", "32M"),
            ("SHUNT_GIVE_UP", "60s"),
            ("SHUNT_CALL_DEADLINE", "120s"),
            ("SHUNT_RECOVERY_WINDOW", "20ms"),
            // A process that waits for a core is silent: ports that go down are told, and found out by that.
            ("SHUNT_SUSPECT", "1s"),
            ("SHUNT_SUSPECT_FLOOR", "1s"),
            ("SHUNT_LOG", "info"),
        ];
        if let Program::Cuda(_) = self.program {
            // A handle each for the queue pairs that `qp` makes, beside the default one.
            usual.extend([("PROGRAM_UNTIL_BACK", SECONDS), ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "4")]);
            usual.extend((hand == Hand::Own).then_some(("PROGRAM_FAULTS", "down")));
        }
        usual
    }

    /// Whether all ranks are under way, by what each has said.
    pub fn is_under_way(&self, said: &[String]) -> bool {
        let (words, of) = match self.program {
            Program::Python => (": started", said.len()),
            Program::Transfer(_) => (": connected, ", said.len()),
            // Rank 0 speaks for all.
            Program::Proxy(_) => (" ranks are connected, ", 1),
            // A decoder speaks of its prefillers.
            Program::Kv(_) => (" begins, 2 prefillers serve", DECODERS),
            _ => (" agent_started ", said.len()),
        };
        said.len() >= of && said[..of].iter().all(|said| said.contains(words))
    }

    /// What is wrong with what all ranks said: data, or nobody who left a path and went back to it.
    pub fn wrong(&self, said: &str, hand: Hand) -> Vec<String> {
        let (words, lines) = match self.program {
            Program::C => ("all as expected", RANKS),
            Program::Cuda(_) => ("launch 0, no error, 0 wrong", RANKS),
            Program::Python => (" layers right, ", RANKS),
            // Rank 0 speaks for all.
            Program::Moe(_) => ("verdict: clean", 1),
            Program::Transfer(_) | Program::Proxy(_) => (CLEAN, 1),
            // Each decoder has a verdict, where nobody started all of them.
            Program::Kv(_) => (CLEAN, if hand == Hand::Own { 1 } else { DECODERS }),
        };
        let mut wrong = Vec::new();
        let met = said.matches(words).count();
        if met != lines {
            wrong.push(format!("'{words}': expected {lines} times, got {met}"));
        }
        let behind = matches!(self.program, Program::Moe(_));
        let counts: Vec<_> = match self.program {
            Program::Transfer(_) | Program::Proxy(_) | Program::Kv(_) => {
                fields(said, "failovers").zip(fields(said, "returns")).collect()
            }
            _ => said.lines().filter_map(|line| switches(line, behind)).collect(),
        };
        if counts.len() != lines || counts.iter().any(|(failovers, back)| *failovers == 0 || *back == 0) {
            wrong.push(format!("failovers and switch-backs: expected both {lines} times, got {counts:?}"));
        }
        wrong
    }
}

/// A program of the release build, and its arguments.
fn released(program: &str, args: &str) -> Vec<String> {
    let program = sh::target_dir().join("release").join(program).display().to_string();
    [program].into_iter().chain(args.split(' ').map(str::to_owned)).collect()
}

/// Faults of a program on the transfer engine, if its own hand is to cause them.
fn faults(hand: Hand, down: &str, up: &str) -> String {
    let own = format!(" --inject {down}:0.0:down --inject {up}:0.0:up");
    if hand == Hand::Own { own } else { String::new() }
}

/// What a rank of `kv_disagg` is. Decoders listen behind the port of `meet`.
fn role(meet: &str, rank: usize) -> String {
    let (host, port) = meet.rsplit_once(':').unwrap_or((meet, ""));
    let at = |rank: usize| format!("{host}:{}", port.parse().unwrap_or(0) + 1 + rank);
    if rank < DECODERS {
        return format!("--role decode --listen {} --requests 300", at(rank));
    }
    let decoders: Vec<String> = (0..DECODERS).map(at).collect();
    format!("--role prefill --connect {}", decoders.join(","))
}

/// A number of all verdicts that have a line for each field.
fn fields<'s>(said: &'s str, name: &str) -> impl Iterator<Item = u64> + use<'s> {
    let name = format!("\"{name}\": ");
    said.lines().filter_map(move |line| line.trim().strip_prefix(&name)?.trim_end_matches(',').parse().ok())
}

/// Failovers and switch-backs that a line tells: numbers in front of the words, or behind them.
pub fn switches(line: &str, behind: bool) -> Option<(u64, u64)> {
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let number = |name: &str| -> Option<u64> {
        let at = words.iter().position(|word| *word == name)?;
        let at = if behind { at + 1 } else { at.checked_sub(1)? };
        words.get(at)?.parse().ok()
    };
    number("failovers").zip(number("switch-backs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_a_failover_and_a_switch_back_are_wanted_of_every_rank() {
        let line =
            |rank: u32| format!("PE {rank} of 4: 9 rounds, 3 failovers, 2 switch-backs, all as expected\n");
        let said: String = (0..4).map(line).collect();
        assert!(C.wrong(&said, Hand::Own).is_empty());
        assert_eq!(C.wrong(&said.replacen("3 failovers", "0 failovers", 1), Hand::Own).len(), 1);
        assert_eq!(C.wrong(&said.replacen("2 switch-backs", "0 switch-backs", 1), Hand::Own).len(), 1);
        assert_eq!(C.wrong(&said.replacen("all as expected", "wrong", 1), Hand::Own).len(), 1);
        assert_eq!(C.wrong(&said.replacen(&line(3), "", 1), Hand::Own).len(), 2);
        let moe = "layers 9 of 9  hangs 0  failovers 36  switch-backs 24  masked ranks 0\nverdict: clean\n";
        assert!(MOE.wrong(moe, Hand::Own).is_empty());
        assert_eq!(MOE.wrong(&moe.replace("backs 24", "backs 0"), Hand::Own).len(), 1);
        assert_eq!(MOE.wrong("", Hand::Own).len(), 2);
        let verdict = "{\n  \"verdict\": \"clean\",\n  \"failovers\": 2,\n  \"returns\": 1\n}\n";
        assert!(TRANSFER.wrong(verdict, Hand::Own).is_empty());
        assert_eq!(TRANSFER.wrong(&verdict.replace("returns\": 1", "returns\": 0"), Hand::Own).len(), 1);
        assert_eq!(TRANSFER.wrong("", Hand::Own).len(), 2);
    }
    #[test]
    fn each_decoder_has_a_verdict_of_its_own_between_machines() {
        let verdict =
            "{\n  \"verdict\": \"clean\",\n  \"failovers\": 2,\n  \"returns\": 1,\n  \"faults\": []\n}\n";
        assert!(
            KV.wrong(verdict, Hand::Own).is_empty() && KV.wrong(&verdict.repeat(2), Hand::Links).is_empty()
        );
        assert_eq!(KV.wrong(verdict, Hand::Links).len(), 2);
        let stayed = verdict.replace("failovers\": 2", "failovers\": 0") + verdict;
        assert_eq!(KV.wrong(&stayed, Hand::Links).len(), 1);
        assert!(PROXY.wrong(verdict, Hand::Links).is_empty());
    }

    #[test]
    fn ranks_of_kv_are_told_apart() {
        let meet = "10.0.0.1:7800";
        assert_eq!(role(meet, 1), "--role decode --listen 10.0.0.1:7802 --requests 300");
        assert_eq!(role(meet, 2), "--role prefill --connect 10.0.0.1:7801,10.0.0.1:7802");
        let said = |decoder: &str, first: &str| [first, decoder, "", ""].map(str::to_owned);
        let begins = "kv_disagg: decode.1 begins, 2 prefillers serve\n";
        assert!(KV.is_under_way(&said(begins, begins)) && !KV.is_under_way(&said("", begins)));
        let connected = "moe_proxy: 4 ranks are connected, 2 rails each\n";
        assert!(PROXY.is_under_way(&said("", connected)) && !PROXY.is_under_way(&said(connected, "")));
        assert!(!TRANSFER.is_under_way(&said("", "end 0: connected, 2 rails")));
    }
}
