//! What nobody can know: `Uncertain` faults, their resolution, and what a channel does meanwhile. H13.

use shunt_device::{
    Amo, Deadline, Fault, FaultKind, HeapOffset, Operation, Put, Resolution, Signal, Solo, Ticket,
};
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::oracle::{load, store};
use shunt_tests::spec::RunSpec;

const WORD: HeapOffset = HeapOffset(64);
const RESULT: HeapOffset = HeapOffset(1024);
const SECOND: u64 = 1_000_000_000;

fn cluster(truth: bool, faults: &[&str]) -> Cluster {
    let spec = RunSpec { rmsn_cleared: !truth, ..RunSpec::default() };
    let cluster = Cluster::start(&spec);
    faults.iter().for_each(|fault| cluster.inject(&fault.parse().expect("a fault")));
    // The fault strikes first.
    cluster.sim.run_for(10_000);
    cluster
}

fn quiet(kernel: &Kernel, span_ns: u64) -> Result<(), Fault> {
    kernel.device().channel(1, 0).quiet(Solo, Deadline::after(kernel.world.now(), span_ns))
}

fn heap_word(cluster: &Cluster) -> u64 {
    load(cluster.pe(1).heap().address + WORD.0)
}

/// F3: executed, the answer lost. Sticky, by name, and only one answer is sound.
#[test]
fn a_fetch_whose_answer_was_lost_is_asked_about_and_never_repeated() {
    for amo in [Amo::Add64(5), Amo::Or64(5), Amo::Add32(5)] {
        let cluster = cluster(true, &["0ns:0.0:lost-atomic-response"]);
        let task = cluster.spawn("fetch", 0, move |kernel| {
            let channel = kernel.device().channel(1, 0);
            let ticket = channel.amo_fetch_nbi(Solo, WORD, amo, RESULT).expect("room");
            let first = ticket.0 + 1 - amo.blocks();
            for _ in 0..3 {
                let fault = quiet(kernel, SECOND).expect_err("the answer is lost");
                assert_eq!((fault.kind, fault.operation()), (FaultKind::Uncertain, Operation::Fetch));
                assert_eq!((fault.at, fault.address), (Ticket(first), WORD.0));
            }
            let refused = [
                channel.resolve(Ticket(first), Resolution::NotApplied),
                channel.resolve(Ticket(first + 9), Resolution::Applied),
            ];
            for refused in refused {
                assert_eq!(refused.map_err(|fault| fault.kind), Err(FaultKind::BadResolution));
            }
            channel.resolve(Ticket(first), Resolution::Applied).expect("what is known");
            quiet(kernel, SECOND).expect("nothing else is open");
            let again = channel.resolve(Ticket(first), Resolution::Applied);
            assert_eq!(
                again.map_err(|fault| fault.kind),
                Err(FaultKind::BadResolution),
                "no operation is uncertain"
            );
        });
        cluster.sim.finish(&task);
        assert_eq!(heap_word(&cluster), 5, "{amo:?} was applied once");
    }
}

/// Who only looks learns it as well, at once: no switch goes on until the owner answers.
#[test]
fn a_look_says_that_the_channel_asks() {
    let cluster = cluster(true, &["0ns:0.0:lost-atomic-response"]);
    let task = cluster.spawn("fetch", 0, |kernel| {
        let channel = kernel.device().channel(1, 0);
        let ticket = channel.amo_fetch_nbi(Solo, WORD, Amo::Add64(5), RESULT).expect("room");
        let fault = quiet(kernel, SECOND).expect_err("the answer is lost");
        let before = kernel.world.now();
        let look = || channel.progress(Deadline::after(kernel.world.now(), SECOND));
        let (first, again) = (look(), look());
        assert_eq!((first, again), (Err(FaultKind::Uncertain), Err(FaultKind::Uncertain)));
        assert!(kernel.world.now() < before + SECOND / 2, "it waited for an answer");
        channel.resolve(fault.at, Resolution::Applied).expect("what is known");
        channel
            .wait(Solo, ticket, Deadline::after(kernel.world.now(), SECOND))
            .expect("nothing else is open");
        assert_eq!(look(), Ok(true));
    });
    cluster.sim.finish(&task);
}

