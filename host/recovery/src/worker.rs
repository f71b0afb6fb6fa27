//! One worker a NIC: carries out the agent's firmware jobs, most urgent first, one command at a time. The agent never
//! waits for firmware, and a NIC that does not answer holds up nobody's pairs but its own (H7).

use super::command_queue::CommandQueue;
use super::endpoint::Half;
use super::nic_job::{FenceTimes, Fenced, Job, JobId, Making, Outcome};
use shunt_device::platform::host::World;
use shunt_layout::mutant::Mutant;
use shunt_mlx5::error::NicError;
use shunt_mlx5::nic::qp::QpTruth;
use shunt_mlx5::rail::Rail;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Fences that share one flush at most. The first of a crowd has one to itself, each batch after it is twice as large
/// as the one before: nobody waits long for those behind, and the flushes come to nothing beside the commands.
const SHARED: usize = 16;

std::thread_local! {
    /// Of a simulation, with the break of one worker for all: it is busy.
    static AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// What a worker did in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Some job.
    Busy,
    /// Nothing: sleep until woken.
    Idle,
    /// The agent is gone: end.
    Over,
}

/// Does the jobs of one NIC.
pub struct Worker {
    rail: Arc<Rail>,
    queue: Arc<CommandQueue>,
    world: Arc<dyn World>,
    /// How many of the next fences share a flush.
    batch: usize,
    /// The last flush failed: none is tried before then.
    flush_rests_ns: u64,
    /// A panic ends a job with an error, and not the worker. A simulation is to see it.
    guards: bool,
}

