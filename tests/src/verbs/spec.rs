//! What a run of verbs programs is, what a program says in the end, and what programs know of each other.

use std::cell::RefCell;
use std::collections::BTreeMap;

use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;

use super::requests::Request;
use crate::rng::Rng;

/// Processes of a run.
pub(super) const PROCESSES: u32 = 2;

/// A program looks that often at a queue that has nothing for it.
const LOOK_NS: u64 = 40_000;

/// What a run is.
#[derive(Clone, Debug)]
pub struct VerbsSpec {
    /// Seed of the simulator.
    pub seed: u64,
    /// NICs of each process.
    pub rails: u32,
    /// Connections between both.
    pub pairs: u32,
    /// Requests of each end of a connection.
    pub requests: u64,
    /// Which processes post requests.
    pub posts: [bool; 2],
    /// Some of the requests are atomics.
    pub atomics: bool,
    /// The program needs their answers: one whose answer is lost ends the connection by an error.
    pub needs_answers: bool,
    /// The program posts by `ibv_wr_*`.
    pub extended: bool,
    /// The program sleeps on a completion channel until one of its queues has something for it.
    pub sleeps: bool,
    /// It is woken within that, once a completion is there, nanoseconds.
    pub late_ns: u64,
    /// All connections of a process take buffers from one queue.
    pub shared: bool,
    /// So many more buffers are posted there than messages come.
    pub spare_buffers: u64,
    /// One completion queue for all of a process; else two for each queue pair.
    pub one_queue: bool,
    /// Local ACK timeout, 4.096 us << this.
    pub ack_timeout: u8,
    /// Retries.
    pub retries: u8,
    /// Time between two requests of an end.
    pub pace_ns: u64,
    /// The program of process 1 looks at nothing for so long, once, after the first request.
    pub stall_ns: u64,
    /// Longest time until the program looks again at a queue that had nothing.
    pub look_ns: u64,
    /// Faults: how long after the first request, at which process and rail, and which.
    pub faults: Vec<(u64, RailAt, FaultKind)>,
    /// An agent is stopped: how long after the first request, of which process, and for how long.
    pub pauses: Vec<(u64, u32, u64)>,
    /// What each end posts, if it is not drawn: as many as `requests`, the last of them a message.
    pub few: Vec<Request>,
    /// A run that takes longer has come to a stop, virtual nanoseconds.
    pub patience_ns: u64,
    /// How long a program still looks once all is complete.
    pub quiet_ns: u64,
    /// Steps are counted.
    pub counts_steps: bool,
    /// Steps that are put off: their numbers, and for how long.
    pub put_off: Vec<(usize, u64)>,
}

/// A run that takes longer, in virtual time, has come to a stop.
const PATIENCE_NS: u64 = 3_000_000_000;
/// An event comes within that, though an agent is stopped for some milliseconds.
const LATE_NS: u64 = 20_000_000;
/// What is late comes within that.
const QUIET_NS: u64 = 12_000_000;

impl VerbsSpec {
    /// Without a fault.
    pub fn quiet(seed: u64) -> Self {
        Self {
            seed,
            rails: 2,
            pairs: 1,
            requests: 200,
            posts: [true; 2],
            atomics: true,
            needs_answers: false,
            extended: false,
            sleeps: false,
            late_ns: LATE_NS,
            shared: false,
            spare_buffers: 0,
            one_queue: false,
            ack_timeout: 8,
            retries: 3,
            pace_ns: 20_000,
            stall_ns: 0,
            look_ns: LOOK_NS,
            faults: Vec::new(),
            pauses: Vec::new(),
            few: Vec::new(),
            patience_ns: PATIENCE_NS,
            quiet_ns: QUIET_NS,
            counts_steps: false,
            put_off: Vec::new(),
        }
    }

