//! The corpus that is kept, and the seeds, through the same functions as under libFuzzer: no fuzzer needed.

use shunt_fuzz::{TARGETS, Target, target, uverbs};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// One target at a time: that of devices closes every descriptor that was opened after it began.
static TURN: Mutex<()> = Mutex::new(());

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Gives all inputs of a target to it; a failure names the input.
fn replay(name: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let target = target(name).expect("a target of that name");
    let files = fs::read_dir(folder(target)).expect("a corpus").map(|entry| entry.unwrap().path());
    let mut inputs: Vec<(String, Vec<u8>)> =
        files.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect();
    inputs.sort();
    assert!(inputs.len() >= 20, "the corpus of {name} has {} inputs", inputs.len());
    inputs.extend((target.seeds)().into_iter().enumerate().map(|(n, seed)| (format!("seed {n}"), seed)));
    for (from, bytes) in inputs {
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes)));
        assert!(result.is_ok(), "{name}: {from}");
    }
}

#[test]
fn frames() {
    replay("packet");
}

#[test]
fn firmware_commands() {
    replay("mailbox");
}

#[test]
fn what_processes_tell_each_other() {
    replay("bootstrap");
}

#[test]
fn words_about_a_running_job() {
    replay("control");
}

#[test]
fn calls_on_a_device() {
    replay("uverbs");
    fs::remove_dir_all(uverbs::runtime()).unwrap();
}

#[test]
fn every_target_has_a_corpus_and_no_corpus_is_without_a_target() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut folders: Vec<String> =
        fs::read_dir(all).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    let mut names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    names.sort();
    assert_eq!(folders, names);
}
