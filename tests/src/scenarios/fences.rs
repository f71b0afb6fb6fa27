//! Fences: what is still in the network or in a NIC when a path is left. Rules 9, 10, 13; F1, F2, F9, H8.

use super::kit::{
    Wrongs, both_ways, brisk, clean, failovers_of, faults_of_kernels, gap_below, held, idle_faults, judged,
    promises, spec, wrong_if,
};
use super::scenario::Scenario;
use crate::cluster::{Cluster, step_at};
use crate::late::{Between, DELAYS, late};
use crate::lies::Lie;
use crate::run::{finish, start_streams};
use crate::sim::{Access, Interference};
use crate::spec::RunSpec;
use crate::traffic::Traffic;
use shunt_device::FaultKind;
use shunt_layout::state::{CauseKind, Step};
use std::rc::Rc;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "packets_on_their_way_when_the_port_goes_down", seeds: 4, run: on_their_way },
    Scenario { name: "a_deadline_is_no_fence", seeds: 6, run: deadline_is_no_fence },
    Scenario { name: "a_second_switch_with_packets_on_their_way", seeds: 4, run: second_switch },
    Scenario { name: "both_sides_leave_at_once", seeds: 6, run: both_sides_leave_at_once },
    Scenario { name: "a_flush_is_seen_before_the_message", seeds: 2, run: flush_before_message },
    Scenario { name: "the_hint_is_lost", seeds: 4, run: hint_lost },
    Scenario { name: "packets_outlive_a_silent_receiver", seeds: 4, run: outlive_a_silent_receiver },
    Scenario { name: "a_clock_jump_during_the_lifetime", seeds: 6, run: clock_jump },
    Scenario { name: "posted_writes_of_the_old_nic", seeds: 6, run: posted_writes_of_the_old_nic },
    Scenario { name: "posted_writes_of_many_channels", seeds: 6, run: posted_writes_of_many },
    Scenario { name: "firmware_that_does_not_move_to_err", seeds: 4, run: not_moved_to_err },
    Scenario { name: "neither_half_answers_commands", seeds: 4, run: neither_half_answers },
    Scenario { name: "both_nics_answer_late", seeds: 3, run: answer_late },
    Scenario { name: "both_nics_answer_before_the_peer_is_given_up", seeds: 3, run: answer_very_late },
    Scenario { name: "a_nic_that_is_silent_for_a_while", seeds: 4, run: silent_for_a_while },
    Scenario { name: "fences_whose_flush_fails", seeds: 2, run: flush_fails },
    Scenario { name: "ghosts_of_sixty_seconds", seeds: 8, run: ghosts_of_sixty_seconds },
    Scenario { name: "held_for_longer_than_suspected", seeds: 6, run: held_and_suspected },
    Scenario { name: "held_while_the_receiver_is_silent", seeds: 4, run: held_and_silent },
    Scenario { name: "retransmitted_just_before_the_fence", seeds: 6, run: retransmitted_just_before },
    Scenario { name: "answers_that_come_late", seeds: 2, run: late_answers },
];

/// Dense traffic, small windows: slots are reused as fast as credit allows.
fn dense(seed: u64, faults: &[&str]) -> RunSpec {
    let spec = both_ways(seed, faults);
    let traffic = Traffic { messages: 1_500, slots: 4, pace_ns: 0, credit_lag: 0, ..spec.traffic };
    RunSpec { warps: 2, traffic, ..spec }
}

/// What the port sent before it went down arrives milliseconds after the backup was entered.
fn on_their_way(seed: u64) -> Wrongs {
    let delay = ["300us", "1ms", "2ms", "5ms"][seed as usize % 4];
    let place = seed % 2;
    let faults = [format!("200us:{place}.0:delay={delay}"), format!("3ms:{place}.0:down")];
    clean(&dense(seed, &faults.each_ref().map(String::as_str)), |outcome| failovers_of(outcome, 1))
}

/// A path that is only slow: suspected by the deadline while all its packets are on their way.
fn deadline_is_no_fence(seed: u64) -> Wrongs {
    let delay = ["2500us", "3ms", "7ms", "15ms"][seed as usize % 4];
    let mut spec = dense(seed, &[&format!("200us:0.0:delay={delay}")]);
    if seed >= 4 {
        // ACKs are lost, and the window is so wide that packets keep coming while both ends fence.
        spec = dense(seed, &["100us:0.0:delay=700us", "1ms:0.0:drop-acks"]);
        (spec.both_ways, spec.log_depth, spec.warps) = (false, 11, 1);
        spec.traffic = Traffic { messages: 900, slots: 900, pace_ns: 8_000, credit_lag: 800, ..spec.traffic };
    }
    spec.suspect_ns = 2_000_000;
    clean(&spec, |outcome| {
        let overdue = outcome.records.iter().any(|(_, record)| record.cause == CauseKind::Overdue as u32);
        wrong_if(!overdue, || "no channel suspected the slow path".into())
    })
}

