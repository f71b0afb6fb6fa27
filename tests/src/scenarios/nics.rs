//! NICs that answer no commands, and ports that go down under pairs with and without work. Table H1, rule 20, H7.

use shunt_device::{Deadline, FaultKind, HeapOffset, Put, Solo};
use shunt_host::events::Event;

use super::kit::{
    Wrongs, clean, failovers_of, faults_of_kernels, held, idle_faults, judged, promises, spec, wrong_if,
};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::lies::Lie;
use crate::run::{finish, start_streams};
use crate::spec::RunSpec;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "sender_nic_dead_to_commands", seeds: 6, run: sender_dead },
    Scenario { name: "receiver_nic_dead_to_commands", seeds: 6, run: receiver_dead },
    Scenario { name: "both_nics_dead_to_commands", seeds: 6, run: both_dead },
    Scenario { name: "a_healthy_nic_fences_beside_a_dead_one", seeds: 3, run: beside_a_dead_one },
    Scenario { name: "a_port_down_fences_what_has_work", seeds: 4, run: port_down_fences },
];

/// One way, with each kind of signal in turn. What is sent arrives, and no ACK comes back: all is executed, nothing is
/// known.
fn unknown(seed: u64, dead: &[&str]) -> RunSpec {
    let silent = dead.iter().map(|nic| format!("500us:{nic}:fw-timeout=800ms"));
    let faults: Vec<String> = silent.chain(["1ms:0.0:drop-acks".to_owned()]).collect();
    let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
    let mut spec = spec(seed, &faults);
    spec.suspect_ns = 2_000_000;
    spec.traffic.signals = 1 + (seed % 3) as u32;
    // A sender that goes on posting, and one that waits for credit.
    spec.traffic.slots = if seed < 3 { 64 } else { 4 };
    spec.traffic.credit_lag = 0;
    spec
}

/// Row "own NIC dead to commands": the receiver's half in ERR, flushed, one lifetime; its count is exact, whatever the
/// kind.
fn sender_dead(seed: u64) -> Wrongs {
    clean(&unknown(seed, &["0.0"]), |outcome| {
        let guessed = outcome.records.iter().any(|(pe, record)| *pe == 0 && record.ledger == 1);
        let mut wrongs = failovers_of(outcome, 1);
        wrongs.extend(wrong_if(guessed, || "a cut came from the ledger, with truth available".into()));
        wrongs.extend(wrong_if(outcome.resolved > 0, || format!("{} were uncertain", outcome.resolved)));
        wrongs
    })
}

/// Row "receiver's NIC dead to commands": kind 1 is exact by its word, a bracketed kind 2 by its ledger, of kind 3
/// nobody knows, and its owner is asked.
fn receiver_dead(seed: u64) -> Wrongs {
    let spec = unknown(seed, &["1.0"]);
    clean(&spec, |outcome| {
        let guessed = outcome.records.iter().any(|(pe, record)| *pe == 0 && record.ledger == 1);
        let mut wrongs = failovers_of(outcome, 1);
        wrongs.extend(wrong_if(!guessed, || "no cut came from the ledger".into()));
        let (kind, asked) = (spec.traffic.signals, outcome.resolved);
        let right = match kind {
            1 => asked == 0,
            // At most what lies between the two words of one bracket.
            2 => asked <= 1,
            _ => asked > 0,
        };
        wrongs.extend(wrong_if(!right, || format!("{asked} operations of kind {kind} were uncertain")));
        wrongs
    })
}

/// Neither half can be fenced: an error, whatever the kind, and nothing else.
fn both_dead(seed: u64) -> Wrongs {
    let mut spec = unknown(seed, &["0.0", "1.0"]);
    spec.give_up_ns = 100_000_000;
    spec.agent.peer_ns = 100_000_000;
    spec.traffic.wait_ns = 1_000_000_000;
    held(&spec, Lie::None, |outcome| {
        let unproven = outcome.ended_with(FaultKind::FenceUnproven);
        let mut wrongs =
            wrong_if(unproven == 0, || "no kernel ended with a fence that cannot be proved".into());
        wrongs.extend(wrong_if(outcome.failovers() > 0, || "a channel went on without a fence".into()));
        wrongs
    })
}

/// As long as the kernel waits for a command's answer, and longer than that.
const MINUTE_NS: u64 = 60_000_000_000;
const OWED: &str = "900us:0.0:fw-timeout=61s";

