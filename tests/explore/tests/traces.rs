//! The minimal traces F1 to F12: designs that are wrong, each found by a shortest trace, and the rules that mend them.
//!
//! Each test explores the same bounds twice: without the rule, where a promise must break within so many steps, and
//! with it, where none may.

use shunt_explore::failover::{self, Kind};
use shunt_explore::search::{Ending, Model, search};
use shunt_explore::words;

/// States that none of these comes near.
const BOUND: usize = 8_000_000;

/// `wrong` breaks `promise` within `steps` steps; `right` holds.
fn breaks(wrong: &impl Model, promise: &str, steps: usize, right: &impl Model) {
    let found = search(wrong, BOUND, |_, _| ());
    let Ending::Broken(trace) = found.ending else {
        panic!("not found in {} states: {:?}", found.states, found.ending)
    };
    assert!(trace.what.starts_with(promise), "another promise is broken\n{trace}");
    assert!(trace.steps.len() <= steps, "{} steps are more than {steps}\n{trace}", trace.steps.len());
    let found = search(right, BOUND, |_, _| ());
    match found.ending {
        Ending::Holds => {}
        Ending::Broken(trace) => panic!("the amended design breaks\n{trace}"),
        Ending::Bounded => panic!("more than {} states", found.states),
    }
}

fn failover(setup: failover::Setup, without: &[failover::Break], promise: &str, steps: usize) {
    let wrong = without.iter().fold(setup.clone(), |setup, part| setup.without(*part));
    breaks(&wrong, promise, steps, &setup);
}

fn words(setup: words::Setup, without: words::Break, promise: &str, steps: usize) {
    breaks(&setup.clone().without(without), promise, steps, &setup);
}

/// An acknowledged put is still a posted write of the old NIC when the replayed signal is visible through the new one.
#[test]
fn f1_the_old_nic_is_flushed_before_its_count_is_told() {
    for kind in [Kind::Monotone, Kind::Cleared] {
        failover(failover::Setup::new(kind, "PS", ""), &[failover::Break::NoFlush], "order", 13);
    }
}

/// The same on the way back: completions of the backup do not say that its writes are visible.
#[test]
fn f1_a_drain_ends_with_a_flush() {
    let setup = failover::Setup::new(Kind::Cleared, "PS", "").revival();
    failover(setup, &[failover::Break::NoDrainFlush], "order", 17);
}

/// One end fences a pair and the agents recreate it, while the other direction still posts in it.
#[test]
fn f2_both_directions_leave_a_pair_together() {
    let setup = failover::Setup::new(Kind::Cleared, "PS", "PS").revival();
    failover(setup, &[failover::Break::ReviveAlone], "no loss", 8);
}

/// A get was executed, its response was lost.
#[test]
fn f3_an_executed_get_is_issued_again() {
    failover(failover::Setup::new(Kind::Cleared, "PGS", ""), &[failover::Break::NoReget], "no loss", 14);
}

/// A get was executed, its response comes after the get was issued again and its buffer was reused.
#[test]
fn f3_late_responses_are_dropped_by_the_requesters_fence() {
    let setup = failover::Setup::new(Kind::Cleared, "PGS", "").faults(0, 1);
    failover(setup, &[failover::Break::OneSided], "no ghosts", 15);
}

/// The receiver's half is recreated before its count was read: it counts from zero.
#[test]
fn f4_a_path_is_recreated_only_when_both_directions_took_their_cut() {
    let setup = failover::Setup::new(Kind::Cleared, "PS", "").revival();
    failover(setup, &[failover::Break::ReviveAlone], "", 15);
}

/// Packets of the old incarnation are in sequence in the new one.
#[test]
fn f5_an_incarnation_shares_no_psn_with_the_one_before() {
    let setup = failover::Setup::new(Kind::Cleared, "PS", "").revival();
    failover(setup, &[failover::Break::ReusePsn], "", 14);
}

/// The second path dies before anything was executed there: its truth is zero.
#[test]
fn f6_the_executed_watermark_never_shrinks() {
    let setup = failover::Setup::new(Kind::Cleared, "GPS", "").paths(3).faults(2, 0);
    failover(setup, &[failover::Break::ForgetExecuted], "", 24);
}

/// The head group waits for room, the switcher for the head group.
#[test]
fn f7_a_group_that_cannot_fit_says_so() {
    let setup = words::Setup::new(2, 1, [1, 1, 1], [1, 1, 1]);
    words(setup, words::Break::NoBlocked, "bounded waits", 15);
}

/// A group that lies across the limit of what surely fits.
#[test]
fn f7_the_journal_ends_where_the_head_group_says() {
    let setup = words::Setup::new(2, 1, [2, 1, 1], [1, 1, 1]);
    words(setup, words::Break::LimitByDepth, "bounded waits", 15);
}

/// A warp asleep before its doorbell wakes when the path is used again.
#[test]
fn f8_a_doorbell_is_rung_under_the_lock_with_its_generation_compared() {
    let setup = words::Setup::new(2, 2, [1, 1, 1], [1, 1, 1]);
    words(setup, words::Break::LateDoorbell, "one switcher", 33);
}

/// A packet is still in the network when the ledger is read.
#[test]
fn f9_a_fence_by_time_waits_for_the_packet_lifetime() {
    let setup = failover::Setup::new(Kind::Monotone, "PS", "").timed();
    failover(setup, &[failover::Break::NoLifetime], "", 13);
    let setup = failover::Setup::new(Kind::Cleared, "PS", "").timed().bracket();
    failover(setup, &[failover::Break::NoLifetime], "", 14);
}

/// A deadline says nothing of the requester: it still sends.
#[test]
fn f9_a_deadline_is_no_fence() {
    let setup = failover::Setup::new(Kind::Monotone, "PS", "").faults(0, 1).timed();
    failover(setup, &[failover::Break::DeadlineAsFence, failover::Break::NoLifetime], "", 13);
}

/// Two NICs read and write one word.
#[test]
fn f10_a_shared_word_is_written_through_one_nic() {
    let setup = failover::Setup::new(Kind::Shared, "PS", "").other_adds(2);
    failover(setup, &[failover::Break::NoAtomicHome], "", 16);
}

/// A poller asleep between the completion and `done` raises it in another generation.
#[test]
fn f11_done_names_its_generation() {
    let setup = words::Setup::new(2, 2, [1, 1, 1], [1, 1, 1]);
    words(setup, words::Break::DoneWithoutGeneration, "", 24);
}

/// A warp asleep before the ring check sees room that was computed for another path.
#[test]
fn f11_room_is_of_one_generation() {
    let setup = words::Setup::new(1, 1, [1, 1, 1], [2, 1, 0]);
    words(setup, words::Break::RoomWithoutGeneration, "", 41);
}

/// Tickets reserved while the switch opens are lost.
#[test]
fn f12_the_ticket_word_opens_by_read_modify_write() {
    let setup = words::Setup::new(2, 1, [1, 1, 1], [1, 1, 1]);
    words(setup, words::Break::OpenByStore, "", 31);
}

/// Designs that need no name: each part alone.
#[test]
fn fence_truth_and_drain_are_needed() {
    use failover::Break as B;
    let new = |kind| failover::Setup::new(kind, "PS", "");
    failover(new(Kind::Cleared), &[B::NoFence], "", 10);
    failover(new(Kind::Cleared), &[B::CutFromCompletions], "", 14);
    failover(new(Kind::Cleared), &[B::QueryBeforeError], "", 13);
    failover(new(Kind::Cleared).revival(), &[B::NoDrain, B::NoDrainFlush], "", 14);
}
