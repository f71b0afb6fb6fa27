//! Kernels that do not reach the caller's memory, as those of a GPU: tensors of a call are copied to where they do, and
//! back. With [`Mode::Graph`] a layer's kernels are captured once, as graphs, and replayed from then on.

mod normal;

pub use normal::{NormalMachine, tensors as normal_tensors};

use crate::fault::PathName;
use crate::runner::Runner;
use shunt_device::Fault;
use shunt_kernels::Outcome;
use shunt_kernels::moe::{COUNT_ON, EXPONENTS, FP8, MoeCall, Stage, ZERO_COPY};
use shunt_layout::moe::{Shape, TOPK_MAX};
use std::cell::RefCell;

/// What runs phases, and memory that its kernels reach.
pub trait Machine {
    /// Launches that were captured together.
    type Graph;
    /// This rank.
    fn rank(&self) -> u32;
    /// Ranks of the job.
    fn ranks(&self) -> u32;
    /// Bytes of the heap.
    fn heap_bytes(&self) -> u64;
    /// Address of a heap offset, for this program.
    fn address(&self, at: u64) -> u64;
    /// The path that a fault's channel was on.
    fn path(&self, fault: &Fault) -> Option<PathName>;
    /// As [`Runner::near`].
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        let _ = (rank, at);
        None
    }
    /// Address, for kernels, of so many bytes that they reach while this is there.
    fn memory(&self, bytes: u64) -> u64;
    /// Copies to there.
    fn write(&self, at: u64, bytes: &[u8]);
    /// Copies from there.
    fn read(&self, at: u64, bytes: &mut [u8]);
    /// Runs a phase to its end: a fault, if a block met one; else the sum of all.
    fn launch(&self, stage: Stage, call: &MoeCall) -> Outcome;
    /// Makes a graph of phases that run one after the other.
    fn capture(&self, phases: &[(Stage, MoeCall)]) -> Self::Graph;
    /// Runs a graph to its end: the outcome of each phase.
    fn replay(&self, graph: &Self::Graph) -> Vec<Outcome>;
}

/// How phases are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each by a launch of its own.
    Launch,
    /// Dispatch and combine by a graph each, sending and receiving in one, with the same arguments every time.
    Graph,
}

/// A tensor that a call leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Which argument, of [`ARGUMENTS`].
    pub argument: usize,
    /// How large it is.
    pub bytes: u64,
    /// Kernels write it; else they read it.
    pub written: bool,
}

/// Arguments that are addresses.
type Argument = fn(&mut MoeCall) -> &mut u64;

/// All of them.
pub const ARGUMENTS: [Argument; 9] = [
    |call| &mut call.x,
    |call| &mut call.topk_index,
    |call| &mut call.topk_weights,
    |call| &mut call.out,
    |call| &mut call.out_scales,
    |call| &mut call.source,
    |call| &mut call.ranges,
    |call| &mut call.counts,
    |call| &mut call.peers,
];
const X: usize = 0;
const INDEX: usize = 1;
const WEIGHTS: usize = 2;
const OUT: usize = 3;
const SCALES: usize = 4;
const SOURCE: usize = 5;
const RANGES: usize = 6;
const COUNTS: usize = 7;
const PEERS: usize = 8;

/// What a phase reads and writes beside the heap.
pub fn tensors(stage: Stage, call: &MoeCall) -> Vec<Tensor> {
    let shape = &call.shape;
    let (hidden, local) = (u64::from(shape.hidden), u64::from(shape.local_experts));
    let (rows, pairs) = (local * shape.rows(), local * u64::from(shape.ranks));
    let (tokens, routes) = (u64::from(call.tokens), u64::from(call.tokens) * u64::from(call.topk));
    let of = |written: bool| move |(argument, bytes)| Tensor { argument, bytes, written };
    let read = |list: &[(usize, u64)]| list.iter().copied().map(of(false)).collect::<Vec<_>>();
    let written = |list: &[(usize, u64)]| list.iter().copied().map(of(true)).collect::<Vec<_>>();
    let mut all = match stage {
        Stage::DispatchSend => read(&[(X, 2 * tokens * hidden), (INDEX, 8 * routes)]),
        Stage::DispatchReceive => {
            let channel = if call.has(FP8) { 1 } else { 2 };
            let scales = rows * shape.scales() * if call.has(EXPONENTS) { 1 } else { 4 };
            let scales = if call.has(FP8) { scales } else { 0 };
            written(&[
                (OUT, channel * rows * hidden),
                (SCALES, scales),
                (SOURCE, 4 * rows),
                (RANGES, 8 * pairs),
                (COUNTS, 4 * local),
            ])
        }
        Stage::CombineSend | Stage::CombineSendLog => {
            let x = if call.has(ZERO_COPY) { 0 } else { 2 * rows * hidden };
            read(&[(X, x), (SOURCE, 4 * rows), (RANGES, 8 * pairs)])
        }
        Stage::CombineReceive | Stage::CombineReceiveLog => {
            let mut all = read(&[(INDEX, 8 * routes), (WEIGHTS, 4 * routes)]);
            all.extend(written(&[(OUT, 2 * tokens * hidden)]));
            all
        }
        Stage::Clean | Stage::Room => Vec::new(),
    };
    if call.peers != 0 {
        all.extend(read(&[(PEERS, 8 * u64::from(shape.ranks))]));
    }
    all
}

