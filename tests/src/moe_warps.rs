//! MoE kernels of a simulated cluster as a GPU runs them: several blocks at the same time, each a group of lanes that
//! are coroutines, launched by a host that has memory of its own.

use crate::cluster::Cluster;
use crate::moe::BASE;
use crate::sim::{ActorOptions, Task};
use crate::warp::{SimWarp, spawn_warp};
use crate::workload::Kernel;
use shunt_deep_ep_bridge::scenarios::Scenario;
use shunt_deep_ep_bridge::staged::{Machine, Staged};
use shunt_deep_ep_bridge::{Buffer, PathName, Patience};
use shunt_device::Fault;
use shunt_device::platform::Lanes;
use shunt_device::platform::host::World;
use shunt_host::agent::words::{Place, StateWords};
use shunt_kernels::Outcome;
use shunt_kernels::moe::{MoeCall, Stage};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What the host tells blocks, and what they answer.
#[derive(Default)]
struct Board {
    /// The phase that runs; none: there is no more.
    phase: Cell<Option<(Stage, MoeCall)>>,
    /// Phases begun.
    turn: Cell<u64>,
    /// Outcomes of the blocks that took part in this phase.
    outcomes: RefCell<Vec<Outcome>>,
    /// Blocks that are through with it.
    ended: Cell<u32>,
}

/// One block: runs each phase that is told, by all its lanes.
fn serve(kernel: &Kernel, board: &Board, lane: SimWarp<'_>, block: u32) {
    let mut seen = 0;
    loop {
        while lane.rank() == 0 && board.turn.get() == seen {
            kernel.world.relax();
        }
        seen += 1;
        lane.sync();
        let Some((stage, call)) = board.phase.get() else { return };
        let takes_part = block < call.blocks.max(1);
        let outcome = takes_part.then(|| stage.run(kernel.device(), lane, block, &call));
        // The board shows the next phase once all blocks have answered: their lanes have read this one.
        lane.sync();
        if lane.rank() == 0 {
            board.outcomes.borrow_mut().extend(outcome);
            board.ended.set(board.ended.get() + 1);
        }
    }
}

/// The host of one rank.
pub struct Warps {
    kernel: Kernel,
    rank: u32,
    ranks: u32,
    heap_bytes: u64,
    blocks: u32,
    board: Rc<Board>,
    memory: RefCell<Vec<Vec<u64>>>,
}

impl Warps {
    fn tell(&self, phase: Option<(Stage, MoeCall)>) {
        self.board.outcomes.borrow_mut().clear();
        self.board.ended.set(0);
        self.board.phase.set(phase);
        self.board.turn.set(self.board.turn.get() + 1);
    }
}

impl Machine for Warps {
    type Graph = Vec<(Stage, MoeCall)>;
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
    fn path(&self, fault: &Fault) -> Option<PathName> {
        // SAFETY: the cluster keeps the state mapped until every kernel has ended.
        let words = unsafe { StateWords::new(self.kernel.state, self.kernel.world.clone()) }.ok()?;
        let place = Place { peer: fault.peer, channel: fault.channel, slot: fault.slot };
        (fault.peer != self.rank).then(|| PathName::of(&words.read_row(place), fault.at.0))
    }
    fn memory(&self, bytes: u64) -> u64 {
        let mut memory = self.memory.borrow_mut();
        memory.push(vec![0; bytes as usize / 8 + 1]);
        memory.last().expect("just pushed").as_ptr() as u64
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        // SAFETY: inside memory that was asked for; no kernel runs.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    }
    fn read(&self, at: u64, bytes: &mut [u8]) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), bytes.len()) };
    }
    fn launch(&self, stage: Stage, call: &MoeCall) -> Outcome {
        self.tell(Some((stage, *call)));
        while self.board.ended.get() < self.blocks {
            self.kernel.world.relax();
        }
        let outcomes = self.board.outcomes.borrow();
        let fault = outcomes.iter().find(|outcome| outcome.as_fault().is_some());
        fault.copied().unwrap_or_else(|| Outcome::ok(outcomes.iter().map(|outcome| outcome.value).sum()))
    }
    fn capture(&self, phases: &[(Stage, MoeCall)]) -> Self::Graph {
        phases.to_vec()
    }
    fn replay(&self, graph: &Self::Graph) -> Vec<Outcome> {
        graph.iter().map(|(stage, call)| self.launch(*stage, call)).collect()
    }
}

/// What a rank does with its buffer.
pub type WarpBuffer = Buffer<Staged<Warps>>;

/// Starts `body` on a rank, whose kernels run as `lanes` lanes in each of a scenario's blocks.
pub fn start<T: 'static>(
    cluster: &Cluster,
    scenario: &Scenario,
    lanes: u32,
    rank: u32,
    patience: Patience,
    body: impl FnOnce(&mut WarpBuffer) -> T + 'static,
) -> Task<T> {
    let (board, shape, mode) = (Rc::new(Board::default()), scenario.shape, scenario.mode);
    let blocks = patience.blocks;
    for block in 0..blocks {
        let (kernel, board) = (cluster.kernel(rank), board.clone());
        let name = format!("moe.{rank}.{block}");
        spawn_warp(&cluster.sim, &name, lanes, ActorOptions::kernel(), move |lane| {
            serve(&kernel, &board, lane, block);
        });
    }
    let heap_bytes = cluster.pe(rank).heap().bytes;
    cluster.spawn("moe", rank, move |kernel| {
        let (kernel, ranks, memory) = (kernel.clone(), shape.ranks, RefCell::default());
        let warps = Warps { kernel, rank, ranks, heap_bytes, blocks, board: board.clone(), memory };
        let staged = Staged::new(warps, &shape, mode);
        let (tokens, hidden, experts) = (shape.tokens, shape.hidden, shape.experts() as u32);
        let mut buffer = Buffer::new(staged, BASE, tokens, hidden, experts, patience).expect("there is room");
        let said = body(&mut buffer);
        board.phase.set(None);
        board.turn.set(board.turn.get() + 1);
        said
    })
}
