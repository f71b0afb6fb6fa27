//! Many seeds of verbs programs through faults in virtual time: `verbs_swarm [FIRST] [SEEDS] [THREADS]`. Exit status 1
//! if one of them is wrong.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use shunt_tests::verbs::{VerbsReport, VerbsSpec, run};

/// What all runs came to.
#[derive(Default)]
struct Sums {
    failed: Vec<u64>,
    hits: u64,
    planned: u64,
    switches: u64,
    at_home: u64,
    replayed: u64,
    completed: u64,
    lost: u64,
    wakes: u64,
    sharing: u64,
}

impl Sums {
    fn add(&mut self, spec: &VerbsSpec, report: &VerbsReport) {
        self.hits += report.hits;
        self.planned += spec.faults.len() as u64;
        self.switches += report.sum(|told| told.switches);
        self.at_home += report.sum(|told| told.at_home);
        self.replayed += report.sum(|told| told.replayed);
        self.completed += report.sum(|told| told.completed);
        self.lost += report.sum(|told| told.lost);
        self.wakes += report.sum(|told| told.wakes);
        self.sharing += u64::from(spec.shared);
        let wrong = report.wrong();
        if !wrong.is_empty() {
            self.failed.push(spec.seed);
            println!("seed {} FAILED: {spec:?}", spec.seed);
            wrong.iter().take(12).for_each(|text| println!("  {text}"));
        }
    }
}

fn main() -> ExitCode {
    let mut numbers = [0, 200, std::thread::available_parallelism().map_or(1, usize::from) as u64];
    for (number, text) in numbers.iter_mut().zip(std::env::args().skip(1)) {
        let Ok(given) = text.parse() else {
            eprintln!("verbs_swarm [FIRST] [SEEDS] [THREADS]: expected a number, got {text}");
            return ExitCode::from(2);
        };
        *number = given;
    }
    let [first, seeds, threads] = numbers;
    let (next, sums, start) = (AtomicU64::new(first), Mutex::new(Sums::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let spec = VerbsSpec::random(seed);
                    let report = run(&spec);
                    sums.lock().expect("no panic under this lock").add(&spec, &report);
                }
            });
        }
    });
    let sums = sums.into_inner().expect("no panic under this lock");
    println!(
        "{seeds} runs: {} requests complete, {} of {} faults hit, {} moves ({} directions at home again), {} posted \
         again, {} connections lost an atomic's answer, {} runs shared their buffers, events woke {} times; {:.1} s",
        sums.completed,
        sums.hits,
        sums.planned,
        sums.switches,
        sums.at_home,
        sums.replayed,
        sums.lost,
        sums.sharing,
        sums.wakes,
        start.elapsed().as_secs_f64()
    );
    println!("{} failed: {:?}", sums.failed.len(), sums.failed);
    let exercised = sums.hits > 0 && sums.switches > 0 && sums.replayed > 0 && sums.wakes > 0;
    if !exercised {
        println!("not exercised");
    }
    if exercised && sums.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
