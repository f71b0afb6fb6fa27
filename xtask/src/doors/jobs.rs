//! The programs, and what each must say at its end.

use super::compiled;
use crate::python::{self, Interpreter};
use anyhow::Result;
use shunt_task::sh;
use std::path::PathBuf;

/// Ranks of most.
pub const RANKS: usize = 4;
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
const PYTHON: Job = job("python", Program::Python);

/// What CI runs.
pub const SHORT: &[Job] = &[C, RMA, COLLECTIVE, MOE, MOE_NORMAL, TRANSFER, PYTHON];
/// What CI runs of those that are compiled, where the rest has scenarios of its own.
pub const COMPILED: &[Job] = &[C, RMA, SIGNAL, TRANSFER];
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
    /// What is typed. `meet`: where ranks of Python's own group find each other.
    pub fn words(&self, ready: &Ready, hand: Hand, meet: &str) -> Vec<String> {
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
                let faults = if own { " --inject 1s:0.0:down --inject 3s:0.0:up" } else { "" };
                released("transfer_bw", &format!("--nic mlx5 {args}{faults}"))
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

    /// What a rank says once it is under way.
    pub fn started(&self) -> &'static str {
        match self.program {
            Program::Python => ": started",
            Program::Transfer(_) => ": connected, ",
            _ => " agent_started ",
        }
    }

    /// What is wrong with what all ranks said: data, or nobody who left a path and went back to it.
    pub fn wrong(&self, said: &str) -> Vec<String> {
        let (words, lines) = match self.program {
            Program::C => ("all as expected", RANKS),
            Program::Cuda(_) => ("launch 0, no error, 0 wrong", RANKS),
            Program::Python => (" layers right, ", RANKS),
            // Rank 0 speaks for all.
            Program::Moe(_) => ("verdict: clean", 1),
            Program::Transfer(_) => ("\"verdict\": \"clean\"", 1),
        };
        let mut wrong = Vec::new();
        let met = said.matches(words).count();
        if met != lines {
            wrong.push(format!("'{words}': expected {lines} times, got {met}"));
        }
        let behind = matches!(self.program, Program::Moe(_));
        let counts: Vec<_> = match self.program {
            Program::Transfer(_) => {
                field(said, "failovers").zip(field(said, "returns")).into_iter().collect()
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

/// A number of a verdict that has a line for each field.
fn field(said: &str, name: &str) -> Option<u64> {
    let (_, behind) = said.split_once(&format!("\"{name}\": "))?;
    behind.split([',', '\n']).next()?.parse().ok()
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
        assert!(C.wrong(&said).is_empty());
        assert_eq!(C.wrong(&said.replacen("3 failovers", "0 failovers", 1)).len(), 1);
        assert_eq!(C.wrong(&said.replacen("2 switch-backs", "0 switch-backs", 1)).len(), 1);
        assert_eq!(C.wrong(&said.replacen("all as expected", "wrong", 1)).len(), 1);
        assert_eq!(C.wrong(&said.replacen(&line(3), "", 1)).len(), 2);
        let moe = "layers 9 of 9  hangs 0  failovers 36  switch-backs 24  masked ranks 0\nverdict: clean\n";
        assert!(MOE.wrong(moe).is_empty());
        assert_eq!(MOE.wrong(&moe.replace("backs 24", "backs 0")).len(), 1);
        assert_eq!(MOE.wrong("").len(), 2);
        let verdict = "{\n  \"verdict\": \"clean\",\n  \"failovers\": 2,\n  \"returns\": 1\n}\n";
        assert!(TRANSFER.wrong(verdict).is_empty());
        assert_eq!(TRANSFER.wrong(&verdict.replace("returns\": 1", "returns\": 0")).len(), 1);
        assert_eq!(TRANSFER.wrong("").len(), 2);
    }
}
