//! Random faults on random workloads, one run a seed, judged by the memory oracle: `cargo xtask swarm`.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shunt_tests::draw::drawn;
use shunt_tests::lies::Lie;
use shunt_tests::spec::RunSpec;
use shunt_tests::swarm::{Table, Verdict, run_all};

/// Runs that are drawn at a time.
const BATCH: usize = 10_000;
/// The same where the clock says when it is enough: looked at behind each.
const TIMED_BATCH: usize = 200;

const USAGE: &str =
    "swarm [--seeds N | --minutes N] [--first S] [--fresh N] [--fault KIND] [--every-kind] [--trace]
      [--say] [--lie NAME] [--queues WHERE] [--threads N] [--out DIR]
swarm FILE.toml [--trace] [--say] [--lie NAME] [--queues WHERE]
swarm --list

  --seeds N     run N seeds (default 20; with --fresh alone: none)
  --minutes N   run seeds until so long has passed on the wall
  --first S     the first of them (default 0)
  --fresh N     and N seeds that start where the clock says, printed at the start
  --fault KIND  the first fault of every run is of this kind
  --every-kind  fail unless every kind of fault was drawn and hit something
  --trace       print the digest of every run: equal digests, equal runs
  --say         print every switch of a failed run, and what the agents said at last
  --lie NAME    the firmware lies like this: a bug put in on purpose
  --queues WHERE  rings and channels lie in memory of the host, or of a device; agents leave channels to kernels
                in both, and a seed has one digest in both
  --threads N   runs at a time (default: the cores)
  --out DIR     where failing runs are written as TOML (default target/swarm)
  --list        the kinds of faults that are drawn, and the lies

Exit status: 0 all runs held, 1 some did not, 2 bad usage.";

/// Whose memory the queues lie in.
#[derive(Clone, Copy, PartialEq)]
enum Queues {
    Host,
    Device,
}

impl Queues {
    fn of(name: &str) -> Option<Self> {
        match name {
            "host" => Some(Self::Host),
            "device" => Some(Self::Device),
            _ => None,
        }
    }
}

