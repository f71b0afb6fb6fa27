//! PEs as processes: the verdicts of one process, and what the others say when one is killed.

use crate::common::{Ended, Running, folder, free_port, until_file};
use crate::put_bw::{job, rank};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

fn ends(processes: Vec<Running>) -> Vec<Ended> {
    processes.into_iter().map(Running::end).collect()
}

fn codes(ends: &[Ended]) -> Vec<Option<i32>> {
    ends.iter().map(|end| end.code).collect()
}

fn signal(process: &Running, signal: Signal) {
    kill(Pid::from_raw(process.child.id() as i32), signal).unwrap();
}

/// Runs a job whose rank 0 writes JSON; all ranks end with `want`.
fn with_json(name: &str, world: u32, arguments: &str, want: i32) -> (Vec<Ended>, Value) {
    let file = folder(name).join("run.json");
    let ends = ends(job(world, &format!("{arguments} --json {}", file.display())));
    assert_eq!(codes(&ends), vec![Some(want); world as usize], "{ends:#?}");
    let json = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    (ends, json)
}

fn assert_clean(json: &Value) {
    assert_eq!(json["verdict"], "clean", "{json}");
    assert_eq!(json["bytes_posted"], json["bytes_delivered"], "{json}");
    assert_eq!(json["signals_posted"], json["signals_applied"], "{json}");
    assert!(json["bytes_posted"].as_u64().unwrap() > 0, "{json}");
}

#[test]
fn rank_0_prints_table_stream_and_verdict_and_the_others_a_line() {
    let line = "-b 64 -e 64K -f 32 -n 10 --duration 300ms --watch";
    let (ends, json) = with_json("table", 2, line, 0);
    for part in ["#shmem_put_bw_uni", "\n65536 ", "each a process", "packets tx", "\n1.1 ", "verdict: clean"]
    {
        assert!(ends[0].out.contains(part), "{part} is not in {}", ends[0].out);
    }
    assert_eq!(ends[1].out, "rank 1 of 2: PE 1, 2 rails; rank 0 prints\n");
    assert_eq!(ends[1].err, "");
    assert_clean(&json);
    assert_eq!(json["processes"], 2);
    assert!(json["timeline"].as_array().unwrap().len() >= 30, "bins of another process are there");
}

#[test]
fn a_port_that_goes_down_and_comes_back_costs_nothing() {
    let faults = "--inject 200ms:0.0:down --inject 600ms:0.0:up --inject 300ms:1.1:placement-delay=1ms/100ms";
    let (_, json) = with_json("down-up", 2, &format!("-n 0 --duration 1200ms {faults}"), 0);
    assert_clean(&json);
    assert!(json["failovers"].as_u64().unwrap() >= 1, "{json}");
    let faults = json["faults"].as_array().unwrap();
    assert!(
        faults.iter().all(|fault| fault["hits"].as_u64().unwrap() > 0),
        "each counted where it was: {faults:?}"
    );
    let switches = json["switches"].as_array().unwrap();
    for pe in [0, 1] {
        assert!(
            switches.iter().any(|switch| switch["pe"] == pe),
            "PE {pe} tells of its switches: {switches:?}"
        );
    }
}

#[test]
fn four_processes_are_two_pairs() {
    let (_, json) = with_json("four", 4, "-n 0 -c 2 --duration 300ms --watch --size 8K", 0);
    assert_clean(&json);
}

#[test]
fn sabotage_at_another_process_is_found() {
    let (ends, json) = with_json("sabotage", 2, "-n 0 --duration 400ms --inject 100ms:1.0:corrupt", 1);
    assert_eq!((json["puts_lost"].as_u64(), &json["verdict"]), (Some(1), &Value::from("broken")));
    assert!(ends[0].out.contains("verdict: BROKEN: 1 puts lost or corrupt"), "{}", ends[0].out);
}

#[test]
fn no_path_left_is_status_3_at_every_rank() {
    let line = "-n 0 --duration 20s --give-up 100ms --inject 200ms:0.0:down --inject 200ms:0.1:down";
    let (ends, json) = with_json("no-path", 2, line, 3);
    assert_eq!(json["verdict"], "no path left");
    assert!(ends[0].err.contains("lost peer") && ends[0].err.contains("port down"), "{}", ends[0].err);
}

