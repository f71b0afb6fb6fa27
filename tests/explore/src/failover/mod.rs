//! Model F: two PEs, a channel each way, two or three paths between them, and everything that may happen to them.
//!
//! Any packet that was sent may be executed arbitrarily late while its responder accepts, or never; completions and
//! READ responses come late or never; each NIC places what it executed later than it acknowledges it, in its own order.
//! The decisions are those of the code that ships: the cut, the verdict on two truths, the life of a pair, the ledger
//! of signals of kind 1.

mod action;
mod nic;
mod promises;
mod setup;
mod state;
mod switch;

pub use action::Action;
pub use setup::{Break, Kind, Op, Setup};
pub use state::{Error, Phase, System};

use crate::search::Model;
use state::{Channel, Direction, Half, Memory, NONE, OPS, OtherWriter, PATHS, Place, Queue, REUSED};

impl Model for Setup {
    type State = System;
    type Action = Action;

    fn initial(&self) -> System {
        let half = Half { health: shunt_host::agent::health::Health::Ready, in_error: false, mute: false };
        let memory = Memory {
            buffers: [0; OPS],
            words: [0; OPS],
            consumed: 0,
            applied: 0,
            fetched: [0; OPS],
            ledger_before: 0,
            ledger_after: 0,
        };
        System {
            directions: [[Direction::NEW; PATHS]; 2],
            channels: [Channel::NEW; 2],
            memory: [memory; 2],
            queues: [[Queue::EMPTY; PATHS]; 2],
            halves: [[half; PATHS]; 2],
            agents: [true; 2],
            revived: false,
            other: OtherWriter { added: 0, home: 0 },
            budget: self.budget,
        }
    }

    fn actions(&self, s: &System, out: &mut Vec<Action>) {
        for pe in [0, 1] {
            if self.ops[pe].is_empty() {
                continue;
            }
            self.program_actions(s, pe, out);
            self.network_actions(s, pe, out);
            self.trigger_actions(s, pe, out);
            self.switch_actions(s, pe, out);
        }
        self.other_actions(s, out);
    }

    fn apply(&self, before: &System, action: Action) -> Result<System, String> {
        let mut s = *before;
        match action {
            Action::Consume { pe } => self.consume(&mut s, pe)?,
            Action::UseFetched { pe, op } => {
                let buffer = &mut s.memory[pe].fetched[op];
                if *buffer == 0 {
                    return Err(format!("no loss: get {op} of {} is done, its data never arrived", name(pe)));
                }
                *buffer = REUSED;
                s.channels[pe].used |= 1 << op;
            }
            Action::Post { pe } => {
                let (path, op) = (usize::from(s.channels[pe].path), usize::from(s.channels[pe].next));
                self.post_op(&mut s, pe, path, op);
                s.channels[pe].next += 1;
            }
            Action::Execute { pe, path } => {
                let direction = &mut s.directions[pe][path];
                let message = direction.ring[usize::from(direction.executed)];
                direction.executed += 1;
                self.execute(&mut s, pe, path, message);
            }
            Action::Ghost { pe, path } => {
                let direction = &mut s.directions[pe][path];
                let message = direction.ghosts[usize::from(direction.executed)];
                direction.executed += 1;
                self.execute(&mut s, pe, path, message);
            }
            Action::Complete { pe, path } => self.complete(&mut s, pe, path),
            Action::Mute { pe, path } => {
                for other in (0..self.paths).filter(|other| self.nic(pe, *other) == self.nic(pe, path)) {
                    s.halves[pe][other].mute = true;
                }
                s.budget.mutes -= 1;
            }
            Action::Visible { pe, path } => place(&mut s, pe, path)?,
            Action::OtherAdd => self.other_add(&mut s),
            Action::KillAgent => {
                s.agents[1] = false;
                s.budget.agent_deaths -= 1;
            }
            Action::Revive => self.revive(&mut s)?,
            switching => self.switch(&mut s, switching)?,
        }
        Ok(s)
    }

    fn check(&self, s: &System) -> Result<(), String> {
        self.always(s)
    }

    fn check_at_rest(&self, s: &System) -> Result<(), String> {
        self.at_rest(s)
    }

    fn describe(&self, s: &System, action: Action) -> String {
        self.words(s, action)
    }
}

/// A PE's name in traces.
fn name(pe: usize) -> &'static str {
    ["A", "B"][pe]
}

/// A NIC places its oldest write.
fn place(s: &mut System, pe: usize, path: usize) -> Result<(), String> {
    let memory = &mut s.memory[pe];
    match s.queues[pe][path].pop() {
        Some(Place::Buffer(at)) => memory.buffers[at] = state::DATA,
        Some(Place::Word(at, value)) => memory.words[at] = value,
        Some(Place::LedgerBefore(op)) => memory.ledger_before = op as u8 + 1,
        Some(Place::LedgerAfter(op)) => memory.ledger_after = op as u8 + 1,
        None => {}
    }
    Ok(())
}

/// A NIC places everything it holds.
fn place_all(s: &mut System, pe: usize, path: usize) {
    while !s.queues[pe][path].is_empty() {
        // Errors of single steps are judged where they are actions of their own.
        let _ = place(s, pe, path);
    }
}

/// True if this end of a path takes part: its queue pair is not in ERR.
fn alive(s: &System, pe: usize, path: usize) -> bool {
    !s.halves[pe][path].in_error
}

/// The stored truth, or `None`.
fn stored(truth: u8) -> Option<u8> {
    (truth != NONE).then_some(truth)
}
