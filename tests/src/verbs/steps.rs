//! Steps of a run, numbered; a schedule puts some of them off.
//!
//! A step is what a program, an agent or a worker of a NIC does from one wait to the next, a message on its way, or
//! what the network does at an instant. One that is put off takes none until its time is over.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use crate::sim;

/// Whose step it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// The program of a process: it posts and polls.
    Program(u32),
    /// Its agent.
    Agent(u32),
    /// A worker of its agent, which commands a NIC.
    Worker(u32),
    /// A message from its agent.
    Message(u32),
    /// NICs and links.
    Network,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose.
    pub who: Who,
    /// How long after the first request, nanoseconds.
    pub at_ns: u64,
    /// Others can tell of it. One that only looked is not worth putting off.
    pub moved: bool,
}

/// Steps of a run from its first request on.
#[derive(Default)]
pub(super) struct Steps {
    /// Which are put off, by number, and for how long.
    put_off: Vec<(usize, u64)>,
    began_ns: Cell<Option<u64>>,
    who: RefCell<HashMap<usize, Who>>,
    found: RefCell<Vec<Step>>,
    /// The step that is under way.
    open: Cell<Option<usize>>,
    over: Cell<bool>,
}

impl Steps {
    pub(super) fn new(put_off: &[(usize, u64)]) -> Self {
        Self { put_off: put_off.to_vec(), ..Self::default() }
    }

    /// This actor is one of those whose steps are counted.
    pub(super) fn knows(&self, actor: usize, who: Who) {
        self.who.borrow_mut().insert(actor, who);
    }

    /// The first request is posted now.
    pub(super) fn begin(&self, now: u64) {
        self.began_ns.set(Some(now));
    }

    /// All is complete: nothing is counted any more.
    pub(super) fn end(&self) {
        self.over.set(true);
    }

    /// What was found.
    pub(super) fn take(&self) -> Vec<Step> {
        self.found.take()
    }

    /// The number of the next step, and for how long it is put off.
    fn next(&self, who: Who, now: u64, moved: bool) -> Option<(usize, u64)> {
        let began_ns = self.began_ns.get().filter(|_| !self.over.get())?;
        let mut found = self.found.borrow_mut();
        let number = found.len();
        found.push(Step { who, at_ns: now - began_ns, moved });
        let ns = self.put_off.iter().find(|(step, _)| *step == number).map_or(0, |(_, ns)| *ns);
        Some((number, ns))
    }

    /// A message is sent: how much later than others it arrives.
    pub(super) fn letter(&self, from: u32, now: u64) -> u64 {
        self.next(Who::Message(from), now, true).map_or(0, |(_, ns)| ns)
    }
}

impl sim::Steps for Steps {
    fn before(&self, actor: usize, now: u64) -> u64 {
        self.open.set(None);
        let Some(who) = self.who.borrow().get(&actor).copied() else { return 0 };
        let Some((number, ns)) = self.next(who, now, false) else { return 0 };
        self.open.set(Some(number).filter(|_| ns == 0));
        ns
    }

    fn after(&self, actor: Option<usize>, now: u64, moved: bool) {
        match actor {
            None if moved => _ = self.next(Who::Network, now, true),
            None => {}
            Some(_) => {
                if let Some(number) = self.open.take()
                    && let Some(step) = self.found.borrow_mut().get_mut(number)
                {
                    step.moved = moved;
                }
            }
        }
    }
}
