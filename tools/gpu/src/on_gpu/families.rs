//! Rows of the prefix's programs: each as a job of two PEs that share the GPU, and what its lines must say.

use std::path::Path;

/// PEs of each job.
const PES: usize = 2;
/// What every job is started with.
const USUAL: [(&str, &str); 7] = [
    ("NVSHMEM_SYMMETRIC_SIZE", "32M"),
    // A handle each for the queue pairs that `qp` makes, beside the default one.
    ("NVSHMEM_IBGDA_NUM_RC_PER_PE", "4"),
    ("SHUNT_CALL_DEADLINE", "60s"),
    ("SHUNT_GIVE_UP", "60s"),
    ("SHUNT_RECOVERY_WINDOW", "20ms"),
    // Two processes take turns on one GPU: who waits for his is silent.
    ("SHUNT_SUSPECT", "1s"),
    ("SHUNT_SUSPECT_FLOOR", "1s"),
];
const TOLERANCE: &str = "NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE";
/// Each family is run so: what the row says of it, fault tolerance, and the ports that go down in turn.
const CASES: [(&str, &str, bool); 3] =
    [("no fault", "1", false), ("ports down", "1", true), ("no fault tolerance", "0", false)];
/// Options of the programs that measure: sizes that a NIC made of a processor gets through.
const SIZES: [(&str, &[&str]); 3] = [
    ("shmem_put_bw", &["-b", "4K", "-e", "1M", "-f", "4", "-c", "4", "-t", "256", "-n", "10", "-w", "2"]),
    ("shmem_put_latency", &["-b", "8", "-e", "64K", "-f", "8", "-n", "20", "-w", "2"]),
    ("shmem_atomic_bw", &["-b", "64", "-e", "4K", "-f", "4", "-c", "2", "-t", "64", "-n", "10", "-w", "2"]),
];
/// The status of a program that found no GPU, of which it says so.
const NO_GPU: i32 = 2;

/// What a run's lines must say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing was wrong at any PE; with `fault` channels have left their paths, too.
    Right { fault: bool },
    /// At least one line of figures.
    Figures,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub name: String,
    pub program: String,
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, &'static str)>,
    pub want: Want,
}

/// All jobs.
pub fn jobs(families: &[&str]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for family in families {
        jobs.extend(cases("families", family));
    }
    for (program, options) in SIZES {
        for (case, tolerance) in [("fault tolerance", "1"), ("no fault tolerance", "0")] {
            let environment = USUAL.into_iter().chain([(TOLERANCE, tolerance)]).collect();
            let arguments = options.iter().map(|option| (*option).to_owned()).collect();
            let name = format!("{program} of the prefix, {case}");
            jobs.push(Job { name, program: program.to_owned(), arguments, environment, want: Want::Figures });
        }
    }
    jobs
}

/// A program that counts what is wrong, in each case.
pub fn cases(whose: &str, program: &str) -> [Job; CASES.len()] {
    CASES.map(|(case, tolerance, fault)| {
        let mut environment = USUAL.to_vec();
        environment.push((TOLERANCE, tolerance));
        environment.extend(fault.then_some(("PROGRAM_FAULTS", "down")));
        let (name, program) = (format!("{whose}, {program}, {case}"), program.to_owned());
        Job { name, program, arguments: Vec::new(), environment, want: Want::Right { fault } }
    })
}

impl Job {
    /// What follows the launcher's name.
    pub fn command_line(&self, program: &Path) -> Vec<String> {
        let mut line = ["run", "-n", &PES.to_string(), "--"].map(str::to_owned).to_vec();
        line.push(program.display().to_string());
        line.extend(self.arguments.iter().cloned());
        line
    }
}

/// A job whose programs found no GPU: the launcher ends the others when the first one has said so.
pub fn found_none(code: Option<i32>, out: &str) -> bool {
    code == Some(NO_GPU) && out.lines().any(|line| line.trim_end().ends_with("no GPU"))
}