/// The network holds everything of a port back, as PFC pauses do, for longer than a path may be silent: it is suspected
/// and left, and then all that was held arrives at once.
fn held_and_suspected(seed: u64) -> Wrongs {
    let held = ["3ms", "12ms", "40ms"][seed as usize % 3];
    let mut spec = dense(seed, &[&format!("1ms:{}.0:hold={held}", seed / 3)]);
    spec.suspect_ns = 2_000_000;
    spec.suspect_floor_ns = 2_000_000;
    clean(&spec, |outcome| {
        let overdue = outcome.records.iter().any(|(_, record)| record.cause == CauseKind::Overdue as u32);
        wrong_if(!overdue, || "no channel suspected the path that was held".into())
    })
}

/// The same while the receiver's firmware is silent: what is held comes half a lifetime after our half was moved to
/// ERR, or nearly one.
fn held_and_silent(seed: u64) -> Wrongs {
    let held = ["27ms", "46ms"][seed as usize % 2];
    let mut spec = spec(seed, &["100us:1.0:fw-timeout=90ms", &format!("2ms:{}.0:hold={held}", seed / 2)]);
    (spec.warps, spec.suspect_ns, spec.suspect_floor_ns) = (2, 2_000_000, 2_000_000);
    spec.traffic = Traffic { messages: 1_500, slots: 64, credit_lag: 0, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

/// NICs whose retries come after growing waits. Requests are lost, so that their first retry goes out a moment before
/// our half is moved to ERR, and the receiver's firmware is silent. What was sent again arrives half a lifetime after
/// that, or nearly one; with the firmware of both ends alive two lifetimes after it.
fn retransmitted_just_before(seed: u64) -> Wrongs {
    let (delay, silent) = [("25ms", true), ("48500us", true), ("100ms", false)][seed as usize % 3];
    let late = format!("9ms:0.0:delay={delay}/3ms");
    let mut faults = vec!["2ms:0.0:blackhole-tx=6ms", late.as_str()];
    faults.extend(silent.then_some("100us:1.0:fw-timeout=90ms"));
    let mut spec = spec(seed, &faults);
    (spec.adaptive_retransmission, spec.warps) = (true, 2);
    // The first retry is sent 8.4 ms after what it repeats.
    (spec.suspect_ns, spec.suspect_floor_ns) = (8_600_000, 8_600_000);
    spec.traffic = Traffic { messages: 1_000, slots: 64, credit_lag: 0, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

/// The backup is left as well, with its packets on their way: its fence is its own.
fn second_switch(seed: u64) -> Wrongs {
    let delay = ["1ms", "3ms"][seed as usize % 2];
    let second = ["0.1", "1.1"][seed as usize / 2 % 2];
    let faults = ["200us:0.0:down", &format!("1ms:{second}:delay={delay}"), &format!("6ms:{second}:down")];
    let mut spec = dense(seed, &faults);
    (spec.rails, spec.backups) = (3, 7);
    spec.traffic = Traffic { slots: 32, pace_ns: 10_000, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 4))
}

/// Both directions loaded; both ends have a reason to leave in the same instant, or one tells the other late.
fn both_sides_leave_at_once(seed: u64) -> Wrongs {
    let faults: &[&str] = match seed % 3 {
        0 => &["300us:0.0:delay=400us", "2ms:0.0:down", "2ms:1.0:down"],
        1 => &["300us:0.0:delay=400us", "2ms:0.0:blackhole-tx", "2ms:1.0:blackhole-tx"],
        _ => &["300us:0.0:delay=3ms", "2900us:1:agent-stalled=6ms", "3ms:0.0:down"],
    };
    let mut spec = dense(seed, faults);
    if seed % 3 == 2 {
        // Plenty is on its way.
        spec.traffic = Traffic { slots: 64, pace_ns: 10_000, ..spec.traffic };
    }
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// One side fences its half while the other's agent hears nothing: there the kernels' own requests end in errors long
/// before the message arrives that says why (F2).
fn flush_before_message(seed: u64) -> Wrongs {
    let stalled = ["570ms", "40ms"][seed as usize % 2];
    let stalled = format!("2500us:1:agent-stalled={stalled}");
    let mut spec = dense(seed, &[&stalled, "3ms:0.0:cqe-error=0x15"]);
    spec.traffic = Traffic { slots: 32, pace_ns: 10_000, wait_ns: 4_000_000_000, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// No event says that the port is down, so nobody is told: silence is all there is.
fn hint_lost(seed: u64) -> Wrongs {
    let pe = seed % 2;
    let faults = [format!("100us:{pe}.0:event-lost"), format!("500us:{pe}.0:down")];
    let spec = dense(seed, &faults.each_ref().map(String::as_str));
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// The receiver's firmware is silent, its data path is not, and packets live long: only the packet lifetime says when
/// the last of them is gone (F9).
fn outlive_a_silent_receiver(seed: u64) -> Wrongs {
    let delay = ["25ms", "32ms", "40ms", "47ms"][seed as usize % 4];
    let mut spec = spec(seed, &["100us:1.0:fw-timeout=60ms", &format!("200us:0.0:delay={delay}/4ms")]);
    spec.warps = 2;
    spec.suspect_ns = 2_000_000;
    spec.traffic = Traffic { messages: 1_500, slots: 64, credit_lag: 0, ..spec.traffic };
    clean(&spec, |outcome| {
        let by_ledger = outcome.records.iter().any(|(pe, record)| *pe == 0 && record.ledger == 1);
        wrong_if(!by_ledger, || "no cut came from the ledger".into())
    })
}

/// The lifetime is what the fence rests on where the peer's agent is silent: a clock that jumps must not end it. The
/// jump is longer than the lifetime and shorter than the give-up time, which kernels count by the clock that jumps.
fn clock_jump(seed: u64) -> Wrongs {
    let jump = format!("{}us:0:clock-jump=80ms", 4_000 + 2_000 * seed);
    let faults = ["1ms:1:agent-killed", "1ms:0.0:delay=20ms/2ms", "2900us:1.0:blackhole-tx", &jump];
    let mut spec = spec(seed, &faults);
    spec.suspect_ns = 2_000_000;
    spec.give_up_ns = 300_000_000;
    spec.agent.peer_ns = 20_000_000;
    spec.traffic = Traffic { messages: 1_000, slots: 48, pace_ns: 5_000, ..spec.traffic };
    held(&spec, Lie::None, |_| Vec::new())
}

/// The old NIC's writes are acknowledged long before they are visible; the new NIC's are not slow at all (F1).
fn posted_writes_of_the_old_nic(seed: u64) -> Wrongs {
    let delay = ["400us", "900us", "3ms"][seed as usize % 3];
    let fault = ["0.0:down", "1.0:down"][seed as usize % 2];
    let mut spec = both_ways(seed, &[&format!("0ns:1.0:placement-delay={delay}"), &format!("3ms:{fault}")]);
    // A window so wide that the sender never waits for what is late.
    spec.traffic = Traffic { messages: 500, slots: 400, pace_ns: 15_000, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

/// The same on channels enough that their fences share flushes. PE 0 gets no acknowledgements and leaves, six fences in
/// batches of 1, 2 and 3. PE 1 writes on, because its agent is held up until the last batch is being fenced: what that
/// batch executed is covered by a flush that comes after its last 2ERR, and by no other.
fn posted_writes_of_many(seed: u64) -> Wrongs {
    let stall = format!("6500us:1:agent-stalled={}us", 10_000 + 500 * (seed % 3));
    let mut spec = both_ways(seed, &["0ns:0.0:placement-delay=2ms", "3ms:0.0:drop-acks", &stall]);
    // Completions are written late as well.
    (spec.channels, spec.suspect_ns, spec.suspect_floor_ns) = (12, 4_000_000, 4_000_000);
    spec.traffic = Traffic { messages: 500, slots: 300, pace_ns: 60_000, ..spec.traffic };
    spec.step_limit = 20_000_000;
    clean(&spec, |outcome| failovers_of(outcome, 6))
}

/// 2ERR is answered and not done, and QUERY_QP shows it: nothing is proved, and nothing may go on as if it were.
fn not_moved_to_err(seed: u64) -> Wrongs {
    let mut spec = dense(seed, &["200us:0.0:delay=3ms", "3ms:0.0:down"]);
    spec.give_up_ns = 100_000_000;
    spec.agent.peer_ns = 100_000_000;
    spec.traffic.wait_ns = 1_000_000_000;
    super::kit::kept(&spec, Lie::IgnoresErr, |outcome| {
        let unproven = outcome.ended_with(FaultKind::FenceUnproven);
        wrong_if(unproven == 0, || "no kernel ended with a fence that could not be proved".into())
    })
}

/// Neither NIC answers commands, both send and receive: there is no fence, and the only answer is an error.
fn neither_half_answers(seed: u64) -> Wrongs {
    let faults = ["100us:0.0:fw-timeout", "100us:1.0:fw-timeout", "200us:0.0:delay=6ms/4ms"];
    let mut spec = dense(seed, &faults);
    spec.suspect_ns = 2_000_000;
    spec.give_up_ns = 100_000_000;
    spec.agent.peer_ns = 100_000_000;
    spec.traffic.wait_ns = 1_000_000_000;
    held(&spec, Lie::None, |outcome| {
        let unproven = outcome.ended_with(FaultKind::FenceUnproven);
        wrong_if(unproven == 0, || "no kernel ended with a fence that could not be proved".into())
    })
}

/// Both NICs take longer over a job than one may before it counts as dead for now, and then answer: the fence is proved
/// late, and no channel ends.
fn answer_late(seed: u64) -> Wrongs {
    let for_ms = [12, 15, 18][seed as usize % 3];
    let slow = |pe: u32| format!("1ms:{pe}.0:fw-timeout={for_ms}ms");
    let mut spec = both_ways(seed, &[&slow(0), &slow(1), "1100us:0.0:blackhole-tx"]);
    (spec.agent.nic_ns, spec.suspect_ns, spec.suspect_floor_ns) = (4_000_000, 1_000_000, 1_000_000);
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// The same for longer than twice what a peer may be silent, though not for as long as a peer must be out of reach to
/// be given up: the soak met channels that ended after a second where the operator had asked for thirty.
fn answer_very_late(seed: u64) -> Wrongs {
    let for_ms = [60, 90, 200][seed as usize % 3];
    let slow = |pe: u32| format!("1ms:{pe}.0:fw-timeout={for_ms}ms");
    let mut spec = both_ways(seed, &[&slow(0), &slow(1), "1100us:0.0:blackhole-tx"]);
    (spec.agent.nic_ns, spec.suspect_ns, spec.suspect_floor_ns) = (4_000_000, 1_000_000, 1_000_000);
    (spec.agent.peer_ns, spec.traffic.wait_ns) = (10_000_000, 4_000_000_000);
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// A NIC fails the command of a fence, and answers the next ones; the other half's agent is silent, or its NIC is no
/// better. Nobody else can prove the fence, so it is tried again, and no channel ends.
fn silent_for_a_while(seed: u64) -> Wrongs {
    let for_ms = [25, 90][seed as usize / 2 % 2];
    let other = [format!("1ms:1.0:fw-timeout={for_ms}ms"), "900us:1:agent-stalled=900ms".into()];
    let mut spec = spec(
        seed,
        &[&format!("1ms:0.0:fw-timeout={for_ms}ms"), &other[seed as usize % 2], "1100us:0.0:down"],
    );
    spec.traffic.wait_ns = 4_000_000_000;
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

/// Many channels leave a NIC that flushes nothing: each fence has to wait for a packet lifetime, and none for the
/// deadlines of all the flushes before it.
fn flush_fails(seed: u64) -> Wrongs {
    let mut spec = brisk(spec(seed, &["1ms:0.0:rnr", "1100us:0.0:down"]));
    (spec.channels, spec.stream_channels, spec.flush_ns) = (24, 24, 10_000_000);
    (spec.traffic.messages, spec.step_limit) = (100, 4_000_000);
    clean(&spec, |outcome| {
        let mut wrongs = failovers_of(outcome, 12);
        wrongs.extend(gap_below(outcome, 4 * spec.flush_ns));
        wrongs
    })
}

/// Two requests overlap: the older one's answer takes a packet lifetime, the newer one's does not, and who waits for
/// it looks late.
fn late_answers(seed: u64) -> Wrongs {
    let fault = ["0.2:down", "1.2:down"][seed as usize % 2];
    let faults =
        ["0ns:1.1:fw-timeout=300ms", "500us:0.1:blackhole-tx", "1ms:0.0:down", &format!("30ms:{fault}")];
    let mut spec = spec(seed, &faults);
    (spec.rails, spec.backups, spec.rmsn_cleared, spec.agent.looks) = (4, 7, true, 0);
    spec.traffic = Traffic { messages: 1_500, pace_ns: 50_000, ..spec.traffic };
    judged(|| {
        let mut cluster = Cluster::start(&spec);
        let (word, world, begun) = (cluster.step_word(0, 1, 0), cluster.sim.world(), cluster.began_ns());
        let waiting = move |_: Access| step_at(word) == Step::Fence && world.now() > begun + 30_000_000;
        cluster.interference = Rc::new(Interference::stop_when(waiting, 100_000_000));
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        let idle = idle_faults(&outcome);
        [promises(&outcome), faults_of_kernels(&outcome), failovers_of(&outcome, 2), idle].concat()
    })
}

/// What the port sent before it went down arrives up to a minute later, long after the receiver used its buffers for
/// something else: nothing of it is ever visible. A recreated path meanwhile has the old queue pairs' numbers.
fn ghosts_of_sixty_seconds(seed: u64) -> Wrongs {
    judged(|| {
        let late = late(seed, DELAYS[seed as usize % 4], seed >= 4, Between::Strict);
        let none = wrong_if(late.arrived == 0, || "nothing was late".into());
        let outcome = late.outcome;
        [promises(&outcome), faults_of_kernels(&outcome), failovers_of(&outcome, 1), none].concat()
    })
}
