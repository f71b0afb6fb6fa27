//! All of one path: two machines, their NICs and owners, what is between them. Hashed whole.

use super::half::Half;
use super::letter::Wire;
use shunt_layout::state::PathState;
use shunt_recovery::path::PathMachine;

/// Halves that a NIC may have at once.
pub const QPS: usize = 3;
/// Commands that a NIC may have at once.
pub const JOBS: usize = 4;

/// What a queue pair does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Nothing yet.
    Made,
    /// It sends and executes.
    Works,
    /// In ERR.
    Error,
}

/// A command that a NIC has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // as the machine's commands
pub enum Job {
    /// `begun`: the half is in ERR, and the flush is under way.
    Fence {
        half: Half,
        begun: bool,
    },
    Count(Half),
    Stop(Half),
    Look(Half),
    Connect(Half),
    Make {
        old: Option<Half>,
        new: Half,
        connect: bool,
    },
}

/// An old half that is to be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Old {
    /// Which.
    pub half: Half,
    /// Its NIC was asked in vain.
    pub refused: bool,
}

/// A NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nic {
    /// Its queue pairs.
    pub qps: [Option<(Half, QpState)>; QPS],
    /// Its commands, at the place of their numbers.
    pub jobs: [Option<Job>; JOBS],
    /// What it is to destroy.
    pub old: [Option<Old>; QPS],
    /// It has not answered for too long.
    pub silent: bool,
    /// It answers nothing any more.
    pub dead: bool,
    /// Its port is up.
    pub up: bool,
    /// Incarnations that it has made a half of, a bit for each.
    pub made: u32,
}

impl Nic {
    /// True if it has a half of this incarnation in this state.
    pub fn is(&self, incarnation: u32, state: QpState) -> bool {
        self.qps.iter().flatten().any(|(half, is)| half.incarnation == incarnation && *is == state)
    }

    /// True if a half of this incarnation may send or execute, now or later.
    pub fn is_alive(&self, incarnation: u32) -> bool {
        self.is(incarnation, QpState::Made) || self.is(incarnation, QpState::Works)
    }

    /// Changes the state of a half; `None` if there is none.
    pub fn set(&mut self, half: Half, state: QpState) -> Option<()> {
        let qp = self.qps.iter_mut().flatten().find(|(one, _)| *one == half)?;
        qp.1 = state;
        Some(())
    }

    /// Lets go of a half.
    pub fn drop_half(&mut self, half: Half) {
        self.qps.iter_mut().filter(|qp| qp.is_some_and(|(one, _)| one == half)).for_each(|qp| *qp = None);
        self.qps.sort_unstable_by_key(|qp| qp.map_or(u32::MAX, |(half, _)| half.incarnation));
    }

    /// True if it has something to do for this path.
    pub fn owes(&self) -> bool {
        self.jobs.iter().any(Option::is_some) || self.old.iter().any(Option::is_some)
    }
}

/// The owner of this end's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The path's state as it reads it.
    pub row: PathState,
    /// The incarnation that it uses; 0 if it does not use the path.
    pub uses: u32,
    /// It saw that the path is ready, and is to announce that it goes there.
    pub chose: bool,
    /// It has announced that it goes there, and is to look whether the path is still ready.
    pub looks_again: bool,
    /// Its newest request.
    pub request: u64,
    /// That is not answered.
    pub waits: bool,
    /// What it uses is fenced: it has its answer.
    pub answered: bool,
    /// Not provable: it ended.
    pub ended: bool,
}

/// What one end posts to the other in an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The sender's half.
    pub from: Half,
    /// Messages sent, probes among them.
    pub posted: u8,
    /// Messages executed by the other half.
    pub executed: u8,
    /// Of these, so many are in memory.
    pub placed: u8,
    /// Probes known to be answered.
    pub answered: u8,
    /// A packet lifetime has passed since the sender was last able to send.
    pub gone: bool,
    /// The owner was told that nothing of it changes memory any more.
    pub closed: bool,
}

impl Flow {
    /// Of a new half.
    pub fn new(from: Half) -> Self {
        let (posted, executed, placed, answered) = (0, 0, 0, 0);
        Self { from, posted, executed, placed, answered, gone: false, closed: false }
    }

    /// Its incarnation.
    pub fn incarnation(&self) -> u32 {
        self.from.incarnation
    }
}

/// One end.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct End {
    /// The machine that ships.
    pub path: PathMachine<Half>,
    /// Ticks that it saw.
    pub clock: u8,
    /// Its NIC.
    pub nic: Nic,
    /// Its owner.
    pub owner: Owner,
    /// There is a prober.
    pub probes: bool,
    /// The incarnation whose probe was answered last.
    pub proved: u32,
}

/// What may still happen, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Requests that nothing compels.
    pub asks: u8,
    /// Ticks.
    pub ticks: u8,
    /// Of these, so many unseen by one end.
    pub lags: u8,
    /// Words that get lost.
    pub losses: u8,
    /// Words that are heard twice.
    pub doubles: u8,
    /// Commands that fail.
    pub fails: u8,
    /// NICs that owe an answer for too long, and answer later.
    pub silences: u8,
    /// NICs that die.
    pub deaths: u8,
    /// Ports that go down.
    pub downs: u8,
    /// Orders of operators.
    pub orders: u8,
    /// Owners that go back to the path.
    pub returns: u8,
}

/// All of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct System {
    /// A, which leads revivals, and B.
    pub ends: [End; 2],
    /// By the sender.
    pub flows: [Flow; 2],
    /// What the machines say to each other.
    pub wire: Wire,
    /// What may still happen.
    pub budget: Budget,
    /// A NIC has failed.
    pub failed: bool,
}
