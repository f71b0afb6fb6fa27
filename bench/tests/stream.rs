//! Short streams in this process: a clean one is green, and each sabotage turns the verdict red for its own
//! reason. The judge is what is tested here, so every case but the clean ones must fail the run.

use shunt_bench::job::threads::Threads;
use shunt_bench::nics::source::Source;
use shunt_bench::options::Options;
use shunt_bench::progress::Progress;
use shunt_bench::report::{Failing, Report, Verdict};
use shunt_bench::runner;

fn run(line: &str) -> Report {
    let line = format!("shmem_put_bw -n 0 --window 16 {line}");
    let mut options = Options::from_arguments(line.split_whitespace()).unwrap();
    options.size = Some(16 << 10);
    let job = Threads::new(options.pes());
    Report::new(runner::stream(&options, &Source::Soft, &job, &mut Progress::hidden()).unwrap())
}

fn assert_clean(report: &Report) {
    assert_eq!(report.judged, Verdict::Clean, "{report:#?}");
    assert!(report.bytes_delivered > 0);
    assert_eq!(report.bytes_delivered, report.bytes_posted);
    assert_eq!(report.signals_applied, report.signals_posted);
    assert_eq!(report.judged.exit_status(), 0);
}

/// The one reason, and no other.
fn assert_broken(report: &Report, reason: &str) {
    let Verdict::Broken(what) = &report.judged else { panic!("not broken: {:?}", report.judged) };
    assert!(what.len() == 1 && what[0].ends_with(reason), "{what:?} is not {reason:?}");
    assert_eq!(report.judged.exit_status(), 1);
}

#[test]
fn a_stream_without_faults_is_clean_in_every_mode_with_every_signal() {
    for mode in ["write", "p", "signal", "amo"] {
        for signal in ["monotone", "cleared", "add"] {
            let report = run(&format!("--duration 150ms --watch --mode {mode} --signal {signal}"));
            assert_clean(&report);
            assert!(report.faults.is_empty() && report.uncertain == 0, "{mode} {signal}");
        }
    }
}

/// NVIDIA/nccl#2383: the responder applies an atomic, its answer is lost, the requester's retries run out.
#[test]
fn an_atomic_whose_answer_is_lost_is_counted_once() {
    for signal in ["add", "cleared"] {
        let faults = "--duration 700ms --inject 150ms:0.0:lost-atomic-response";
        let report = run(&format!("--mode signal --signal {signal} {faults}"));
        assert_clean(&report);
        assert!(report.faults[0].hits > 0 && report.failovers > 0, "{report:#?}");
        assert_eq!((report.signals_duplicated, report.uncertain), (Some(0), 0));
    }
}

#[test]
fn signals_of_every_kind_survive_a_port_and_both_fences() {
    for signal in ["cleared", "add"] {
        for fence in ["strict", "time"] {
            let faults = "--duration 900ms --inject 150ms:0.0:down --inject 450ms:0.0:up";
            let report = run(&format!("--signal {signal} --fence {fence} {faults}"));
            assert_clean(&report);
            assert!(report.failovers > 0, "{report:#?}");
        }
    }
}

