//! `cargo xtask gpu run`: what needs a GPU, in one call, with one table.

use super::wheels;
use crate::{prefix, sh};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Where the program in CUDA C++ lies, below the target folder.
const CALLS: &str = "gpu/calls";
/// What compute-sanitizer looks for.
const SANITIZERS: &[&str] = &["memcheck", "racecheck", "synccheck", "initcheck"];
/// Rows of `gpu_check`.
const CHECKS: &[&str] = &["kernels", "graph", "rates", "switch"];
/// Scenarios that compute-sanitizer looks on at: kernels are some hundred times slower under it.
const WATCHED: &str = "12";
/// The fault menu of the drill: what is hurt, from 300 ms of a stream of two seconds on. Every one is survived.
const FAULTS: &[&str] = &[
    "down",
    "flap=50ms/5",
    "blackhole-tx",
    "blackhole-rx",
    "drop-acks",
    "drop=0.01",
    "delay=1ms",
    "dup=0.05",
    "reorder=4",
    "partial-write=2",
    "cqe-error=0x15",
    "lost-doorbell",
    "nic-gone",
    "placement-delay=100us",
];
/// The status of a program that had no GPU to run on.
const NO_GPU: i32 = 3;

/// One GPU: its name and its architecture.
pub struct Found {
    name: String,
    /// `sm_90` for compute capability 9.0.
    arch: String,
}

/// The first GPU of this machine. Without one every row is said not to have been run.
///
/// # Errors
/// There is none, or no driver.
pub fn find() -> Result<Found> {
    let mut query = sh::command("nvidia-smi");
    query.args(["--query-gpu=name,compute_cap", "--format=csv,noheader"]);
    let text = sh::stdout_of(&mut query);
    if let Some(found) = text.as_deref().and_then(parse) {
        return Ok(found);
    }
    println!("{}", head("no GPU"));
    let rows = rows(Path::new(""), Path::new(""), Path::new(""));
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
    program: PathBuf,
    arguments: Vec<String>,
}

impl Row {
    fn new(name: impl Into<String>, program: &Path, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { name: name.into(), program: program.to_owned(), arguments }
    }
}

/// The whole table: programs lie in `bin`, the program in CUDA C++ is `calls`.
fn rows(bin: &Path, calls: &Path, sanitizer: &Path) -> Vec<Row> {
    let (check, stream) = (bin.join("gpu_check"), bin.join("shmem_put_bw"));
    let mut rows = vec![Row::new("library calls", calls, &[])];
    // Without a device state every call answers that there is none: no kernel may hang or trap for that.
    let of_deep_ep = |name| Row::new(format!("DeepEP's roles, {name}"), &prefix::deep_ep_program(name), &[]);
    rows.extend(prefix::deep_ep_programs().map(of_deep_ep));
    rows.extend(CHECKS.iter().map(|name| Row::new(*name, &check, &[name])));
    let quiet = ["--device", "gpu", "--duration", "2s", "--rail-gbps", "10", "-t", "32", "--watch"];
    rows.push(Row::new("stream, no fault", &stream, &quiet));
    for fault in FAULTS {
        let inject = format!("300ms:0.0:{fault}");
        let mut arguments = quiet[..quiet.len() - 1].to_vec();
        arguments.extend(["--inject", &inject]);
        rows.push(Row::new(format!("drill, {fault}"), &stream, &arguments));
    }
    let back = ["--inject", "300ms:0.0:down", "--inject", "900ms:0.0:up"];
    rows.push(Row::new("drill, down and back", &stream, &[&quiet[..quiet.len() - 1], &back].concat()));
    let calls = calls.to_string_lossy();
    let check = check.to_string_lossy();
    for tool in SANITIZERS {
        let tool_is = ["--tool", tool, "--error-exitcode", "9"];
        rows.push(Row::new(
            format!("library calls, {tool}"),
            sanitizer,
            &[&tool_is[..], &[&*calls]].concat(),
        ));
        let watched = [&tool_is[..], &[&*check, "kernels", "--first", WATCHED]].concat();
        rows.push(Row::new(format!("kernels, {tool}"), sanitizer, &watched));
    }
    rows
}

/// Runs everything on the GPU; the device code was built before.
pub fn everything(gpu: &Found) -> Result<()> {
    let mut build = sh::command("cargo");
    build.args(["build", "--release", "-p", "shunt-bench", "--bins"]);
    sh::capture(&mut build).context("the programs that launch kernels do not build")?;
    prefix::run(&["--deep-ep".to_owned()])?;
    let target = sh::target_dir();
    let rows = rows(&target.join("release"), &target.join(CALLS), &wheels::sanitizer()?);
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
    format!("{name:32} {result:>16} {seconds:>9}  {found}").trim_end().to_owned()
}

/// One line of the table; true if the run ended well.
fn run(row: &Row) -> bool {
    let start = Instant::now();
    let mut command = Command::new(&row.program);
    let output = command.args(&row.arguments).output();
    let seconds = start.elapsed().as_secs_f64();
    let code = output.as_ref().ok().and_then(|output| output.status.code());
    // Of the main program 3 is "no path left", and of `gpu_check` that nothing was run: neither is a pass.
    let without = code == Some(NO_GPU) && row.program.ends_with("gpu_check");
    let word = match code {
        Some(0) => "ok",
        _ if without => "not run: no GPU",
        _ => "FAILED",
    };
    let text = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let last = text.as_ref().ok().and_then(|text| text.lines().rfind(|line| !line.trim().is_empty()));
    println!("{}", line(&row.name, word, seconds, last.unwrap_or_default().trim()));
    match output {
        Ok(output) if code != Some(0) => {
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            println!("{}\n{}", sh::last_lines(&out, 20), sh::last_lines(&err, 20));
        }
        Err(error) => println!("cannot start {}: {error}", row.program.display()),
        Ok(_) => {}
    }
    code == Some(0)
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

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let rows = rows(Path::new("bin"), Path::new("calls"), Path::new("sanitizer"));
        let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), rows.len());
        assert!(rows.len() > FAULTS.len() + CHECKS.len() + SANITIZERS.len());
    }
}
