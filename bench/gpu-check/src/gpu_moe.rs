//! MoE kernels on a GPU: ranks that share it, each with kernels and a stream of its own, and what they must get right.

use shunt_bench::cluster::{Cluster, Unit};
use shunt_bench::gpu::{Kernels, answered};
use shunt_deep_ep_bridge::PathName;
use shunt_deep_ep_bridge::staged::{Machine, NormalMachine};
use shunt_device::{Fault, HeapOffset};
use shunt_host::agent::words::Place;
use shunt_host::gpu::cuda::{CudaError, Graph};
use shunt_host::gpu::{OwnedSpan, Placement};
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_kernels::scenarios::Group;
use std::cell::RefCell;
use std::sync::Arc;

/// One rank.
pub struct GpuRank<'c> {
    unit: &'c Unit,
    rank: u32,
    ranks: u32,
    locals: u32,
    group: Group,
    heap_bytes: u64,
    /// Where each rank's heap is, for kernels: all of them lie in memory that the shared GPU reaches.
    heaps: Vec<u64>,
    memory: RefCell<Vec<Arc<OwnedSpan>>>,
}

impl<'c> GpuRank<'c> {
    /// The kernels of a rank of a cluster of so many, so many of a node, by groups of threads.
    pub fn new(cluster: &'c Cluster, rank: u32, (ranks, locals): (u32, u32), group: Group) -> Self {
        let unit = cluster.unit(rank);
        let heaps = (0..ranks).map(|rank| cluster.unit(rank).address(HeapOffset(0))).collect();
        let (heap_bytes, memory) = (unit.map().bytes(), RefCell::default());
        Self { unit, rank, ranks, locals, group, heap_bytes, heaps, memory }
    }

    fn kernels(&self) -> &Kernels {
        self.unit.kernels().expect("a rank of these has kernels on the GPU")
    }

    /// Launches phases, each behind the one before; the blocks of each have outcomes of their own.
    fn launch_all(&self, phases: &[(Stage, MoeCall)]) -> Result<(), CudaError> {
        let mut first = 0;
        phases.iter().try_for_each(|(stage, call)| {
            // SAFETY: `Staged` has the tensors in memory of `memory` below, which stays.
            let launched = unsafe { self.kernels().launch_phase_at(first, *stage, self.group, call) };
            first += self.outcomes_of(call);
            launched
        })
    }

    /// Outcomes of a phase: those of its warps.
    fn outcomes_of(&self, call: &MoeCall) -> u32 {
        call.blocks.max(1) * self.group.warps(self.group.threads())
    }

    /// The kernel of each phase, and its outcomes.
    fn named(&self, phases: &[(Stage, MoeCall)]) -> Vec<(&'static str, u32)> {
        phases.iter().map(|(stage, call)| (stage.kernel(), self.outcomes_of(call))).collect()
    }

    /// The outcome of each phase: a fault, if a warp met one; else the sum of all.
    fn outcomes(&self, phases: &[(&'static str, u32)]) -> Result<Vec<Outcome>, CudaError> {
        let blocks = phases.iter().map(|(_, blocks)| blocks).sum();
        let mut all = self.kernels().outcomes(blocks).into_iter();
        let of = |(kernel, blocks): &(&'static str, u32)| {
            let mut sum = Outcome::ok(0);
            let mut fault = None;
            for outcome in all.by_ref().take(*blocks as usize) {
                let outcome = answered(kernel, outcome)?;
                fault = fault.or(outcome.as_fault().map(|_| outcome));
                sum.value = sum.value.wrapping_add(outcome.value);
            }
            Ok(fault.unwrap_or(sum))
        };
        phases.iter().map(of).collect()
    }

    fn run(&self, phases: &[(Stage, MoeCall)]) -> Result<Vec<Outcome>, CudaError> {
        let blocks = self.named(phases);
        self.kernels().poison(blocks.iter().map(|(_, blocks)| blocks).sum());
        self.launch_all(phases)?;
        self.kernels().finish()?;
        self.outcomes(&blocks)
    }
}

/// A graph of phases, and the blocks of each.
pub struct Phases {
    graph: Graph,
    blocks: Vec<(&'static str, u32)>,
}

/// # Panics
/// The driver refused something: there is no outcome that would say so.
impl Machine for GpuRank<'_> {
    type Graph = Phases;
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
        self.unit.address(HeapOffset(at))
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        let place = Place { peer: fault.peer, channel: fault.channel, slot: fault.slot };
        (fault.peer != self.rank).then(|| PathName::of(&self.unit.path(place), fault.at.0))
    }
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        (rank / self.locals == self.rank / self.locals).then(|| self.heaps[rank as usize] + at)
    }
    fn memory(&self, bytes: u64) -> u64 {
        let span = OwnedSpan::alloc(self.kernels().memory(), bytes, Placement::Control);
        let span = span.unwrap_or_else(|error| panic!("{bytes} bytes for tensors: {error}"));
        let at = span.span().address;
        self.memory.borrow_mut().push(span);
        at
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.kernels().memory().write(at, bytes).expect("inside memory of its own");
    }
    fn read(&self, at: u64, bytes: &mut [u8]) {
        self.kernels().memory().read(at, bytes).expect("inside memory of its own");
    }
    fn launch(&self, stage: Stage, call: &MoeCall) -> Outcome {
        let outcomes = self.run(&[(stage, *call)]);
        outcomes.unwrap_or_else(|error| panic!("rank {}, {}: {error}", self.rank, stage.name()))[0]
    }
    fn capture(&self, phases: &[(Stage, MoeCall)]) -> Phases {
        let graph = self.kernels().capture(|| self.launch_all(phases));
        let graph = graph.unwrap_or_else(|error| panic!("rank {}, capture: {error}", self.rank));
        Phases { graph, blocks: self.named(phases) }
    }
    fn replay(&self, graph: &Phases) -> Vec<Outcome> {
        self.kernels().poison(graph.blocks.iter().map(|(_, blocks)| blocks).sum());
        let replayed = self.kernels().replay(&graph.graph).and_then(|()| self.outcomes(&graph.blocks));
        replayed.unwrap_or_else(|error| panic!("rank {}, replay: {error}", self.rank))
    }
}

/// # Panics
/// As above.
impl NormalMachine for GpuRank<'_> {
    fn launch_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome {
        let blocks = call.blocks.max(1);
        let run = || {
            self.kernels().poison(blocks);
            // SAFETY: `Staged` has the tensors in memory of `memory` above, which stays; heaps are those of units that
            // outlive this.
            unsafe { self.kernels().launch_normal_at(0, kernel, self.group, call)? };
            self.kernels().finish()?;
            self.outcomes(&[(kernel.name(), blocks)])
        };
        run().unwrap_or_else(|error| panic!("rank {}, {}: {error}", self.rank, kernel.name()))[0]
    }
}
