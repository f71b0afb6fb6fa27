//! What a run on the PTX machine came to, and the cluster that it ran on.

use crate::counts::Counts;
use crate::rig::{Entered, Rig};
use shunt_kernels::scenarios::{CHANNELS, PES};
use shunt_layout::state::SwitchKind;
use shunt_tests::cluster::Cluster;
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;
use std::collections::BTreeSet;

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What is wrong.
    pub wrongs: Vec<String>,
    /// Switches to another path because of a fault.
    pub failovers: usize,
    /// Planned faults that hit nothing.
    pub idle_faults: usize,
    /// What was executed.
    pub counts: Counts,
    /// Functions that were started.
    pub entered: Entered,
    /// PEs that switched because of a fault.
    pub switched: BTreeSet<u32>,
    /// Where and when the first doorbell was rung.
    pub first_bell: Option<(u64, u32, u32)>,
}

impl Run {
    /// What the cluster of a run says in the end.
    pub fn ended(&mut self, rig: &Rig) {
        let records = rig.cluster.records();
        let failovers = records.iter().filter(|(_, record)| record.kind == SwitchKind::Failover as u32);
        self.switched = failovers.clone().map(|(pe, _)| *pe).collect();
        self.failovers = failovers.count();
        self.first_bell = rig.first_bell();
        self.idle_faults = rig.cluster.faults().iter().filter(|(_, hits)| *hits == 0).count();
        self.counts = rig.counts();
        self.entered = rig.entered();
    }
}

/// Runs `body`, and makes a finding of a panic: the machine's, or one of the simulator's asserts.
pub fn caught(body: impl FnOnce() -> Run) -> Run {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Run { wrongs: vec![text.unwrap_or_else(|| "a panic without words".to_owned())], ..Run::default() }
    })
}

/// PEs with room in their heaps, and no streams of their own.
pub(crate) fn cluster(seed: u64) -> Cluster {
    Cluster::start(&spec(seed))
}

/// The same with queues in memory of the host, or of the GPU. Agents switch nothing.
pub(crate) fn placed(queues_on_gpu: bool) -> Cluster {
    Cluster::start(&spec(1).with_queues(queues_on_gpu))
}

/// Those whose agents execute atomics for others.
pub(crate) fn exact(seed: u64) -> Cluster {
    Cluster::start(&RunSpec { exact: 1, ..spec(seed) })
}

fn spec(seed: u64) -> RunSpec {
    RunSpec {
        seed,
        pes: PES,
        channels: CHANNELS,
        both_ways: true,
        log2_chunk: 12,
        traffic: Traffic { slots: 32, slot_bytes: 4096, ..Traffic::default() },
        ..RunSpec::default()
    }
}
