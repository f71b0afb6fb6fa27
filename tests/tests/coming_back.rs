//! What works again is used again: pairs, homes and slots that no agent may lose sight of; and orders of an operator
//! that meet a path in any state, or cross on their way. What does not work again is destroyed.

use shunt_device::FaultKind;
use shunt_host::agent::health::Health;
use shunt_host::agent::words::Place;
use shunt_host::events::Event;
use shunt_host::events::control::{Order, Paths, Verb};
use shunt_layout::mlx5::prm::cmd::Opcode;
use shunt_layout::state::{PathRow, PathState};
use shunt_tests::cluster::Cluster;
use shunt_tests::lies::Lies;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, run, start_streams};
use shunt_tests::sharer::Share;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;
use std::cell::Cell;
use std::rc::Rc;

/// One way on three rails, without a word of the other direction: nobody but the sender notices anything.
fn one_way(faults: &[&str]) -> RunSpec {
    let traffic = Traffic {
        messages: 1_000,
        slots: 1_000,
        credit_lag: 1_000,
        pace_ns: 800_000,
        wait_ns: 3_000_000_000,
        ..Traffic::default()
    };
    let faults = faults.iter().map(|fault| fault.parse().expect("a fault")).collect();
    RunSpec { rails: 3, backups: 2, traffic, faults, ..RunSpec::default() }
}

fn clean(spec: &RunSpec) -> Outcome {
    let outcome = run(spec);
    outcome.assert_clean();
    outcome.assert_exercised();
    outcome
}

/// The time fence goes on without the agent, and the next request overwrites the one about the primary: it is recreated
/// all the same, and carries everything when the others are gone.
#[test]
fn a_path_whose_fence_request_was_overwritten_comes_back() {
    let faults = [
        "5ms:0:agent-stalled=300ms",
        "10ms:0.0:cqe-error=0x15",
        "100ms:0.1:cqe-error=0x15",
        "600ms:0.1:down",
        "600ms:0.2:down",
    ];
    clean(&RunSpec { time_fence: true, ..one_way(&faults) });
}

/// Two NICs hang, one after the other, and keep their commands for a minute: the slot that is left over is given to the
/// third rail, whether or not a port tells of it.
#[test]
fn a_slot_whose_fence_hangs_in_a_dead_nic_is_given_to_another() {
    for how in ["down", "blackhole-rx"] {
        let faults = [
            "1ms:0.0:fw-timeout",
            &format!("1ms:0.0:{how}"),
            "500ms:0.1:fw-timeout",
            &format!("500ms:0.1:{how}"),
        ];
        clean(&RunSpec { backups: 1, command_timeout_ns: 60_000_000_000, ..one_way(&faults) });
    }
}

/// Three PEs, two of which add to a word of the third for a while.
fn two_writers(
    roles: (u32, u32, u32),
    change: impl Fn(&mut RunSpec),
    pace_ns: u64,
    faults: &[String],
) -> Sharing {
    let (to, one, two) = roles;
    let mut spec = RunSpec { pes: 3, atomic_gap_ns: 1_500, log_depth: 4, ..RunSpec::default() };
    spec.agent.lifetime_ns = 1_000_000;
    change(&mut spec);
    let cluster = Cluster::start(&spec);
    faults.iter().for_each(|fault| cluster.inject(&fault.parse().expect("a fault")));
    let share =
        |from| Share { from, to, channel: 0, adds: 2_000, pace_ns, delay_ns: 0, rest_ns: 0, exact: false };
    let writers = [cluster.share(share(one)), cluster.share(share(two))];
    cluster.judge_sharers(&writers);
    assert_eq!(cluster.oracle.total(), 0, "{}", cluster.oracle.describe());
    let moved = |event: &Event| matches!(event, Event::HomeMoved { .. });
    Sharing {
        ended: writers.each_ref().map(|writer| writer.fault().map(|fault| fault.kind)),
        moves: cluster.events(to).iter().filter(|told| moved(&told.event)).count(),
    }
}

/// What came of it: how each writer ended, and how often the home moved.
#[derive(Debug, PartialEq)]
struct Sharing {
    ended: [Option<FaultKind>; 2],
    moves: usize,
}

/// A home's NIC answers no commands for a while, and one writer's NIC neither, or its whole PE is gone: for so long
/// nothing proves that writer's pair silent. Once the home's NIC answers again it fences or destroys what it had of it:
/// the home moves, and the PEs that live go on.
#[test]
fn a_home_moves_once_the_half_that_nobody_could_fence_is_destroyed() {
    for (to, one, two) in [(0, 1, 2), (2, 0, 1)] {
        for gone in [format!("900us:{one}.0:fw-timeout=300ms"), format!("900us:{one}:peer-killed")] {
            let faults = [
                format!("900us:{to}.0:fw-timeout=300ms"),
                gone.clone(),
                // For ever: no add arrives by this rail any more, so a writer that ends well had its home moved.
                format!("1ms:{to}.0:blackhole-rx"),
            ];
            let change =
                |spec: &mut RunSpec| (spec.give_up_ns, spec.agent.peer_ns) = (2_000_000_000, 100_000_000);
            let came = two_writers((to, one, two), change, 4_000, &faults);
            assert_eq!(came.ended, [None, None], "PE {to}, {gone}");
        }
    }
}

