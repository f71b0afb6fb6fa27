//! Ranks of a simulated cluster, each with a MoE buffer whose kernels are actors on virtual time.

use crate::cluster::Cluster;
use crate::kernel::Kernel;
use crate::sim::Task;
use crate::spec::RunSpec;
use crate::traffic::Traffic;
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::runner::in_turn;
use shunt_deep_ep_bridge::{Agreement, Buffer, MoeError, PathName, Patience, Runner, Signals, size_hint};
use shunt_device::platform::host::World;
use shunt_device::{Fault, Solo};
use shunt_host::agent::words::{Place, StateWords};
use shunt_kernels::Outcome;
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_layout::moe::Shape;

/// Where buffers begin in the heap.
pub const BASE: u64 = 4096;

/// One lane of a rank.
pub struct Lane {
    kernel: Kernel,
    rank: u32,
    ranks: u32,
    locals: u32,
    heap_bytes: u64,
    agreement: Option<Agreement>,
}

impl Lane {
    /// Another one of a rank, of so many of a node.
    pub fn of(kernel: &Kernel, rank: u32, (ranks, locals): (u32, u32), heap_bytes: u64) -> Self {
        Self { kernel: kernel.clone(), rank, ranks, locals, heap_bytes, agreement: None }
    }

    /// Another one of the two ranks' first.
    pub fn other(kernel: &Kernel, heap_bytes: u64) -> Self {
        Self::of(kernel, 0, (2, 1), heap_bytes)
    }
}

impl Runner for Lane {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn ranks(&self) -> u32 {
        self.ranks
    }
    fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }
    fn address(&self, at: u64) -> u64 {
        self.kernel.heap + at
    }
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome {
        in_turn(call, |part| stage.run(self.kernel.device(), Solo, part, call))
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        // SAFETY: the cluster keeps the state mapped until every kernel has ended.
        let words = unsafe { StateWords::new(self.kernel.state, self.kernel.world.clone()) }.ok()?;
        let place = Place { peer: fault.peer, channel: fault.channel, slot: fault.slot };
        (fault.peer != self.rank).then(|| PathName::of(&words.read_row(place), fault.at.0))
    }
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        (rank / self.locals == self.rank / self.locals).then(|| self.kernel.heaps[rank as usize] + at)
    }
    fn agreement(&self) -> Option<Agreement> {
        self.agreement.clone()
    }
}

/// What a rank does with its buffer.
pub type RankBuffer = Buffer<Lane>;

/// What a run needs of a cluster.
pub fn spec(shape: &Shape, seed: u64) -> RunSpec {
    let needed = BASE + size_hint(shape.tokens, shape.hidden, shape.ranks, shape.experts() as u32).unwrap();
    // No streams run: this is room in the heap.
    let streams = u64::from(shape.ranks * (shape.ranks - 1) / 2);
    RunSpec {
        seed,
        pes: shape.ranks,
        channels: shape.local_experts,
        stream_channels: 1,
        traffic: Traffic {
            slots: 1,
            slot_bytes: needed.div_ceil(streams).next_multiple_of(4096),
            ..Traffic::default()
        },
        ..RunSpec::default()
    }
}

/// Patience of tests: of a run on virtual time.
pub fn patience(spec: &RunSpec) -> Patience {
    Patience {
        timeout_ns: 10_000_000_000,
        slice_ns: 4 * spec.suspect_ns.max(2_500_000),
        mask_lost: false,
        blocks: 1 + (spec.seed % 3) as u32,
        signals: if spec.seed % 4 < 2 { Signals::Cleared } else { Signals::Absolute },
    }
}

/// Starts `body` on a rank, with a buffer of `shape`; each rank is a node of its own.
pub fn start<T: 'static>(
    cluster: &Cluster,
    shape: Shape,
    rank: u32,
    patience: Patience,
    body: impl FnOnce(&mut RankBuffer, &Kernel) -> T + 'static,
) -> Task<T> {
    start_on_nodes(cluster, shape, 1, rank, patience, body)
}

/// The same where so many ranks of a node reach each other's heaps.
pub fn start_on_nodes<T: 'static>(
    cluster: &Cluster,
    shape: Shape,
    locals: u32,
    rank: u32,
    patience: Patience,
    body: impl FnOnce(&mut RankBuffer, &Kernel) -> T + 'static,
) -> Task<T> {
    let heap_bytes = cluster.pe(rank).heap().bytes;
    let agreement = Some(Agreement::of(cluster.pe(rank)));
    cluster.spawn("moe", rank, move |kernel| {
        let ranks = shape.ranks;
        let lane = Lane { kernel: kernel.clone(), rank, ranks, locals, heap_bytes, agreement };
        let (tokens, hidden, experts) = (shape.tokens, shape.hidden, shape.experts() as u32);
        let mut buffer = Buffer::new(lane, BASE, tokens, hidden, experts, patience).expect("there is room");
        body(&mut buffer, kernel)
    })
}

/// Lets virtual time pass on a rank.
pub fn pause(kernel: &Kernel, span_ns: u64) {
    let until = kernel.world.now_ns() + span_ns;
    while kernel.world.now_ns() < until {
        kernel.world.relax();
    }
}

/// What all ranks say, faults among it.
pub fn all(said: Vec<Result<Vec<String>, MoeError>>) -> Vec<String> {
    let text = |(rank, said): (usize, Result<Vec<String>, MoeError>)| match said {
        Ok(wrongs) => wrongs,
        Err(error) => vec![format!("rank {rank}: {error}")],
    };
    said.into_iter().enumerate().flat_map(text).collect()
}

/// Cases of one run, a case a layer.
pub fn cases(
    shape: Shape,
    topk: u32,
    format: shunt_deep_ep_bridge::Format,
    seed: u64,
    count: u64,
) -> Vec<Case> {
    (0..count).map(|number| Case::random(shape, topk, format, seed.wrapping_mul(1000) + number)).collect()
}