/// How long the fence of channel 1's path over rail 1 took at PE 0, in virtual time, while NIC 0 owes an answer for a
/// minute (`dead`), or not.
fn fence_of_rail_1(seed: u64, dead: bool) -> (Option<u64>, Wrongs) {
    let mut spec = spec(seed, &["1ms:0.0:blackhole-tx=300ms", "6ms:0.1:down"]);
    if dead {
        spec.faults.push(OWED.parse().expect("a fault"));
    }
    (spec.rails, spec.backups, spec.channels, spec.both_ways) = (3, 3, 2, true);
    (spec.suspect_ns, spec.command_timeout_ns, spec.idle_ns) = (2_000_000, MINUTE_NS, 200_000);
    (spec.time_limit_ns, spec.step_limit) = (2 * MINUTE_NS, 6_000_000);
    spec.traffic = Traffic { messages: 400, pace_ns: 50_000, ..spec.traffic };
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    let mut wrongs = [promises(&outcome), faults_of_kernels(&outcome), failovers_of(&outcome, 4)].concat();
    wrongs.extend(idle_faults(&outcome));
    let took = cluster.events(0).into_iter().find_map(|told| match told.event {
        Event::PathFenced { at, took_ns } if at.local_rail == 1 => Some(took_ns),
        _ => None,
    });
    // The minute passes, and its firmware answers again.
    cluster.sim.run_for(if dead { 62_000_000_000 } else { 500_000_000 });
    let at_once = cluster.events(0).iter().any(|told| match &told.event {
        Event::PathFenced { at, took_ns } => at.local_rail == 0 && *took_ns < 10_000_000,
        _ => false,
    });
    wrongs.extend(wrong_if(dead == at_once, || format!("NIC 0 fenced its path at once: {at_once}")));
    (took, wrongs)
}

/// A command that is not answered for a minute holds up the pairs of its own NIC, and no others.
fn beside_a_dead_one(seed: u64) -> Wrongs {
    judged(|| {
        let (otherwise, mut wrongs) = fence_of_rail_1(seed, false);
        let (took, more) = fence_of_rail_1(seed, true);
        wrongs.extend(more);
        // A few steps of the agents more or less.
        let late = took.zip(otherwise).is_none_or(|(took, otherwise)| took > otherwise + 150_000);
        wrongs.extend(wrong_if(late, || format!("a fence took {took:?} ns, otherwise {otherwise:?}")));
        wrongs
    })
}

/// A kernel posts on channel 0 and computes; nobody asks for a fence. The port goes down: both halves of its pair are
/// fenced long before it looks. So are those of the idle channel 2 on the same port: its agent does not know that it is
/// idle.
fn port_down_fences(seed: u64) -> Wrongs {
    judged(|| {
        let port = seed % 2;
        let mut spec = spec(seed, &[&format!("3ms:{port}.0:down")]);
        (spec.channels, spec.agent.looks) = (3, 0);
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let begun = cluster.began_ns();
        let kernel = cluster.spawn("compute", 0, move |kernel| {
            let device = kernel.device();
            let channel = device.channel(1, 0);
            let put = |n: u64| Put { dst: HeapOffset(64 * n), src: HeapOffset(64 * n), bytes: 8 };
            kernel.world.sleep(begun + 3_000_000 - 1_000 - kernel.world.now());
            let posted: Vec<_> = (0..4).map(|n| channel.put_nbi(Solo, put(n))).collect();
            // The last ones find the port down.
            kernel.world.sleep(2_000);
            let later = channel.put_nbi(Solo, put(4));
            kernel.world.sleep(20_000_000);
            let looked_ns = kernel.world.now();
            let quiet = channel.quiet(Solo, Deadline::after(looked_ns, 1_000_000_000));
            let posted = posted.iter().chain([&later]).all(Result::is_ok);
            (looked_ns, posted && quiet.is_ok())
        });
        let (looked_ns, well) = cluster.sim.finish(&kernel);
        let mut wrongs = wrong_if(!well, || "the kernel did not end well".into());
        for pe in 0..2 {
            let fenced = |channel: u32| {
                let at_ns = |told: &shunt_host::events::Told| match told.event {
                    Event::PathFenced { at, .. } if at.place.channel == channel => Some(told.at_ns),
                    _ => None,
                };
                cluster.events(pe).iter().find_map(at_ns)
            };
            for channel in [0, 2] {
                let at_ns = fenced(channel);
                let late = at_ns.is_none_or(|at_ns| at_ns > looked_ns - 10_000_000);
                wrongs.extend(wrong_if(late, || format!("PE {pe} fenced channel {channel} at {at_ns:?}")));
            }
        }
        wrongs
    })
}
