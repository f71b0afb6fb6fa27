//! MoE kernels of a simulated cluster as a GPU runs them: several blocks at the same time, each a group of lanes that
//! are coroutines, launched by a host that has memory of its own. The warps of a block of the low-latency mode never
//! meet: each is a group of its own.

use crate::cluster::Cluster;
use crate::kernel::Kernel;
use crate::moe::BASE;
use crate::sim::{ActorOptions, Task};
use crate::warp::{SimWarp, spawn_warp};
use shunt_deep_ep_bridge::normal::NormalBuffer;
use shunt_deep_ep_bridge::scenarios::Scenario;
use shunt_deep_ep_bridge::scenarios::normal::NormalScenario;
use shunt_deep_ep_bridge::staged::{Machine, Mode, NormalMachine, Staged};
use shunt_deep_ep_bridge::{Buffer, PathName, Patience};
use shunt_device::Fault;
use shunt_device::platform::Lanes;
use shunt_device::platform::host::World;
use shunt_host::agent::words::{Place, StateWords};
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_kernels::moe::{MoeCall, Part, Stage};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Lanes of a warp.
const WARP: u32 = 32;

/// A launch.
#[derive(Clone)]
enum Work {
    /// And the warps of a block.
    Low(Stage, MoeCall, u32),
    Normal(NormalKernel, Box<NormalCall>),
}

impl Work {
    /// Groups of lanes that take part.
    fn groups(&self) -> u32 {
        match self {
            Self::Low(_, call, warps) => call.blocks.max(1) * warps,
            Self::Normal(_, call) => call.blocks.max(1),
        }
    }

    fn run(&self, kernel: &Kernel, lane: SimWarp<'_>, group: u32) -> Outcome {
        match self {
            Self::Low(stage, call, _) => {
                stage.run(kernel.device(), lane, Part { number: group, of: self.groups() }, call)
            }
            Self::Normal(which, call) => which.run(kernel.device(), lane, group, call),
        }
    }
}

/// What the host tells blocks, and what they answer.
#[derive(Default)]
struct Board {
    /// What runs; none: there is no more.
    work: RefCell<Option<Work>>,
    /// Phases begun.
    turn: Cell<u64>,
    /// Outcomes of the blocks that took part in this phase.
    outcomes: RefCell<Vec<Outcome>>,
    /// Blocks that are through with it.
    ended: Cell<u32>,
}

impl Board {
    fn show(&self, work: Option<Work>) {
        self.work.replace(work);
        self.turn.set(self.turn.get() + 1);
    }
}

/// One group: runs each phase that is told, by all its lanes.
fn serve(kernel: &Kernel, board: &Board, lane: SimWarp<'_>, group: u32) {
    let mut seen = 0;
    loop {
        while lane.rank() == 0 && board.turn.get() == seen {
            kernel.world.relax();
        }
        seen += 1;
        lane.sync();
        let Some(work) = board.work.borrow().clone() else { return };
        let outcome = (group < work.groups()).then(|| work.run(kernel, lane, group));
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
    locals: u32,
    heap_bytes: u64,
    groups: u32,
    warps: u32,
    board: Rc<Board>,
    memory: RefCell<Vec<Vec<u64>>>,
}

impl Warps {
    /// All blocks of a launch, to their ends.
    fn work(&self, work: Work) -> Outcome {
        self.board.outcomes.borrow_mut().clear();
        self.board.ended.set(0);
        self.board.show(Some(work));
        while self.board.ended.get() < self.groups {
            self.kernel.world.relax();
        }
        let outcomes = self.board.outcomes.borrow();
        let fault = outcomes.iter().find(|outcome| outcome.as_fault().is_some());
        fault.copied().unwrap_or_else(|| Outcome::ok(outcomes.iter().map(|outcome| outcome.value).sum()))
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
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        (rank / self.locals == self.rank / self.locals).then(|| self.kernel.heaps[rank as usize] + at)
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
        self.work(Work::Low(stage, *call, self.warps))
    }
    fn capture(&self, phases: &[(Stage, MoeCall)]) -> Self::Graph {
        phases.to_vec()
    }
    fn replay(&self, graph: &Self::Graph) -> Vec<Outcome> {
        graph.iter().map(|(stage, call)| self.launch(*stage, call)).collect()
    }
}

impl NormalMachine for Warps {
    fn launch_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome {
        self.work(Work::Normal(kernel, Box::new(*call)))
    }
}

/// What a rank does with its buffer.
pub type WarpBuffer = Buffer<Staged<Warps>>;
/// The same in normal mode.
pub type WarpNodeBuffer = NormalBuffer<Staged<Warps>>;

/// Starts `body` on a rank, whose kernels run as `lanes` lanes in each of a scenario's blocks.
pub fn start<T: 'static>(
    cluster: &Cluster,
    scenario: &Scenario,
    lanes: u32,
    rank: u32,
    patience: Patience,
    body: impl FnOnce(&mut WarpBuffer) -> T + 'static,
) -> Task<T> {
    let (shape, mode) = (scenario.shape, scenario.mode);
    let warps = lanes.div_ceil(WARP);
    let groups = (lanes / warps, patience.blocks * warps, warps);
    on_warps(cluster, groups, (rank, shape.ranks, scenario.locals), move |warps| {
        let staged = Staged::new(warps, &shape, mode);
        let (tokens, hidden, experts) = (shape.tokens, shape.hidden, shape.experts() as u32);
        let mut buffer = Buffer::new(staged, BASE, tokens, hidden, experts, patience).expect("there is room");
        body(&mut buffer)
    })
}

/// The same in normal mode.
pub fn start_normal<T: 'static>(
    cluster: &Cluster,
    scenario: &NormalScenario,
    lanes: u32,
    rank: u32,
    patience: Patience,
    body: impl FnOnce(&mut WarpNodeBuffer) -> T + 'static,
) -> Task<T> {
    let (shape, low) = (scenario.shape, scenario.low());
    on_warps(cluster, (lanes, patience.blocks, 1), (rank, shape.ranks(), shape.locals), move |warps| {
        let staged = Staged::new(warps, &low, Mode::Launch);
        let mut buffer = NormalBuffer::new(staged, BASE, shape, patience).expect("there is room");
        body(&mut buffer)
    })
}

/// Starts the groups of a rank, so many of so many lanes, so many to a block, and their host.
fn on_warps<T: 'static>(
    cluster: &Cluster,
    (lanes, groups, warps): (u32, u32, u32),
    (rank, ranks, locals): (u32, u32, u32),
    body: impl FnOnce(Warps) -> T + 'static,
) -> Task<T> {
    let board = Rc::new(Board::default());
    for group in 0..groups {
        let (kernel, board) = (cluster.kernel(rank), board.clone());
        let name = format!("moe.{rank}.{group}");
        spawn_warp(&cluster.sim, &name, lanes, ActorOptions::kernel(), move |lane| {
            serve(&kernel, &board, lane, group);
        });
    }
    let heap_bytes = cluster.pe(rank).heap().bytes;
    cluster.spawn("moe", rank, move |kernel| {
        let (kernel, memory) = (kernel.clone(), RefCell::default());
        let board = board.clone();
        let said = body(Warps {
            kernel,
            rank,
            ranks,
            locals,
            heap_bytes,
            groups,
            warps,
            board: board.clone(),
            memory,
        });
        board.show(None);
        said
    })
}
