//! The command thread of a NIC: it alone makes calls that may hang, and callers give up on it after a while.
//!
//! A call that hangs in the kernel (up to a minute there, for a firmware that is gone) holds memory of its own, never
//! a caller's. While one hangs, nothing more is given to the thread: what comes fails at once.
//!
//! The patience of a call counts from its start on the thread. What stands ahead of it may take its time, a
//! registration of a large heap two minutes, and says nothing of the NIC.

use super::driver::Driver;
use crate::error::DevxError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

type Job<D> = Box<dyn FnOnce(&mut D) + Send>;

/// Where jobs are handed over, each with its number.
struct Queue<D> {
    last: u64,
    jobs: Sender<(u64, Job<D>)>,
}

/// How the thread fares: jobs are numbered from 1, in the order in which they run.
#[derive(Default)]
struct Pulse {
    /// The last job that is over.
    over: AtomicU64,
    /// The last job that its caller gave up.
    given_up: AtomicU64,
    /// True after a job whose call ended without an answer of the firmware.
    unanswered: AtomicBool,
}

/// What a caller hears of its job. One type for all results: a channel for each type was a quarter of this crate's
/// LLVM IR.
enum Word {
    /// The thread has begun with it.
    Begun,
    /// It is over, and its result lies ready.
    Over,
}

/// What a caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Waits this much longer for a word.
    For(Duration),
    /// Gives its job up.
    GiveUp,
}

/// How long a caller listens before it looks again at whether a call ahead of its own hangs.
const LOOK: Duration = Duration::from_millis(5);

/// Pure: `begun_for` is how long the job has run, if it was begun; `hangs` says that one ahead of it was given up. A
/// wait for its turn ends: each job ahead ends, or is given up by its own caller.
fn wait(begun_for: Option<Duration>, patience: Duration, hangs: bool) -> Wait {
    match begun_for {
        Some(ran) if ran >= patience => Wait::GiveUp,
        Some(ran) => Wait::For(patience - ran),
        None if hangs => Wait::GiveUp,
        None => Wait::For(LOOK),
    }
}

/// The thread, seen from its callers.
pub(super) struct Worker<D = Driver> {
    nic: String,
    /// None once the thread is to end.
    queue: Mutex<Option<Queue<D>>>,
    pulse: Arc<Pulse>,
    /// Says when the thread is through.
    through: Mutex<Receiver<()>>,
    timeout: Duration,
}

