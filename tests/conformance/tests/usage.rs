//! What the two programs say where they cannot be run as they were asked to.

use std::process::Command;

/// Status and stderr.
fn said(program: &str, words: &str) -> (Option<i32>, String) {
    let output = Command::new(program).args(words.split_whitespace()).output().expect("the program starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Where devices are this says nothing: they would be used.
#[test]
fn a_machine_without_devices_is_told_so_and_what_to_do() {
    if std::fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count) > 0 {
        return;
    }
    let (verbs, devx) = (env!("CARGO_BIN_EXE_shunt-verbs-check"), env!("CARGO_BIN_EXE_shunt-devx-check"));
    for (program, words, status) in
        [(verbs, "data", 2), (verbs, "wqes", 2), (devx, "", 1), (devx, "mlx5_7", 1)]
    {
        let (code, error) = said(program, words);
        let lines = error.lines().count();
        assert_eq!((code, lines), (Some(status), 1), "{program} {words}: one sentence, no trace: {error}");
        assert!(error.starts_with("error: no RDMA device was found: "), "{program} {words}: {error}");
        assert!(error.contains("`shunt soft-rdma run --"), "{program} {words}: {error}");
    }
}

#[test]
fn pages_and_completions_name_options() {
    for (program, option) in
        [(env!("CARGO_BIN_EXE_shunt-verbs-check"), "wqes"), (env!("CARGO_BIN_EXE_shunt-devx-check"), "flap")]
    {
        for words in [&["--man"][..], &["--completions", "bash"]] {
            let output = Command::new(program).args(words).output().expect("the program starts");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && text.contains(option), "{program} {words:?}: {text}");
        }
    }
}
