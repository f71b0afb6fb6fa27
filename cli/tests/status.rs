//! `shunt status` on pages that a test wrote.

use crate::support::document;
use shunt_host::events::page::{PageWriter, zeroed};
use shunt_layout::state::{CauseKind, SwitchKind};
use shunt_layout::status::{PeerState, RailState, STATUS_VERSION, Standing, StatusFault, StatusPage};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("status-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn status(folder: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    let output: Output = command.arg("status").arg("--dir").arg(folder).args(more).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn page(pe: u32) -> Box<StatusPage> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let mut page = zeroed();
    (page.version, page.bytes) = (STATUS_VERSION, size_of::<StatusPage>() as u32);
    (page.pid, page.pe, page.pe_count, page.rails) = (std::process::id(), pe, 3, 2);
    page.job[..5].copy_from_slice(b"train");
    page.summary.updated_unix_ns = now + 60_000_000_000; // a slow test is not a silent agent
    for (rail, row) in page.rail.iter_mut().enumerate().take(2) {
        row.state = RailState::Up as u32;
        row.name[..6].copy_from_slice(format!("mlx5_{rail}").as_bytes());
    }
    page
}

#[test]
fn no_page_is_no_trouble() {
    let folder = folder("none");
    std::fs::create_dir_all(&folder).expect("a folder");
    let (code, out, _) = status(&folder, &[]);
    assert!(code == Some(0) && out.starts_with("no status page in"), "{out}");
    let (code, out, _) = status(&folder, &["--json"]);
    let value = document(out.as_bytes());
    assert_eq!((code, value["pages"].as_array().map(Vec::len)), (Some(0), Some(0)));
    assert_eq!(status(&folder, &["--no-such-flag"]).0, Some(2));
    std::fs::remove_dir_all(&folder).expect("removed");
    let (code, out, err) = status(&folder, &[]);
    assert!(
        code == Some(2) && out.is_empty() && err.contains("no such folder"),
        "not taken for health: {out}{err}"
    );
}

#[test]
fn trouble_is_said_with_its_rail_its_peers_and_its_last_fault() {
    let folder = folder("trouble");
    let well = PageWriter::create(&folder, &page(0)).expect("a page");
    let (code, out, err) = status(&folder, &[]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(
        out.contains("0 of 3") && out.contains("train") && out.contains("well") && out.contains("2 of 2 up"),
        "{out}"
    );
    let mut served = page(2);
    (served.rail[1].retired, served.rail[1].leaving) = (3, 1);
    let served = PageWriter::create(&folder, &served).expect("a page");
    let (code, out, _) = status(&folder, &[]);
    assert!(
        code == Some(0) && out.contains("PE 2: mlx5_1: 4 path(s) are taken out, 1 not drained yet"),
        "{out}"
    );
    drop(served);
    let mut bad = page(1);
    bad.rail[1].state = RailState::Down as u32;
    bad.rail[1].downs = 4;
    bad.peer[0] = PeerState::Backup as u8;
    bad.peer[2] = PeerState::Lost as u8;
    (bad.summary.epoch, bad.summary.masked, bad.mask[0]) = (2, 1, 1 << 2);
    bad.summary.standing = Standing::Member as u32;
    (bad.summary.rails_down, bad.summary.trouble_unix_ns, bad.summary.failovers) = (1, 5, 7);
    bad.summary.last_fault = StatusFault {
        noticed_unix_ns: 5,
        lasted_ns: 420_500,
        peer: 2,
        local_rail: 1,
        cause: CauseKind::PortDown as u32,
        kind: SwitchKind::Failover as u32,
        ..StatusFault::default()
    };
    let bad = PageWriter::create(&folder, &bad).expect("a page");
    let (code, out, _) = status(&folder, &[]);
    assert_eq!(code, Some(1), "{out}");
    for part in [
        "1 lost, 1 backup",
        "1 of 2 up",
        "mlx5_1 is down",
        "4 times",
        "port-down on 1.1>2.0, 420.5 us",
        "from epoch 2 on: 2\n",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }
    let (code, out, _) = status(&folder, &["--json"]);
    let value = document(out.as_bytes());
    let pages = value["pages"].as_array().expect("pages");
    assert_eq!((code, pages.len()), (Some(1), 2));
    assert_eq!((&pages[1]["failovers"], &pages[1]["peers"][2]), (&7.into(), &"lost".into()));
    assert_eq!((&pages[1]["epoch"], &pages[1]["masked"]), (&2.into(), &serde_json::json!([2])));
    assert_eq!((&pages[0]["standing"], &pages[1]["standing"]), (&"off".into(), &"member".into()));
    assert_eq!((&pages[1]["rails"][1]["state"], &pages[0]["alive"]), (&"down".into(), &true.into()));
    drop((well, bad));
    assert!(status(&folder, &[]).1.starts_with("no status page"));
    std::fs::remove_dir_all(&folder).expect("removed");
    let (code, out, err) = status(&folder, &[]);
    assert!(
        code == Some(2) && out.is_empty() && err.contains("no such folder"),
        "not taken for health: {out}{err}"
    );
}

#[test]
fn a_page_that_makes_no_sense_is_refused_with_what_was_met() {
    let folder = folder("bad");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("7-0"), [0; 100]).expect("written");
    let (code, out, err) = status(&folder, &[]);
    assert!(
        code == Some(1)
            && err.contains("7-0: no status page of this version: its length: expected 0x1d80, got 0x64"),
        "{out}{err}"
    );
    for number in 0..9 {
        std::fs::write(folder.join(format!("note-{number}")), "no page").expect("written");
    }
    let (code, _, err) = status(&folder, &[]);
    let more =
        format!("{}: 7 more files that cannot be read as pages; expected the folder", folder.display());
    assert!(code == Some(1) && err.lines().count() == 4 && err.contains(&more), "{err}");
    std::fs::remove_dir_all(folder).expect("removed");
}
