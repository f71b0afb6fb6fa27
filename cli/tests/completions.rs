//! Completions and man pages name every command.

use crate::support::{shunt, text};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Subcommands, as `--help` lists them.
fn commands() -> Vec<String> {
    let help = text(&shunt(&["--help"], &[]).stdout);
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap().to_owned();
    // What a command does may take several lines, which are indented further.
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn completions_name_every_command() {
    let commands = commands();
    assert!(commands.len() >= 8 && commands.contains(&"view".to_owned()), "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let output = shunt(&["completions", shell], &[]);
        let script = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0));
        let missing: Vec<_> = commands.iter().filter(|name| !script.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{shell} lacks {missing:?}");
    }
    assert_eq!(shunt(&["completions", "dos"], &[]).status.code(), Some(2));
}

#[test]
fn each_command_has_a_man_page() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    let _ = std::fs::remove_dir_all(&folder);
    let output = shunt(&["man", &folder.display().to_string()], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for name in commands() {
        let page = std::fs::read_to_string(folder.join(format!("shunt-{name}.1"))).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    let page = std::fs::read_to_string(folder.join("shunt-view.1")).unwrap();
    assert!(page.contains("EVENTS") && page.contains("Perfetto"), "{page}");
    let output = shunt(&["man", "/dev/null/pages"], &[]);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("name a folder"));
}

#[test]
fn words_that_cannot_be_written_are_no_success_and_a_reader_may_leave() {
    for line in
        ["--help", "--version", "run --help", "completions bash", "env", "store serve --listen 127.0.0.1:0"]
    {
        let run = |out: Stdio| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
            command.args(line.split(' ')).env("SHUNT_SECRET", "a secret for this test alone");
            command.stdout(out).stderr(Stdio::piped()).spawn().unwrap()
        };
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let lost = run(full.into()).wait_with_output().unwrap();
        let said = (lost.status.code(), text(&lost.stderr));
        let why = "error: stdout: No space left on device (os error 28)\n";
        assert_eq!(said, (Some(1), why.to_owned()), "{line}");
        // A store goes on without a reader.
        if line.starts_with("store") {
            continue;
        }
        let (reader, left) = std::io::pipe().unwrap();
        drop(reader);
        let left = run(left.into()).wait_with_output().unwrap();
        assert_eq!((left.status.code(), text(&left.stderr)), (Some(0), String::new()), "{line}");
    }
}
