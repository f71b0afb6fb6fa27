//! The Python process that knows the descriptions.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Debian's own interpreter: the packages are built for it.
const PYTHON: &str = "/usr/bin/python3";

/// Values of fields by name.
pub type Values = BTreeMap<String, u64>;

/// Makes [`Values`] of literals.
pub fn values<const N: usize>(pairs: [(&str, u64); N]) -> Values {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Where a field lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First bit, counted from the most significant one of the first byte.
    pub bit: usize,
    pub bits: u32,
}

/// A structure as it is described.
pub struct Layout {
    pub bytes: usize,
    pub fields: BTreeMap<String, Place>,
}

pub struct Oracle {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts it. `None` with a line on the output if the packages are missing here.
    pub fn start() -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("prm_oracle.py");
        let ready = Command::new(PYTHON).arg(&script).stdin(Stdio::null()).output();
        let missing = match &ready {
            Err(error) => Some(format!("no {PYTHON} ({error})")),
            Ok(output) if !output.status.success() => {
                let text = String::from_utf8_lossy(&output.stderr);
                let packages = ["FileNotFoundError", "scapy package is needed", "SkipTest"];
                assert!(packages.iter().any(|reason| text.contains(reason)), "{script:?} fails:\n{text}");
                Some("no descriptions (Debian: python3-pyverbs, python3-scapy)".to_owned())
            }
            Ok(_) => None,
        };
        if let Some(missing) = missing {
            assert!(std::env::var_os("CI").is_none(), "{missing}, and CI is set: install it there");
            println!("SKIPPED: {missing}");
            return None;
        }
        let mut child = Command::new(PYTHON)
            .arg(&script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it just ran");
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Some(Self { child, to, from })
    }

    fn ask(&mut self, question: &Value) -> Map<String, Value> {
        writeln!(self.to, "{question}").unwrap_or_else(|error| panic!("{question}: {error}"));
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer to {question}"));
        answer.as_object().expect("an object").clone()
    }

    /// Where the fields of a class lie. `chosen` picks a variant where there are several.
    pub fn layout(&mut self, class: &str, chosen: &Values) -> Layout {
        let answer = self.ask(&json!({"layout": class, "values": chosen}));
        let number = |value: &Value| value.as_u64().expect("a number");
        let fields = answer["fields"].as_array().expect("a list").iter().map(|field| {
            let place = Place { bit: number(&field[1]) as usize, bits: number(&field[2]) as u32 };
            (field[0].as_str().expect("a name").to_owned(), place)
        });
        Layout { bytes: number(&answer["bytes"]) as usize, fields: fields.collect() }
    }

    /// A packet with these values, the rest zero.
    pub fn build(&mut self, class: &str, values: &Values) -> Vec<u8> {
        let answer = self.ask(&json!({"build": class, "values": values}));
        let hex = answer["bytes"].as_str().expect("text");
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
    }

    /// The values in a packet.
    pub fn parse(&mut self, class: &str, bytes: &[u8]) -> Values {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let answer = self.ask(&json!({"parse": class, "bytes": hex}));
        let all = answer["values"].as_object().expect("an object");
        all.iter().map(|(name, value)| (name.clone(), value.as_u64().expect("a number"))).collect()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compares two mailboxes dword by dword, so that a failure names the offset.
pub fn same(what: &str, ours: &[u8], theirs: &[u8]) {
    assert_eq!(ours.len(), theirs.len(), "{what}: length");
    for offset in (0..ours.len()).step_by(4) {
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes[offset..offset + 4].try_into().unwrap());
        let (ours, theirs) = (word(ours), word(theirs));
        assert_eq!(ours, theirs, "{what}: dword {offset:#x}: ours {ours:08x}, theirs {theirs:08x}");
    }
}
