//! Packets that arrive up to a minute late, long after the receiver used its buffers for something else: what of them
//! is visible, by what stands between (invariant 4).

use shunt_device::{Deadline, HeapOffset, Put, Solo};
use shunt_soft_nic::Injection;

use crate::cluster::Cluster;
use crate::lies::{Lie, Lies};
use crate::oracle::{Kind, load, store};
use crate::outcome::Outcome;
use crate::run::{finish, start_streams};
use crate::spec::RunSpec;
use crate::traffic::Traffic;

/// What stands between a late packet and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Both halves of the pair are in ERR.
    Strict,
    /// An error completion and a packet lifetime of 50 ms: shorter than the packets live, and no agent there that could
    /// do better.
    Time,
    /// Nothing: 2ERR is answered and not done, and QUERY_QP says ERR.
    Nothing,
}

/// What came of a run.
pub struct Late {
    /// Packets that arrived at a NIC after all traffic had ended.
    pub arrived: u64,
    /// Broken promises: slots and words that changed.
    pub visible: usize,
    /// The run.
    pub outcome: Outcome,
}

/// How late packets come.
pub const DELAYS: [&str; 4] = ["2s", "20s", "59s", "60s"];

/// What the port sends in its first 300 us arrives `delay` later. Then it goes down, and, with `again`, comes back: the
/// path is recreated meanwhile, under the numbers of queue pairs that were destroyed.
pub fn late(seed: u64, delay: &str, again: bool, between: Between) -> Late {
    let fault = |text: &str| text.parse::<Injection>().unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut faults = vec![fault(&format!("0ns:0.0:delay={delay}/300us")), fault("300us:0.0:down")];
    faults.extend(again.then(|| fault("3ms:0.0:up")));
    if between == Between::Time {
        faults.extend(["250us:0:agent-killed", "250us:1:agent-killed"].map(fault));
    }
    let mut spec = RunSpec {
        seed,
        recovery_ns: 1_000_000,
        qpn_reused: true,
        time_fence: between == Between::Time,
        time_limit_ns: 90_000_000_000,
        step_limit: 3_000_000,
        faults,
        ..RunSpec::default()
    };
    (spec.agent.lifetime_ns, spec.agent.probe_ns, spec.agent.backoff_ns) = (1_000_000, 100_000, 200_000);
    spec.traffic = Traffic { messages: 400, slots: 4, pace_ns: 10_000, credit_lag: 0, ..Traffic::default() };
    let lies = Lies::default();
    let cluster = Cluster::start_lying(&spec, lies.clone());
    lies.tell(if between == Between::Nothing { Lie::NoFence } else { Lie::None });
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    cluster.sim.run_until(|| streams.done());
    let landed = || (0..2).map(|pe| cluster.counters(pe, 0).packets_rx).sum::<u64>();
    // The path that was revived has its probes to answer; from here on only what was late can come.
    cluster.sim.run_for(50_000_000);
    (0..2).for_each(|pe| cluster.kill_agent(pe));
    let before = landed();
    cluster.sim.run_for(61_000_000_000);
    let arrived = landed() - before;
    let outcome = finish(&cluster, streams);
    let kinds = [Kind::Ghost, Kind::Duplicate, Kind::Order, Kind::Corrupt, Kind::Invented];
    let visible = kinds.iter().map(|kind| outcome.oracle.count(*kind)).sum();
    Late { arrived, visible, outcome }
}

/// Words that [`late_puts`] writes.
const WORDS: u64 = 24;
/// Where they begin at the receiver.
const AT: u64 = 8192;

/// Puts whose packets come `delay` late, one way and without credits, so that the receiver's half has nothing of its
/// own under way that could fail. The words are written a second time over another path, and are then what late
/// packets fall upon. Answers with the packets that came late and the words that hold an old value in the end.
pub fn late_puts(seed: u64, delay: &str, between: Between) -> (u64, u64) {
    let fault = |text: &str| text.parse::<Injection>().unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut faults = vec![fault(&format!("0ns:0.0:delay={delay}/300us")), fault("300us:0.0:down")];
    if between == Between::Time {
        faults.extend(["250us:0:agent-killed", "250us:1:agent-killed"].map(fault));
    }
    let spec = RunSpec {
        seed,
        time_fence: between == Between::Time,
        idle_ns: 100_000,
        time_limit_ns: 90_000_000_000,
        ..RunSpec::default()
    };
    let lies = Lies::default();
    let cluster = Cluster::start_lying(&spec, lies.clone());
    lies.tell(if between == Between::Nothing { Lie::NoFence } else { Lie::None });
    faults.iter().for_each(|fault| cluster.inject(fault));
    cluster.sim.run_for(10_000);
    let task = cluster.spawn("put", 0, move |kernel| {
        let channel = kernel.device().channel(1, 0);
        for round in 1..=2 {
            for word in 0..WORDS {
                store(kernel.heap + AT + word * 8, round * 100 + word);
                let at = HeapOffset(AT + word * 8);
                channel.put_nbi(Solo, Put { dst: at, src: at, bytes: 8 }).expect("room");
                kernel.world.sleep(1_000 + seed);
            }
            channel.quiet(Solo, Deadline::after(kernel.world.now(), 5_000_000_000)).expect("one path works");
        }
    });
    cluster.sim.finish(&task);
    let landed = || (0..2).map(|pe| cluster.counters(pe, 0).packets_rx).sum::<u64>();
    (0..2).for_each(|pe| cluster.kill_agent(pe));
    let before = landed();
    cluster.sim.run_for(61_000_000_000);
    let heap = cluster.pe(1).heap().address;
    let old = (0..WORDS).filter(|word| load(heap + AT + word * 8) != 200 + word).count() as u64;
    (landed() - before, old)
}
