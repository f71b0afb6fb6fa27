//! Keeps a PE from being without an agent: one that panics is reported and followed by another, later after each
//! failure in a row.

use super::worker::{Threads, panic_message};
use super::{Agent, AgentOptions};
use crate::events::{Event, Sink};
use crate::nanos::Nanos;
use crate::pe::Pe;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// First pause after a failure, doubled by each further one up to [`PAUSE_MAX`].
const PAUSE: Nanos = Nanos::millis(1);
/// Longest pause.
const PAUSE_MAX: Nanos = Nanos::secs(16);
/// An agent that lived for so long begins with a clean record.
const CALM: Nanos = Nanos::secs(60);

/// Who has the agent of a PE step.
pub struct Supervisor {
    agent: Option<Agent>,
    /// Those of the first.
    options: AgentOptions,
    /// No agent before this time.
    due: Nanos,
    since: Nanos,
    /// Failures in a row.
    failures: u32,
}

impl Supervisor {
    /// Keeps the PE of this agent.
    pub fn new(agent: Agent) -> Self {
        let (since, options) = (agent.looked(), agent.given());
        Self { agent: Some(agent), options, due: Nanos::ZERO, since, failures: 0 }
    }

    /// One step of the agent, if there is one; another agent, if it is time. True if there was something to do.
    pub fn step(&mut self, pe: &Pe) -> bool {
        if self.agent.is_none() && clock(pe) >= self.due {
            // The state was of this version when the first agent looked; nobody writes that. Workers are there.
            self.agent = Agent::new(pe, self.options, &Threads).ok().flatten();
            self.since = clock(pe);
        }
        let Some(agent) = &mut self.agent else { return false };
        // What a panic leaves half done is dropped with the agent. What it had not looked at goes to the next one.
        let step = || {
            let inputs = agent.inputs();
            let busy = agent.step(clock(pe), inputs);
            agent.hand_on(clock(pe));
            busy
        };
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(busy) => busy,
            Err(panic) => {
                self.failed(clock(pe), &panic_message(&*panic));
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

    fn failed(&mut self, now: Nanos, error: &str) {
        let calm = now - self.since >= CALM;
        let pause = pause(if calm { 0 } else { self.failures });
        self.failures = if calm { 1 } else { self.failures.saturating_add(1) };
        self.due = now + pause;
        if let Some(mut agent) = self.agent.take() {
            let event = Event::AgentFailed { error: error.to_owned(), pause_ns: pause.get() };
            // A log that is the reason itself says nothing, and the next agent has it.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                agent.report(now, event);
                agent.release_events();
            }));
            agent.abandon();
        }
    }
}

/// How long a PE is without an agent after so many failures in a row before this one.
fn pause(before: u32) -> Nanos {
    PAUSE.doubled(before).min(PAUSE_MAX)
}

fn clock(pe: &Pe) -> Nanos {
    pe.world().now_ns().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_and_has_an_end() {
        assert_eq!((pause(0), pause(1), pause(10)), (PAUSE, PAUSE * 2, PAUSE * 1024));
        assert_eq!((pause(20), pause(u32::MAX)), (PAUSE_MAX, PAUSE_MAX));
    }
}
