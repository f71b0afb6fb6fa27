//! The whole system under every placement of faults: the code that ships, in the simulator, judged by the oracle.
//!
//! A fault-free run of a few messages is recorded: every instant at which a packet, a timer or an actor's step falls.
//! Each fault is then placed at each of them. What came of it is a run of its own, with instants of its own, and the
//! second fault is placed at each later one; runs that were the same run (one digest) are gone on from once.

mod preempt;
mod round;

pub use preempt::preemptions;
pub use round::{Round, placements};

use std::rc::Rc;

use shunt_host::agent::AgentOptions;
use shunt_soft_nic::Injection;
use shunt_tests::cluster::Cluster;
use shunt_tests::outcome::Outcome;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::sim::Interference;
use shunt_tests::spec::RunSpec;
use shunt_tests::swarm::or_panic;
use shunt_tests::traffic::Traffic;

/// How much is explored.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Faults of a run.
    pub faults: usize,
    /// Messages of a run, each a put and its signal.
    pub messages: u64,
    /// Whose memory the queues lie in: a device's if true. None leaves them where agents carry switches on too.
    pub on_device: Option<bool>,
    /// Runs of the first round: where there would be more, every so manyeth is taken, and the table says so.
    pub first: usize,
    /// The same for each later round.
    pub later: usize,
    /// The same for preemptions, of one access and of two.
    pub preempted: usize,
    /// Threads.
    pub threads: usize,
}

/// The fault-free run: 2 PEs, 2 rails, all 4 paths. Every patience is as short as the order of all of them allows,
/// which is that of the defaults: a run in which no path is left waits out the longest, and costs what that costs. The
/// packet lifetime is longer than what any three faults hold a packet and its placement up, `settle_ns` longer still.
fn spec(bounds: &Bounds) -> RunSpec {
    let spec = RunSpec {
        firmware_ns: 20_000,
        suspect_ns: 400_000,
        recovery_ns: 500_000,
        command_timeout_ns: 1_000_000,
        flush_ns: 1_500_000,
        drain_ns: 1_000_000,
        give_up_ns: 10_000_000,
        fence_wait_ns: 16_000_000,
        settle_ns: 3_000_000,
        log_depth: 2,
        traffic: Traffic {
            messages: bounds.messages,
            slots: 2,
            slot_bytes: 64,
            puts: 1,
            credit_lag: 0,
            wait_ns: 200_000_000,
            slice_ns: 1_000_000,
            abandoned_ns: 5_000_000,
            ..Traffic::default()
        },
        agent: AgentOptions {
            probe_ns: 50_000,
            doubt_ns: 200_000,
            backoff_ns: 300_000,
            resend_ns: 500_000,
            touch_ns: 1_000_000,
            lifetime_ns: 1_500_000,
            port_poll_ns: 2_000_000,
            nic_ns: 2_500_000,
            peer_ns: 3_000_000,
            revive_ns: 12_000_000,
            ..AgentOptions::default()
        },
        ..RunSpec::default()
    };
    match bounds.on_device {
        Some(on_device) => spec.with_queues(on_device),
        None => spec,
    }
}

/// What one run came to.
struct Seen {
    /// Instants at which anything happened while there was traffic, from its beginning.
    instants: Vec<u64>,
    /// Hash of every decision and event.
    digest: u64,
    /// True if every planned fault hit something.
    hit: bool,
    /// Accesses of device code, and when each was made.
    accesses: Vec<u64>,
    /// When switches moved.
    stamps: Vec<u64>,
    /// What is wrong.
    wrongs: Vec<String>,
}

/// Runs `spec` under `interference`. A panic is something wrong.
fn run(spec: &RunSpec, interference: Interference) -> Seen {
    or_panic(|| run_to_end(spec, interference)).unwrap_or_else(|said| Seen {
        instants: Vec::new(),
        digest: 0,
        hit: true,
        accesses: Vec::new(),
        stamps: Vec::new(),
        wrongs: vec![said],
    })
}

fn run_to_end(spec: &RunSpec, interference: Interference) -> Seen {
    let mut cluster = Cluster::start(spec);
    let interference = Rc::new(interference);
    cluster.interference = interference.clone();
    spec.faults.iter().for_each(|fault: &Injection| cluster.inject(fault));
    let world = cluster.sim.world();
    world.record_instants();
    let streams = start_streams(&cluster);
    let outcome: Outcome = finish(&cluster, streams);
    let end = outcome.began_ns + outcome.lasted_ns;
    let all = world.instants();
    let asked = all.partition_point(|at| *at <= end);
    // Copied to a place of their own: cut down in place, each would hold on to a hole as large as all there were.
    let instants: Vec<u64> = all[..asked].iter().map(|at| at - outcome.began_ns).collect();
    drop(all);
    let stamps = outcome.records.iter().flat_map(|(_, record)| record.stamps).collect();
    let mut wrongs = outcome.wrongs();
    if !wrongs.is_empty() {
        wrongs.push(outcome.to_string());
    }
    Seen {
        instants,
        digest: outcome.trace ^ outcome.lasted_ns,
        hit: outcome.faults.iter().all(|(_, hits)| *hits > 0),
        accesses: interference.times.borrow().clone().unwrap_or_default(),
        stamps,
        wrongs,
    }
}
