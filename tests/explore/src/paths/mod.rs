//! Model P: both ends of one path. Two machines as they ship (`shunt_recovery::path::PathMachine`), and everything
//! that may happen around them, in any order.
//!
//! The agents' words arrive in any order, late, twice or never. A NIC goes on with a command at any later time, fails
//! one, is silent, or dies; a fence is two steps of it. Messages of an owner are sent when it begins to use the path:
//! any time later the other half may execute them, until it is in ERR or a packet lifetime has passed since the
//! sender's is. An owner asks, is answered and leaves at any later time; who comes back chooses, announces that and
//! looks again. A tick is a packet lifetime and more than every pause; both ends see it, or one. An end looks at its
//! path at any time, or (`prompt`) after everything that happens: what it does not see late then, is what others do
//! late.
//!
//! Promises, by their first word in a trace:
//!
//! * truth: an answer names what the responder executed, all of it is in memory, and nothing of it is executed later;
//!   what an end knows of the other half is so (rules 9, 10).
//! * rule 17: an end makes the next half when its old one is in ERR or gone, both directions have left, and a packet
//!   lifetime has passed since either half could send last. Nobody knows that of a half whose NIC failed to fence it:
//!   it is left out there.
//! * incarnation: a number is made once at an end.
//! * probes: an end is ready once probes of this incarnation were answered both ways.
//! * unused: of what an end said that it never sent, nothing is executed.
//! * rule 18: a truth is not replaced by one that says less.
//! * bounded waits, comes back: where the bounds end a search it goes on without a fault, in one fair order: every
//!   request is answered, and both ends are ready with the same incarnation, or out. So `rest` finds also what needs
//!   more ticks.
//!
//! What is found because something around the machines is broken: see [`Break`], each a row of the suite. What was
//! found with a line of the machine changed, by hand: `Due` without `has_left` (rule 17: an owner goes to an
//! incarnation that became the next), `FenceRecord::hear` without `tells_more` (rule 18), `next_incarnation` without
//! `forget` (truth), `await_left` without `left_there` (rule 17).
//!
//! What was found on what shipped, "path, rest below a lifetime": the end that leads rested a lifetime from the fence
//! of its own half, and a backoff. Where the other half was fenced much later and the backoff is shorter than the
//! lifetime, it made its next half while packets of that one were still on their way to its old one's number. It rests
//! from the later fence now.
//!
//! Not in it: a second path or rail, an agent that restarts, a slot that is wanted, links that are out of reach, parts
//! of a put, and commands that are taken back too late.

mod drive;
mod half;
mod happen;
mod letter;
mod nic;
mod promises;
mod rest;
mod setup;
mod state;

pub use happen::Action;
pub use letter::Letter;
pub use nic::How;
pub use setup::{Break, Setup};
pub use state::{Budget, System};

use crate::search::Model;
use half::Half;
use letter::Wire;
use shunt_layout::state::PathState;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::path::{PathMachine, PathStart};
use shunt_recovery::slots::RailPair;
use state::{End, Flow, JOBS, Nic, Owner, QPS, QpState};

impl Model for Setup {
    type State = System;
    type Action = Action;

    fn initial(&self) -> System {
        let half = |at: usize| Half { incarnation: u32::from(!self.fresh), psn: 16 * at as u32 };
        let end = |at: usize| {
            let mine = (!self.fresh).then_some(half(at));
            let start = PathStart {
                incarnation: half(at).incarnation,
                rails: RailPair { local: 0, remote: 0 },
                half: mine,
                next_psn: half(at).psn,
                orders: 0,
            };
            let mut qps = [None; QPS];
            qps[0] = mine.map(|half| (half, QpState::Works));
            let (jobs, old) = ([None; JOBS], [None; QPS]);
            let row = if self.fresh { PathState::Released } else { PathState::Ready };
            let uses = u32::from(self.uses[at]);
            End {
                path: PathMachine::found(start, at == 0, Nanos::ZERO),
                clock: 0,
                nic: Nic {
                    qps,
                    jobs,
                    old,
                    silent: false,
                    dead: false,
                    up: true,
                    made: 1 << half(at).incarnation,
                },
                owner: Owner {
                    row,
                    uses,
                    chose: false,
                    looks_again: false,
                    request: 0,
                    waits: false,
                    answered: false,
                    ended: false,
                },
                probes: false,
                proved: half(at).incarnation,
            }
        };
        let flow = |at: usize| {
            let posted = if self.uses[at] { self.posts } else { 0 };
            Flow { posted, ..Flow::new(half(at)) }
        };
        System {
            ends: [end(0), end(1)],
            flows: [flow(0), flow(1)],
            wire: Wire::EMPTY,
            budget: self.budget,
            failed: false,
        }
    }

    fn actions(&self, s: &System, out: &mut Vec<Action>) {
        self.all_actions(s, out);
    }

    fn apply(&self, before: &System, action: Action) -> Result<System, String> {
        let mut s = *before;
        self.happens(&mut s, action)?;
        if self.prompt {
            for at in [0, 1] {
                self.look(&mut s, at)?;
            }
        }
        Ok(s)
    }

    fn check(&self, _s: &System) -> Result<(), String> {
        // What a promise is about is one step: it is judged there.
        Ok(())
    }

    fn check_at_rest(&self, s: &System) -> Result<(), String> {
        self.comes_back(s)
    }

    fn is_idle(&self, s: &System, action: Action) -> bool {
        matches!(action, Action::Look { .. }) && self.apply(s, action).is_ok_and(|after| after == *s)
    }

    fn describe(&self, s: &System, action: Action) -> String {
        let stands = match self.apply(s, action) {
            Ok(after) => {
                after.ends.map(|end| format!("{:?} {}", end.path.health(), end.path.incarnation())).join(", ")
            }
            Err(_) => String::new(),
        };
        format!("{:64} {stands}", happen::words(s, action))
    }
}
