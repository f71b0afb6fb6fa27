//! What holds a PE's agent back, for faults that are the agent's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Holds an agent back: for a while, or for good.
#[derive(Debug, Default)]
pub struct AgentGate {
    /// On the process's clock.
    until_ns: AtomicU64,
    held: AtomicBool,
    /// The agent is to die.
    dies: AtomicBool,
    /// There is no agent before this time, on the process's clock.
    dead_until_ns: AtomicU64,
    deaths: AtomicU64,
}

impl AgentGate {
    /// The agent does nothing before this time; the largest number is never.
    pub fn hold(&self, until_ns: u64) {
        self.until_ns.fetch_max(until_ns, Ordering::AcqRel);
    }

    /// True if the agent would have done something and did not.
    pub fn held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// The agent dies; the next one takes over at this time.
    pub fn kill(&self, until_ns: u64) {
        self.dead_until_ns.fetch_max(until_ns, Ordering::AcqRel);
        self.dies.store(true, Ordering::Release);
    }

    /// How often the agent died.
    pub fn deaths(&self) -> u64 {
        self.deaths.load(Ordering::Acquire)
    }

    /// Whether it is to die now: once a kill.
    pub(crate) fn dies(&self) -> bool {
        let dies = self.dies.swap(false, Ordering::AcqRel);
        self.deaths.fetch_add(dies.into(), Ordering::AcqRel);
        dies
    }

    /// Whether it is held back now.
    pub(crate) fn shut(&self, now_ns: u64) -> bool {
        if now_ns < self.dead_until_ns.load(Ordering::Acquire) {
            return true;
        }
        let shut = now_ns < self.until_ns.load(Ordering::Acquire);
        if shut {
            self.held.store(true, Ordering::Release);
        }
        shut
    }
}