#[test]
fn two_lost_answers_are_asked_about_in_turn() {
    let cluster = cluster(true, &["0ns:0.0:lost-atomic-response"]);
    let task = cluster.spawn("fetch", 0, |kernel| {
        let channel = kernel.device().channel(1, 0);
        let mut asked = Vec::new();
        for amo in [Amo::Add64(1), Amo::Add64(1), Amo::Set64(7)] {
            channel.amo_fetch_nbi(Solo, WORD, amo, RESULT).expect("room");
        }
        let at = channel.signal_nbi(Solo, HeapOffset(72), Signal::Monotone(9)).expect("room");
        while let Err(fault) = channel.wait(Solo, at, Deadline::after(kernel.world.now(), SECOND)) {
            asked.push(fault.at.0);
            channel.resolve(fault.at, Resolution::Applied).expect("what is known");
        }
        asked
    });
    assert_eq!(cluster.sim.finish(&task), [0, 1, 2]);
    assert_eq!((heap_word(&cluster), load(cluster.pe(1).heap().address + 72)), (7, 9));
}

/// Without truth, the fate of an add shows nowhere. Its owner says what holds, and it is applied once.
#[test]
fn an_add_without_truth_is_resolved_by_its_owner() {
    // Lost on the way there, or on the way back.
    for (fault, applied) in [("0.0:blackhole-tx", false), ("0.0:blackhole-rx", true)] {
        for signal in [Signal::Add(3), Signal::Cleared(3)] {
            let cluster = cluster(false, &[&format!("0ns:{fault}")]);
            let task = cluster.spawn("add", 0, move |kernel| {
                let channel = kernel.device().channel(1, 0);
                store(kernel.heap, 77);
                let put = Put { dst: HeapOffset(8), src: HeapOffset(0), bytes: 8 };
                let at = channel.put_signal_nbi(Solo, put, WORD, signal).expect("room");
                let mut asked = 0;
                while let Err(fault) = channel.wait(Solo, at, Deadline::after(kernel.world.now(), SECOND)) {
                    assert_eq!((fault.kind, fault.address), (FaultKind::Uncertain, WORD.0), "{signal:?}");
                    assert!(fault.operation() != Operation::Fetch);
                    asked += 1;
                    let answer = if applied { Resolution::Applied } else { Resolution::NotApplied };
                    channel.resolve(fault.at, answer).expect("asked");
                }
                asked
            });
            let asked = cluster.sim.finish(&task);
            // The ledger words lie on both sides of a bracketed one: all of them arrived, or none.
            assert_eq!(asked, matches!(signal, Signal::Add(_)) as u32, "{signal:?} {fault}");
            assert_eq!(heap_word(&cluster), 3, "{signal:?} {fault}: once");
            assert_eq!(load(cluster.pe(1).heap().address + 8), 77);
        }
    }
}

