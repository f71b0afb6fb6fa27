//! Model W: the ticket, ready and done words of one channel, warps that post in groups, a poller, a switcher and NICs.
//!
//! One step is one access of the code that ships, so a warp may fall asleep between any two. Words, their comparisons
//! and the rule of room are the shipped ones. The two paths' memory is used again and again, as after revivals.

mod poller;
mod setup;
mod state;
mod switcher;
mod warp;

pub use setup::{Break, Setup};
pub use state::{GROUP_MAX, System, WARPS};

use crate::search::Model;
use shunt_layout::state::Word;
use state::{Poller, Ring, Stage, Switcher, TICKETS, Warp};

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A warp's next access.
    Warp(usize),
    /// The NIC of a path executes its next WQE.
    Nic(usize),
    /// The poller's next access.
    Poll,
    /// The active path dies.
    Die,
    /// The switcher's next access.
    Switch,
}

impl Model for Setup {
    type State = System;
    type Action = Action;

    fn initial(&self) -> System {
        let warps = self.groups.map(|left| Warp { left, ..Warp::AT_REST });
        System {
            ticket: Word::new(0, 0, 0).0,
            done: Word::new(0, 0, 0).0,
            ready: 0,
            posted: 0,
            locked: false,
            rings: [Ring::NEW; 2],
            warps,
            poller: Poller::AT_REST,
            switcher: Switcher::AT_REST,
            executions: [0; TICKETS],
            faults: self.faults,
        }
    }

    fn actions(&self, s: &System, out: &mut Vec<Action>) {
        for (number, warp) in s.warps.iter().enumerate() {
            if self.warp_can_go(s, warp) {
                out.push(Action::Warp(number));
            }
        }
        for (path, ring) in s.rings.iter().enumerate() {
            if ring.alive && ring.executed < ring.rung {
                out.push(Action::Nic(path));
            }
        }
        if self.poller_can_go(s) {
            out.push(Action::Poll);
        }
        let active = Word(s.ticket).slot() as usize;
        if s.faults > 0 && s.switcher.stage == Stage::Idle && s.rings[active].alive {
            out.push(Action::Die);
        }
        if self.switcher_can_go(s) {
            out.push(Action::Switch);
        }
    }

    fn apply(&self, before: &System, action: Action) -> Result<System, String> {
        let mut s = *before;
        match action {
            Action::Warp(number) => self.step_warp(&mut s, number)?,
            Action::Nic(path) => self.step_nic(&mut s, path)?,
            Action::Poll => self.step_poller(&mut s),
            Action::Die => {
                s.faults -= 1;
                s.rings[Word(s.ticket).slot() as usize].alive = false;
            }
            Action::Switch => self.step_switcher(&mut s)?,
        }
        Ok(s)
    }

    fn check(&self, s: &System) -> Result<(), String> {
        match s.executions.iter().position(|times| *times > 1) {
            Some(ticket) => Err(format!("exactly once: ticket {ticket} is executed twice")),
            None => Ok(()),
        }
    }

    fn check_at_rest(&self, s: &System) -> Result<(), String> {
        if let Some(number) = s.warps.iter().position(|warp| warp.left > 0) {
            let (warp, stage) = (&s.warps[number], s.switcher.stage);
            let ticket = Word(warp.word).index();
            let at = warp.at;
            return Err(format!(
                "bounded waits: warp {number} never returns, at {at:?} with ticket {ticket}, the switcher at {stage:?}"
            ));
        }
        if s.switcher.stage != Stage::Idle {
            return Err(format!("bounded waits: the switcher never returns, at {:?}", s.switcher.stage));
        }
        let handed_out = Word(s.ticket).index();
        for ticket in 0..handed_out as usize {
            if s.executions[ticket] != 1 {
                return Err(format!("no loss: ticket {ticket} is executed {} times", s.executions[ticket]));
            }
        }
        if Word(s.done).index() != handed_out {
            let done = Word(s.done).index();
            return Err(format!("bounded waits: {handed_out} tickets, done stays at {done}"));
        }
        Ok(())
    }

    fn is_idle(&self, s: &System, action: Action) -> bool {
        match action {
            Action::Warp(number) => self.warp_would_only_look(s, number),
            _ => false,
        }
    }

    fn describe(&self, s: &System, action: Action) -> String {
        match action {
            Action::Warp(number) => self.warp_words(s, number),
            Action::Nic(path) => {
                let ring = &s.rings[path];
                let what = ring.blocks[(ring.executed % self.depth) as usize];
                format!("NIC of path {path} executes index {}: {}", ring.executed, what.words())
            }
            Action::Poll => self.poller_words(s),
            Action::Die => format!("path {} dies", Word(s.ticket).slot()),
            Action::Switch => format!("switcher: {}", self.switcher_words(s)),
        }
    }
}