struct Options {
    seeds: Option<u64>,
    minutes: Option<u64>,
    first: u64,
    fresh: u64,
    fault: Option<String>,
    every_kind: bool,
    trace: bool,
    say: bool,
    lie: Lie,
    queues: Option<Queues>,
    threads: usize,
    out: PathBuf,
    file: Option<PathBuf>,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        seeds: None,
        minutes: None,
        first: 0,
        fresh: 0,
        fault: None,
        every_kind: false,
        trace: false,
        say: false,
        lie: Lie::None,
        queues: None,
        threads,
        out: PathBuf::from("target/swarm"),
        file: None,
    };
    while let Some(arg) = args.next() {
        let mut value = |what: &str| args.next().ok_or(format!("{arg} needs {what}"));
        let number =
            |text: String| text.parse().map_err(|_| format!("expected a whole number, got {text:?}"));
        match arg.as_str() {
            "--list" => return Ok(None),
            "--seeds" => options.seeds = Some(number(value("a number")?)?),
            "--minutes" => options.minutes = Some(number(value("a number")?)?),
            "--first" => options.first = number(value("a seed")?)?,
            "--fresh" => options.fresh = number(value("a number")?)?,
            "--threads" => options.threads = number(value("a number")?)? as usize,
            "--fault" => {
                let name = value("a kind of fault")?;
                if !drawn().iter().any(|info| info.name() == name) {
                    return Err(format!("no fault that is drawn is called {name:?}; see --list"));
                }
                options.fault = Some(name);
            }
            "--lie" => {
                let name = value("a lie")?;
                let lie = Lie::ALL.into_iter().find(|lie| lie.name() == name);
                options.lie = lie.ok_or(format!("no lie is called {name:?}; see --list"))?;
            }
            "--queues" => {
                let name = value("host or device")?;
                let queues = Queues::of(&name);
                options.queues =
                    Some(queues.ok_or(format!("--queues: expected host or device, got {name:?}"))?);
            }
            "--out" => options.out = PathBuf::from(value("a folder")?),
            "--every-kind" => options.every_kind = true,
            "--trace" => options.trace = true,
            "--say" => options.say = true,
            file if file.ends_with(".toml") => {
                if let Some(first) = options.file.replace(PathBuf::from(file)) {
                    return Err(format!("expected one file at a time, got {} and {file}", first.display()));
                }
            }
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    settled(options).map(Some)
}

/// The same with what was left out, where the rest agrees with itself.
fn settled(mut options: Options) -> Result<Options, String> {
    let counted = options.seeds.is_some() || options.fresh > 0;
    let drawn = counted || options.minutes.is_some() || options.fault.is_some() || options.first > 0;
    if options.file.is_some() && drawn {
        let met = "--seeds, --minutes, --first, --fresh or --fault";
        return Err(format!("got a file and {met}; a file is one run and draws none"));
    }
    if options.minutes.is_some() && counted {
        return Err("got --minutes beside --seeds or --fresh; either the clock or a number says when it is \
             enough"
            .to_owned());
    }
    if options.minutes.is_some() {
        options.seeds = Some(u64::MAX - options.first);
    } else if options.seeds.is_none() {
        options.seeds = Some(if options.fresh > 0 || options.file.is_some() { 0 } else { 20 });
    }
    check(&options)?;
    Ok(options)
}

/// What would run nothing, or not what it says.
fn check(options: &Options) -> Result<(), String> {
    let seeds = options.seeds.unwrap_or(0);
    if options.threads == 0 {
        return Err("--threads: expected at least 1, got 0".to_owned());
    }
    if options.file.is_none() && seeds == 0 && options.fresh == 0 {
        return Err("expected --seeds or --fresh of at least 1, got no seed".to_owned());
    }
    let (first, last) = (options.first, u64::MAX - seeds);
    if first > last {
        return Err(format!("--first with --seeds {seeds}: expected at most {last}, got {first}"));
    }
    Ok(())
}

/// Where failing runs are written is made before the first of them. A run of a file writes none.
fn make_folder(options: &Options) -> Result<(), String> {
    if options.file.is_some() {
        return Ok(());
    }
    std::fs::create_dir_all(&options.out).map_err(|error| {
        let folder = options.out.display();
        format!("--out {folder}: {error}; name a folder that exists or can be made")
    })
}

/// What is run, in the order of its seeds.
enum Plan {
    File(Box<RunSpec>),
    Seeds(Vec<Range<u64>>),
}

impl Plan {
    fn runs(&self) -> u64 {
        match self {
            Self::File(_) => 1,
            Self::Seeds(ranges) => ranges.iter().map(|range| range.end - range.start).sum(),
        }
    }

    /// The runs, some at a time: a million of them need not be there at once.
    fn batches(
        &self,
        kind: Option<&str>,
        queues: Option<Queues>,
        size: usize,
    ) -> impl Iterator<Item = Vec<RunSpec>> {
        let (file, ranges) = match self {
            Self::File(spec) => (Some(vec![(**spec).clone()]), Vec::new()),
            Self::Seeds(ranges) => (None, ranges.clone()),
        };
        let cut = move |range: Range<u64>| {
            let end = range.end;
            range.step_by(size).map(move |first| first..end.min(first.saturating_add(size as u64)))
        };
        let drawn = move |seeds: Range<u64>| seeds.map(|seed| RunSpec::with_fault(seed, kind)).collect();
        let placed = move |spec: RunSpec| match queues {
            Some(queues) => spec.with_queues(queues == Queues::Device),
            None => spec,
        };
        let all = file.into_iter().chain(ranges.into_iter().flat_map(cut).map(drawn));
        all.map(move |specs: Vec<RunSpec>| specs.into_iter().map(placed).collect())
    }
}

fn plan(options: &Options) -> Result<Plan, String> {
    if let Some(file) = &options.file {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let spec = text.parse().map_err(|error| format!("{}: {error}", file.display()))?;
        return Ok(Plan::File(Box::new(spec)));
    }
    let fixed = options.first..options.first + options.seeds.unwrap_or(0);
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let from = clock.saturating_mul(1_000);
    let until = from.checked_add(options.fresh);
    let fresh = from..until.ok_or(format!("--fresh: expected fewer, got {}", options.fresh))?;
    if options.minutes.is_some() {
        println!("seeds from {} on", fixed.start);
    } else if !fixed.is_empty() {
        println!("seeds {} to {}", fixed.start, fixed.end - 1);
    }
    if !fresh.is_empty() {
        println!("fresh seeds {} to {}", fresh.start, fresh.end - 1);
    }
    Ok(Plan::Seeds(vec![fixed, fresh]))
}

/// How a run of the swarm is done again.
fn command(options: &Options, seed: u64) -> String {
    let mut command = match &options.file {
        Some(file) => format!("cargo xtask swarm {} --trace", file.display()),
        None => format!("cargo xtask swarm --first {seed} --seeds 1 --trace"),
    };
    if let (Some(kind), None) = (&options.fault, &options.file) {
        command += &format!(" --fault {kind}");
    }
    if let Some(queues) = options.queues {
        command += if queues == Queues::Host { " --queues host" } else { " --queues device" };
    }
    if options.lie != Lie::None {
        command += &format!(" --lie {}", options.lie.name());
    }
    command
}

fn report(options: &Options, verdict: &Verdict) {
    let seed = verdict.spec.seed;
    if options.trace {
        let digest = verdict.digest.map_or("none".into(), |digest| format!("{digest:016x}"));
        println!("seed {seed} digest {digest} steps {}", verdict.steps());
    }
    if verdict.wrongs.is_empty() {
        return;
    }
    println!("\nseed {seed} FAILED");
    verdict.wrongs.iter().flat_map(|wrong| wrong.lines()).take(40).for_each(|line| println!("  {line}"));
    if options.say {
        verdict.said.lines().for_each(|line| println!("  {line}"));
    }
    let faults: Vec<String> = verdict.spec.faults.iter().map(|one| one.to_string()).collect();
    println!("  faults: {}", faults.join(" "));
    println!("  again: {}", command(options, seed));
    if options.file.is_some() {
        // It stands in a file already.
        println!();
        return;
    }
    let file = options.out.join(format!("{seed}.toml"));
    match std::fs::write(&file, verdict.spec.to_string()) {
        Ok(()) => {
            let lie = if options.lie == Lie::None { "" } else { ", to be run with the same --lie" };
            println!("  as a file: {}{lie}\n", file.display());
        }
        Err(error) => println!("  {} cannot be written: {error}\n{}", file.display(), verdict.spec),
    }
}

/// Says now and then how far the swarm is.
#[derive(Default)]
struct Progress {
    all: Option<usize>,
    done: AtomicUsize,
    failed: AtomicUsize,
}

impl Progress {
    fn seen(&self, verdict: &Verdict) {
        self.failed.fetch_add(usize::from(!verdict.wrongs.is_empty()), Ordering::Relaxed);
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let failed = self.failed.load(Ordering::Relaxed);
        match self.all {
            Some(all) if done.is_multiple_of(all.div_ceil(20).clamp(10, 1_000)) => {
                println!("{done} of {all} done, {failed} of them failed");
            }
            None if done.is_multiple_of(TIMED_BATCH) => println!("{done} done, {failed} of them failed"),
            _ => {}
        }
    }
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            drawn().iter().for_each(|info| println!("{:26} {}", info.syntax, info.meaning));
            println!("\nlies: {}", Lie::ALL.map(Lie::name).join(" "));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let plan = match make_folder(&options).and_then(|()| plan(&options)) {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    let until = options.minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    let all = until.is_none().then(|| plan.runs() as usize);
    let progress = Progress { all, ..Progress::default() };
    let mut table = Table::default();
    let size = if until.is_some() { TIMED_BATCH } else { BATCH };
    for specs in plan.batches(options.fault.as_deref(), options.queues, size) {
        if until.is_some_and(|until| start.elapsed() >= until) {
            break;
        }
        let verdicts = run_all(&specs, options.threads, options.lie, |verdict| {
            report(&options, verdict);
            progress.seen(verdict);
        });
        verdicts.iter().for_each(|verdict| table.add(verdict));
    }
    println!("\n{table}");
    println!("{:.1} s on {} threads", start.elapsed().as_secs_f64(), options.threads);
    let idle = table.idle();
    if options.every_kind && !idle.is_empty() {
        println!("never hit: {}", idle.join(" "));
        return ExitCode::FAILURE;
    }
    if table.failed().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
