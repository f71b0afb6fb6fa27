//! Who lives, who is lost, and how soon that is known. Rules 20 and 21; invariants 6 and 7; H12.

use shunt_device::{Deadline, FaultKind, HeapOffset, Solo};

use super::kit::{Wrongs, both_ways, clean, failovers_of, gap_below, judged, kept, spec, wrong_if};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::lies::Lie;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_port_down_is_known_at_once", seeds: 3, run: port_down },
    Scenario { name: "all_paths_dead_for_less_than_the_give_up_time", seeds: 2, run: all_paths_dead },
    Scenario { name: "a_peer_that_is_gone", seeds: 2, run: peer_gone },
    Scenario { name: "program_errors", seeds: 5, run: program_errors },
    Scenario { name: "transport_errors", seeds: 6, run: transport_errors },
    Scenario { name: "a_path_slower_than_the_suspect_time", seeds: 2, run: slower_than_the_suspect_time },
];

/// One way, a port down at either end: the backup delivers long before anybody suspects. With a port down at each, of
/// different rails, the first backup is known to be of no use either.
fn port_down(seed: u64) -> Wrongs {
    let faults: &[&str] = match seed % 3 {
        0 => &["3ms:0.0:down"],
        1 => &["3ms:1.0:down"],
        _ => &["3ms:0.0:down", "2900us:1.1:down"],
    };
    let mut spec = spec(seed, faults);
    spec.suspect_ns = 20_000_000;
    clean(&spec, |outcome| [failovers_of(outcome, 1), gap_below(outcome, 5_000_000)].concat())
}

fn all_paths_dead(seed: u64) -> Wrongs {
    let mut spec = both_ways(seed, &["3ms:0.0:down", "4ms:1.0:down", "5ms:0.1:down", "105ms:0.0:up"]);
    spec.traffic = Traffic { messages: 400, pace_ns: 50_000, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

/// A kernel waits for a word that only a killed peer writes, with nothing outstanding.
fn peer_gone(seed: u64) -> Wrongs {
    judged(|| {
        let mut spec = spec(seed, &[]);
        spec.give_up_ns = 100_000_000;
        let cluster = Cluster::start(&spec);
        for rail in 0..spec.rails {
            cluster.inject(&format!("0ns:1.{rail}:nic-gone").parse().expect("a fault"));
        }
        cluster.kill_agent(1);
        cluster.oob.close(1);
        let waiter = cluster.spawn("wait", 0, |kernel| {
            let device = kernel.device();
            let until = kernel.world.now() + 3_000_000_000;
            while kernel.world.now() < until {
                let slice = Deadline::after(kernel.world.now(), 10_000_000);
                let _ = device.wait_until_ge(Solo, HeapOffset(64), 1, slice);
                if let Err(fault) = device.channel(1, 0).alive() {
                    return Some(fault.kind);
                }
            }
            None
        });
        let ended = cluster.sim.finish(&waiter);
        wrong_if(ended != Some(FaultKind::PeerLost), || format!("after 3 s the waiter knows {ended:?}"))
    })
}

/// A first cause that is the program's own is reported as it is, and never chained.
fn program_errors(seed: u64) -> Wrongs {
    let syndrome = [0x01u8, 0x02, 0x04, 0x12, 0x13][seed as usize % 5];
    let mut spec = spec(seed, &[&format!("2ms:0.0:cqe-error={syndrome:#x}")]);
    spec.traffic.wait_ns = 1_000_000_000;
    kept(&spec, Lie::None, |outcome| {
        let fault = outcome.senders[0].fault.map(|fault| (fault.kind, fault.syndrome as u8));
        let mut wrongs = wrong_if(fault != Some((FaultKind::Completion, syndrome)), || format!("{fault:?}"));
        wrongs.extend(wrong_if(outcome.failovers() > 1, || "the error was chained".into()));
        wrongs
    })
}

fn transport_errors(seed: u64) -> Wrongs {
    let syndrome = [0x14u8, 0x15, 0x16, 0x22, 0x10, 0x7f][seed as usize % 6];
    let spec = spec(seed, &[&format!("2ms:0.0:cqe-error={syndrome:#x}")]);
    clean(&spec, |outcome| {
        let seen = outcome.records.iter().any(|(_, record)| record.syndrome as u8 == syndrome);
        wrong_if(!seen, || format!("the first cause {syndrome:#x} is in no record"))
    })
}

/// The only path is slower than the suspect time: left before anything arrives, recreated, left again, until the
/// suspect time has learned.
fn slower_than_the_suspect_time(seed: u64) -> Wrongs {
    let mut spec = spec(seed, &["100us:0.0:delay=6ms"]);
    (spec.rails, spec.backups, spec.log_depth) = (1, 0, 3);
    (spec.suspect_ns, spec.recovery_ns) = (1_000_000, 1_000_000);
    spec.agent.lifetime_ns = 10_000_000;
    spec.agent.backoff_ns = 200_000;
    spec.agent.probe_ns = 100_000;
    spec.step_limit = 4_000_000;
    spec.traffic = Traffic { messages: 20, slots: 2, slot_bytes: 8, puts: 1, credit_lag: 0, ..spec.traffic };
    clean(&spec, |_| Vec::new())
}
