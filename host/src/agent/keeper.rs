//! Keeps a PE from being without an agent: one that panics is reported and followed by another, later after each
//! failure in a row.

use super::worker::Threads;
use super::{Agent, AgentOptions};
use crate::events::{Event, Sink};
use crate::pe::Pe;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// First pause after a failure, doubled by each further one up to [`PAUSE_MAX_NS`].
const PAUSE_NS: u64 = 1_000_000;
/// Longest pause.
const PAUSE_MAX_NS: u64 = 16_000_000_000;
/// An agent that lived for so long begins with a clean record.
const CALM_NS: u64 = 60_000_000_000;

/// Who has the agent of a PE step.
pub struct Keeper {
    agent: Option<Agent>,
    /// Those of the first.
    options: AgentOptions,
    /// No agent before this time.
    due_ns: u64,
    since_ns: u64,
    /// Failures in a row.
    failures: u32,
}

impl Keeper {
    /// Keeps the PE of this agent.
    pub fn new(agent: Agent) -> Self {
        let (since_ns, options) = (agent.now(), agent.options);
        Self { agent: Some(agent), options, due_ns: 0, since_ns, failures: 0 }
    }

    /// One step of the agent, if there is one; another agent, if it is time. True if there was something to do.
    pub fn step(&mut self, pe: &Pe) -> bool {
        let now = pe.world().now_ns();
        if self.agent.is_none() && now >= self.due_ns {
            // The state was of this version when the first agent looked; nobody writes that. Workers are there.
            self.agent = Agent::new(pe, self.options, &Threads).ok().flatten();
            self.since_ns = now;
        }
        let Some(agent) = &mut self.agent else { return false };
        // Whatever a panic leaves half done in the agent is dropped with it, unread.
        match catch_unwind(AssertUnwindSafe(|| agent.step())) {
            Ok(busy) => busy,
            Err(panic) => {
                self.failed(now, &said(&*panic));
                true
            }
        }
    }

    /// True once everything that the agent has to make and to prove at start is there ([`Agent::is_settled`]).
    pub fn is_settled(&self) -> bool {
        self.agent.as_ref().is_some_and(Agent::is_settled)
    }

    /// Adds somebody who is told of every event from here on.
    pub fn add_sink(&mut self, sink: Box<dyn Sink>) {
        if let Some(agent) = &mut self.agent {
            agent.add_sink(sink);
        }
    }

    /// The agent dies now. The next step begins with another one.
    pub fn kill(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.abandon();
        }
    }

    fn failed(&mut self, now: u64, error: &str) {
        let calm = now.saturating_sub(self.since_ns) >= CALM_NS;
        let pause_ns = pause_ns(if calm { 0 } else { self.failures });
        self.failures = if calm { 1 } else { self.failures.saturating_add(1) };
        self.due_ns = now.saturating_add(pause_ns);
        if let Some(mut agent) = self.agent.take() {
            let event = Event::AgentFailed { error: error.to_owned(), pause_ns };
            // A log that is the reason itself says nothing, and the next agent has it.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                agent.report(event);
                agent.news.log.release_all();
            }));
            agent.abandon();
        }
    }
}

/// How long a PE is without an agent after so many failures in a row before this one.
const fn pause_ns(before: u32) -> u64 {
    let pause_ns = PAUSE_NS << if before < 20 { before } else { 20 };
    if pause_ns < PAUSE_MAX_NS { pause_ns } else { PAUSE_MAX_NS }
}

/// What a panic says.
pub(super) fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_and_has_an_end() {
        assert_eq!((pause_ns(0), pause_ns(1), pause_ns(10)), (PAUSE_NS, 2 * PAUSE_NS, 1024 * PAUSE_NS));
        assert_eq!((pause_ns(20), pause_ns(u32::MAX)), (PAUSE_MAX_NS, PAUSE_MAX_NS));
    }

    #[test]
    fn what_a_panic_said_is_known() {
        for (panic, want) in [
            (catch_unwind(|| panic!("plain")), "plain"),
            (catch_unwind(|| panic!("{} of {}", 1, 2)), "1 of 2"),
            (catch_unwind(|| std::panic::panic_any(7)), "a panic without words"),
        ] {
            assert_eq!(said(&*panic.expect_err("it panics")), want);
        }
    }
}
