//! `cargo xtask gpu run`: what needs a GPU, in one call, with one table.

use super::wheels;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Instant;

/// Where the program in CUDA C++ lies, below the target folder.
const CALLS: &str = "gpu/calls";
/// What compute-sanitizer looks for.
const SANITIZERS: &[&str] = &["memcheck", "racecheck", "synccheck", "initcheck"];

/// One GPU: its name and its architecture.
pub struct Found {
    name: String,
    /// `sm_90` for compute capability 9.0.
    arch: String,
}

/// The first GPU of this machine.
///
/// # Errors
/// There is none, or no driver.
pub fn find() -> Result<Found> {
    let mut query = sh::command("nvidia-smi");
    query.args(["--query-gpu=name,compute_cap", "--format=csv,noheader"]);
    let Some(text) = sh::stdout_of(&mut query) else {
        bail!("no GPU to run on: nvidia-smi is not installed or finds no driver");
    };
    parse(&text).with_context(|| format!("no GPU to run on: nvidia-smi says '{}'", text.trim()))
}

/// Reads `NVIDIA H100, 9.0`.
fn parse(text: &str) -> Option<Found> {
    let (name, capability) = text.lines().next()?.rsplit_once(',')?;
    let digits: String = capability.chars().filter(char::is_ascii_digit).collect();
    (!digits.is_empty()).then(|| Found { name: name.trim().to_owned(), arch: format!("sm_{digits}") })
}

/// Runs everything on the GPU; all of it was built before.
pub fn everything(gpu: &Found) -> Result<()> {
    let program = sh::target_dir().join(CALLS);
    let program = program.to_string_lossy();
    let sanitizer = wheels::sanitizer()?;
    println!("\n{}, {}\n{:32} {:>8} {:>10}", gpu.name, gpu.arch, "run", "result", "seconds");
    let mut failed = 0;
    failed += usize::from(!row("library calls", &mut sh::command(&program)));
    for tool in SANITIZERS {
        let mut command = sh::command(&sanitizer.to_string_lossy());
        command.args(["--tool", tool, "--error-exitcode", "9"]).arg(&*program);
        failed += usize::from(!row(&format!("library calls, {tool}"), &mut command));
    }
    if failed != 0 {
        bail!("{failed} runs failed on the GPU");
    }
    Ok(())
}

/// One line of the table; true if the run ended well.
fn row(what: &str, command: &mut Command) -> bool {
    let start = Instant::now();
    let output = command.output();
    let ended_well = output.as_ref().is_ok_and(|output| output.status.success());
    let word = if ended_well { "ok" } else { "FAILED" };
    println!("{what:32} {word:>8} {:>10.2}", start.elapsed().as_secs_f64());
    match output {
        Ok(output) if !ended_well => {
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            println!("{}\n{}", sh::last_lines(&out, 20), sh::last_lines(&err, 20));
        }
        Err(error) => println!("cannot start `{}`: {error}", sh::shown(command)),
        Ok(_) => {}
    }
    ended_well
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
        assert!(row("true", &mut sh::command("true")));
        assert!(!row("false", &mut sh::command("false")));
        assert!(!row("nothing", &mut sh::command("there-is-no-such-program")));
    }
}