impl Worker {
    /// A worker for a rail's NIC.
    pub fn new(rail: Arc<Rail>, queue: Arc<CommandQueue>, world: Arc<dyn World>) -> Self {
        Self { rail, queue, world, batch: 1, flush_rests_ns: 0, guards: false }
    }

    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, NicError>) -> Result<T, NicError> {
        if !self.guards {
            return work();
        }
        let (nic, guarded) = (|| self.rail.name.clone(), catch_unwind(AssertUnwindSafe(work)));
        guarded.unwrap_or_else(|panic| Err(NicError::Panicked { nic: nic(), said: panic_message(&*panic) }))
    }

    /// Does the most urgent job, with others of its kind that share its flush.
    pub fn step(&mut self) -> Shift {
        if self.queue.is_closed() {
            return Shift::Over;
        }
        while Mutant::OneWorker.on() && AT_WORK.get() {
            self.world.relax();
        }
        let Some((id, job)) = self.queue.begin(self.world.now_ns().into(), |_| true) else {
            self.batch = 1;
            return Shift::Idle;
        };
        AT_WORK.set(Mutant::OneWorker.on());
        match job {
            Job::Fence(half) => self.fence(id, half),
            Job::Count(half) => self.count(id, half),
            job => {
                let outcome = self.carry_out(job);
                self.queue.end(id, outcome);
            }
        }
        AT_WORK.set(false);
        self.queue.idle(self.rail.devx.responsive());
        Shift::Busy
    }

    fn carry_out(&self, job: Job) -> Option<Outcome> {
        match job {
            Job::Make(making) => Some(self.make(*making)),
            Job::Connect(half, remote) => Some(Outcome::Connected(self.guarded(|| half.connect(&remote)))),
            Job::Stop(half) => {
                Some(Outcome::Stopped(self.guarded(|| half.to_error().and_then(|()| half.query()))))
            }
            Job::Look(half) => Some(Outcome::Looked(self.guarded(|| half.query()))),
            Job::AskAddress => {
                Some(Outcome::Address(self.guarded(|| self.rail.refresh_address().map(|_| ()))))
            }
            Job::Resolve(card) => {
                // What is not resolved is the neighbour's own, which is right on one subnet.
                let _ = self.guarded(|| Ok(self.rail.mac_towards(&card).map(|_| ())));
                None
            }
            Job::Datagrams(qkey) => Some(Outcome::Datagrams(self.guarded(|| self.rail.open_datagrams(qkey)))),
            Job::AskPort => Some(Outcome::Port(self.guarded(|| self.rail.port_up()).unwrap_or(false))),
            Job::Destroy(half) => {
                Some(Outcome::Destroyed(self.guarded(|| half.query_and_destroy()).or(Err(half))))
            }
            Job::Work(work) => Some(Outcome::Worked(self.guarded(|| work.run(&self.rail)))),
            Job::Fence(_) | Job::Count(_) => None,
        }
    }

    fn make(&self, mut making: Making) -> Outcome {
        // QP and CQ of the old incarnation; rings and truth are done with.
        if let Some(old) = making.old.take()
            && let Err(error) = self.guarded(|| old.destroy())
            && !Mutant::UnfencedRecreated.on()
        {
            return Outcome::Made(Err(error), Some(old));
        }
        let half = match self.guarded(|| self.create(&making)) {
            Ok(half) => half,
            Err(error) => return Outcome::Made(Err(error), None),
        };
        let connect = || making.remote.as_ref().map_or(Ok(()), |remote| half.connect(remote));
        match self.guarded(|| half.init().and_then(|()| connect())) {
            Err(error) => Outcome::Made(Err(error), Some(half)),
            Ok(()) => Outcome::Made(Ok(half), None),
        }
    }

    fn create(&self, making: &Making) -> Result<Half, NicError> {
        // By value, not by what it was: GIDs move when a port flaps.
        self.rail.refresh_address()?;
        making.maker.make(&self.rail, making.number, making.psn)
    }

    /// True if the NIC's posted writes are in memory. A flush that fails takes its whole deadline; others wait for
    /// their fences, and a packet lifetime is as good. So the next one is tried only after as long again.
    fn flush(&mut self) -> bool {
        let start_ns = self.world.now_ns();
        if start_ns < self.flush_rests_ns {
            return false;
        }
        let flushed = self.guarded(|| self.rail.flush()).is_ok();
        let now = self.world.now_ns();
        if !flushed && !Mutant::FailedFlushRepeated.on() {
            self.flush_rests_ns = now.saturating_add(now.saturating_sub(start_ns));
        }
        flushed
    }

    /// How many share the next flush.
    fn next_batch(&mut self) -> usize {
        let next = (2 * self.batch).min(SHARED);
        std::mem::replace(&mut self.batch, next)
    }

    /// Query of some halves, and one flush for them all, posted after the last of the queries: what any of them had
    /// executed is in memory, and nothing can reach them, so that the count is final without a second query.
    fn count(&mut self, id: JobId, half: Half) {
        let most = self.next_batch();
        let ask = |half: &Half| {
            let start_ns = self.world.now_ns();
            let first = self.guarded(|| half.query())?;
            let query_ns = self.world.now_ns().saturating_sub(start_ns);
            Ok((first, FenceTimes { query_ns, ..FenceTimes::default() }))
        };
        let mut counted: Vec<(JobId, Result<_, NicError>)> = vec![(id, ask(&half))];
        while counted.len() < most
            && let Some((id, Job::Count(half))) =
                self.queue.begin(self.world.now_ns().into(), |job| matches!(job, Job::Count(_)))
        {
            counted.push((id, ask(&half)));
        }
        let flush_at_ns = self.world.now_ns();
        let flushed = self.flush();
        let flush_ns = self.world.now_ns().saturating_sub(flush_at_ns);
        for (id, counted) in counted {
            let fenced = counted.map(|(first, times)| {
                let times = FenceTimes { flush_ns, ..times };
                Fenced { first, last: first, flushed, stopped: false, times }
            });
            self.queue.end(id, Some(Outcome::Fenced(fenced)));
        }
    }

    /// 2ERR and query of some halves, one flush for them all, and the second query of each. The flush is posted after
    /// the last of the first queries, so it covers what any of them had executed.
    fn fence(&mut self, id: JobId, half: Half) {
        let most = self.next_batch();
        let since = |start_ns: u64| self.world.now_ns().saturating_sub(start_ns);
        let begin = |half: &Half| {
            let early = if Mutant::QueryBeforeErr.on() { Some(half.query()?) } else { None };
            let start_ns = self.world.now_ns();
            if !Mutant::NotMovedToErr.on() {
                half.to_error()?;
            }
            let error_ns = since(start_ns);
            let first = early.unwrap_or(half.query()?);
            let query_ns = since(start_ns) - error_ns;
            Ok((first, FenceTimes { error_ns, query_ns, ..FenceTimes::default() }))
        };
        let begin = |half: &Half| self.guarded(|| begin(half));
        let mut begun = vec![(id, begin(&half), half)];
        let early = Mutant::FlushTooEarly.on().then(|| self.guarded(|| self.rail.flush()).is_ok());
        while begun.len() < most
            && let Some((id, Job::Fence(half))) =
                self.queue.begin(self.world.now_ns().into(), |job| matches!(job, Job::Fence(_)))
        {
            begun.push((id, begin(&half), half));
        }
        let flush_at_ns = self.world.now_ns();
        let any = begun.iter().any(|(_, first, _)| first.is_ok());
        let flushed = !any || Mutant::NoFlushAfterFence.on() || early.unwrap_or_else(|| self.flush());
        let since = |start_ns: u64| self.world.now_ns().saturating_sub(start_ns);
        let flush_ns = since(flush_at_ns);
        for (id, first, half) in begun {
            let finish = |(first, times)| {
                let again_at_ns = self.world.now_ns();
                let last = half.query()?;
                let times = FenceTimes { flush_ns, again_ns: since(again_at_ns), ..times };
                let of_early = Mutant::QueryBeforeErr.on().then_some(QpTruth { state: last.state, ..first });
                Ok(Fenced { first, last: of_early.unwrap_or(last), flushed, stopped: true, times })
            };
            self.queue.end(id, Some(Outcome::Fenced(first.and_then(|first| self.guarded(|| finish(first))))));
        }
    }
}

