//! `cargo xtask gpu run`: what needs a GPU, in one call, with one table.

use super::families::{self, Want};
use super::programs::{self, Programs};
use crate::gpu::parts::Arch;
use crate::gpu::wheels;
use crate::prefix;
use anyhow::{Result, bail};
use shunt_task::sh;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What compute-sanitizer looks for.
const SANITIZERS: &[&str] = &["memcheck", "racecheck", "synccheck", "initcheck"];
/// Rows of `gpu_check`.
const CHECKS: &[&str] = &["kernels", "moe", "normal", "graph", "rates", "switch", "watch"];
/// What a run may take before it is killed. A stream of two seconds is done in a few; kernels that spin are not.
const LIMIT: Duration = Duration::from_secs(120);
/// The same of hundreds of clusters, or under compute-sanitizer, where kernels are some hundred times slower.
const LONG_LIMIT: Duration = Duration::from_secs(600);
/// Without it the driver loads a kernel's code at its first launch, and may wait for kernels that spin until then.
const ENVIRONMENT: (&str, &str) = ("CUDA_MODULE_LOADING", "EAGER");
/// The fault menu of the drill: the rail that is hurt, and how, from 300 ms of a stream of two seconds on. PE 0 sends,
/// so what acts on requests that arrive stands at PE 1. Every one is survived, and each had hits in the same stream by
/// threads (`--device cpu`).
const FAULTS: &[(&str, &str)] = &[
    ("0.0", "down"),
    ("0.0", "flap=50ms/5"),
    ("0.0", "blackhole-tx"),
    ("0.0", "blackhole-rx"),
    ("0.0", "drop-acks"),
    ("0.0", "drop=0.01"),
    ("0.0", "delay=1ms"),
    ("0.0", "dup=0.05"),
    ("0.0", "reorder=4"),
    ("0.0", "slow=1"),
    ("0.0", "late-cqe=1ms"),
    ("0.0", "cqe-error=0x15"),
    ("0.0", "lost-doorbell"),
    ("0.0", "nic-gone"),
    ("0.0", "gid-change"),
    ("1.0", "partial-write=2"),
    ("1.0", "placement-delay=100us"),
    ("1.0", "rnr=50ms"),
];
/// Drills that need more than one fault, or an option: names and arguments.
const DRILLS: &[(&str, &str)] = &[
    ("down and back", "--inject 300ms:0.0:down --inject 900ms:0.0:up"),
    ("down and back, --signal cleared", "--signal cleared --inject 300ms:0.0:down --inject 900ms:0.0:up"),
    ("down and back, --signal add", "--signal add --inject 300ms:0.0:down --inject 900ms:0.0:up"),
    ("down and back, --mode amo", "--mode amo --inject 300ms:0.0:down --inject 900ms:0.0:up"),
    ("down and back, --mode p", "--mode p --inject 300ms:0.0:down --inject 900ms:0.0:up"),
    ("down, --fence time", "--fence time --inject 300ms:0.0:down"),
    ("cqe-error=0x15, --fence time", "--fence time --inject 300ms:0.0:cqe-error=0x15"),
    ("lost-atomic-response", "--signal add --inject 300ms:0.0:lost-atomic-response"),
    ("event-lost", "--inject 300ms:0.0:event-lost --inject 400ms:0.0:down"),
    ("event-late=50ms", "--inject 300ms:0.0:event-late=50ms --inject 400ms:0.0:down"),
    ("missing-flush", "--inject 300ms:0.0:missing-flush --inject 400ms:0.0:cqe-error=0x15"),
    ("cqe-garbage-init", "--inject 300ms:0.0:cqe-garbage-init --inject 400ms:0.0:down --inject 900ms:0.0:up"),
    ("fw-timeout=100ms", "--inject 300ms:0.0:fw-timeout=100ms --inject 350ms:0.0:down"),
    ("oob-cut=100ms", "--inject 300ms:0:oob-cut=100ms --inject 350ms:0.0:down"),
];
/// The status of a program that had no GPU to run on.
const NO_GPU: i32 = 3;

