//! Every run that once went wrong; and that a seed is a run. The seeds themselves are run by `cargo xtask swarm`.

use shunt_tests::lies::Lie;
use shunt_tests::spec::RunSpec;
use shunt_tests::swarm::{Verdict, judge, run_all};
use std::path::Path;

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
        let verdict = judge(&spec, Lie::None);
        assert!(verdict.wrongs.is_empty(), "{} ({}): {:#?}", file.display(), spec.cause, verdict.wrongs);
    }
}

/// Runs that fail with the lie, among the seeds from 0 on.
fn failing(lie: Lie, wanted: usize) -> Vec<Verdict> {
    let mut found = Vec::new();
    for seed in 0..200 {
        let verdict = judge(&RunSpec::with_fault(seed, Some("drop-acks")), lie);
        found.extend((!verdict.wrongs.is_empty()).then_some(verdict));
        if found.len() == wanted {
            break;
        }
    }
    found
}

/// A bug put in on purpose, a truth that is one message too low, is found by the swarm; the seed it prints does it
/// again, event for event, on this thread and on others; and without the bug that seed holds.
#[test]
fn a_printed_seed_reproduces_a_failing_run() {
    let found = failing(Lie::Behind, 1);
    let failed = found.first().expect("the swarm finds a cut that is too low");
    assert!(
        failed.wrongs[0].contains("Duplicate") || failed.wrongs[0].contains("Ghost"),
        "{:?}",
        failed.wrongs
    );
    let seed = failed.spec.seed;
    let again = vec![RunSpec::with_fault(seed, Some("drop-acks")); 3];
    for verdict in run_all(&again, 2, Lie::Behind, |_| {}) {
        assert_eq!((verdict.digest, &verdict.wrongs), (failed.digest, &failed.wrongs), "seed {seed}");
    }
    let file: RunSpec = failed.spec.to_string().parse().expect("what is written reads");
    assert_eq!(judge(&file, Lie::Behind).digest, failed.digest, "the file is the run");
    let fixed = judge(&failed.spec, Lie::None);
    assert!(fixed.wrongs.is_empty() && fixed.digest != failed.digest, "{:?}", fixed.wrongs);
}
