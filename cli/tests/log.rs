//! What programs say of rails and switches (`SHUNT_LOG`, `NVSHMEM_DEBUG`), against what their timelines hold.

use crate::nvshmem::{USUAL, folder, text};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// PEs of these jobs.
const PES: usize = 2;

/// A folder for one test's files.
fn scratch(name: &str) -> PathBuf {
    let path = folder().join(format!("log-{name}"));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Runs until a switch happened, five times at most: where soft NICs have no core for a while, all is sent before the
/// port goes down.
fn run_until_moved(environment: &[(&str, &str)], moved: impl Fn(&Output) -> bool) -> Output {
    let mut runs = std::iter::repeat_with(|| run(environment)).take(5);
    runs.find(moved).expect("a port that goes down moves traffic, in one of five runs")
}

/// A C program whose PE 0 loses the port of its primary rail for 300 ms, in the middle of puts and barriers.
fn run(environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(["run", "-n", &PES.to_string(), "--"]).arg(folder().join("exact"));
    command.args(["put", "2000", "0", "0", "5", "down=300ms"]);
    let one = [("NVSHMEM_IBGDA_NUM_RC_PER_PE", "1")];
    let output = command.envs(USUAL).envs(one).envs(environment.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Lines of the log with this event.
fn lines<'a>(said: &'a str, event: &str) -> Vec<&'a str> {
    let is = |line: &&str| {
        line.contains("shunt: 2") && [" ", ":"].iter().any(|end| line.contains(&format!(" {event}{end}")))
    };
    said.lines().filter(is).collect()
}

/// Events of that name in the timelines of all PEs.
fn told(folder: &std::path::Path, event: &str) -> usize {
    let of = |pe| std::fs::read_to_string(folder.join(format!("{pe}.jsonl"))).unwrap();
    let name = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].clone();
    (0..PES).map(|pe| of(pe).lines().filter(|line| name(line) == event).count()).sum()
}

/// The time, the cause and each stage of every switch stand in one line, and no switch is missing.
#[test]
fn a_switch_and_the_way_back_are_one_line_each() {
    let folder = scratch("info");
    let events = folder.join("%.jsonl").display().to_string();
    let moved = |output: &Output| !lines(&text(&output.stderr), "failover").is_empty();
    let output = run_until_moved(&[("NVSHMEM_DEBUG", "INFO"), ("SHUNT_EVENTS", &events)], moved);
    let said = text(&output.stderr);
    for (event, fields) in [
        ("failover", ["cause=", "fence=", "cut=", "replay=", "open="].as_slice()),
        ("switch_back", &["drain=", "flush=", "open="]),
    ] {
        let lines = lines(&said, event);
        assert!(!lines.is_empty(), "{event}: {said}");
        assert_eq!(lines.len(), told(&folder, event), "{event}: {said}");
        for line in lines {
            assert!(line.contains(" INFO ") && line.contains(" from=") && line.contains(" to="), "{line}");
            assert!(fields.iter().all(|field| line.contains(field)), "{line}");
        }
    }
    // Two rails each; the primary pair, and as many backups as there are pairs of rails beside it, two at most.
    assert_eq!((lines(&said, "rail_opened").len(), lines(&said, "paths_opened").len()), (4, 6), "{said}");
    assert!(lines(&said, "half_fenced").is_empty(), "stages are for SHUNT_LOG=debug: {said}");
}

#[test]
fn warnings_are_said_with_nothing_set_and_files_have_the_rest() {
    let folder = scratch("default");
    let events = folder.join("%.jsonl").display().to_string();
    let moved = |output: &Output| !lines(&text(&output.stderr), "traffic_moved").is_empty();
    let said = text(&run_until_moved(&[("SHUNT_EVENTS", &events)], moved).stderr);
    // Where traffic goes on: every failover is in the sum of a line, with the NICs by name.
    let moved = lines(&said, "traffic_moved");
    let field = |line: &str, name: &str| -> usize {
        let from = line.find(name).unwrap_or_else(|| panic!("{name}: {line}")) + name.len();
        line[from..].split(' ').next().unwrap().trim_end_matches(':').parse().unwrap()
    };
    let channels: usize = moved.iter().map(|line| field(line, " channels=")).sum();
    let failovers = told(&folder, "failover");
    assert!((1..=failovers).contains(&channels), "{failovers}: {said}");
    assert!(moved.iter().all(|line| field(line, " ended=") == 0 && line.contains(" WARN ")), "{said}");
    assert_eq!(moved.len(), told(&folder, "traffic_moved"), "{said}");
    assert!(moved.iter().all(|line| line.contains(" to=") && !line.contains(" to=rail ")), "{said}");
    assert_eq!(lines(&said, "rail_down").len(), 1, "{said}");
    assert!(lines(&said, "failover").is_empty() && lines(&said, "rail_opened").is_empty(), "{said}");
    let folder = scratch("file");
    let name = folder.join("log.%h.%p").display().to_string();
    let files = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let moved = |_: &Output| {
        let text = |file| std::fs::read_to_string(file).unwrap();
        let moved = files().into_iter().any(|file| !lines(&text(file), "failover").is_empty());
        if !moved {
            files().into_iter().for_each(|file| std::fs::remove_file(file).unwrap());
        }
        moved
    };
    let said = text(&run_until_moved(&[("SHUNT_LOG", "debug"), ("NVSHMEM_DEBUG_FILE", &name)], moved).stderr);
    assert_eq!((lines(&said, "rail_down").len(), lines(&said, "failover").len()), (1, 0), "{said}");
    let files = files();
    assert_eq!(files.len(), PES, "{files:?}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(files.iter().all(|file| file.display().to_string().contains(host.trim())), "{files:?}");
    let written: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    for event in ["rail_down", "failover", "switch_back", "half_fenced", "switch_cut"] {
        assert!(!lines(&written, event).is_empty(), "{event}: {written}");
    }
}

/// Nothing switches, and the line says which variable would have changed that.
#[test]
fn a_port_that_goes_down_with_fault_tolerance_off_names_the_variable() {
    let said = text(&run(&[("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE", "0")]).stderr);
    let hints = lines(&said, "remark");
    assert!(hints.len() == 1 && hints[0].contains("fault tolerance is off"), "{said}");
    assert!(hints[0].contains("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE=1 goes on by another path"), "{said}");
}

#[test]
fn levels_that_are_none_are_refused() {
    for name in ["SHUNT_LOG", "NVSHMEM_DEBUG"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
        command
            .args(["run", "-n", "1", "--"])
            .arg(folder().join("exact"))
            .args(["put", "1", "0", "0", "5", "up"]);
        let output = command.envs(USUAL).env(name, "loud").output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("{name}: expected ")) && said.contains("loud"), "{said}");
    }
}