/// One GPU: its name and its architecture.
pub struct Found {
    name: String,
    /// `sm_90` for compute capability 9.0.
    arch: String,
}

/// The first GPU of this machine. Without one every row that was asked for is said not to have been run.
///
/// # Errors
/// There is none, or no driver, or no row of that name.
pub fn find(only: Option<&str>) -> Result<Found> {
    let rows = select(rows(&Programs::built()), only)?;
    // Not at the workspace's root: a packed folder is carried without it.
    let mut query = Command::new("nvidia-smi");
    query.args(["--query-gpu=name,compute_cap", "--format=csv,noheader"]);
    let text = sh::stdout_of(&mut query);
    if let Some(found) = text.as_deref().and_then(parse) {
        return Ok(found);
    }
    println!("{}", head("no GPU"));
    rows.iter().for_each(|row| println!("{}", line(&row.name, "not run: no GPU", 0.0, "")));
    match text {
        None => bail!(
            "no GPU to run on: nvidia-smi is not installed or finds no driver; {} rows not run",
            rows.len()
        ),
        Some(text) => {
            bail!("no GPU to run on: nvidia-smi says '{}'; {} rows not run", text.trim(), rows.len())
        }
    }
}

/// Reads `NVIDIA H100, 9.0`.
fn parse(text: &str) -> Option<Found> {
    let (name, capability) = text.lines().next()?.rsplit_once(',')?;
    let digits: String = capability.chars().filter(char::is_ascii_digit).collect();
    (!digits.is_empty()).then(|| Found { name: name.trim().to_owned(), arch: format!("sm_{digits}") })
}

/// A line of the table, and what makes it.
struct Row {
    name: String,
    /// Why it is not there, if it could not be had.
    program: Result<PathBuf, String>,
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
    limit: Duration,
    /// Where its libraries are, if not where it was linked.
    libraries: Option<PathBuf>,
    /// What its lines must say beside its status.
    want: Option<Want>,
}

impl Row {
    fn new(name: impl Into<String>, program: &Path, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self {
            name: name.into(),
            program: Ok(program.to_owned()),
            arguments,
            environment: Vec::new(),
            limit: LIMIT,
            libraries: None,
            want: None,
        }
    }

    /// Takes longer.
    fn long(self) -> Self {
        Self { limit: LONG_LIMIT, ..self }
    }
}

/// The whole table.
fn rows(programs: &Programs) -> Vec<Row> {
    let Programs { check, stream, calls, deep_ep, libraries, sanitizer, .. } = programs;
    let mut rows = vec![Row::new("library calls", calls, &[])];
    // Without a device state every call answers that there is none: no kernel may hang or trap for that.
    let alone = deep_ep.iter().filter(|(name, _)| name != prefix::DEEP_EP_JOB);
    rows.extend(alone.map(|(name, program)| {
        let row = Row::new(format!("DeepEP's roles, {name}"), program, &[]);
        Row { libraries: libraries.clone(), ..row }
    }));
    let rounds = families::cases("DeepEP's roles", prefix::DEEP_EP_JOB);
    rows.extend(rounds.into_iter().map(|job| of_job(programs, deep_ep, job)));
    rows.extend(of_prefix(programs));
    rows.extend(CHECKS.iter().map(|name| Row::new(*name, check, &[name]).long()));
    let quiet = ["--device", "gpu", "--duration", "2s", "--rail-gbps", "10", "-t", "32"];
    let drill =
        |name: &str, more: &[&str]| Row::new(format!("drill, {name}"), stream, &[&quiet, more].concat());
    rows.push(Row::new("stream, no fault", stream, &[&quiet[..], &["--watch"]].concat()));
    for (place, fault) in FAULTS {
        rows.push(drill(fault, &["--inject", &format!("300ms:{place}:{fault}")]));
    }
    for (name, arguments) in DRILLS {
        rows.push(drill(name, &arguments.split(' ').collect::<Vec<_>>()));
    }
    let calls = calls.to_string_lossy();
    let check = check.to_string_lossy();
    for tool in SANITIZERS {
        let watched = |name: &str, program: &[&str]| {
            let tool_is = ["--tool", tool, "--error-exitcode", "9"];
            let row = Row::new(format!("{name}, {tool}"), Path::new(""), &[&tool_is, program].concat());
            Row { program: sanitizer.clone(), ..row }.long()
        };
        rows.push(watched("library calls", &[&calls]));
        // A scenario of each entry point: the lengths and offsets of puts are looked at without a sanitizer.
        rows.push(watched("kernels", &[&check, "kernels", "--each"]));
        rows.push(watched("moe", &[&check, "moe", "--each"]));
        rows.push(watched("normal", &[&check, "normal", "--each"]));
    }
    rows
}

