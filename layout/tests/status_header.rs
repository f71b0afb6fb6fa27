//! The status page as C sees it: `include/shunt/status.h` against `src/status.rs`.
//!
//! Without a C compiler there is nothing to compare with: the test says that it is skipped, and fails where `CI` is
//! set.

use shunt_layout::status::{
    STATUS_MAGIC, STATUS_PEERS, STATUS_RAILS, STATUS_VERSION, StatusFault, StatusPage, StatusRail,
    StatusSummary,
};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

macro_rules! offsets {
    ($out:ident, $name:literal, $type:ident { $($field:ident),+ $(,)? }) => {
        $out.insert($name.to_owned(), size_of::<$type>() as u64);
        $($out.insert(concat!($name, ".", stringify!($field)).to_owned(), offset_of!($type, $field) as u64);)+
    };
}

// A field a line would be three screens of names.
#[rustfmt::skip]
fn ours() -> BTreeMap<String, u64> {
    let mut out = BTreeMap::new();
    offsets!(out, "status_fault", StatusFault {
        noticed_unix_ns, lasted_ns, peer, channel, local_rail, remote_rail, cause, syndrome, kind,
    });
    offsets!(out, "status_summary", StatusSummary {
        updated_unix_ns, generation, trouble_unix_ns, armed_unix_ns, worst_peer, rails_down, channels,
        on_backup, switching, dead, failovers, switchbacks, suspicions, fences_asked, replayed,
        placeholders, late_tickets, ledger_cuts, pathless, uncertain, events, events_lost, epoch, masked,
        standing, last_fault,
    });
    offsets!(out, "status_rail", StatusRail { state, downs, changed_unix_ns, name });
    offsets!(out, "status_page", StatusPage {
        magic, version, bytes, pid, pe, pe_count, rails, started_unix_ns, job, sequence, summary, rail,
        peer, mask,
    });
    for (name, value) in [
        ("magic", STATUS_MAGIC),
        ("version", STATUS_VERSION.into()),
        ("rails", STATUS_RAILS as u64),
        ("peers", STATUS_PEERS as u64),
    ] {
        out.insert(name.to_owned(), value);
    }
    out
}

#[test]
fn the_header_is_that_of_the_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("status");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compiled = Command::new(&compiler)
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(folder.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(folder.join("tests/c/status.c"))
        .output();
    let output = match compiled {
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "no C compiler '{compiler}' ({error}), and CI is set");
            return println!("SKIPPED: no C compiler '{compiler}' ({error})");
        }
        Ok(output) => output,
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&program).output().expect("the program just compiled runs");
    let text = String::from_utf8(output.stdout).expect("ASCII");
    let entry = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("name, value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    let theirs: BTreeMap<String, u64> = text.lines().map(entry).collect();
    assert_eq!(theirs, ours());
}
