//! Every named break of the protocol and the scenarios that must catch it: `cargo xtask mutate`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use shunt_layout::mutant::Mutant;
use shunt_tests::mutations::{Row, TABLE};
use shunt_tests::promises;
use shunt_tests::scenarios::{self, Scenario, Wrongs};

const USAGE: &str = "mutate [--only NAME] [--plain NAME] [--promises] [--list] [--threads N] [--say]

  --only NAME   only mutants and scenarios whose names hold NAME
  --against N   every mutant that --only names against the scenarios whose names hold N, in the table or not
  --plain NAME  no mutants: the scenarios whose names hold NAME, every run of them
  --promises    of the table only as many rows as hold a break of every invariant and rule
  --list        the mutants, what they break, the scenarios that must catch them
  --threads N   runs at a time (default: the cores)
  --say         print what each mutant was caught by

Exit status: 0 every mutant is caught and every run without one is clean, 1 if not, 2 bad usage.";

struct Options {
    only: Option<String>,
    plain: Option<String>,
    against: Option<String>,
    promises: bool,
    list: bool,
    threads: usize,
    say: bool,
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut options =
        Options { only: None, plain: None, against: None, promises: false, list: false, threads, say: false };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => options.only = Some(args.next().ok_or("--only needs a name")?),
            "--against" => options.against = Some(args.next().ok_or("--against needs a name")?),
            "--plain" => options.plain = Some(args.next().ok_or("--plain needs a name")?),
            "--threads" => {
                let threads = args.next().and_then(|text| text.parse().ok()).filter(|threads| *threads > 0);
                options.threads = threads.ok_or("--threads needs a number of at least 1")?;
            }
            "--promises" => options.promises = true,
            "--list" => options.list = true,
            "--say" => options.say = true,
            _ => return Err(format!("unknown argument {arg:?}")),
        }
    }
    Ok(options)
}

/// What came of one mutant in one scenario.
struct Caught {
    row: &'static Row,
    scenario: &'static str,
    /// Runs until it was caught, and what was wrong; none if it never was.
    by: Option<(u64, String)>,
    runs: u64,
    seconds: f64,
}

/// What the unmutated runs of a scenario came to: the first that is not clean.
type Baseline = BTreeMap<(&'static str, Vec<&'static str>), Option<(u64, Wrongs)>>;

/// With a mutant, a run that was not exercised is no promise broken: the break only moved it elsewhere.
fn run(scenario: &Scenario, seed: u64, mutants: &[Mutant]) -> Wrongs {
    Mutant::choose(mutants);
    let mut wrongs = (scenario.run)(seed);
    Mutant::choose(&[]);
    if !mutants.is_empty() {
        wrongs.retain(|wrong| scenarios::is_broken(wrong));
    }
    wrongs
}

fn first_wrong(scenario: &Scenario, seeds: u64, mutants: &[Mutant]) -> Option<(u64, Wrongs)> {
    let wrong = |seed| Some((seed, run(scenario, seed, mutants))).filter(|(_, wrongs)| !wrongs.is_empty());
    (0..seeds).find_map(wrong)
}

/// Does `work` for each item on some threads.
fn in_parallel<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { return };
                    let result = work(item);
                    results.lock().expect("no panic under this lock").push((number, result));
                }
            });
        }
    });
    let mut results = results.into_inner().expect("no panic under this lock");
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

fn names(mutants: &[Mutant]) -> Vec<&'static str> {
    mutants.iter().map(|mutant| mutant.name()).collect()
}

fn chosen(options: &Options) -> Vec<(&'static Row, Scenario)> {
    let wanted = |row: &Row, scenario: &str| {
        let only = options.only.as_deref().unwrap_or("");
        row.mutant.name().contains(only) || scenario.contains(only)
    };
    if let Some(against) = &options.against {
        let those = || scenarios::all().into_iter().filter(|scenario| scenario.name.contains(against));
        let rows =
            TABLE.iter().filter(|row| row.mutant.name().contains(options.only.as_deref().unwrap_or("")));
        return rows.flat_map(|row| those().map(move |scenario| (row, scenario))).collect();
    }
    let all = TABLE.iter().flat_map(|row| row.scenarios.iter().map(move |name| (row, *name)));
    let pairs = if options.promises { promises::sample() } else { all.collect() };
    let pairs = pairs.into_iter().filter(|(row, name)| wanted(row, name));
    let scenario = |name| {
        scenarios::named(name)
            .unwrap_or_else(|| panic!("tests/src/mutations.rs: no scenario is called {name}"))
    };
    pairs.map(|(row, name)| (row, scenario(name))).collect()
}

