//! Model X: exact fetching atomics. Two requesters, and a third PE that adds through the NIC, share one word; its owner
//! has two rails, an agent that may be followed by another, and a home that may move while a worker executes.
//!
//! The agent's [`Requests`](shunt_host::agent::fetch_server::Requests) and [`due`], which decide what is given and what
//! is executed, are those that ship. A NIC reads a word and writes it a step later, one atomic at a time: two NICs at
//! work on one word lose adds.

mod state;

pub use state::State;

use crate::search::Model;
use shunt_device::Amo;
use shunt_host::agent::fetch_server::{Due, due};
use shunt_layout::state::{AmoForm, FetchRequest};
use state::{Job, ROWS, Worker};

/// Bytes of the owner's heap: the word alone.
const HEAP: u64 = 8;

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// A worker executes what was answered.
    ExecutedTwice,
    /// A requester takes any reply.
    OtherReply,
    /// A home moves while a worker is at work for it.
    HomeNotAwaited,
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Requests of each requester.
    requests: [u8; ROWS],
    /// Adds of the third PE.
    adds: u8,
    /// Agents that follow another.
    restarts: u8,
    /// Moves of the home.
    moves: u8,
    /// Atomics that a NIC refuses.
    refusals: u8,
    broken: Option<Break>,
}

impl Setup {
    /// So many requests of each requester.
    pub fn new(requests: [u8; ROWS]) -> Self {
        Self { requests, adds: 0, restarts: 0, moves: 0, refusals: 0, broken: None }
    }

    /// So many adds of a third PE through the NIC of the home.
    pub fn adds(mut self, adds: u8) -> Self {
        self.adds = adds;
        self
    }

    /// So many agents that follow another, moves of the home, and refusals of a NIC.
    pub fn troubles(mut self, restarts: u8, moves: u8, refusals: u8) -> Self {
        (self.restarts, self.moves, self.refusals) = (restarts, moves, refusals);
        self
    }

    /// With this taken away.
    pub fn without(mut self, broken: Break) -> Self {
        self.broken = Some(broken);
        self
    }

    fn lacks(&self, part: Break) -> bool {
        self.broken == Some(part)
    }
}

/// Something that happens at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A requester asks: draft and number.
    Ask(u8),
    /// Its request arrives, for the first time or again.
    Arrive(u8),
    /// It READs the reply.
    Read(u8),
    /// The agent looks at all rows.
    Look,
    /// The agent hears of the worker of a rail.
    Hear(u8),
    /// The agent goes, another follows.
    Restart,
    /// The home is to move.
    Move,
    /// The move is carried on.
    Carry,
    /// A pause is over.
    Tick,
    /// The worker of a rail takes a step.
    Work(u8),
    /// Its NIC refuses the atomic that it is about to execute.
    Refuse(u8),
    /// The third PE's add: the NIC of the home reads the word, then writes it.
    Add,
}

impl Setup {
    /// What the worker does with a row.
    fn due(&self, state: &State, row: usize) -> Due {
        let number = u64::from(state.arrived[row]);
        let request = FetchRequest {
            number,
            word: 0,
            operand: 1,
            form: AmoForm::Add64 as u32,
            ..FetchRequest::default()
        };
        let replied = if self.lacks(Break::ExecutedTwice) { 0 } else { u64::from(state.replied[row]) };
        due(number, &request, replied, HEAP)
    }

    fn work(&self, state: &mut State, rail: usize) {
        let Some(Worker { row, read, .. }) = state.workers[rail] else {
            state.queue[rail] -= 1;
            state.workers[rail] = Some(Worker::default());
            return;
        };
        let row = usize::from(row);
        let elsewhere = usize::from(state.home) != rail && !self.lacks(Break::HomeNotAwaited);
        match read {
            _ if row == ROWS => state.end_work(rail, Job::Done),
            None if elsewhere => state.end_work(rail, Job::Done),
            None => match self.due(state, row) {
                Due::Execute(Amo::Add64(1), 0) => state.read_for(rail, row),
                _ => state.next_row(rail),
            },
            Some(old) => state.write_and_reply(rail, row, old),
        }
    }

    fn read(&self, state: &mut State, row: usize) -> Result<(), String> {
        let number = state.replied[row];
        if number == 0 || number != state.asked[row] && !self.lacks(Break::OtherReply) {
            return Ok(());
        }
        let value = state.values[row];
        state.answered[row] = state.asked[row];
        if state.fetched >> value & 1 == 1 {
            return Err(format!("{value} was fetched twice"));
        }
        state.fetched |= 1 << value;
        Ok(())
    }