/// The prefix's programs, each a job of PEs that share the GPU.
fn of_prefix(programs: &Programs) -> Vec<Row> {
    let jobs = families::jobs(&prefix::FAMILIES).into_iter();
    jobs.map(|job| of_job(programs, &programs.prefix, job)).collect()
}

/// The row of a job, whose program is among these.
fn of_job(programs: &Programs, files: &[(String, PathBuf)], job: families::Job) -> Row {
    let file = files.iter().find(|(name, _)| *name == job.program).map(|(_, file)| file);
    let line = file.map(|file| job.command_line(file));
    let program = line.as_ref().map(|_| programs.launcher.clone());
    Row {
        name: job.name,
        program: program.ok_or_else(|| format!("there is no program {}", job.program)),
        arguments: line.unwrap_or_default(),
        environment: job.environment,
        limit: LIMIT,
        libraries: programs.libraries.clone(),
        want: Some(job.want),
    }
}

/// Starts each of the prefix's programs as its row does, on a machine with a GPU or without; answers with how many
/// found one.
///
/// # Errors
/// One neither ends well nor says that there is no GPU.
pub fn start_of_prefix(programs: &Programs) -> Result<usize> {
    let outcomes: Vec<Outcome> = of_prefix(programs).iter().map(outcome).collect();
    if outcomes.contains(&Outcome::Failed) {
        bail!("a packed program of the prefix does not run");
    }
    Ok(outcomes.iter().filter(|outcome| **outcome == Outcome::Passed).count())
}

/// Those whose name holds a text.
fn select(rows: Vec<Row>, only: Option<&str>) -> Result<Vec<Row>> {
    let Some(only) = only else { return Ok(rows) };
    let names: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let chosen: Vec<Row> = rows.into_iter().filter(|row| row.name.contains(only)).collect();
    if chosen.is_empty() {
        return sh::usage(format!("--only {only}: no row's name holds that; rows are: {}", names.join("; ")));
    }
    Ok(chosen)
}

/// Runs everything on the GPU, or what was asked for: from a packed folder, or what this builds; the device code was
/// built before.
pub fn everything(gpu: &Found, only: Option<&str>, packed: Option<&Path>, arches: &[&Arch]) -> Result<()> {
    let mut programs = packed.map_or_else(Programs::built, Programs::packed);
    if packed.is_none() {
        programs::build(arches)?;
        // Only its own rows fail where it cannot be had, and nobody fetches it who does not run them.
        if select(rows(&programs), only)?.iter().any(|row| row.program.is_err()) {
            programs.sanitizer = wheels::sanitizer().map_err(|error| format!("{error:#}"));
        }
    }
    programs.all_there()?;
    let rows = select(rows(&programs), only)?;
    println!("\n{}", head(&format!("{}, {}", gpu.name, gpu.arch)));
    let failed = rows.iter().filter(|row| !run(row)).count();
    if failed != 0 {
        bail!("{failed} of {} rows failed on the GPU", rows.len());
    }
    println!("{} rows, all as they should be", rows.len());
    Ok(())
}

fn head(where_: &str) -> String {
    format!("{where_}\n{}", line("row", "result", f64::NAN, "found"))
}

fn line(name: &str, result: &str, seconds: f64, found: &str) -> String {
    let seconds = if seconds.is_nan() { "seconds".to_owned() } else { format!("{seconds:.2}") };
    format!("{name:36} {result:>16} {seconds:>9}  {found}").trim_end().to_owned()
}

