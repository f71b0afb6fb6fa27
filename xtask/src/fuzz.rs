//! `cargo xtask fuzz`: the targets of `tests/fuzz` under libFuzzer.
//!
//! Coverage comes from flags of the compiler that the stable toolchain has, so there is one toolchain for all. Only our
//! own packages get them: this program stands in the compiler's place for those, and what others wrote is taken as
//! `cargo test` builds it.

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub const SUMMARY: &str = "parsers of what strangers send, coverage-guided, from the corpus that is kept";
pub const HELP: &str = "fuzz [--minutes N | --seconds N | --short] [--only TARGET]... [--minimise]
fuzz --only TARGET --input FILE

Builds the targets of tests/fuzz with coverage and libFuzzer (a C++ compiler is needed), and runs one after the other
from the corpus in tests/fuzz/corpus/TARGET, its seeds, and what earlier runs found (target/fuzz/TARGET/found). Prints
one table. An input that breaks something is kept in target/fuzz/TARGET/ and fails the task; run it again with
`cargo xtask fuzz --only TARGET --input FILE`.

  --minutes N   so much of a processor's time for each target (default 1): on a busy machine it takes longer. A target
                that has not had it after four times as long and a minute is ended; the table says what each has had,
                and with less than half of it the task fails
  --seconds N   the same in seconds
  --short       8 seconds each
  --only TARGET packet, mailbox, uverbs, bootstrap or control; may be repeated
  --input FILE  runs this input once, and nothing else
  --minimise    afterwards the corpus in tests/fuzz becomes the smallest set of inputs that reaches as much";

const TARGETS: &[&str] = &["packet", "mailbox", "uverbs", "bootstrap", "control"];
/// Seconds of a target with `--short`.
const SHORT: u64 = 8;
/// Longest input that is tried.
const LENGTH_MAX: u32 = 4096;
/// Longest input that `--minimise` keeps, and how many: the corpus stays small.
const KEPT_BYTES: u64 = 1024;
/// Set for the compiler that this program stands in for.
const AS_COMPILER: &str = "SHUNT_FUZZ_COMPILER";
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// What a call asks for.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    seconds: u64,
    only: Vec<String>,
    input: Option<String>,
    minimise: bool,
}

/// What libFuzzer said of a target at last, and what the target had of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Said {
    /// Seconds of processor time.
    processor: f64,
    /// Seconds by the clock.
    wall: f64,
    runs: u64,
    coverage: u64,
    corpus: u64,
}

/// Stands in for the compiler if it was started so: our packages get coverage, build scripts do not.
pub fn as_compiler() -> Option<ExitCode> {
    std::env::var_os(AS_COMPILER)?;
    let mut args = std::env::args_os().skip(1);
    let mut compiler = Command::new(args.next()?);
    let args: Vec<_> = args.collect();
    let is_code = args.iter().any(|arg| arg == "--crate-name")
        && !args.iter().any(|arg| arg == "build_script_build" || arg == "___");
    if is_code {
        compiler.args(FLAGS);
    }
    let status = compiler.args(args).status();
    Some(
        status
            .ok()
            .and_then(|status| status.code())
            .map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)),
    )
}

fn build() -> Result<PathBuf> {
    if !sh::exists("c++") {
        bail!("there is no C++ compiler (c++), which libFuzzer is built with: scripts/setup-debian.sh");
    }
    // A copy: cargo may have built this program again, and what runs may have no name any more.
    let this = sh::target_dir().join("fuzz/compiler");
    fs::create_dir_all(sh::target_dir().join("fuzz"))?;
    fs::copy("/proc/self/exe", &this).with_context(|| this.display().to_string())?;
    let mut cargo = sh::cargo();
    cargo.args(["build", "--quiet", "--profile", "test", "-p", "shunt-fuzz", "--features", "libfuzzer"]);
    sh::run(cargo.env("RUSTC_WORKSPACE_WRAPPER", this).env(AS_COMPILER, "1"))?;
    Ok(sh::target_dir().join("debug/shunt-fuzz"))
}

fn asked(args: &[String]) -> Result<Asked> {
    let mut asked = Asked { seconds: 60, only: vec![], input: None, minimise: false };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || match args.next() {
            Some(value) => Ok(value.clone()),
            None => sh::usage(format!("{arg} needs a value")),
        };
        let number = |text: String| match text.parse::<u64>() {
            Ok(number) if number > 0 => Ok(number),
            _ => sh::usage(format!("'{text}' is no number above 0")),
        };
        match arg.as_str() {
            "--minutes" => asked.seconds = 60 * number(value()?)?,
            "--seconds" => asked.seconds = number(value()?)?,
            "--short" => asked.seconds = SHORT,
            "--minimise" => asked.minimise = true,
            "--input" => asked.input = Some(value()?),
            "--only" => {
                let name = value()?;
                if !TARGETS.contains(&name.as_str()) {
                    return sh::usage(format!(
                        "no target is called '{name}'; there are {}",
                        TARGETS.join(" ")
                    ));
                }
                asked.only.push(name);
            }
            other => return sh::usage(format!("unknown argument '{other}'")),
        }
    }
    if asked.input.is_some() && asked.only.len() != 1 {
        return sh::usage("--input needs --only TARGET");
    }
    Ok(asked)
}

