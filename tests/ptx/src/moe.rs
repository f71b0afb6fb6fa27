//! MoE layers of both modes, whose kernels are PTX: every byte of every layer against the reference.

use crate::code::Module;
use crate::outcome::{Run, caught};
use crate::rig::{Mode, Rig, Station, THREADS, actor, bytes_of, outcome_words, outcomes};
use shunt_deep_ep_bridge::normal::NormalBuffer;
use shunt_deep_ep_bridge::scenarios::Scenario;
use shunt_deep_ep_bridge::scenarios::normal::NormalScenario;
use shunt_deep_ep_bridge::staged::{self, Machine, NormalMachine, Staged};
use shunt_deep_ep_bridge::{Buffer, PathName, Patience};
use shunt_device::Fault;
use shunt_device::platform::host::World;
use shunt_host::agent::words::{Place, StateWords};
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_kernels::scenarios::Group;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{BASE, all, patience, spec};
use shunt_tests::sim::Task;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A launch: entry point, parameters, blocks.
type Work = (String, Vec<Vec<u8>>, u32);

/// What the host of a rank tells its blocks.
#[derive(Default)]
struct Board {
    work: RefCell<Option<Work>>,
    turn: Cell<u64>,
    ended: Cell<u32>,
}

/// One block of a rank: runs each launch that it is told.
fn serve(station: &Station, board: &Board, block: u32) {
    let mut seen = 0;
    loop {
        while board.turn.get() == seen {
            station.kernel().world.relax();
        }
        seen += 1;
        let work = board.work.borrow().clone();
        let Some((entry, params, blocks)) = work else { return };
        if block < blocks {
            station.run(&entry, &params, (block, blocks), THREADS);
        }
        board.ended.set(board.ended.get() + 1);
    }
}

/// The host of one rank.
struct Host {
    station: Station,
    rank: u32,
    ranks: u32,
    locals: u32,
    heap_bytes: u64,
    blocks: u32,
    group: Group,
    board: Rc<Board>,
    memory: RefCell<Vec<Vec<u64>>>,
}

impl Host {
    /// A launch, each of whose blocks has so many outcomes.
    fn work<C: Copy>(&self, kernel: &str, call: &C, blocks: u32, each: u32) -> Outcome {
        let room = outcome_words(blocks * each);
        self.station.lent.lend(&room);
        // SAFETY: calls of kernels are plain words.
        let params = vec![unsafe { bytes_of(call) }, (room.as_ptr() as u64).to_le_bytes().to_vec()];
        let entry = format!("shunt_kernel_{kernel}_{}", self.group.suffix());
        self.board.ended.set(0);
        self.board.work.replace(Some((entry, params, blocks)));
        self.board.turn.set(self.board.turn.get() + 1);
        while self.board.ended.get() < self.blocks {
            self.station.kernel().world.relax();
        }
        let outcomes = outcomes(&room, blocks * each);
        let fault = outcomes.iter().find(|outcome| outcome.as_fault().is_some()).copied();
        // Later launches have their outcomes elsewhere: this room stays lent, and so it has to stay.
        self.memory.borrow_mut().push(room);
        fault.unwrap_or_else(|| Outcome::ok(outcomes.iter().map(|outcome| outcome.value).sum()))
    }
}

impl Machine for Host {
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
        self.station.kernel().heap + at
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        let kernel = self.station.kernel();
        // SAFETY: the cluster keeps the state mapped until every kernel has ended.
        let words = unsafe { StateWords::new(kernel.state, kernel.world.clone()) }.ok()?;
        let place = Place { peer: fault.peer, channel: fault.channel, slot: fault.slot };
        (fault.peer != self.rank).then(|| PathName::of(&words.read_row(place), fault.at.0))
    }
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        (rank / self.locals == self.rank / self.locals)
            .then(|| self.station.kernel().heaps[rank as usize] + at)
    }
    fn memory(&self, bytes: u64) -> u64 {
        let words = vec![0; bytes as usize / 8 + 1];
        self.station.lent.lend(&words);
        let at = words.as_ptr() as u64;
        self.memory.borrow_mut().push(words);
        at
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
        self.work(stage.kernel(), call, call.blocks.max(1), self.group.warps(THREADS))
    }
    fn capture(&self, phases: &[(Stage, MoeCall)]) -> Self::Graph {
        phases.to_vec()
    }
    fn replay(&self, graph: &Self::Graph) -> Vec<Outcome> {
        graph.iter().map(|(stage, call)| self.launch(*stage, call)).collect()
    }
}