impl<D: 'static> Worker<D> {
    /// Starts the thread. `open` runs on it and makes what jobs work on; what else it gives is the caller's.
    pub(super) fn start<T: Send + 'static, E: Send + 'static>(
        nic: &str,
        timeout: Duration,
        open: impl FnOnce() -> Result<(D, T), E> + Send + 'static,
        late: impl FnOnce(String) -> E,
    ) -> Result<(Self, T), E> {
        let (jobs, queue) = channel::<(u64, Job<D>)>();
        let (opened, answer) = channel();
        let (end, through) = channel();
        let pulse = Arc::new(Pulse::default());
        let beat = pulse.clone();
        let run = move || {
            // Dropped last, when the device is closed.
            let _end: Sender<()> = end;
            let mut driver = match open() {
                Ok((driver, rest)) => {
                    if opened.send(Ok(rest)).is_err() {
                        return;
                    }
                    driver
                }
                Err(error) => return drop(opened.send(Err(error))),
            };
            for (number, job) in queue {
                job(&mut driver);
                beat.over.store(number, Ordering::Release);
            }
        };
        let spawned = std::thread::Builder::new().name(format!("commands {nic}")).spawn(run);
        if let Err(error) = spawned {
            return Err(late(error.to_string()));
        }
        let rest = match answer.recv_timeout(OPEN_FOR) {
            Ok(opened) => opened?,
            Err(_) => return Err(late(format!("not opened within {} s", OPEN_FOR.as_secs()))),
        };
        let worker = Self {
            nic: nic.into(),
            queue: Mutex::new(Some(Queue { last: 0, jobs })),
            pulse,
            through: Mutex::new(through),
            timeout,
        };
        Ok((worker, rest))
    }

    /// Runs a job on the thread, for the usual time.
    pub(super) fn call<R: Send + 'static>(
        &self,
        what: impl FnOnce() -> String,
        job: impl FnOnce(&mut D) -> Result<R, DevxError> + Send + 'static,
    ) -> Result<R, DevxError> {
        self.call_for(self.timeout, what, job)
    }

    /// Runs a job on the thread; gives it up once it has run for `patience`. `what` names it, should that be needed.
    pub(super) fn call_for<R: Send + 'static>(
        &self,
        patience: Duration,
        what: impl FnOnce() -> String,
        job: impl FnOnce(&mut D) -> Result<R, DevxError> + Send + 'static,
    ) -> Result<R, DevxError> {
        let timeout = |waited: Duration| DevxError::Timeout {
            nic: self.nic.clone(),
            command: what(),
            waited_ns: waited.as_nanos() as u64,
        };
        if self.hangs() {
            return Err(timeout(Duration::ZERO));
        }
        let (reply, answer) = channel();
        let ready = Arc::new(Mutex::new(None));
        let result = ready.clone();
        let pulse = self.pulse.clone();
        let job: Job<D> = Box::new(move |driver| {
            // Nobody may listen any more.
            let _ = reply.send(Word::Begun);
            let answer = job(driver);
            let unanswered = answer.as_ref().is_err_and(DevxError::is_timeout);
            pulse.unanswered.store(unanswered, Ordering::Release);
            *result.lock().expect("no panic under this lock") = Some(answer);
            // Nobody may listen any more: what was made stays with the driver until it closes.
            let _ = reply.send(Word::Over);
        });
        let number = {
            let mut queue = self.queue.lock().expect("no panic under this lock");
            let Some(queue) = &mut *queue else { return Err(timeout(Duration::ZERO)) };
            queue.last += 1;
            if queue.jobs.send((queue.last, job)).is_err() {
                return Err(timeout(Duration::ZERO));
            }
            queue.last
        };
        let mut begun: Option<Instant> = None;
        loop {
            let ran = begun.map(|since| since.elapsed());
            let Wait::For(longer) = wait(ran, patience, self.hangs()) else {
                self.pulse.given_up.fetch_max(number, Ordering::AcqRel);
                return Err(timeout(ran.unwrap_or_default()));
            };
            match answer.recv_timeout(longer) {
                Ok(Word::Begun) => begun = Some(Instant::now()),
                Ok(Word::Over) => {
                    let result = ready.lock().expect("no panic under this lock").take();
                    return result.expect("stored before this word was sent");
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(timeout(ran.unwrap_or_default())),
            }
        }
    }

    /// True while a job that was given up is still running or waiting.
    fn hangs(&self) -> bool {
        self.pulse.given_up.load(Ordering::Acquire) > self.pulse.over.load(Ordering::Acquire)
    }

    /// False after a call that nobody answered, until one is.
    pub(super) fn responsive(&self) -> bool {
        !self.hangs() && !self.pulse.unanswered.load(Ordering::Acquire)
    }
}

/// Longest wait for a device to open.
const OPEN_FOR: Duration = Duration::from_secs(30);