pub fn run(args: &[String]) -> Result<()> {
    let asked = asked(args)?;
    let program = build()?;
    if let Some(input) = &asked.input {
        let scratch = Scratch::new()?;
        return sh::run(scratch.fuzzer(&program, &asked.only[0]).arg(input));
    }
    let count = all(&program, &asked)?;
    if asked.minimise {
        for target in chosen(&asked) {
            minimise(&program, target)?;
        }
    }
    match count.failed {
        0 => Ok(()),
        failed => bail!("{failed} targets have findings"),
    }
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    let asked = asked(&["--short".to_owned()])?;
    all(&build()?, &asked)
}

fn chosen(asked: &Asked) -> impl Iterator<Item = &'static str> {
    TARGETS.iter().copied().filter(|name| asked.only.is_empty() || asked.only.iter().any(|only| only == name))
}

/// Runs the targets that were asked for, and prints the table.
fn all(program: &Path, asked: &Asked) -> Result<Count> {
    let mut count = Count::default();
    let mut rows = Vec::new();
    for target in chosen(asked) {
        println!("{target}: {} s", asked.seconds);
        let (said, finding) = one(program, target, asked.seconds)?;
        let word = finding.as_deref().unwrap_or("none");
        let Said { processor, wall, runs, coverage, corpus } = said;
        rows.push(format!(
            "| {target} | {processor:.0} | {wall:.0} | {runs} | {coverage} | {corpus} | {word} |"
        ));
        count.failed += usize::from(finding.is_some());
        count.passed += usize::from(finding.is_none());
    }
    println!("\n| target | processor time, s | wall, s | runs | edges covered | inputs | findings |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | --- |\n{}", rows.join("\n"));
    Ok(count)
}

fn folder(target: &str) -> PathBuf {
    sh::target_dir().join("fuzz").join(target)
}

fn kept(target: &str) -> PathBuf {
    sh::root().join("tests/fuzz/corpus").join(target)
}

/// Where the fuzzers' devices have their files: removed when this is.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("fuzz-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    fn fuzzer(&self, program: &Path, target: &str) -> Command {
        let mut command = sh::command(&program.to_string_lossy());
        command.env("SHUNT_FUZZ", target).env("RUST_BACKTRACE", "1").env("TMPDIR", &self.0);
        command
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs one target: what it said at last, and the file that holds what it found.
fn one(program: &Path, target: &str, seconds: u64) -> Result<(Said, Option<String>)> {
    let folder = folder(target);
    let (found, seeds) = (folder.join("found"), folder.join("seeds"));
    for made in [&found, &seeds] {
        fs::create_dir_all(made).with_context(|| made.display().to_string())?;
    }
    let scratch = Scratch::new()?;
    let mut command = scratch.fuzzer(program, target);
    command.env("SHUNT_FUZZ_SEEDS", &seeds).args([&found, &kept(target), &seeds]);
    command.arg(format!("-artifact_prefix={}/", folder.display()));
    command.arg(format!("-max_total_time={}", wall_max(seconds))).arg(format!("-max_len={LENGTH_MAX}"));
    command.args(["-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=1"]);
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().context("the fuzzer")?;
    let stderr = child.stderr.take().context("the fuzzer says nothing")?;
    let (mut said, mut finding, mut tail) = (Said::default(), None, Vec::new());
    let ended = AtomicBool::new(false);
    let start = Instant::now();
    said.processor = thread::scope(|scope| -> Result<f64> {
        let had = scope.spawn(|| stop_after(&child, seconds, &ended));
        let lines = || -> Result<()> {
            for line in BufReader::new(stderr).split(b'\n') {
                let line = String::from_utf8_lossy(&line?).into_owned();
                read(&line, &mut said);
                if let Some((_, file)) = line.split_once("Test unit written to ") {
                    finding = Some(file.trim().to_owned());
                }
                tail.push(line);
                if tail.len() > 60 {
                    tail.remove(0);
                }
            }
            Ok(())
        };
        let lines = lines();
        ended.store(true, Ordering::Relaxed);
        lines.and(had.join().map_err(|_| anyhow::anyhow!("the watch over the fuzzer ended"))?)
    })?;
    said.wall = start.elapsed().as_secs_f64();
    let status = child.wait()?;
    if !status.success() || finding.is_some() {
        println!("{}", tail.join("\n"));
        finding.get_or_insert_with(|| format!("it ended with {status}"));
    }
    if said.runs == 0 {
        bail!("{target} made no run:\n{}", tail.join("\n"));
    }
    if finding.is_none() && said.processor < seconds as f64 / 2.0 {
        finding = Some(format!("hardly run: {:.1} of {seconds} s of a processor", said.processor));
    }
    Ok((said, finding))
}