/// How a run ended.
struct Ended {
    /// None: by a signal.
    code: Option<i32>,
    /// Killed because its time was over.
    late: bool,
    out: String,
    err: String,
}

/// Starts a row's program and waits for its end, or makes it.
fn attempt(row: &Row) -> Result<Ended, String> {
    let program = row.program.as_ref().map_err(Clone::clone)?;
    let cannot = |error: std::io::Error| format!("cannot start {}: {error}", program.display());
    let mut command = Command::new(program);
    command.args(&row.arguments).env(ENVIRONMENT.0, ENVIRONMENT.1).stdin(Stdio::null());
    command.envs(row.environment.iter().copied());
    command.envs(row.libraries.as_ref().map(|folder| ("LD_LIBRARY_PATH", folder)));
    // A group of its own: compute-sanitizer has the program it watches as a child, which must go with it.
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let start = Instant::now();
    let mut child = command.spawn().map_err(cannot)?;
    let (out, err) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            break status;
        }
        if !late && start.elapsed() >= row.limit {
            late = true;
            // The shell's own: the program of that name is a package of its own.
            let group = format!("kill -s KILL -- -{}", child.id());
            let killed = Command::new("sh").args(["-c", &group]).status();
            if !killed.is_ok_and(|status| status.success()) {
                child.kill().map_err(cannot)?;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(Ended { code: status.code(), late, out: text(out), err: text(err) })
}

/// Reads to the end, so that nobody waits for a full pipe.
fn read_all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is shown.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// What came of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    NotRun,
    Failed,
}

/// One line of the table; true if the run ended well.
fn run(row: &Row) -> bool {
    outcome(row) == Outcome::Passed
}