#[test]
fn a_fetched_value_that_is_lost_stops_the_run_and_names_the_operation_unless_somebody_answers() {
    let line = "--mode amo --duration 700ms --inject 150ms:0.0:lost-atomic-response";
    let report = run(line);
    let Verdict::Failed(Failing::Uncertain, text) = &report.judged else { panic!("{:?}", report.judged) };
    for part in ["a fetching atomic", "ticket ", "heap offset 0x", "of PE 1, channel 0"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!((report.judged.exit_status(), report.verdict), (3, "uncertain"));
    assert!(report.uncertain > 0);
    let report = run(&format!("{line} --uncertain applied"));
    assert_clean(&report);
    assert!(report.uncertain > 0, "{report:#?}");
    let report = run(&format!("{line} --uncertain not"));
    let Verdict::Failed(Failing::Uncertain, text) = &report.judged else { panic!("{:?}", report.judged) };
    assert!(text.contains("known to have been applied"), "{text}");
}

#[test]
fn several_channels_and_pairs_are_clean() {
    let report = run("--duration 200ms --watch -c 2 --pes 4");
    assert_clean(&report);
}

#[test]
fn a_port_that_goes_down_and_comes_back_costs_nothing() {
    let report = run("--duration 900ms --inject 150ms:0.0:down --inject 400ms:0.0:up");
    assert_clean(&report);
    assert!(report.failovers >= 1, "{report:#?}");
    assert!(report.switches.iter().any(|line| line.from == "0.0>1.0"), "{report:#?}");
    assert!(report.faults.iter().all(|fault| fault.hits > 0));
}

#[test]
fn a_dead_rail_carries_nothing_and_all_others_go_on() {
    let line = "--rails 4 --rail-gbps 0.2 --duration 1200ms --inject 400ms:0.0:down --inject 800ms:0.2:down";
    let report = run(line);
    assert_clean(&report);
    let names: Vec<&str> = report.rails.iter().map(|rail| rail.rail.as_str()).collect();
    assert_eq!((names, report.phases.len()), (vec!["0.0", "0.1", "0.2", "0.3"], 3));
    let dead: [&[usize]; 3] = [&[], &[0], &[0, 2]];
    for (phase, dead) in dead.into_iter().enumerate() {
        for (number, rail) in report.rails.iter().enumerate() {
            let share = rail.shares[phase].unwrap();
            assert_eq!(share > 0.0, !dead.contains(&number), "{} in phase {phase}: {share}", rail.rail);
        }
        let sum: f64 = report.rails.iter().filter_map(|rail| rail.shares[phase]).sum();
        assert!((99.9..100.1).contains(&sum), "{sum}");
    }
}

#[test]
fn a_corrupted_byte_is_found() {
    let report = run("--duration 300ms --inject 100ms:1.0:corrupt");
    assert_broken(&report, "puts lost or corrupt");
    assert_eq!(report.puts_lost, 1);
}

#[test]
fn a_signal_placed_twice_is_found() {
    let report = run("--duration 300ms --inject 100ms:1.0:double-signal");
    // On a busy machine the receiver may also read a slot that the extra count promised too early.
    let Verdict::Broken(what) = &report.judged else { panic!("not broken: {:?}", report.judged) };
    assert!(what.iter().any(|one| one.ends_with("signals duplicated")), "{what:?}");
    assert_eq!(report.judged.exit_status(), 1);
}

#[test]
fn an_atomic_that_is_executed_twice_is_found() {
    let red = |line: &str| run(&format!("--duration 300ms {line} --inject 100ms:1.0:double-atomic"));
    for signal in ["cleared", "add"] {
        assert_broken(&red(&format!("--mode signal --signal {signal}")), "signals duplicated");
    }
    assert_broken(&red("--mode amo"), "puts lost or corrupt");
    assert_eq!(red("--mode write --signal cleared").judged.exit_status(), 1);
}

#[test]
fn an_atomic_that_is_answered_and_not_executed_is_found() {
    let report = run("--mode amo --duration 300ms --inject 100ms:1.0:skip-atomic");
    assert_broken(&report, "puts lost or corrupt");
}

#[test]
fn a_signal_before_its_put_is_found() {
    // A receiver without a core for a while may miss one.
    let swaps: Vec<String> = (2..12).map(|at| format!("--inject {}ms:1.0:swap-signal", 25 * at)).collect();
    let report = run(&format!("--duration 300ms {}", swaps.join(" ")));
    assert_broken(&report, "signals visible before their puts");
}

#[test]
fn a_fault_that_meets_nothing_is_not_exercised() {
    let report = run("--duration 200ms --inject 100ms:0.0:lost-atomic-response");
    assert_eq!(report.judged, Verdict::NotExercised(vec!["0.0:lost-atomic-response".into()]));
    assert_eq!(report.judged.exit_status(), 1);
}

#[test]
fn without_fault_tolerance_a_fault_ends_the_run_with_peer_and_syndrome() {
    let report = run("--duration 3s --ft off --inject 100ms:0.0:down");
    let Verdict::Failed(Failing::Untolerated, text) = &report.judged else { panic!("{:?}", report.judged) };
    assert!(text.contains("syndrome 0x15"), "{text}");
    let names = |parts: [&str; 2]| parts.iter().all(|part| text.contains(part));
    // Either end may be the first to say so.
    assert!(
        names(["PE 0 ended what it sent to PE 1", "0.0>1.0"])
            || names(["PE 1 ended what it sent to PE 0", "1.0>0.0"]),
        "{text}"
    );
    assert_eq!(report.judged.exit_status(), 3);
}

#[test]
fn a_peer_without_any_path_is_lost_by_name_with_every_path() {
    let report = run("--duration 3s --give-up 100ms --inject 100ms:1.0:down --inject 100ms:1.1:down");
    let Verdict::Failed(Failing::NoPath, text) = &report.judged else { panic!("{:?}", report.judged) };
    assert!(text.contains("every path to the peer is dead"), "{text}");
    // Either end may be the first to say so.
    let names = |paths: [&str; 3]| paths.iter().all(|part| text.contains(part));
    let (sender, receiver) = (["peer 1", "0.0>1.0", "0.1>1.1"], ["peer 0", "1.0>0.0", "1.1>0.1"]);
    assert!(names(sender) || names(receiver), "{text}");
    assert!(report.timeline.len() < 200, "the timeline ends with the run");
    let paths: Vec<&str> = text.lines().skip(1).collect();
    assert!(!paths.is_empty() && paths.iter().all(|line| line.contains("port down")), "{text}");
    assert!(paths.iter().all(|line| line.contains("cause ") && line.contains("syndrome 0x")), "{text}");
    assert_eq!(report.judged.exit_status(), 3);
}

#[test]
fn a_program_error_is_not_called_a_lack_of_paths() {
    for fault in ["1.0:rkey-revoked", "0.0:cqe-error=0x04"] {
        let report = run(&format!("--duration 3s --inject 100ms:{fault}"));
        let Verdict::Failed(Failing::Program(_), text) = &report.judged else {
            panic!("{fault}: {:?}", report.judged)
        };
        assert!(text.contains("0.1>1.1  ready"), "{text}");
        assert_eq!((report.verdict, report.judged.exit_status()), ("program error", 3));
    }
}

#[test]
fn a_pe_that_is_killed_is_lost_by_name_at_either_end() {
    for (victim, names) in [(1, "PE 0 lost peer 1"), (0, "PE 1 lost peer 0")] {
        let report = run(&format!("--duration 20s --give-up 100ms --inject 100ms:{victim}:peer-killed"));
        let Verdict::Failed(Failing::NoPath, text) = &report.judged else { panic!("{:?}", report.judged) };
        assert!(text.contains(names) && text.contains(&format!("PE {victim} was killed")), "{text}");
        assert_eq!((report.puts_lost, report.faults[0].hits), (0, 1), "the dead are not judged");
        assert!(report.bytes_delivered > 0);
    }
}

#[test]
fn an_agent_held_back_cut_off_or_replaced_and_a_clock_that_jumps_cost_nothing() {
    let faults = "--inject 100ms:0:clock-jump=60m --inject 150ms:1:agent-stalled=50ms --inject 200ms:0:oob-cut=400ms \
                  --inject 250ms:0.0:down --inject 700ms:0.0:up --inject 100ms:1:clock-jump=3s \
                  --inject 400ms:0:agent-restart --inject 650ms:1:agent-dead=30ms";
    let report = run(&format!("--duration 1200ms {faults}"));
    assert_clean(&report);
    assert!(report.failovers >= 1 && report.max_gap_us.unwrap() < 1e9, "{report:#?}");
    assert!(
        report.switches.iter().all(|line| line.opened_ns < 60_000_000_000),
        "times are the run's: {report:#?}"
    );
}

#[test]
fn an_agent_that_is_killed_is_missed_by_the_next_fault() {
    let report = run("--duration 20s --inject 100ms:0:agent-killed --inject 200ms:0.0:down");
    assert!(matches!(report.judged, Verdict::Failed(Failing::Unfenced, _)), "{:?}", report.judged);
    assert_eq!(report.faults[0].hits, 1);
}

#[test]
fn a_command_hits_when_it_succeeds_and_only_then() {
    let report = run("--duration 200ms --inject 50ms:0.0:exec=true");
    assert_clean(&report);
    assert_eq!(report.faults[0].hits, 1);
    let report = run("--duration 200ms --inject 50ms:0.0:exec=true --inject 50ms:1.1:exec=false");
    assert_eq!(report.judged, Verdict::NotExercised(vec!["1.1:exec=false".into()]));
}
