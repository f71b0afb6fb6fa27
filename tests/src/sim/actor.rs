//! One actor: a coroutine with a name, and what the scheduler knows of it.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

/// How an actor runs.
#[derive(Clone, Debug)]
pub struct ActorOptions {
    /// Shortest time between two polls of a wait loop.
    pub poll_ns: u64,
    /// Longest one. Between the two, an actor polls after a sixteenth of the time the world has been quiet: a
    /// long wait on a silent link costs few steps, a busy one is looked at closely.
    pub poll_max_ns: u64,
    /// An actor that has waited for one thing long polls after a sixteenth of that time as well, up to this.
    pub waited_max_ns: u64,
    /// It runs on the processor: what lies in a device's memory it reaches by copies alone.
    pub of_host: bool,
    /// Stack of the coroutine.
    pub stack_bytes: usize,
}

impl ActorOptions {
    /// A kernel: polls every 200 ns, rarer while nothing moves anywhere.
    pub fn kernel() -> Self {
        Self { poll_ns: 200, poll_max_ns: 5_000, waited_max_ns: 0, of_host: false, stack_bytes: 512 << 10 }
    }

    /// A host loop: looks every few microseconds.
    pub fn host() -> Self {
        Self { poll_ns: 5_000, poll_max_ns: 20_000, waited_max_ns: 0, of_host: true, stack_bytes: 1 << 20 }
    }

    /// The same, but in a quiet world it looks no more often than every `poll_max_ns`, and after a long wait of its own
    /// every fiftieth of that.
    pub fn idle(self, poll_max_ns: u64) -> Self {
        let poll_max_ns = self.poll_max_ns.max(poll_max_ns);
        Self { poll_max_ns, waited_max_ns: poll_max_ns / 50, ..self }
    }
}

/// Why an actor gave way.
pub(super) enum Pause {
    /// Wake me at this instant.
    Until(u64),
    /// Wake me when another actor says so, at this instant at the latest.
    Parked(u64),
}

pub(super) type Body = Coroutine<(), Pause, (), DefaultStack>;
pub(super) type ActorYielder = Yielder<(), Pause>;

pub(super) struct Actor {
    pub name: String,
    pub options: ActorOptions,
    /// Absent while it runs and after it has returned.
    pub body: Option<Body>,
    pub done: bool,
    /// Number of the wake-up that counts; an older one in the queue is void.
    pub wakeup: u64,
    pub parked: bool,
    /// Another actor, and not the time limit, ended the parking.
    pub unparked: bool,
    pub polls: u64,
    /// Until when it is stopped, as a process is by a signal: nothing resumes it before.
    pub held_ns: u64,
    /// How long it was stopped in all.
    pub stopped_ns: u64,
    /// When it last said what it waits for.
    pub since_ns: u64,
    pub note: String,
}

impl Actor {
    /// One line of a dump.
    pub fn line(&self, now: u64) -> String {
        let state = match (self.parked, self.body.is_some()) {
            (true, _) => "parked",
            (false, true) => "waiting",
            (false, false) => "running",
        };
        let note = if self.note.is_empty() { "(no note)" } else { &self.note };
        let since = (now - self.since_ns) as f64 / 1e3;
        format!("  {}: {state}, {note}, for {since:.1} us, {} polls", self.name, self.polls)
    }
}