fn outcome(row: &Row) -> Outcome {
    let start = Instant::now();
    let ended = attempt(row);
    let seconds = start.elapsed().as_secs_f64();
    let ended = match ended {
        Ok(ended) => ended,
        Err(why) => {
            println!("{}\n{why}", line(&row.name, "FAILED", seconds, ""));
            return Outcome::Failed;
        }
    };
    let last = ended.out.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let judged = match &row.want {
        Some(want) if ended.code == Some(0) => want.judge(&ended.out),
        _ => Ok(last.trim().to_owned()),
    };
    // Of the main program 3 is "no path left", and of `gpu_check` that nothing was run: neither is a pass.
    let of_check = row.program.as_ref().is_ok_and(|program| program.ends_with("gpu_check"));
    let none = of_check && ended.code == Some(NO_GPU)
        || row.want.is_some() && families::found_none(ended.code, &ended.out);
    let (outcome, word) = match ended.code {
        Some(0) if !ended.late && judged.is_ok() => (Outcome::Passed, "ok"),
        _ if none => (Outcome::NotRun, "not run: no GPU"),
        _ => (Outcome::Failed, "FAILED"),
    };
    let (Ok(found) | Err(found)) = judged;
    println!("{}", line(&row.name, word, seconds, if none { "" } else { &found }));
    if ended.late {
        println!("killed after {} s", row.limit.as_secs());
    }
    if outcome == Outcome::Failed || of_check && none {
        println!("{}\n{}", sh::last_lines(&ended.out, 20), sh::last_lines(&ended.err, 20));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_read_from_the_drivers_words() {
        let found = parse("NVIDIA H100 80GB HBM3, 9.0\nNVIDIA H100 80GB HBM3, 9.0\n").unwrap();
        assert_eq!((found.name.as_str(), found.arch.as_str()), ("NVIDIA H100 80GB HBM3", "sm_90"));
        assert_eq!(parse("NVIDIA B200, 10.0").unwrap().arch, "sm_100");
        assert!(parse("No devices were found").is_none() && parse("").is_none());
    }

    #[test]
    fn a_run_that_fails_is_told_from_one_that_does_not() {
        let run = |program: &str| run(&Row::new(program, Path::new(program), &[]));
        assert!(run("true"));
        assert!(!run("false"));
        assert!(!run("there-is-no-such-program"));
    }

    /// Also one that says that it had no GPU.
    #[test]
    fn what_was_not_run_has_not_passed() {
        assert!(!run(&Row::new("nothing", Path::new("sh"), &["-c", "exit 3"])));
    }

    /// What hangs is ended with all that it started, and has failed.
    #[test]
    fn a_run_has_a_limit() {
        let hangs = Row::new("hangs", Path::new("sh"), &["-c", "sleep 100 & echo on; wait"]);
        let hangs = Row { limit: Duration::from_millis(300), ..hangs };
        let ended = attempt(&hangs).unwrap();
        assert!(ended.late && ended.code.is_none());
        assert_eq!(ended.out, "on\n");
        assert!(!run(&hangs));
    }

    /// One that ends with 0 and does not say that all was right has not passed.
    #[test]
    fn what_a_program_of_the_prefix_says_counts() {
        let job = |says: &str, code: i32| {
            let script = format!("printf '{says}'; exit {code}");
            let row = Row::new("a family", Path::new("sh"), &["-c", &script]);
            outcome(&Row { want: Some(Want::Right { fault: true }), ..row })
        };
        let right = "launch 0, no error, 0 wrong, 1 failovers\\n";
        assert_eq!(job(&right.repeat(2), 0), Outcome::Passed);
        assert_eq!(job(right, 0), Outcome::Failed);
        assert_eq!(job(&right.repeat(2), 1), Outcome::Failed);
        assert_eq!(job("rma: no GPU\\n[rank 1] rma: no GPU\\n", 2), Outcome::NotRun);
        assert_eq!(job("rma: no GPU\\n", 1), Outcome::Failed);
    }

    #[test]
    fn kernels_are_loaded_before_any_spins() {
        let shows = Row::new("shows", Path::new("sh"), &["-c", "echo $CUDA_MODULE_LOADING"]);
        assert_eq!(attempt(&shows).unwrap().out, "EAGER\n");
    }

    /// Its rows alone: what needs none still runs.
    #[test]
    fn a_sanitizer_that_is_not_there_fails_its_own_rows() {
        let rows = rows(&Programs { sanitizer: Err("no network".to_owned()), ..Programs::built() });
        let (without, with): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(|row| row.program.is_err());
        assert_eq!(without.len(), 4 * SANITIZERS.len());
        assert!(without.iter().all(|row| SANITIZERS.iter().any(|tool| row.name.ends_with(tool))));
        assert!(!with.is_empty() && !run(&without[0]));
    }

    #[test]
    fn rows_are_chosen_by_what_their_names_hold() {
        let all = || rows(&Programs { sanitizer: Ok(PathBuf::new()), ..Programs::built() });
        assert_eq!(select(all(), None).unwrap().len(), all().len());
        let names = |only| -> Vec<String> {
            select(all(), Some(only)).unwrap().into_iter().map(|row| row.name).collect()
        };
        assert_eq!(names("partial-write"), ["drill, partial-write=2"]);
        assert_eq!(names("graph"), ["graph"]);
        assert_eq!(names("families").len(), 3 * prefix::FAMILIES.len());
        assert_eq!(names("DeepEP's roles, internode").len(), 3);
        assert!(select(all(), Some("internode")).unwrap().iter().all(|row| row.want.is_some()));
        assert!(select(all(), Some("families")).unwrap().iter().all(|row| row.program.is_ok()));
        let refused = select(all(), Some("no such row")).err().unwrap().to_string();
        assert!(refused.contains("no such row") && refused.contains("drill, down;"), "{refused}");
    }

    /// Only small writes, credits, arrive at the sender: there these faults find nothing to hurt.
    #[test]
    fn faults_of_what_arrives_stand_at_the_receiver() {
        let arriving = ["partial-write", "placement-delay", "rnr"];
        for (place, fault) in FAULTS {
            let name = fault.split('=').next().unwrap();
            assert_eq!(*place == "1.0", arriving.contains(&name), "{place} {fault}");
        }
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let rows = rows(&Programs { sanitizer: Ok(PathBuf::new()), ..Programs::built() });
        let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), rows.len());
        assert!(rows.len() > FAULTS.len() + DRILLS.len() + CHECKS.len() + SANITIZERS.len());
    }
}