    /// Connections and faults as the seed has them.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7e4b);
        let rails = rng.between(2, 3) as u32;
        let mut at = 0;
        let mut fault = |rng: &mut Rng| {
            // Some come together, or while what came before is being handled; some much later.
            at += match rng.below(4) {
                0 => rng.below(400_000),
                1 => rng.below(2_000_000),
                _ => rng.below(6_000_000),
            };
            let place = RailAt { pe: rng.below(PROCESSES.into()) as u32, rail: u32::from(rng.one_in(4)) };
            let for_ns = Some(200_000 + rng.below(9_000_000));
            let kind = match rng.below(9) {
                0 | 1 => FaultKind::DropAcks { for_ns },
                2 => FaultKind::BlackholeTx { for_ns },
                3 => FaultKind::BlackholeRx { for_ns },
                4 => FaultKind::Flap {
                    period_ns: 400_000 + rng.below(3_000_000),
                    count: 1 + rng.below(4) as u32,
                },
                8 => FaultKind::LateCqe { by_ns: 50_000 + rng.below(800_000), for_ns },
                _ => FaultKind::Down { for_ns },
            };
            (at, place, kind)
        };
        let count = 1 + rng.below(4);
        let mut faults: Vec<_> = (0..count).map(|_| fault(&mut rng)).collect();
        let pauses = match rng.below(3) {
            0 => vec![(rng.below(6_000_000), rng.below(2) as u32, 200_000 + rng.below(6_000_000))],
            _ => Vec::new(),
        };
        let posts = rng.pick(&[[true, true], [true, true], [true, false], [false, true]]);
        // What an end posts outlives its own NIC; what it receives does not.
        if posts == [true, false] && rng.one_in(4) {
            let place = RailAt { pe: 0, rail: 0 };
            faults = vec![(rng.below(6_000_000), place, FaultKind::NicGone { for_ns: None })];
        }
        let spec = Self {
            seed,
            rails,
            pairs: rng.pick(&[1, 1, 1, 2, 3]),
            requests: 150 + rng.below(200),
            posts,
            atomics: !rng.one_in(4),
            needs_answers: rng.one_in(4),
            one_queue: rng.one_in(3),
            ack_timeout: rng.between(7, 10) as u8,
            retries: rng.between(2, 7) as u8,
            pace_ns: rng.pick(&[10_000, 40_000, 80_000, 120_000]),
            look_ns: LOOK_NS,
            faults,
            pauses,
            extended: rng.one_in(3),
            ..Self::quiet(seed)
        };
        spec.waits_and_shares(&mut rng).stands_still(&mut rng)
    }

    /// How the program waits, and where its buffers are.
    fn waits_and_shares(self, rng: &mut Rng) -> Self {
        let (sleeps, shares, spare) = (rng.one_in(3), rng.one_in(3), rng.pick(&[0, 2, 24]));
        let spec = if sleeps { self.sleeping() } else { self };
        if shares && !spec.needs_answers { spec.sharing(spare) } else { spec }
    }

    /// Retries that run out long after the network was found silent, where it is; a program that takes no message for a
    /// while.
    fn stands_still(self, rng: &mut Rng) -> Self {
        let long = rng.one_in(5) && !self.shared && !self.needs_answers;
        let (ack_timeout, retries) = if long { (20, 7) } else { (self.ack_timeout, self.retries) };
        let stall_ns = if rng.one_in(6) { rng.below(20_000_000) } else { 0 };
        Self { ack_timeout, retries, stall_ns, ..self }
    }

    /// The program sleeps. Not one whose NIC is gone: what executes nothing any more wakes no program.
    pub fn sleeping(self) -> Self {
        let gone = self.faults.iter().any(|(.., kind)| matches!(kind, FaultKind::NicGone { .. }));
        Self { sleeps: !gone, ..self }
    }

    /// Connections share their buffers: so many more than messages come. The program needs no answers: a connection
    /// that is lost keeps buffers that others wait for.
    pub fn sharing(self, spare_buffers: u64) -> Self {
        // Who has no buffer waits for one for up to half a second.
        let patience_ns = 2 * PATIENCE_NS;
        Self { shared: true, spare_buffers, needs_answers: false, patience_ns, ..self }
    }
}

/// What a program has to say in the end.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Promises that were broken.
    pub wrong: Vec<String>,
    /// Times that directions moved.
    pub switches: u64,
    /// Of these, directions that came back to the first NIC.
    pub at_home: u64,
    /// Requests that were posted again.
    pub replayed: u64,
    /// Requests that completed well.
    pub completed: u64,
    /// Times that an event woke it.
    pub wakes: u64,
    /// Connections that ended because the answer of an atomic was lost.
    pub lost: u64,
    /// By connection and fault: from it until a request completed that was posted after it, nanoseconds.
    pub gaps_ns: Vec<u64>,
    /// By fault: commands that the first NICs of both processes executed meanwhile, by opcode, until the last of
    /// these.
    pub commands: Vec<BTreeMap<u16, u64>>,
}

/// Atomics that completed, and those that were posted: adds, and swaps.
pub(super) type Atomics = [(u64, u64); 2];

/// An end of a connection, as the other end knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    pub gid: [u8; 16],
    pub qpn: u32,
    pub psn: u32,
    /// Where its memory begins: all processes are in one address space.
    pub base: u64,
    pub rkey: u32,
}

/// What programs know of each other.
pub(super) struct Board {
    /// By process and connection.
    pub cards: RefCell<Vec<Vec<Card>>>,
    /// By process: all its connections are protected.
    pub armed: RefCell<Vec<bool>>,
    /// By process: all is posted, complete and received.
    pub done: RefCell<Vec<bool>>,
    /// By process: the actor of its agent.
    pub agents: RefCell<Vec<usize>>,
    /// By process: its own actor.
    pub programs: RefCell<Vec<usize>>,
    /// When faults come, once that is known.
    pub faults_at: RefCell<Vec<u64>>,
    /// By connection: one end got an error; it was that of an atomic whose answer is lost.
    pub lost: RefCell<Vec<bool>>,
    pub explained: RefCell<Vec<bool>>,
    /// By process and connection: atomics that completed, and those that were posted, of both kinds.
    pub atomics: RefCell<Vec<Vec<Atomics>>>,
}

impl Board {
    pub(super) fn new(pairs: u32) -> Self {
        let (processes, pairs) = (PROCESSES as usize, pairs as usize);
        Self {
            cards: RefCell::new(vec![Vec::new(); processes]),
            armed: RefCell::new(vec![false; processes]),
            done: RefCell::new(vec![false; processes]),
            agents: RefCell::new(vec![0; processes]),
            programs: RefCell::new(vec![0; processes]),
            faults_at: RefCell::default(),
            lost: RefCell::new(vec![false; pairs]),
            explained: RefCell::new(vec![false; pairs]),
            atomics: RefCell::new(vec![vec![[(0, 0); 2]; pairs]; processes]),
        }
    }

    pub(super) fn all(which: &RefCell<Vec<bool>>) -> bool {
        which.borrow().iter().all(|one| *one)
    }
}