    /// The agent has taken back what waits at the old rail; nobody is at work there, and the third PE is fenced off it.
    fn carry(&self, state: &mut State) {
        let old = usize::from(state.home);
        if !self.lacks(Break::HomeNotAwaited) {
            state.queue[old] = 0;
            if state.workers[old].is_some() {
                return;
            }
            state.requests.taken_back();
        }
        if state.adding.is_none() {
            (state.home, state.moving) = (1 - state.home, false);
        }
    }
}

impl Model for Setup {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State::new([self.adds, self.restarts, self.moves, self.refusals])
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        for row in 0..ROWS {
            let number = row as u8;
            let open = state.asked[row] != state.answered[row];
            if !open && state.asked[row] < self.requests[row] {
                out.push(Action::Ask(number));
            }
            if open {
                out.extend([Action::Arrive(number), Action::Read(number)]);
            }
        }
        out.push(Action::Look);
        for rail in 0..2 {
            if state.told[usize::from(rail)] != Job::None {
                out.push(Action::Hear(rail));
            }
            let work = state.queue[usize::from(rail)] > 0 || state.workers[usize::from(rail)].is_some();
            if work && !state.adds_at(rail) {
                out.push(Action::Work(rail));
            }
            let begun = state.workers[usize::from(rail)].is_some_and(|worker| worker.read.is_none());
            if begun && state.refusals > 0 {
                out.push(Action::Refuse(rail));
            }
        }
        if state.restarts > 0 {
            out.push(Action::Restart);
        }
        if state.moves > 0 && !state.moving {
            out.push(Action::Move);
        }
        if state.moving {
            out.push(Action::Carry);
        }
        if state.requests.rests(state.now()) {
            out.push(Action::Tick);
        }
        let begins = !state.moving && !state.executes_at(state.home);
        if state.adds > 0 && (begins || state.adding.is_some()) {
            out.push(Action::Add);
        }
    }

    fn apply(&self, state: &State, action: Action) -> Result<State, String> {
        let mut next = *state;
        match action {
            Action::Ask(row) => next.asked[usize::from(row)] += 1,
            Action::Arrive(row) => next.arrived[usize::from(row)] = next.asked[usize::from(row)],
            Action::Read(row) => self.read(&mut next, usize::from(row))?,
            Action::Look => next.look(self.lacks(Break::HomeNotAwaited)),
            Action::Hear(rail) => next.hear(usize::from(rail)),
            Action::Restart => next.restart(),
            Action::Move => (next.moving, next.moves) = (true, next.moves - 1),
            Action::Carry => self.carry(&mut next),
            Action::Tick => next.ticks += 1,
            Action::Work(rail) => self.work(&mut next, usize::from(rail)),
            Action::Refuse(rail) => {
                next.refusals -= 1;
                next.end_work(usize::from(rail), Job::Failed);
            }
            Action::Add => next.add(),
        }
        Ok(next)
    }

    fn check(&self, state: &State) -> Result<(), String> {
        // What was executed and what is left of it in the word.
        let under_way = state.workers.iter().flatten().any(|worker| worker.read.is_some());
        if !under_way && state.adding.is_none() && state.word != state.executed {
            return Err(format!("{} adds were executed, the word is {}", state.executed, state.word));
        }
        let asked: u8 = state.asked.iter().sum::<u8>() + self.adds;
        if state.executed > asked {
            return Err(format!("{} adds were executed, {asked} were asked for", state.executed));
        }
        Ok(())
    }

    fn check_at_rest(&self, state: &State) -> Result<(), String> {
        if state.answered != self.requests {
            return Err(format!("{:?} requests were answered of {:?}", state.answered, self.requests));
        }
        let all: u8 = self.requests.iter().sum::<u8>() + self.adds - state.adds;
        if state.word == all { Ok(()) } else { Err(format!("the word is {}, not {all}", state.word)) }
    }

    fn is_idle(&self, state: &State, action: Action) -> bool {
        self.apply(state, action).is_ok_and(|next| next == *state)
    }

    fn describe(&self, state: &State, action: Action) -> String {
        format!("{action:?}; the word is {}, home {}", state.word, state.home)
    }
}
