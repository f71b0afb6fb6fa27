//! What `shunt-explore` says to what it cannot do.

use std::process::Command;

#[test]
fn wrong_words_are_refused_with_what_is_expected() {
    for (words, said) in [
        ("--runs x", "'--runs <R>': expected a whole number above 0, got \"x\""),
        ("--threads 0", "expected a whole number above 0, got \"0\""),
        ("--only nosuch", "error: --only: no exploration has \"nosuch\" in its name; --list names them"),
        ("--smal", "a similar argument exists: '--small'"),
        ("--small --night", "cannot be used with"),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_shunt-explore"));
        let output = program.args(words.split_whitespace()).output().expect("the program starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words}: {error}");
        assert!(error.contains(said), "{words}: {error}");
    }
}