/// The same, for ever, and the writer's slot is given to other rails, where it is recreated: what was on the old ones
/// may still take an add, and holds the home there.
#[test]
fn a_half_whose_slot_was_given_away_holds_the_home() {
    let (to, one, two) = (2, 0, 1);
    let faults = [
        // Not the last that works, so that its slot is given to a pair that leads home.
        format!("400us:{to}.1:down=5ms"),
        format!("500us:{one}.0:down=20ms"),
        format!("10ms:{to}.0:fw-timeout"),
        format!("10ms:{one}.1:fw-timeout"),
        format!("10ms:{one}.1:down=250ms"),
        format!("400ms:{to}.0:blackhole-rx"),
    ];
    let change = |spec: &mut RunSpec| {
        (spec.agent.probe_ns, spec.agent.backoff_ns, spec.backups) = (100_000, 200_000, 1);
    };
    let came = two_writers((to, one, two), change, 300_000, &faults);
    let ended = [Some(FaultKind::FenceUnproven), Some(FaultKind::PeerLost)];
    assert_eq!(came, Sharing { ended, moves: 0 });
}

/// A NIC that answers nothing has a half of a slot that was given to other rails, and may still complete into its
/// memory: the next half of the slot takes the other part of it.
#[test]
fn memory_that_a_silent_nic_may_write_is_not_used() {
    let faults =
        ["1ms:0.1:fw-timeout", "2ms:0.1:down", "400ms:0.0:down", "420ms:0.2:cqe-error=0x15", "700ms:0.0:up"];
    let spec = RunSpec { backups: 1, command_timeout_ns: 60_000_000_000, ..one_way(&faults) };
    let cluster = Cluster::start(&spec);
    let memory = || cluster.path_row(0, 1, 0, 1).completion_queue;
    let silent = memory();
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let outcome = finish(&cluster, start_streams(&cluster));
    outcome.assert_clean();
    outcome.assert_exercised();
    let row = cluster.path_row(0, 1, 0, 1);
    assert!(row.state == PathState::Ready as u32 && row.local_rail != 1, "{outcome}");
    assert!(row.incarnation > 2 && memory() != silent, "number {}\n{outcome}", row.incarnation);
}

/// Two silent NICs, one at each end, have halves of one slot in different parts of its memory. Where the part followed
/// from the number of the incarnation, each number was refused by one of the ends, and the slot never came back: jobs
/// ended with a good pair of rails left.
#[test]
fn silent_nics_of_both_ends_do_not_keep_a_slot() {
    let mut spec = RunSpec { backups: 1, command_timeout_ns: 60_000_000_000, ..one_way(&[]) };
    spec.traffic.messages = 4_000;
    let cluster = Cluster::start(&spec);
    let streams = start_streams(&cluster);
    let fail = |rail: &str| {
        let now_ns = cluster.sim.now() - cluster.began_ns();
        for fault in [format!("{now_ns}ns:{rail}:fw-timeout"), format!("{now_ns}ns:{rail}:down")] {
            cluster.inject(&fault.parse().expect("a fault"));
        }
    };
    let comes_back = |serves: fn(PathRow) -> bool| {
        let ready = || {
            let row = cluster.path_row(0, 1, 0, 1);
            cluster.sim.run_for(10_000_000);
            row.state == PathState::Ready as u32 && serves(row)
        };
        (0..100).any(|_| ready())
    };
    fail("0.1");
    assert!(comes_back(|row| (row.local_rail, row.remote_rail) == (2, 2)), "the first is left");
    fail("1.2");
    assert!(comes_back(|row| row.local_rail != 1 && row.remote_rail != 2), "and the second");
    let outcome = finish(&cluster, streams);
    outcome.assert_clean();
    outcome.assert_exercised();
}

const PRIMARY: Place = Place { peer: 1, channel: 0, slot: 0 };

fn steady(ms: u64, faults: &[&str]) -> RunSpec {
    RunSpec {
        both_ways: true,
        traffic: Traffic { messages: ms * 5, pace_ns: 200_000, ..Traffic::default() },
        faults: faults.iter().map(|fault| fault.parse().expect("a fault")).collect(),
        ..RunSpec::default()
    }
}

/// The health of the primary as the agent of `pe` has it.
fn health(cluster: &Cluster, pe: u32) -> Health {
    let seen = Rc::new(Cell::new(None));
    let kept = seen.clone();
    cluster.order(pe, move |agent, _| kept.set(agent.health(Place { peer: 1 - pe, ..PRIMARY })));
    cluster.sim.run_until(|| seen.get().is_some());
    seen.get().expect("a path that exists")
}

