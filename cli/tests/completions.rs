//! Completions and man pages name every command.

use crate::support::{shunt, text};
use std::path::PathBuf;

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