impl<D> Drop for Worker<D> {
    fn drop(&mut self) {
        // Without a sender the thread ends, and closes the device. A dead one closes it whenever it can.
        *self.queue.lock().expect("no panic under this lock") = None;
        let dead = self.pulse.given_up.load(Ordering::Acquire) > self.pulse.over.load(Ordering::Acquire);
        if !dead {
            let _ = self.through.lock().expect("no panic under this lock").recv_timeout(self.timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    fn worker(timeout: Duration) -> Worker<u32> {
        let open = || Ok::<_, String>((0u32, ()));
        Worker::start("mlx5_0", timeout, open, |late| late).unwrap().0
    }

    fn add(worker: &Worker<u32>, patience: Duration) -> Result<u32, DevxError> {
        let job = |count: &mut u32| {
            *count += 1;
            Ok(*count)
        };
        worker.call_for(patience, || "ADD".into(), job)
    }

    #[test]
    fn jobs_run_in_order_on_one_thread() {
        let worker = worker(LONG);
        assert_eq!((1..=3).map(|_| add(&worker, LONG).unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(worker.responsive());
    }

    #[test]
    fn a_caller_gives_up_and_the_rest_fails_at_once_until_the_call_returns() {
        let worker = worker(LONG);
        let (release, wait) = channel::<()>();
        let hang = move |_: &mut u32| {
            let _ = wait.recv();
            Ok(())
        };
        let error = worker.call_for(SHORT, || "QUERY_QP".into(), hang).unwrap_err();
        assert!(error.is_timeout() && error.to_string().contains("QUERY_QP"), "{error}");
        assert!(!worker.responsive());
        let Err(DevxError::Timeout { waited_ns: 0, .. }) = add(&worker, LONG) else {
            panic!("a call was given to a thread that hangs");
        };
        release.send(()).unwrap();
        let deadline = Instant::now() + LONG;
        while !worker.responsive() {
            assert!(Instant::now() < deadline, "never responsive again");
            std::thread::yield_now();
        }
        assert_eq!(add(&worker, LONG), Ok(1));
    }

    #[test]
    fn patience_counts_from_the_start_of_a_call() {
        let (ran, never) = (|ms| Some(Duration::from_millis(ms)), Wait::For(LOOK));
        assert_eq!(wait(None, SHORT, false), never, "its turn has not come");
        assert_eq!(wait(None, SHORT, true), Wait::GiveUp, "and will not come");
        assert_eq!(wait(ran(20), SHORT, true), Wait::For(Duration::from_millis(30)));
        assert_eq!(wait(ran(50), SHORT, false), Wait::GiveUp);
    }

    /// A registration of two minutes stood ahead of a command of one second: the NIC looked hung though it worked.
    #[test]
    fn a_long_call_ahead_is_not_counted() {
        let worker = Arc::new(worker(LONG));
        let (release, held) = channel::<()>();
        let (begun, running) = channel::<()>();
        let long = move |_: &mut u32| {
            let _ = begun.send(());
            let _ = held.recv();
            Ok(())
        };
        let first = worker.clone();
        let first = std::thread::spawn(move || first.call_for(LONG, || "registration".into(), long));
        running.recv().unwrap();
        let second = worker.clone();
        let second = std::thread::spawn(move || add(&second, SHORT));
        std::thread::sleep(SHORT * 3);
        assert!(worker.responsive() && !second.is_finished(), "given up before its turn");
        release.send(()).unwrap();
        assert_eq!(first.join().unwrap(), Ok(()));
        assert_eq!(second.join().unwrap(), Ok(1));
    }

    #[test]
    fn a_call_that_the_driver_gave_up_counts_as_unanswered() {
        let worker = worker(LONG);
        let timeout = || DevxError::Timeout { nic: "mlx5_0".into(), command: "NOP".into(), waited_ns: 1 };
        assert!(worker.call(|| "NOP".into(), move |_| Err::<(), _>(timeout())).is_err());
        assert!(!worker.responsive());
        assert_eq!(add(&worker, LONG), Ok(1), "it is asked again all the same");
        assert!(worker.responsive());
    }

    #[test]
    fn a_thread_that_hangs_is_not_waited_for() {
        let worker = worker(LONG);
        let (_release, wait) = channel::<()>();
        let hang = move |_: &mut u32| {
            let _ = wait.recv();
            Ok(())
        };
        assert!(worker.call_for(SHORT, || "HANG".into(), hang).is_err());
        drop(worker);
    }

    #[test]
    fn an_open_that_fails_is_the_answer() {
        let open = || Err::<(u32, ()), _>("no device".to_string());
        assert_eq!(Worker::start("mlx5_0", LONG, open, |late| late).err().as_deref(), Some("no device"));
    }
}
