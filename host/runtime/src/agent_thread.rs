//! The thread that looks after a PE's paths.

use crate::naps::Naps;
use shunt_device::AbiMismatch;
use shunt_host::agent::supervisor::Supervisor;
use shunt_host::events::Sink;
use shunt_host::pe::Pe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
use thiserror::Error;

/// What an agent's thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A step of the agent.
    Step,
    /// Nothing: what the agent holds stays as it is.
    Hold,
    /// The agent dies. The next step begins with another one, which takes over.
    Restart,
}

/// Why a PE has no agent.
#[derive(Debug, Error)]
pub enum NoAgent {
    /// The device state is of another build.
    #[error("device state: expected that of this build, got another version")]
    Build,
    /// It has one already.
    #[error("agent: expected a PE without one, got one that has an agent")]
    Taken,
    /// The system refused.
    #[error("agent: no thread: {0}")]
    Thread(#[from] std::io::Error),
}

impl From<AbiMismatch> for NoAgent {
    fn from(_: AbiMismatch) -> Self {
        Self::Build
    }
}

/// An agent's thread, without which no failure is handled. Dropping it stops the agent and waits for it. The thread
/// holds the PE: it outlives the agent.
#[must_use = "dropping it stops the agent: failures are not handled any more"]
pub struct AgentThread {
    thread: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    restart: Arc<AtomicBool>,
    settled: Arc<Settled>,
}

/// Whether an agent has made and proved what it has to at start; looked at once somebody asks.
#[derive(Default)]
struct Settled {
    asked: AtomicBool,
    seen: AtomicBool,
}

impl AgentThread {
    /// Starts the agent of a PE. `turn` is asked before each step; `sinks` are told of every event, also of
    /// the agents that follow after a restart.
    ///
    /// # Errors
    /// As [`NoAgent`] says.
    pub fn spawn(
        pe: Arc<Pe>,
        sinks: Vec<Box<dyn Sink>>,
        turn: impl FnMut() -> Turn + Send + 'static,
    ) -> Result<Self, NoAgent> {
        let agent = pe.agent()?.ok_or(NoAgent::Taken)?;
        let (stop, restart) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let name = format!("agent {}", pe.root().my_pe);
        let settled = Arc::new(Settled::default());
        let (ends, dies, said, mut turn) = (stop.clone(), restart.clone(), settled.clone(), turn);
        let run = move || {
            let mut supervisor = Supervisor::new(agent);
            let mut naps = Naps::default();
            sinks.into_iter().for_each(|sink| supervisor.add_sink(sink));
            while !ends.load(Ordering::Acquire) {
                let since = Instant::now();
                let turn = if dies.swap(false, Ordering::AcqRel) { Turn::Restart } else { turn() };
                let busy = match turn {
                    Turn::Step => supervisor.step(&pe),
                    Turn::Hold => false,
                    Turn::Restart => {
                        supervisor.kill();
                        true
                    }
                };
                let asked = said.asked.load(Ordering::Relaxed) && !said.seen.load(Ordering::Relaxed);
                if asked && supervisor.is_settled() {
                    said.seen.store(true, Ordering::Release);
                }
                if !busy {
                    let now = Instant::now();
                    let nap = naps.next(now, now - since);
                    std::thread::sleep(nap);
                    naps.woke(Instant::now(), now + nap);
                }
            }
            // The agent goes before its PE.
            drop(supervisor);
            drop(pe);
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        Ok(Self { thread: Some(thread), stop, restart, settled })
    }

    /// True once everything that the agent has to make and to prove at start is there ([`Supervisor::is_settled`]).
    pub fn is_settled(&self) -> bool {
        self.settled.asked.store(true, Ordering::Relaxed);
        self.settled.seen.load(Ordering::Acquire)
    }

    /// The agent dies before its next step, as if it had panicked, and another one takes over.
    pub fn restart(&self) {
        self.restart.store(true, Ordering::Release);
    }

    /// Asks it to end, and does not wait: of many agents, all are asked before the first is waited for.
    pub fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            // An agent that panicked has printed why.
            let _ = thread.join();
        }
    }
}