/// Bytes of the largest tensor of each argument.
fn largest(shape: &Shape) -> [u64; ARGUMENTS.len()] {
    let (tokens, topk) = (shape.tokens, TOPK_MAX);
    let call = |flags| MoeCall { shape: *shape, peers: 1, tokens, topk, flags, ..MoeCall::default() };
    let stages = [Stage::DispatchSend, Stage::DispatchReceive, Stage::CombineSend, Stage::CombineReceive];
    let mut out = [0; ARGUMENTS.len()];
    for (stage, flags) in stages.into_iter().flat_map(|stage| [(stage, 0), (stage, FP8)]) {
        for tensor in tensors(stage, &call(flags)) {
            out[tensor.argument] = out[tensor.argument].max(tensor.bytes);
        }
    }
    out
}

/// Bytes between two tensors, which nobody writes.
const GUARD: u64 = 256;
/// What they hold, and tensors that kernels are to write.
const UNWRITTEN: u8 = 0xa5;

/// Memory that kernels reach: a tensor for each argument, and between them what nobody writes.
struct Room {
    /// Where each argument's tensor lies, and how large it may be.
    at: Vec<(u64, u64)>,
    /// Behind the last one.
    end: u64,
}

impl Room {
    /// For tensors of these sizes, and `more` bytes behind them.
    fn new<M: Machine>(machine: &M, sizes: &[u64], more: u64) -> Self {
        let sizes: Vec<u64> = sizes.iter().map(|bytes| bytes.next_multiple_of(GUARD)).collect();
        let all: u64 = sizes.iter().map(|bytes| bytes + GUARD).sum::<u64>() + GUARD + more;
        let base = machine.memory(all);
        machine.write(base, &vec![UNWRITTEN; all as usize]);
        let mut end = base + GUARD;
        let place = |bytes: u64| {
            let at = (end, bytes);
            end += bytes + GUARD;
            at
        };
        let at = sizes.into_iter().map(place).collect();
        Self { at, end }
    }

    /// The address of an argument's tensor: a copy of what is read `from` there, or what looks unwritten.
    fn bring<M: Machine>(&self, machine: &M, argument: usize, bytes: u64, from: Option<u64>) -> u64 {
        let (at, most) = self.at[argument];
        assert!(bytes <= most, "argument {argument}: {bytes} bytes, there is room for {most}");
        match from {
            Some(from) if bytes != 0 => {
                // SAFETY: a tensor of the caller's, which holds so many bytes (`MoeCall`, `NormalCall`) and stays while
                // this runs.
                let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, bytes as usize) };
                machine.write(at, bytes);
            }
            _ => machine.write(at, &vec![UNWRITTEN; bytes as usize]),
        }
        at
    }

    /// Copies what kernels wrote to the caller's tensor.
    fn take<M: Machine>(&self, machine: &M, argument: usize, bytes: u64, to: u64) {
        if bytes != 0 {
            // SAFETY: as above; the caller's own, and nobody else's while this runs.
            let to = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, bytes as usize) };
            machine.read(self.at[argument].0, to);
        }
    }

    /// That nobody wrote between tensors.
    fn check<M: Machine>(&self, machine: &M) {
        for (at, bytes) in &self.at {
            let mut guard = [0; GUARD as usize];
            machine.read(at + bytes, &mut guard);
            assert_eq!(guard, [UNWRITTEN; GUARD as usize], "a kernel wrote behind a tensor, at {at:#x}");
        }
    }
}

/// A graph, and what it was captured from.
struct Captured<G> {
    graph: G,
    sends: MoeCall,
    receives: MoeCall,
}