/// By the clock, whatever else the machine does.
fn wall_max(seconds: u64) -> u64 {
    seconds.saturating_mul(4).saturating_add(60)
}

/// Asks a fuzzer to end when it has had so much processor time; gives what it has had when it ended.
fn stop_after(child: &Child, seconds: u64, ended: &AtomicBool) -> Result<f64> {
    let (mut had, mut asked) = (0.0, false);
    while !ended.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50));
        // It is not waited for before this ends: the number is its own still.
        had = processor_seconds(child.id()).unwrap_or(had);
        if had >= seconds as f64 && !asked {
            asked = true;
            let pid = rustix::process::Pid::from_child(child);
            rustix::process::kill_process(pid, rustix::process::Signal::USR1).context("ending the fuzzer")?;
        }
    }
    Ok(had)
}

/// Processor time of a process with all its threads.
fn processor_seconds(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    ticks(&text).map(|ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Fields 14 and 15 of `/proc/PID/stat`: the name before them may have blanks and brackets in it.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Takes the figures of a line in: "#4096 pulse cov: 77 ft: 99 corp: 12/3b ..." or "stat::number_of_executed_units: 9".
fn read(line: &str, said: &mut Said) {
    let after = |word: &str| {
        let rest = line.split_once(word)?.1.trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    if line.starts_with('#') {
        said.coverage = after(" cov:").unwrap_or(said.coverage);
        said.corpus = after(" corp:").unwrap_or(said.corpus);
    }
    said.runs = after("stat::number_of_executed_units:").unwrap_or(said.runs);
}

/// Makes the kept corpus the smallest set of all inputs that reaches as much.
fn minimise(program: &Path, target: &str) -> Result<()> {
    let (folder, kept) = (folder(target), kept(target));
    let merged = folder.join("merged");
    let _ = fs::remove_dir_all(&merged);
    fs::create_dir_all(&merged)?;
    let scratch = Scratch::new()?;
    let mut command = scratch.fuzzer(program, target);
    // Edges alone: how often one is passed makes a corpus of three times the size of one that is read in tests.
    command
        .args(["-set_cover_merge=1", "-use_counters=0"])
        .arg(format!("-max_len={KEPT_BYTES}"))
        .arg(&merged);
    command.args([&kept, &folder.join("found"), &folder.join("seeds")]);
    sh::capture(&mut command)?;
    let named = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains('.'));
    for entry in fs::read_dir(&kept)? {
        let path = entry?.path();
        // What is named by its cause stays: NAME.bin.
        if !named(&path) {
            fs::remove_file(path)?;
        }
    }
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(&merged)? {
        let path = entry?.path();
        bytes += fs::copy(&path, kept.join(path.file_name().unwrap_or_default()))?;
        files += 1;
    }
    println!("{target}: {files} inputs, {bytes} bytes");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let mut said = Said::default();
        read("#8192\tpulse  cov: 1803 ft: 5120 corp: 321/14Kb lim: 4096 exec/s: 2048 rss: 90Mb", &mut said);
        read("INFO: seed corpus: files: 9", &mut said);
        read("stat::number_of_executed_units: 9001", &mut said);
        assert_eq!(said, Said { runs: 9001, coverage: 1803, corpus: 321, ..Said::default() });
    }

    #[test]
    fn processor_time_is_that_of_user_and_system() {
        let stat = "17 (a) b (c) S 1 17 17 0 -1 4194304 9 8 7 6 500 25 11 12 20 0 3 0 99 1 2";
        assert_eq!(ticks(stat), Some(525));
        assert_eq!(ticks("17 (a"), None);
        assert!(processor_seconds(std::process::id()).is_some());
    }

    #[test]
    fn calls_are_read_or_refused() {
        let of = |args: &[&str]| asked(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>());
        let both = of(&["--minutes", "10", "--only", "packet"]).unwrap();
        assert_eq!((both.seconds, both.only), (600, vec!["packet".to_owned()]));
        for wrong in
            [&["--minutes", "0"][..], &["--only", "parcel"], &["--only"], &["--input", "x"], &["--fast"]]
        {
            assert_eq!(sh::status_of(&of(wrong).unwrap_err()), 2, "{wrong:?}");
        }
    }

    #[test]
    fn every_target_has_a_corpus() {
        for target in TARGETS {
            assert!(kept(target).is_dir(), "{target}");
        }
    }
}