impl Want {
    /// What a run that ended well has found.
    ///
    /// # Errors
    /// It says too little, or that something was wrong.
    pub fn judge(self, out: &str) -> Result<String, String> {
        match self {
            Self::Right { fault } => {
                let right = out.lines().filter(|line| line.contains("launch 0, no error, 0 wrong")).count();
                if right != PES {
                    return Err(format!("{right} of {PES} PEs say that nothing was wrong"));
                }
                match failovers(out) {
                    0 if fault => Err("ports went down, and no channel left its path".to_owned()),
                    count => Ok(format!("nothing wrong at {PES} PEs, {count} failovers")),
                }
            }
            Self::Figures => {
                let figure = |line: &&str| {
                    let mut words = line.split_whitespace();
                    let bytes = words.next().and_then(|word| word.parse::<u64>().ok());
                    let value = words.nth(1).and_then(|word| word.parse::<f64>().ok());
                    bytes.is_some() && value.is_some_and(|value| value > 0.0)
                };
                let lines: Vec<&str> = out.lines().filter(figure).collect();
                // The last one is shown, so what its columns are is, too.
                let unit = out.lines().find(|line| line.contains("size(B)")).unwrap_or_default();
                let unit = unit.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
                let last = lines.last().ok_or("no line of figures")?;
                let words: Vec<&str> = last.split_whitespace().collect();
                Ok(format!(
                    "{} bytes, {}: {} {unit}, soft NIC; {} lines",
                    words[0],
                    words[1],
                    words[2],
                    lines.len()
                ))
            }
        }
    }
}

/// The sum over all PEs.
fn failovers(out: &str) -> u64 {
    let count = |line: &str| line.split(" failovers").next()?.rsplit(' ').next()?.parse::<u64>().ok();
    out.lines().filter(|line| line.contains(" failovers")).filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::{FAMILIES, MEASURES};

    const GOOD: &str = "rma: PE 0 of 2: launch 0, no error, 0 wrong, 3 failovers\n\
                        [rank 1] rma: PE 1 of 2: launch 0, no error, 0 wrong, 2 failovers\n";

    #[test]
    fn each_family_is_run_without_a_fault_with_one_and_without_fault_tolerance() {
        let jobs = jobs(&FAMILIES);
        for family in FAMILIES {
            let of: Vec<&Job> = jobs.iter().filter(|job| job.program == family).collect();
            assert_eq!(of.len(), 3);
            let with = |name, value| of.iter().filter(|job| job.environment.contains(&(name, value))).count();
            assert_eq!(
                (with("PROGRAM_FAULTS", "down"), with(TOLERANCE, "0"), with(TOLERANCE, "1")),
                (1, 1, 2)
            );
            assert_eq!(of.iter().filter(|job| job.want == Want::Right { fault: true }).count(), 1);
        }
        for name in MEASURES {
            assert_eq!(jobs.iter().filter(|job| job.program == name).count(), 2, "{name}");
        }
        let line = jobs[0].command_line(Path::new("/there/rma"));
        assert_eq!(line, ["run", "-n", "2", "--", "/there/rma"]);
    }

    #[test]
    fn a_family_is_right_when_every_pe_says_so_and_a_port_that_went_down_was_left() {
        let (calm, fault) = (Want::Right { fault: false }, Want::Right { fault: true });
        assert_eq!(fault.judge(GOOD).unwrap(), "nothing wrong at 2 PEs, 5 failovers");
        let none = GOOD.replace("3 failovers", "0 failovers").replace("2 failovers", "0 failovers");
        assert!(calm.judge(&none).is_ok() && fault.judge(&none).is_err());
        for (from, to) in
            [("launch 0", "launch 1"), ("0 wrong", "4 wrong"), ("no error", "unspecified launch failure")]
        {
            assert!(fault.judge(&GOOD.replacen(from, to, 1)).is_err(), "{to}");
        }
        assert!(calm.judge(GOOD.lines().next().unwrap()).is_err() && calm.judge("").is_err());
    }

    #[test]
    fn figures_are_there_or_it_has_failed() {
        let table = "#shmem_put_bw_uni\nsize(B)     scope     BW (GB/sec)     \n\
                     4096        None      0.512000        \n16384       None      1.024000        \n";
        assert_eq!(
            Want::Figures.judge(table).unwrap(),
            "16384 bytes, None: 1.024000 BW (GB/sec), soft NIC; 2 lines"
        );
        for wrong in ["", "size(B)     scope     BW (GB/sec)\n", "4096  None  none\n", "4096  None  0.000\n"]
        {
            assert!(Want::Figures.judge(wrong).is_err(), "{wrong}");
        }
        assert!(Want::Figures.judge("This test requires exactly two processes\n").is_err());
    }

    #[test]
    fn no_gpu_is_told_from_a_failure() {
        assert!(found_none(Some(2), "rma: no GPU\n[rank 1] rma: no GPU\n"));
        assert!(found_none(Some(2), "[rank 1] no GPU\n") && !found_none(Some(0), GOOD));
        assert!(!found_none(Some(1), "no GPU\n") && !found_none(Some(2), ""));
        assert!(!found_none(Some(2), "shunt: refused\n") && !found_none(None, "no GPU\nno GPU\n"));
    }
}