/// Kills one rank once the stream runs; answers with the others.
fn without(victim: usize, world: u32, name: &str) -> Vec<Ended> {
    let mark = folder(name).join("streaming");
    let other = if victim == 0 { 1 } else { 0 };
    let port = free_port();
    let start = |number: u32| {
        let mut command = rank(number, world, port, "-n 0 --duration 30s --give-up 200ms --inject");
        command.arg(format!("300ms:{other}.0:exec=touch {}", mark.display()));
        Running::start(&mut command)
    };
    let mut processes: Vec<_> = (0..world).map(start).collect();
    until_file(&mark, &mut processes);
    signal(&processes[victim], Signal::SIGKILL);
    let mut ends = ends(processes);
    assert_eq!(ends.remove(victim).code, None);
    ends
}

#[test]
fn rank_0_survives_a_killed_peer_and_names_it() {
    let ends = without(1, 2, "killed-1");
    assert_eq!(codes(&ends), [Some(3)], "{ends:#?}");
    for part in ["no path left: PE 0 lost peer 1", "the process of PE 1 is gone", "0.0>1.0", "0.1>1.1"] {
        assert!(ends[0].err.contains(part), "{part} is not in {}", ends[0].err);
    }
    assert!(ends[0].out.contains("verdict: no path left"), "{}", ends[0].out);
}

#[test]
fn the_others_report_for_themselves_when_rank_0_is_killed() {
    let ends = without(0, 2, "killed-0");
    assert_eq!(codes(&ends), [Some(3)], "{ends:#?}");
    for part in
        ["rank 1: no path left: PE 1 lost peer 0", "the process of PE 0 is gone", "1.0>0.0", "1.1>0.1"]
    {
        assert!(ends[0].err.contains(part), "{part} is not in {}", ends[0].err);
    }
}

#[test]
fn a_killed_peer_ends_the_other_pairs_of_its_job_too() {
    let ends = without(2, 4, "killed-2");
    assert_eq!(codes(&ends), [Some(3), Some(3), Some(3)], "{ends:#?}");
    assert!(ends[0].err.contains("PE 3 lost peer 2"), "rank 0 hears of it: {}", ends[0].err);
}

#[test]
fn a_rank_can_kill_itself_as_a_fault_and_its_hit_is_counted() {
    let file = folder("peer-killed").join("run.json");
    let line = "-n 0 --duration 30s --give-up 200ms --inject 300ms:1:peer-killed";
    let ends = ends(job(2, &format!("{line} --json {}", file.display())));
    assert_eq!(codes(&ends), [Some(3), None], "{ends:#?}");
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(json["faults"][0]["hits"], 1, "{json}");
    assert_eq!((json["puts_lost"].as_u64(), json["faults"][0]["where"].as_str()), (Some(0), Some("1")));
    let delivered = json["bytes_delivered"].as_u64().unwrap();
    assert!(delivered > 0, "what was delivered before is known: {json}");
    let applied = json["signals_applied"].as_u64().unwrap();
    assert!(applied > 0 && delivered.is_multiple_of(applied), "and so are its signals: {json}");
    assert_ne!(json["max_gap_us"], 0.0, "it stood still until the peer was lost: {json}");
}

#[test]
fn an_interrupt_at_one_rank_ends_all_in_good_order() {
    let mark = folder("interrupt").join("streaming");
    let port = free_port();
    let start = |number| {
        let mut command = rank(number, 2, port, "-n 0 --duration 50m --inject");
        command.arg(format!("200ms:0.0:exec=touch {}", mark.display()));
        Running::start(&mut command)
    };
    let mut processes: Vec<_> = (0..2).map(start).collect();
    until_file(&mark, &mut processes);
    signal(&processes[1], Signal::SIGINT);
    let ends = ends(processes);
    assert_eq!(codes(&ends), [Some(0), Some(0)], "{ends:#?}");
    assert!(ends[0].out.contains("verdict: clean"), "{}", ends[0].out);
}

#[test]
fn ranks_that_were_started_differently_are_refused() {
    let port = free_port();
    let lines = ["-n 0 --duration 1s", "-n 0 --duration 2s"];
    let start = |(number, line): (u32, &&str)| Running::start(&mut rank(number, 2, port, line));
    let ends = ends((0..).zip(&lines).map(start).collect());
    assert_eq!(codes(&ends), [Some(2), Some(2)], "{ends:#?}");
    for end in &ends {
        assert!(
            end.err
                .contains("rank 1 was started with --duration 2000.0 ms, rank 0 with --duration 1000.0 ms")
        );
    }
}