impl NormalMachine for Host {
    fn launch_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome {
        self.work(kernel.name(), call, call.blocks.max(1), 1)
    }
}

/// Starts the blocks of a rank and their host.
fn on_rank<T: 'static>(
    rig: &Rig,
    (rank, ranks, locals): (u32, u32, u32),
    (blocks, group): (u32, Group),
    body: impl FnOnce(Host) -> T + 'static,
) -> Task<T> {
    let board = Rc::new(Board::default());
    for block in 0..blocks {
        let (station, board) = (rig.station(rank), board.clone());
        rig.cluster.sim.spawn(format!("moe.{rank}.{block}"), actor(), move || serve(&station, &board, block));
    }
    let heap_bytes = rig.cluster.pe(rank).heap().bytes;
    let station = rig.station(rank);
    rig.cluster.spawn("moe", rank, move |_| {
        let memory = RefCell::default();
        let said = body(Host {
            station,
            rank,
            ranks,
            locals,
            heap_bytes,
            blocks,
            group,
            board: board.clone(),
            memory,
        });
        board.work.replace(None);
        board.turn.set(board.turn.get() + 1);
        said
    })
}

/// Low-latency layers of a scenario.
pub fn judge(module: &Rc<Module>, scenario: &Scenario, mode: Mode) -> Run {
    caught(|| {
        let mut spec = spec(&scenario.shape, mode.seed);
        if scenario.fails {
            spec.faults = vec!["10us:0.0:down".parse().expect("a fault")];
        }
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let rig = Rig::new(cluster, module, mode, scenario.locals > 1);
        let patience = Patience { blocks: scenario.blocks, signals: scenario.signals, ..patience(&spec) };
        let cases = Rc::new(scenario.cases(mode.seed));
        let part = |rank: u32| {
            let (cases, scenario) = (cases.clone(), scenario.clone());
            let (shape, how) = (scenario.shape, scenario.mode);
            on_rank(
                &rig,
                (rank, shape.ranks, scenario.locals),
                (patience.blocks, scenario.group),
                move |host| {
                    let staged = Staged::new(host, &shape, how);
                    let (tokens, hidden, experts) = (shape.tokens, shape.hidden, shape.experts() as u32);
                    let mut buffer =
                        Buffer::new(staged, BASE, tokens, hidden, experts, patience).expect("there is room");
                    let wrongs = scenario.play(&mut buffer, &cases, |_| {})?;
                    buffer.clean()?;
                    Ok(wrongs)
                },
            )
        };
        let tasks: Vec<_> = (0..scenario.shape.ranks).map(part).collect();
        let mut found = Run { wrongs: all(rig.cluster.sim.finish_all(&tasks)), ..Run::default() };
        found.ended(&rig);
        found
    })
}

/// Layers of normal mode.
pub fn judge_normal(module: &Rc<Module>, scenario: &NormalScenario, mode: Mode) -> Run {
    caught(|| {
        let mut spec = shunt_tests::moe_normal::spec(&scenario.shape, mode.seed);
        spec.faults = scenario
            .fault
            .iter()
            .map(|fault| format!("10us:0.0:{fault}").parse().expect("a fault"))
            .collect();
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let rig = Rig::new(cluster, module, mode, true);
        let patience = Patience { blocks: scenario.blocks, ..shunt_tests::moe_normal::patience(&spec) };
        let cases = Rc::new(scenario.cases(mode.seed));
        let part = |rank: u32| {
            let (cases, scenario) = (cases.clone(), scenario.clone());
            let (shape, low) = (scenario.shape, scenario.low());
            on_rank(
                &rig,
                (rank, shape.ranks(), shape.locals),
                (patience.blocks, scenario.group),
                move |host| {
                    let staged = Staged::new(host, &low, staged::Mode::Launch);
                    let mut buffer = NormalBuffer::new(staged, BASE, shape, patience).expect("there is room");
                    scenario.play(&mut buffer, &cases, |_| {})
                },
            )
        };
        let tasks: Vec<_> = (0..scenario.shape.ranks()).map(part).collect();
        let mut found = Run { wrongs: all(rig.cluster.sim.finish_all(&tasks)), ..Run::default() };
        found.ended(&rig);
        found
    })
}
