//! Promises that hold without any fault, and at the wraps of counters: invariants 8, 9 and 11; the fence by time.

use std::rc::Rc;

use shunt_device::platform::host::World;
use shunt_device::{Deadline, FaultKind, HeapOffset, Solo};

use shunt_layout::state::OwnerWord;

use super::Scenario;
use super::kit::{Wrongs, both_ways, brisk, clean, failovers_of, judged, kept, spec, wrong_if};
use crate::cluster::Cluster;
use crate::cost::{CALLS, costs};
use crate::lies::Lie;
use crate::oracle::load;
use crate::run::{finish, start_streams};
use crate::sim::{Access, Interference};
use crate::swarm::or_panic;
use crate::workload::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "nothing_is_paid_while_healthy", seeds: 1, run: nothing_paid },
    Scenario { name: "nics_that_place_out_of_order", seeds: 2, run: out_of_order },
    Scenario { name: "one_owner_at_a_time", seeds: 8, run: one_owner },
    Scenario { name: "generations_wrap", seeds: 2, run: generations_wrap },
    Scenario { name: "more_work_than_a_counter_counts", seeds: 1, run: more_than_a_counter },
    Scenario { name: "silence_is_no_fence_by_time", seeds: 2, run: silence_is_no_fence },
    Scenario { name: "the_lifetime_of_a_fence_by_time", seeds: 4, run: lifetime_by_time },
];

/// Invariant 8: accesses to memory with fault tolerance on and off.
fn nothing_paid(_seed: u64) -> Wrongs {
    let (on, off) = (costs(false), costs(true));
    let calls = CALLS.iter().zip(on.into_iter().zip(off));
    let more = calls.filter(|(name, (on, off))| **name != "cleared" && on != off);
    more.map(|(name, (on, off))| format!("{name}: {on:?} with fault tolerance, {off:?} without")).collect()
}

/// H3: packets of writes land in any order, so that a kind 1 signal may pass its data. QUERY_QP shows it, and no job
/// starts on such queue pairs.
fn out_of_order(seed: u64) -> Wrongs {
    let mut spec = spec(seed, &[]);
    spec.out_of_order = true;
    match or_panic(|| crate::run::run(&spec)) {
        Err(said) if said.contains("out of order") => Vec::new(),
        Err(said) => vec![said],
        Ok(outcome) => super::kit::promises(&outcome),
    }
}

/// Invariant 9: an owner is followed by another one only once it has let go, or its lease has ended.
fn one_owner(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = brisk(both_ways(seed, &["150us:0.0:down", "4ms:0.0:up"]));
        (spec.warps, spec.log_depth, spec.agent.looks) = (4, 4, 0);
        spec.traffic = Traffic { messages: 60, slots: 4, pace_ns: 5_000, credit_lag: 1, ..spec.traffic };
        let mut cluster = Cluster::start(&spec);
        let words: Vec<u64> =
            [(0, 1), (1, 0)].iter().map(|(pe, peer)| cluster.owner_word(*pe, *peer, 0)).collect();
        let (world, mut last) = (cluster.sim.world(), vec![0; words.len()]);
        let mut turn = seed;
        let hook = move |_: Access| {
            for (word, last) in words.iter().zip(&mut last) {
                let owner = load(*word);
                let (new, old) = (OwnerWord(owner), OwnerWord(*last));
                let taken = !new.is_free() && !old.is_free() && !new.same_owner(old);
                // At once: what two owners do to one channel ends in wild accesses.
                assert!(
                    !taken || old.part_is_over(world.now_ns()),
                    "a switch has two owners: {last:#x} and {owner:#x}"
                );
                *last = owner;
            }
            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if turn >> 60 == 0 { 2_000 } else { 0 }
        };
        cluster.interference = Rc::new(Interference {
            hook: std::cell::RefCell::new(Some(Box::new(hook))),
            ..Interference::default()
        });
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        [super::kit::promises(&outcome), super::kit::faults_of_kernels(&outcome), failovers_of(&outcome, 2)]
            .concat()
    })
}

/// Invariant 11: callers that wait for room across switches whose generations wrap.
fn generations_wrap(seed: u64) -> Wrongs {
    let mut spec = brisk(both_ways(seed, &["300us:0.0:down", "20ms:0.0:up"]));
    (spec.first_generation, spec.warps, spec.log_depth) = (255, 8, 2);
    spec.traffic = Traffic { messages: 150, pace_ns: 0, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 2))
}

/// Invariant 11: more than 65,536 WQEs on one path, which is healthy, and is taken to be.
fn more_than_a_counter(seed: u64) -> Wrongs {
    const COUNT: u64 = 66_000;
    judged(|| {
        let cluster = Cluster::start(&spec(seed, &[]));
        let task = cluster.spawn("p", 0, |kernel| {
            let channel = kernel.device().channel(1, 0);
            let quiet = || channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000_000));
            for number in 1..=COUNT {
                channel.p_nbi(Solo, HeapOffset(64), number, 8)?;
            }
            quiet()
        });
        let first = cluster.sim.finish(&task);
        let seen = load(cluster.pe(1).heap().address + 64);
        let mut wrongs = wrong_if(first.is_err(), || format!("{COUNT} values ended with {first:?}"));
        wrongs.extend(wrong_if(!cluster.records().is_empty(), || "a healthy path was left".into()));
        wrongs.extend(wrong_if(seen != COUNT, || format!("the last value is {seen}, not {COUNT}")));
        wrongs
    })
}

/// F9: a doorbell that got lost leaves a path without an error for ever, and no time is enough to fence it.
fn silence_is_no_fence(seed: u64) -> Wrongs {
    let faults = ["500us:0:agent-killed", "500us:1:agent-killed", "2ms:0.0:lost-doorbell"];
    let mut spec = spec(seed, &faults);
    spec.time_fence = true;
    spec.traffic = Traffic { messages: 400, slots: 1, puts: 1, credit_lag: 0, ..spec.traffic };
    spec.traffic.wait_ns = 10_000_000_000;
    kept(&spec, Lie::None, |outcome| {
        let fault = outcome.senders[0].fault.map(|fault| fault.kind);
        wrong_if(fault != Some(FaultKind::FenceUnproven), || format!("nothing proved a fence, and {fault:?}"))
    })
}

/// Packets are on their way when the error completion comes: the fence is one lifetime later, and not before they
/// landed.
fn lifetime_by_time(seed: u64) -> Wrongs {
    let delay = ["9ms", "20ms", "30ms", "44ms"][seed as usize % 4];
    let delay = format!("1500us:0.0:delay={delay}/2ms");
    let faults = ["500us:0:agent-killed", "500us:1:agent-killed", &delay, "2ms:0.0:cqe-error=0x15"];
    let mut spec = spec(seed, &faults);
    spec.time_fence = true;
    spec.traffic = Traffic { messages: 400, slots: 48, pace_ns: 5_000, credit_lag: 0, ..spec.traffic };
    kept(&spec, Lie::None, |outcome| {
        let (fault, messages) = (outcome.senders[0].fault, outcome.receivers[0].messages);
        let done = fault.is_none() && messages == outcome.spec.traffic.messages;
        wrong_if(!done, || format!("{messages} messages, the sender ended with {fault:?}"))
    })
}
