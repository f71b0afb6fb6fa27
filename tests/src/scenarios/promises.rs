//! Promises that hold without any fault, and at the wraps of counters: invariants 8, 9 and 11; the fence by time.

use std::rc::Rc;

use shunt_device::platform::host::World;
use shunt_device::{Deadline, FaultKind, HeapOffset, Solo};
use shunt_layout::state::OrderPolicy;

use shunt_layout::state::OwnerWord;

use super::kit::{Wrongs, both_ways, brisk, clean, failovers_of, judged, kept, spec, wrong_if};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::cost::{CALLS, costs, soak};
use crate::lies::Lie;
use crate::oracle::load;
use crate::run::{finish, start_streams};
use crate::sim::{Access, Interference};
use crate::spec::RunSpec;
use crate::swarm::or_panic;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "nothing_is_paid_while_healthy", seeds: 1, run: nothing_paid },
    Scenario { name: "a_long_soak_costs_the_same", seeds: 1, run: long_soak },
    Scenario { name: "nics_that_place_out_of_order", seeds: 2, run: out_of_order },
    Scenario { name: "nics_that_deny_their_order", seeds: 2, run: order_denied },
    Scenario { name: "adaptive_routing_that_nothing_overrides", seeds: 2, run: adaptive_routing },
    Scenario { name: "a_network_that_reorders_unseen", seeds: 3, run: reorders_unseen },
    Scenario { name: "atomics_carry_order_where_writes_do_not", seeds: 12, run: unordered },
    Scenario { name: "ledger_words_behind_lost_signals", seeds: 8, run: unordered_ledger },
    Scenario { name: "relaxed_data_and_strict_signals", seeds: 6, run: relaxed_data },
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

/// The same over 100,000 operations: none costs more than any other, and all of them as much with as without.
fn long_soak(_seed: u64) -> Wrongs {
    judged(|| {
        let (on, off) = (soak(false), soak(true));
        let steady = on[0] == on[1] && on[2] == on[3];
        let mut wrongs = wrong_if(on != off, || format!("{on:?} with fault tolerance, {off:?} without"));
        wrongs.extend(wrong_if(!steady, || format!("not every put and signal costs the same: {on:?}")));
        wrongs
    })
}

/// H3: packets of writes land in any order, so that a kind 1 signal may pass its data. QUERY_QP shows it, and no job
/// starts on such queue pairs.
fn out_of_order(seed: u64) -> Wrongs {
    refused(&RunSpec { out_of_order: ON_THE_WIRE, ..spec(seed, &[]) })
}

/// H3: such NICs, and QUERY_QP says that all is in order. They show it on a loopback pair before the job starts.
fn order_denied(seed: u64) -> Wrongs {
    refused(&RunSpec { out_of_order: ON_THE_WIRE | INSIDE | DENIED, ..spec(seed, &[]) })
}

/// H3: an InfiniBand network that routes adaptively, NICs whose queue pairs cannot force their order: a job that was
/// told to keep it does not start.
fn adaptive_routing(seed: u64) -> Wrongs {
    refused(&RunSpec { profile: "ib-ar".into(), ..spec(seed, &[]) })
}

/// `RunSpec::out_of_order`.
const ON_THE_WIRE: u32 = 1;
const INSIDE: u32 = 2;
const DENIED: u32 = 4;

/// No job starts, because of the order; if one does, its promises count.
fn refused(spec: &RunSpec) -> Wrongs {
    match or_panic(|| crate::run::run(spec)) {
        Err(said) if said.contains("out of order") => Vec::new(),
        Err(said) => vec![said],
        Ok(outcome) => super::kit::promises(&outcome),
    }
}

/// H3: what only the network does between two NICs shows neither in QUERY_QP nor on a loopback pair. Nothing finds it:
/// a job that wants order starts, breaks its promise, and the judge sees it. One that wants none keeps it.
fn reorders_unseen(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = RunSpec { out_of_order: ON_THE_WIRE | DENIED, ..spec(seed, &[]) };
        let outcome = crate::run::run(&spec);
        let mut wrongs = wrong_if(outcome.oracle.total() == 0, || "the judge saw nothing".into());
        spec.ordering = OrderPolicy::Unordered as u32;
        wrongs.extend(clean(&spec, |_| Vec::new()));
        wrongs
    })
}

/// Traffic on NICs that place out of order and say so, in a job that wants no order.
fn unordered_spec(seed: u64, faults: &[&str], signals: u32) -> RunSpec {
    let mut spec = spec(seed, faults);
    (spec.out_of_order, spec.ordering) = (ON_THE_WIRE | INSIDE, OrderPolicy::Unordered as u32);
    (spec.rails, spec.backups, spec.suspect_ns) = (3, 7, 2_000_000);
    spec.traffic =
        Traffic { messages: 120, slots: 12, signals, pace_ns: 10_000, credit_lag: 0, ..spec.traffic };
    spec
}

/// H3: signals of every kind, with truth and without, over losses and failures.
fn unordered(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:down", "1ms:0.0:drop-acks", "1ms:1.0:drop=0.2/2ms", "1ms:0.0:reorder=3/2ms"];
    let mut spec = unordered_spec(seed, &[fault[seed as usize % 4]], 1 + (seed % 3) as u32);
    spec.rmsn_cleared = seed >= 6;
    clean(&spec, |_| Vec::new())
}

/// H3: packets of bracketed signals get lost, those behind them land, and the path is cut before anything is sent
/// again. There is no truth: the ledger words must not have passed their signals.
fn unordered_ledger(seed: u64) -> Wrongs {
    let at = 400 + 13 * seed;
    let faults = [format!("{at}us:0.0:blackhole-rx"), format!("{at}us:1.0:drop=0.3")];
    let mut spec = unordered_spec(seed, &faults.each_ref().map(String::as_str), 2);
    spec.rmsn_cleared = true;
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

/// H3: data under keys with relaxed ordering, signals of every kind under others; the receiver's NICs hold writes back.
fn relaxed_data(seed: u64) -> Wrongs {
    let faults = ["200us:1.0:placement-delay=40us/3ms", "1ms:0.0:down"];
    let mut spec = spec(seed, &faults[..1 + (seed as usize / 3) % 2]);
    spec.ordering = OrderPolicy::Relaxed as u32;
    spec.traffic = Traffic { slots: 12, signals: 1 + (seed % 3) as u32, pace_ns: 10_000, ..spec.traffic };
    clean(&spec, |_| Vec::new())
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
        let interference = Interference::default();
        interference.ask(hook);
        cluster.interference = Rc::new(interference);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let streams = start_streams(&cluster);
        let outcome = finish(&cluster, streams);
        let mut wrongs = [super::kit::promises(&outcome), super::kit::faults_of_kernels(&outcome)].concat();
        wrongs.extend([failovers_of(&outcome, 2), super::kit::idle_faults(&outcome)].concat());
        wrongs
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
    let faults = ["1ms:0:agent-killed", "1ms:1:agent-killed", &delay, "2ms:0.0:cqe-error=0x15"];
    let mut spec = spec(seed, &faults);
    spec.time_fence = true;
    spec.traffic = Traffic { messages: 400, slots: 48, pace_ns: 5_000, credit_lag: 0, ..spec.traffic };
    kept(&spec, Lie::None, |outcome| {
        let (fault, messages) = (outcome.senders[0].fault, outcome.receivers[0].messages);
        let done = fault.is_none() && messages == outcome.spec.traffic.messages;
        wrong_if(!done, || format!("{messages} messages, the sender ended with {fault:?}"))
    })
}