/// A worker that was hired.
pub trait Hand: Send {
    /// There is work, or the queue was closed.
    fn wake(&self);
}

/// Has workers run beside the agent: threads, or coroutines of a simulator.
pub trait Crew {
    /// Runs [`Worker::step`] from now on, until it is [`Shift::Over`].
    fn hire(&self, name: String, worker: Worker) -> Box<dyn Hand>;
}

/// A thread a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads;

struct Hired(Option<JoinHandle<()>>);

impl Hand for Hired {
    fn wake(&self) {
        if let Some(thread) = &self.0 {
            thread.thread().unpark();
        }
    }
}

impl Drop for Hired {
    /// A job under way ends by its commands' deadlines.
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // What panics outside of a job has printed why.
            let _ = thread.join();
        }
    }
}

/// Where the system gives no thread the agent does the work itself, and waits for it.
struct Myself(Mutex<Worker>);

impl Hand for Myself {
    fn wake(&self) {
        let mut worker = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while worker.step() == Shift::Busy {}
    }
}

impl Crew for Threads {
    fn hire(&self, name: String, worker: Worker) -> Box<dyn Hand> {
        let Worker { rail, queue, world, .. } = &worker;
        let spare = Worker { guards: true, ..Worker::new(rail.clone(), queue.clone(), world.clone()) };
        let mut worker = Worker { guards: true, ..worker };
        let work = move || {
            loop {
                match worker.step() {
                    Shift::Busy => {}
                    Shift::Idle => thread::park(),
                    Shift::Over => break,
                }
            }
        };
        match thread::Builder::new().name(name).spawn(work) {
            Ok(thread) => Box::new(Hired(Some(thread))),
            Err(_) => Box::new(Myself(Mutex::new(spare))),
        }
    }
}

/// No workers: the agent does every job at once and waits for it. For tests of an agent by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Crew for Alone {
    fn hire(&self, _name: String, worker: Worker) -> Box<dyn Hand> {
        Box::new(Myself(Mutex::new(worker)))
    }
}

/// What a panic says.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_panic_said_is_known() {
        for (panic, want) in [
            (catch_unwind(|| panic!("plain")), "plain"),
            (catch_unwind(|| panic!("{} of {}", 1, 2)), "1 of 2"),
            (catch_unwind(|| std::panic::panic_any(7)), "a panic without words"),
        ] {
            assert_eq!(panic_message(&*panic.expect_err("it panics")), want);
        }
    }
}