/// A path that the operator takes out while it is down, or while it is being recreated, is out at both ends, and nobody
/// goes back to it; and it comes back when the operator says so.
#[test]
fn a_path_is_taken_out_whatever_state_it_is_in() {
    for taker in [0, 1] {
        let at = Place { peer: 1 - taker, ..PRIMARY };
        for after_us in [None, Some(0), Some(150), Some(1_000)] {
            let spec = steady(500, &["5ms:0.0:down", "30ms:0.0:up"]);
            let cluster = Cluster::start(&spec);
            spec.faults.iter().for_each(|fault| cluster.inject(fault));
            let streams = start_streams(&cluster);
            match after_us {
                None => cluster.sim.run_for(20_000_000),
                Some(us) => {
                    let recreated =
                        || cluster.path_row(taker, at.peer, 0, 0).state == PathState::Probing as u32;
                    cluster.sim.run_until(recreated);
                    cluster.sim.run_for(us * 1_000);
                }
            }
            let was = health(&cluster, taker);
            cluster.order(taker, move |agent, now| assert!(agent.retire(now, at), "a path that exists"));
            cluster.sim.run_for(200_000_000);
            let is = [0, 1].map(|pe| health(&cluster, pe));
            assert_eq!(is, [Health::Retired; 2], "PE {taker} took it out while it was {was:?}");
            assert_eq!(cluster.records().len(), 2, "left once by each direction: {:?}", cluster.records());
            cluster.order(taker, move |agent, now| assert!(agent.readmit(now, at), "a path that exists"));
            let outcome = finish(&cluster, streams);
            outcome.assert_clean();
            assert_eq!(outcome.switchbacks(), 2, "{was:?}: {outcome}");
        }
    }
}

/// A path that nobody took out is not brought back: the answer was that it is recreated.
#[test]
fn what_was_not_taken_out_is_not_brought_back() {
    let cluster = Cluster::start(&steady(200, &[]));
    let streams = start_streams(&cluster);
    cluster.sim.run_for(20_000_000);
    let order = |verb| Order { verb, paths: Paths { pe: 0, rail: 0, to: None } };
    let none = "expected paths that were taken out, got 2 that were not";
    cluster.order(0, move |agent, now| assert_eq!(agent.obey(now, order(Verb::Readmit)), Err(none.into())));
    cluster.order(0, move |agent, now| assert!(agent.obey(now, order(Verb::Retire)).is_ok()));
    cluster.sim.run_for(20_000_000);
    let back = "2 path(s) are recreated, as soon as their ports are up";
    cluster.order(0, move |agent, now| assert_eq!(agent.obey(now, order(Verb::Readmit)), Ok(back.into())));
    finish(&cluster, streams).assert_clean();
}

/// The word that brings a path back is lost, and the other end, which still leaves it or has left it, says once more
/// that it is taken out, or goes on keeping it out: an order that is older than the last one changes nothing.
#[test]
fn an_old_order_does_not_take_a_path_out_again() {
    // With one backup, whose port is down, both ends keep the path for as long as they may; with three it is left.
    for (taker, backups, switches) in [(0, 1, 0), (1, 1, 0), (0, 3, 4), (1, 3, 4)] {
        let at = Place { peer: 1 - taker, ..PRIMARY };
        let spec = RunSpec { backups, ..steady(200, &["5ms:0.1:down=100ms"]) };
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        cluster.sim.run_for(20_000_000);
        cluster.order(taker, move |agent, now| assert!(agent.retire(now, at), "a path that exists"));
        cluster.sim.run_for(25_000_000);
        let now_ns = cluster.sim.now() - cluster.began_ns();
        cluster.inject(&format!("{now_ns}ns:{taker}:oob-cut-tx=1ms").parse().expect("a fault"));
        cluster.sim.run_for(100_000);
        cluster.order(taker, move |agent, now| assert!(agent.readmit(now, at), "a path that exists"));
        let outcome = finish(&cluster, streams);
        outcome.assert_clean();
        outcome.assert_exercised();
        assert_eq!([0, 1].map(|pe| health(&cluster, pe)), [Health::Ready; 2], "PE {taker}: {outcome}");
        assert_eq!(outcome.records.len(), switches, "PE {taker}, {backups} backups: {outcome}");
    }
}

/// A NIC stops answering while a half is made, once its queue pair is there: it is destroyed when it answers again,
/// and so is the half before it. One lives.
#[test]
fn a_half_that_was_half_made_is_destroyed() {
    let lies = Lies::default();
    let spec = steady(400, &["5ms:0.0:down=10ms"]);
    let cluster = Cluster::start_lying(&spec, lies.clone());
    lies.listen();
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let heard = |opcode: Opcode| {
        lies.heard(|one| (one.pe, one.rail, one.opcode, one.ended) == (0, 0, opcode as u32, true))
    };
    cluster.sim.run_until(|| heard(Opcode::CreateQp) == 1);
    let now_ns = cluster.sim.now() - cluster.began_ns();
    cluster.inject(&format!("{now_ns}ns:0.0:fw-timeout=30ms").parse().expect("a fault"));
    let outcome = finish(&cluster, streams);
    outcome.assert_clean();
    outcome.assert_exercised();
    assert_eq!(heard(Opcode::CreateQp), heard(Opcode::DestroyQp), "{outcome}");
    assert_eq!(health(&cluster, 0), Health::Ready, "{outcome}");
}
