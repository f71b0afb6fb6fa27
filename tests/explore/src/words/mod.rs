//! Model W: the ticket, ready and done words of one channel, warps that post in groups, a poller, a switcher and NICs.
//!
//! One step is one access of the code that ships, so a warp may fall asleep between any two. Words, their comparisons
//! and the rule of room are the shipped ones. The two paths' memory is used again and again, as after revivals.

mod state;
mod switcher;
mod warp;

pub use state::{GROUP_MAX, System, WARPS};

use crate::search::Model;
use shunt_layout::state::{ReadyWord, Word};
use state::{EMPTY, Poller, Ring, Switcher, TICKETS, Warp};
use switcher::Stage;

/// A part of the protocol taken away, or a design that is known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// A head group that cannot fit a frozen ring does not say so.
    NoBlocked,
    /// As `NoBlocked`, and the switcher takes what surely fits for the journal's limit.
    LimitByDepth,
    /// The ring check does not compare generations.
    RoomWithoutGeneration,
    /// A poller raises `done` whatever generation it is of.
    DoneWithoutGeneration,
    /// A doorbell is rung without a look under the post lock.
    LateDoorbell,
    /// The ticket word is opened by a store.
    OpenByStore,
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Slots of a ring.
    pub depth: u64,
    /// Tickets of a group, by warp.
    pub group: [u64; WARPS],
    /// Groups that each warp posts.
    pub groups: [u8; WARPS],
    /// Paths that die.
    pub faults: u8,
    /// What is taken away.
    pub broken: Option<Break>,
}

impl Setup {
    /// Rings of `depth`, and `faults`; each warp posts `groups` groups of `group` tickets.
    pub fn new(depth: u64, faults: u8, group: [u64; WARPS], groups: [u8; WARPS]) -> Self {
        let tickets: u64 = (0..WARPS).map(|warp| group[warp] * u64::from(groups[warp])).sum();
        assert!(tickets <= TICKETS as u64 && group.iter().all(|size| *size <= GROUP_MAX.min(depth)));
        Self { depth, group, groups, faults, broken: None }
    }

    /// The same without a part of the protocol.
    pub fn without(mut self, part: Break) -> Self {
        self.broken = Some(part);
        self
    }

    fn lacks(&self, part: Break) -> bool {
        self.broken == Some(part)
    }
}

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
                "bounded waits: warp {number} waits for ever at {at:?} with ticket {ticket}, the switcher at {stage:?}"
            ));
        }
        if s.switcher.stage != Stage::Idle {
            return Err(format!("bounded waits: the switcher waits for ever at {:?}", s.switcher.stage));
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

impl Setup {
    fn step_nic(&self, s: &mut System, path: usize) -> Result<(), String> {
        let ring = &mut s.rings[path];
        let block = ring.blocks[(ring.executed % self.depth) as usize];
        let wanted = ring.base.wrapping_add(ring.executed);
        ring.executed += 1;
        if block == EMPTY || u64::from(block.ticket) != wanted {
            let met = block.words();
            return Err(format!("one switcher: a NIC fetches {met} where ticket {wanted} should be"));
        }
        if !block.placeholder {
            s.executions[usize::from(block.ticket)] += 1;
        }
        Ok(())
    }

    /// A poller: `done`, then the completion queue it names, then a swap from what was read (rule 4).
    fn poller_can_go(&self, s: &System) -> bool {
        let done = Word(s.done);
        match s.poller.at {
            PollAt::Rest => {
                let ring = &s.rings[done.slot() as usize];
                !done.flag() && ring.base.wrapping_add(ring.executed) > done.index()
            }
            PollAt::Completions | PollAt::Swap => true,
        }
    }

    fn step_poller(&self, s: &mut System) {
        let seen = Word(s.poller.seen);
        match s.poller.at {
            PollAt::Rest => s.poller = Poller { at: PollAt::Completions, seen: s.done, found: 0 },
            PollAt::Completions => {
                let ring = &s.rings[seen.slot() as usize];
                let found = ring.base.wrapping_add(ring.executed);
                s.poller = match found > seen.index() {
                    true => Poller { at: PollAt::Swap, found, ..s.poller },
                    false => Poller::AT_REST,
                };
            }
            PollAt::Swap => {
                let found = s.poller.found;
                if self.lacks(Break::DoneWithoutGeneration) {
                    let done = Word(s.done);
                    if !done.flag() && found > done.index() {
                        s.done = done.with_index(found).0;
                    }
                } else if s.done == seen.0 {
                    s.done = seen.with_index(found).0;
                }
                s.poller = Poller::AT_REST;
            }
        }
    }

    fn poller_words(&self, s: &System) -> String {
        match s.poller.at {
            PollAt::Rest => format!("poller reads done: {}", state::words(Word(s.done))),
            PollAt::Completions => {
                format!("poller reads the completions of path {}", Word(s.poller.seen).slot())
            }
            PollAt::Swap => format!("poller raises done to {} if it still stands", s.poller.found),
        }
    }

    /// True if the head group says that it cannot fit this frozen ring.
    fn blocked(s: &System) -> bool {
        ReadyWord(s.ready).blocked_in(Word(s.done).generation())
    }
}

/// Where the poller is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PollAt {
    /// Between two looks.
    Rest,
    /// It has read `done`.
    Completions,
    /// It has read the completion queue.
    Swap,
}