fn list(pairs: &[(&'static Row, Scenario)]) {
    for (row, scenario) in pairs {
        println!("{:28} {:34} {}", row.mutant.name(), row.mutant.breaks(), scenario.name);
    }
}

fn table(caught: &[Caught]) {
    println!("{:26} {:34} {:48} {:>6} {:>7}", "mutant", "breaks", "caught by", "run", "time");
    for one in caught {
        let run = match &one.by {
            Some((run, _)) => run.to_string(),
            None => format!("- /{}", one.runs),
        };
        let (mutant, breaks) = (one.row.mutant.name(), one.row.mutant.breaks());
        println!("{mutant:26} {breaks:34} {:48} {run:>6} {:6.1}s", one.scenario, one.seconds);
    }
}

/// The scenarios without the mutant, or with what it is put on top of: as many runs as the mutant needed. All runs of
/// the scenarios as they are stand in `tests/tests/scenarios.rs`.
fn baseline(caught: &[Caught], pairs: &[(&'static Row, Scenario)], threads: usize) -> Baseline {
    let mut plain: Vec<(Scenario, &'static [Mutant], u64)> = Vec::new();
    for (one, (row, scenario)) in caught.iter().zip(pairs) {
        let runs = one.by.as_ref().map_or(scenario.seeds, |(run, _)| *run);
        let same = |other: &&mut (Scenario, &[Mutant], u64)| {
            other.0.name == scenario.name && other.1 == row.on_top_of
        };
        match plain.iter_mut().find(same) {
            Some(other) => other.2 = other.2.max(runs),
            None => plain.push((*scenario, row.on_top_of, runs)),
        }
    }
    let clean = in_parallel(&plain, threads, |(scenario, on, runs)| {
        ((scenario.name, names(on)), first_wrong(scenario, *runs, on))
    });
    clean.into_iter().collect()
}

/// Runs scenarios as they are.
fn plain(name: &str, threads: usize) -> ExitCode {
    let mut chosen = scenarios::all();
    chosen.retain(|scenario| scenario.name.contains(name));
    let results = in_parallel(&chosen, threads, |scenario| {
        let start = Instant::now();
        let wrong = first_wrong(scenario, scenario.seeds, &[]);
        println!("{:48} {:3} runs {:6.1}s", scenario.name, scenario.seeds, start.elapsed().as_secs_f64());
        if let Some((seed, wrongs)) = &wrong {
            println!("{}, seed {seed}:\n{}", scenario.name, wrongs.join("\n"));
        }
        wrong.is_none()
    });
    let failed = results.iter().filter(|held| !**held).count();
    println!("{} scenarios, {failed} not clean", results.len());
    if failed == 0 && !results.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(name) = &options.plain {
        return plain(name, options.threads);
    }
    let pairs = chosen(&options);
    if pairs.is_empty() {
        eprintln!("no mutant and no scenario of the table is called {:?}", options.only);
        return ExitCode::from(2);
    }
    if options.list {
        list(&pairs);
        return ExitCode::SUCCESS;
    }
    let start = Instant::now();
    let caught = in_parallel(&pairs, options.threads, |(row, scenario)| {
        let start = Instant::now();
        let mutants = [row.on_top_of, &[row.mutant]].concat();
        let by = first_wrong(scenario, scenario.seeds, &mutants);
        let by = by.map(|(seed, wrongs)| (seed + 1, wrongs[0].lines().next().unwrap_or_default().to_owned()));
        let seconds = start.elapsed().as_secs_f64();
        if options.say {
            println!("{} in {}: {by:?}", row.mutant.name(), scenario.name);
        }
        Caught { row, scenario: scenario.name, by, runs: scenario.seeds, seconds }
    });
    let clean = baseline(&caught, &pairs, options.threads);
    table(&caught);
    let unclean: Vec<_> = clean.iter().filter_map(|(what, wrong)| Some((what, wrong.as_ref()?))).collect();
    for ((scenario, on), (seed, wrongs)) in &unclean {
        println!(
            "\n{scenario}, seed {seed}, is not clean without the mutant (with {on:?}):\n{}",
            wrongs.join("\n")
        );
    }
    let missed = caught.iter().filter(|one| one.by.is_none()).count();
    let seconds = start.elapsed().as_secs_f64();
    let (good, unclean) = (caught.len() - missed, unclean.len());
    println!("\n{good} mutants caught, {missed} missed, {unclean} scenarios not clean; {seconds:.1} s");
    if missed == 0 && unclean == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
