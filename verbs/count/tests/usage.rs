//! What `shunt-verbs-count` says to what it cannot do.

use std::process::Command;

#[test]
fn wrong_words_are_refused_with_what_is_expected() {
    for (words, said) in [
        ("", "expected --listen or --connect, got neither; usage: "),
        ("--wait sometimes", "--wait: expected poll or events, got \"sometimes\"; "),
        ("--gid 999", "--gid: expected an index from 0 to 255, got \"999\"; "),
        ("--seconds -1", "--seconds: expected a number, got \"-1\"; "),
        ("--connect nowhere", "--connect: expected HOST:PORT, got \"nowhere\"; "),
        ("--listen x", "--listen: expected [HOST:]PORT, got \"x\"; "),
        ("--to me", "--to: expected other, here or itself, got \"me\"; "),
        ("--ops read", "--ops: expected send, and of write-imm, read and fetch-add "),
        ("--lives 0", "--lives: expected a number from 1 to 64, got \"0\"; "),
        ("--connects 0", "--connects: expected a number from 1 to 4096, got \"0\"; "),
        ("--device", "--device: expected a name, got nothing; "),
        ("--dvice a", "--dvice: no such option; "),
    ] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_shunt-verbs-count"));
        let output = program.args(words.split_whitespace()).output().expect("the program starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words}: {error}");
        assert!(error.starts_with("error: ") && error.contains(said), "{words}: {error}");
    }
    let check = Command::new(env!("CARGO_BIN_EXE_verbs_check")).args(["--inject", "300ms:2.0:down"]).output();
    let check = check.expect("the program starts");
    let error = String::from_utf8_lossy(&check.stderr).into_owned();
    assert_eq!(check.status.code(), Some(2), "{error}");
    assert!(error.contains("expected TIME:PROCESS.NIC:FAULT") && error.contains("300ms:2.0:down"), "{error}");
    let help = Command::new(env!("CARGO_BIN_EXE_shunt-verbs-count")).arg("--help").output();
    let help = help.expect("the program starts");
    assert!(help.status.success() && help.stdout.starts_with(b"usage: shunt-verbs-count"));
}