/// The bracket's gap: A was written, B was not.
#[test]
fn a_signal_between_its_ledger_words_is_uncertain() {
    let mut asked = 0;
    for delay_ns in (0..4_000_000).step_by(50_000) {
        let spec = RunSpec { rmsn_cleared: true, seed: delay_ns, ..RunSpec::default() };
        let cluster = Cluster::start(&spec);
        // A packet of a hundred bytes takes a tenth of a millisecond, so that the port may go between two of them.
        cluster.inject(&"0ns:0.0:slow=0.005".parse().expect("a fault"));
        cluster.inject(&format!("{delay_ns}ns:0.0:blackhole-tx").parse().expect("a fault"));
        let task = cluster.spawn("add", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            for round in 1..=40u64 {
                let at = channel.signal_nbi(Solo, WORD, Signal::Cleared(1)).expect("room");
                if let Err(fault) = channel.wait(Solo, at, Deadline::after(kernel.world.now(), SECOND)) {
                    assert_eq!((fault.kind, fault.operation()), (FaultKind::Uncertain, Operation::Cleared));
                    assert_eq!(fault.at.0, at.0 - 1, "the signal, not its ledger words");
                    return (vec![(fault, round)], at.0);
                }
            }
            (Vec::new(), 0)
        });
        let (open, at) = cluster.sim.finish(&task);
        for (fault, round) in &open {
            asked += 1;
            let applied = heap_word(&cluster) == *round;
            let (fault, deadline) = (*fault, SECOND);
            let task = cluster.spawn("resolve", 0, move |kernel| {
                let channel = kernel.device().channel(1, 0);
                let answer = if applied { Resolution::Applied } else { Resolution::NotApplied };
                channel.resolve(fault.at, answer).expect("asked");
                channel.wait(Solo, Ticket(at), Deadline::after(kernel.world.now(), deadline))
            });
            cluster.sim.finish(&task).expect("answered");
        }
        let expected = open.first().map_or(40, |(_, round)| *round);
        assert_eq!(heap_word(&cluster), expected, "{delay_ns} ns: each signal once");
    }
    assert!(asked > 0, "no fault fell between the ledger words");
}

/// Who posts meanwhile waits, and goes on with the channel.
#[test]
fn posters_wait_for_the_resolution() {
    let cluster = cluster(true, &["0ns:0.0:lost-atomic-response"]);
    let first = cluster.spawn("fetch", 0, |kernel| {
        kernel.device().channel(1, 0).amo_fetch_nbi(Solo, WORD, Amo::Add64(1), RESULT).expect("room");
        quiet(kernel, SECOND).expect_err("the answer is lost")
    });
    let fault = cluster.sim.finish(&first);
    let poster = cluster.spawn("post", 0, |kernel| {
        let channel = kernel.device().channel(1, 0);
        let at = channel.signal_nbi(Solo, HeapOffset(72), Signal::Monotone(4)).expect("the channel goes on");
        (kernel.world.now(), channel.wait(Solo, at, Deadline::after(kernel.world.now(), SECOND)))
    });
    cluster.sim.run_for(50_000_000);
    assert!(!poster.is_done(), "reserved while closed");
    let resolver = cluster.spawn("resolve", 0, move |kernel| {
        kernel.device().channel(1, 0).resolve(fault.at, Resolution::Applied).expect("asked");
        kernel.world.now()
    });
    let resolved_ns = cluster.sim.finish(&resolver);
    let (posted_ns, waited) = cluster.sim.finish(&poster);
    assert!(posted_ns >= resolved_ns);
    assert_eq!(waited, Ok(()));
    assert_eq!(load(cluster.pe(1).heap().address + 72), 4);
}

/// Nobody answers: the channel ends by the chain's bound, and says of what.
#[test]
fn an_unanswered_question_ends_the_channel() {
    let cluster = cluster(true, &["0ns:0.0:lost-atomic-response"]);
    let task = cluster.spawn("fetch", 0, |kernel| {
        let channel = kernel.device().channel(1, 0);
        let ticket = channel.amo_fetch_nbi(Solo, WORD, Amo::Add64(1), RESULT).expect("room");
        quiet(kernel, SECOND).expect_err("the answer is lost");
        // Longer than any chain of switches may take.
        kernel.world.sleep(20 * SECOND);
        (ticket, quiet(kernel, SECOND), channel.put_nbi(Solo, Put { dst: WORD, src: WORD, bytes: 8 }))
    });
    let (ticket, waited, posted) = cluster.sim.finish(&task);
    let fault = waited.expect_err("dead");
    assert_eq!((fault.kind, fault.at, fault.operation()), (FaultKind::Uncertain, ticket, Operation::Fetch));
    assert_eq!(posted.map_err(|fault| fault.kind), Err(FaultKind::Uncertain));
}
