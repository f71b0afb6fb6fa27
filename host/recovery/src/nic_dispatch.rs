//! The workers of this PE's NICs, as the agent sees them: commands go out, and who owes an answer is known.

use super::command_queue::CommandQueue;
use super::nic_job::{Job, JobId, Outcome, Urgency};
use super::worker::{Crew, Hand, Worker};
use crate::nanos::Nanos;
use shunt_device::platform::host::World;
use shunt_mlx5::rail::Rail;
use std::cell::Cell;
use std::sync::Arc;

/// Halves of one NIC that are made at the same time: more would only stand in the queue while their time runs.
const MAKING_MAX: usize = 8;

/// The worker of one rail.
struct NicHandle {
    queue: Arc<CommandQueue>,
    hand: Box<dyn Hand>,
    /// When the port was asked for, while no answer is in.
    port_asked: Option<Nanos>,
    /// Since when its NIC owes an answer, by the clock and as the agent was awake.
    owing: Cell<Option<(Nanos, Nanos)>>,
}

impl NicHandle {
    fn spawn(crew: &dyn Crew, rail: &Arc<Rail>, world: &Arc<dyn World>) -> Self {
        let queue = Arc::new(CommandQueue::default());
        let worker = Worker::new(rail.clone(), queue.clone(), world.clone());
        let hand = crew.hire(format!("nic {}", rail.index), worker);
        Self { queue, hand, port_asked: None, owing: Cell::new(None) }
    }
}

impl Drop for NicHandle {
    fn drop(&mut self) {
        self.queue.close();
        self.hand.wake();
    }
}

/// The workers of all rails.
#[derive(Default)]
pub struct Nics {
    handles: Vec<NicHandle>,
    /// Commands given so far: their numbers are not used again.
    given: u64,
}

impl Nics {
    /// A worker for each rail.
    pub fn spawn(crew: &dyn Crew, rails: &[Arc<Rail>], world: &Arc<dyn World>) -> Self {
        Self { handles: rails.iter().map(|rail| NicHandle::spawn(crew, rail, world)).collect(), given: 0 }
    }

    /// Another agent gives commands from now on: what the last one wanted is not wanted any more.
    pub fn take_over(&mut self) {
        for one in &mut self.handles {
            one.queue.take_over();
            one.port_asked = None;
            one.hand.wake();
        }
    }

    /// What the workers have done, by rail.
    pub fn take_done(&self) -> Vec<(usize, JobId, Outcome)> {
        let of = |(rail, one): (usize, &NicHandle)| {
            let done: Vec<_> = std::iter::from_fn(|| one.queue.next_done()).collect();
            done.into_iter().map(move |(id, outcome)| (rail, id, outcome))
        };
        self.handles.iter().enumerate().flat_map(of).collect()
    }

    /// What was taken and not looked at, for the next agent.
    pub fn give_back(&self, outcomes: impl DoubleEndedIterator<Item = (usize, JobId, Outcome)>) {
        for (rail, id, outcome) in outcomes.rev() {
            if let Some(one) = self.handles.get(rail) {
                one.queue.give_back(id, outcome);
            }
        }
    }

    /// Gives a command about a pair, or about the rail; answers with its number.
    pub fn submit(&mut self, rail: u32, urgency: Urgency, about: usize, job: Job) -> u64 {
        self.given += 1;
        let id = JobId { number: self.given, about };
        if let Some(one) = self.handles.get(rail as usize) {
            one.queue.submit(urgency, id, job);
            one.hand.wake();
        }
        id.number
    }

    /// The queue of a rail's commands.
    pub fn queue(&self, rail: u32) -> Option<&CommandQueue> {
        self.handles.get(rail as usize).map(|one| &*one.queue)
    }

    /// Asks firmware whether a port is up, unless it was asked already.
    pub fn ask_port(&mut self, now: Nanos, rail: usize) {
        if self.handles[rail].port_asked.is_none() {
            self.handles[rail].port_asked = Some(now);
            self.submit(rail as u32, Urgency::Idle, rail, Job::AskPort);
        }
    }

    /// Firmware answers: when was it asked?
    pub fn port_answered(&mut self, rail: usize) -> Nanos {
        self.handles[rail].port_asked.take().unwrap_or_default()
    }

    /// True if a NIC has owed an answer for longer than `patience`, as the agent was awake.
    pub fn is_silent(&self, awake: Nanos, rail: u32, patience: Nanos) -> bool {
        let Some(one) = self.handles.get(rail as usize) else { return false };
        let since = one.queue.oldest_outstanding();
        if one.owing.get().map(|(since, _)| since) != since {
            one.owing.set(since.map(|since| (since, awake)));
        }
        one.owing.get().is_some_and(|(_, seen)| awake > seen + patience)
    }

    /// True if no NIC has a command, and nothing that was done waits to be taken.
    pub fn is_idle(&self) -> bool {
        self.handles.iter().all(|one| one.queue.is_idle())
    }

    /// True if a NIC has room to make one more half.
    pub fn has_room(&self, rail: u32) -> bool {
        self.queue(rail).is_some_and(|queue| queue.waiting() < MAKING_MAX)
    }
}
