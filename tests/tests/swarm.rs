//! Random faults on random workloads from fixed seeds, and every run that once went wrong.

use shunt_tests::run::run;
use shunt_tests::spec::RunSpec;
use std::path::Path;

/// Runs `spec`: no promise may be broken, whatever it does. A typed fault is an answer only where no rail was spared.
fn hold(spec: &RunSpec) {
    run(spec).assert_held();
}

fn swarm(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        hold(&RunSpec::from_seed(seed));
    }
}

#[test]
fn seeds_0_to_19() {
    swarm(0..20);
}

#[test]
fn seeds_20_to_39() {
    swarm(20..40);
}

#[test]
fn seeds_40_to_59() {
    swarm(40..60);
}

/// `regressions/*.toml`: each names its cause, and is never deleted.
#[test]
fn regressions_stay_fixed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("regressions/")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "toml")) {
        let text = std::fs::read_to_string(file).expect("a readable file");
        let spec: RunSpec = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(!spec.cause.is_empty(), "{} does not say what went wrong", file.display());
        eprintln!("{}: {}", file.display(), spec.cause);
        hold(&spec);
    }
}
