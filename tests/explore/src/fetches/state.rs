//! All of the system of model X, and what each part of it does in one step.

use shunt_host::agent::fetch_server::Requests;
use shunt_recovery::nanos::Nanos;

/// Requesters.
pub const ROWS: usize = 2;

/// What a worker said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// Nothing that the agent has not heard.
    None,
    /// It is done.
    Done,
    /// Its NIC refused.
    Failed,
}

/// A worker with work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Worker {
    /// The row that it looks at.
    pub row: u8,
    /// What its NIC read, if an atomic is under way.
    pub read: Option<u8>,
    /// It was given by an agent that is gone: nobody hears of it.
    pub orphan: bool,
}

/// The system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Number of each requester's last request.
    pub asked: [u8; ROWS],
    /// Number of the last that it has a reply to.
    pub answered: [u8; ROWS],
    /// Number that lies at the owner.
    pub arrived: [u8; ROWS],
    /// Number of the reply that lies there.
    pub replied: [u8; ROWS],
    /// Value of that reply.
    pub values: [u8; ROWS],
    /// Values that were fetched, a bit each.
    pub fetched: u16,
    /// The word.
    pub word: u8,
    /// Atomics that a NIC has written.
    pub executed: u8,
    /// Rail of the home.
    pub home: u8,
    /// The home is to move.
    pub moving: bool,
    /// The agent's machine.
    pub requests: Requests,
    /// Work that waits, by rail.
    pub queue: [u8; 2],
    /// Workers that have begun, by rail.
    pub workers: [Option<Worker>; 2],
    /// What the agent has not heard, by rail.
    pub told: [Job; 2],
    /// The rail of the third PE's add, and what its NIC read.
    pub adding: Option<(u8, u8)>,
    /// Pauses that were over.
    pub ticks: u8,
    /// Adds that the third PE has not finished.
    pub adds: u8,
    /// Agents that may still follow.
    pub restarts: u8,
    /// Moves that may still come.
    pub moves: u8,
    /// Atomics that a NIC may still refuse.
    pub refusals: u8,
}

impl State {
    /// With so many adds of a third PE, agents that follow, moves and refusals.
    pub fn new([adds, restarts, moves, refusals]: [u8; 4]) -> Self {
        Self {
            asked: [0; ROWS],
            answered: [0; ROWS],
            arrived: [0; ROWS],
            replied: [0; ROWS],
            values: [0; ROWS],
            fetched: 0,
            word: 0,
            executed: 0,
            home: 0,
            moving: false,
            requests: Requests::default(),
            queue: [0; 2],
            workers: [None; 2],
            told: [Job::None; 2],
            adding: None,
            ticks: 0,
            adds,
            restarts,
            moves,
            refusals,
        }
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        Nanos::secs(u64::from(self.ticks))
    }

    /// The agent looks at all rows, and gives what is due. `heedless` of a move.
    pub fn look(&mut self, heedless: bool) {
        if self.arrived != self.replied {
            self.requests.seen(Nanos::ZERO);
        }
        let moving = self.moving && !heedless;
        if self.requests.give(self.now(), moving) {
            self.queue[usize::from(self.home)] += 1;
        }
    }

    /// It hears what a worker said.
    pub fn hear(&mut self, rail: usize) {
        match std::mem::replace(&mut self.told[rail], Job::None) {
            Job::None => {}
            Job::Done => self.requests.worked(),
            Job::Failed => self.requests.failed(self.now()),
        }
    }

    /// Another agent follows: it knows nothing, and what waits is dropped.
    pub fn restart(&mut self) {
        self.restarts -= 1;
        (self.requests, self.moving) = (Requests::default(), false);
        (self.queue, self.told) = ([0; 2], [Job::None; 2]);
        self.workers.iter_mut().flatten().for_each(|worker| worker.orphan = true);
    }

    /// A NIC reads the word for a row.
    pub fn read_for(&mut self, rail: usize, row: usize) {
        self.workers[rail] = Some(Worker { row: row as u8, read: Some(self.word), ..self.at(rail) });
    }

    /// It writes the word, and the worker leaves the reply. The two are one step: nobody looks at a reply in between
    /// but the next work of this worker, which comes later.
    pub fn write_and_reply(&mut self, rail: usize, row: usize, old: u8) {
        self.word = old + 1;
        self.executed += 1;
        (self.replied[row], self.values[row]) = (self.arrived[row], old);
        self.next_row(rail);
    }

    /// The worker is done with its row.
    pub fn next_row(&mut self, rail: usize) {
        let worker = self.at(rail);
        self.workers[rail] = Some(Worker { row: worker.row + 1, read: None, ..worker });
    }

    /// The worker is done.
    pub fn end_work(&mut self, rail: usize, said: Job) {
        if !self.at(rail).orphan {
            self.told[rail] = said;
        }
        self.workers[rail] = None;
    }

    fn at(&self, rail: usize) -> Worker {
        self.workers[rail].unwrap_or_default()
    }

    /// True while the NIC of a rail is at work on the third PE's add.
    pub fn adds_at(&self, rail: u8) -> bool {
        self.adding.is_some_and(|(at, _)| at == rail)
    }

    /// True while it is at work for its own host.
    pub fn executes_at(&self, rail: u8) -> bool {
        self.at(usize::from(rail)).read.is_some()
    }

    /// The third PE's add: read, then written, by the NIC of the home.
    pub fn add(&mut self) {
        match self.adding.take() {
            None => self.adding = Some((self.home, self.word)),
            Some((_, old)) => {
                (self.word, self.adds) = (old + 1, self.adds - 1);
                self.executed += 1;
            }
        }
    }
}
