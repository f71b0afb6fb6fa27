//! Runs `shunt` with nothing in its environment but what a test gives, and compares what it says with a file.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs it.
pub fn shunt(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(arguments).env_clear().envs(environment.iter().copied());
    command.output().unwrap()
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A machine, as text.
pub fn fixture(folder: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/tests/fixtures").join(folder);
    path.join(format!("{name}.tree")).display().to_string()
}

/// Compares with `tests/expected/NAME`. With `BLESS=1` in the environment of the test the file is written instead.
pub fn expect(name: &str, met: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected").join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, met).unwrap();
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        want == met,
        "{name} differs; run the test with BLESS=1 and look at the change.\n{}",
        first(&want, met)
    );
}

/// An object that a program wrote, held against the schema that it names.
pub fn document(text: &[u8]) -> Value {
    let value: Value =
        serde_json::from_slice(text).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(text)));
    assert_eq!(shunt_json::errors(&value), "");
    value
}

/// The object without its header, whose time and machine differ from run to run.
pub fn body(text: &[u8]) -> String {
    let mut value = document(text);
    for field in
        ["schema", "version", "shunt", "command", "options", "environment", "machine", "start_unix_ns"]
    {
        let had = value.as_object_mut().unwrap().remove(field);
        assert!(had.is_some(), "no {field}");
    }
    format!("{value:#}\n")
}

/// The first line that differs.
fn first(want: &str, met: &str) -> String {
    let lines = want.lines().chain(std::iter::repeat("(end)")).zip(met.lines().chain(["(end)"]));
    let different = lines.enumerate().find(|(_, (want, met))| want != met);
    different
        .map_or(String::new(), |(at, (want, met))| format!("line {}:\n  want {want}\n  got  {met}", at + 1))
}