/// Kernels of one rank, with memory for the tensors of a shape.
pub struct Staged<M: Machine> {
    machine: M,
    mode: Mode,
    room: Room,
    /// Where those of normal mode are, once there was a call.
    normal: RefCell<Option<Room>>,
    /// The word that graphs count on from.
    before: u64,
    /// What was sent and is to be received by the same graph.
    sends: RefCell<Option<MoeCall>>,
    graphs: RefCell<[Option<Captured<M::Graph>>; 2]>,
}

impl<M: Machine> Staged<M> {
    /// Kernels for buffers of `shape`.
    pub fn new(machine: M, shape: &Shape, mode: Mode) -> Self {
        let room = Room::new(&machine, &largest(shape), GUARD);
        let before = room.end;
        machine.write(before, &0u64.to_le_bytes());
        let (sends, graphs) = (RefCell::new(None), RefCell::new([None, None]));
        Self { machine, mode, room, normal: RefCell::default(), before, sends, graphs }
    }

    /// Copies what a call reads to where its kernels reach it, makes what they write look unwritten; the call that they
    /// get.
    fn bring(&self, stage: Stage, call: &MoeCall) -> MoeCall {
        let mut staged = *call;
        for Tensor { argument, bytes, written } in tensors(stage, call) {
            let from = *ARGUMENTS[argument](&mut staged);
            let at = self.room.bring(&self.machine, argument, bytes, (!written).then_some(from));
            *ARGUMENTS[argument](&mut staged) = at;
        }
        staged
    }

    /// Copies what kernels wrote to the caller's tensors.
    fn take(&self, stage: Stage, call: &MoeCall) {
        let mut call = *call;
        for Tensor { argument, bytes, written } in tensors(stage, &call) {
            if written {
                self.room.take(&self.machine, argument, bytes, *ARGUMENTS[argument](&mut call));
            }
        }
    }

    /// Replays the graph of a dispatch (0) or combine (1), which is captured the first time.
    fn replay(&self, which: usize, sends: MoeCall, receives: MoeCall) -> Outcome {
        let mut graphs = self.graphs.borrow_mut();
        let stages =
            [[Stage::DispatchSend, Stage::DispatchReceive], [Stage::CombineSend, Stage::CombineReceive]]
                [which];
        let count_on = if which == 1 { COUNT_ON } else { 0 };
        // The same every time: a layer's calls are 1 and 2, behind those that the word counts.
        let same = |call: MoeCall, flags| MoeCall {
            call: which as u64 + 1,
            before: self.before,
            flags: call.flags | flags,
            ..call
        };
        let number = sends.call;
        let (sends, receives) = (same(sends, 0), same(receives, count_on));
        let captured = graphs[which].get_or_insert_with(|| {
            let graph = self.machine.capture(&[(stages[0], sends), (stages[1], receives)]);
            Captured { graph, sends, receives }
        });
        assert_eq!(
            (captured.sends, captured.receives),
            (sends, receives),
            "a graph's arguments do not change"
        );
        let outcomes = self.machine.replay(&captured.graph);
        let mut word = [0; 8];
        self.machine.read(self.before, &mut word);
        let fault = outcomes.iter().find(|outcome| outcome.as_fault().is_some());
        if fault.is_none() && which == 1 {
            assert_eq!(u64::from_le_bytes(word), number, "calls that the graph counted");
        }
        fault.or(outcomes.last()).copied().unwrap_or_default()
    }
}

impl<M: Machine> Runner for Staged<M> {
    fn rank(&self) -> u32 {
        self.machine.rank()
    }
    fn ranks(&self) -> u32 {
        self.machine.ranks()
    }
    fn heap_bytes(&self) -> u64 {
        self.machine.heap_bytes()
    }
    fn address(&self, at: u64) -> u64 {
        self.machine.address(at)
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        self.machine.path(fault)
    }
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        self.machine.near(rank, at)
    }
    /// # Panics
    /// A graph's arguments are others than at its capture, or a kernel wrote what is not its own.
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome {
        let which = match (self.mode, stage) {
            (Mode::Graph, Stage::DispatchSend | Stage::CombineSend | Stage::CombineSendLog) => {
                self.sends.replace(Some(self.bring(stage, call)));
                return Outcome::ok(0);
            }
            (Mode::Graph, Stage::DispatchReceive) => Some(0),
            (Mode::Graph, Stage::CombineReceive | Stage::CombineReceiveLog) => Some(1),
            _ => None,
        };
        let staged = self.bring(stage, call);
        let sends = which.and_then(|which| Some((which, self.sends.take()?)));
        let outcome = match sends {
            Some((which, sends)) => self.replay(which, sends, staged),
            None => self.machine.launch(stage, &staged),
        };
        self.room.check(&self.machine);
        self.take(stage, call);
        outcome
    }
}
