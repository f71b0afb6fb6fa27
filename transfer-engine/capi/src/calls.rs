//! The thread of an engine that calls the program's functions, one after the other. So they may begin operations and
//! wait, which the engine's own thread may not.

use crate::failure::{Failure, Status};
use crate::tally::{Tally, Token};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// A call of a function of the program's.
pub type Call = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Calls that wait, each of somebody's: a watcher's number, or 0.
    waiting: VecDeque<(u64, Call)>,
    /// Whose call runs.
    running: Option<u64>,
    thread: Option<ThreadId>,
    closed: bool,
    next: u64,
}

/// The calls of an engine.
pub struct Calls {
    state: Mutex<State>,
    changed: Condvar,
    in_use: Arc<Tally>,
}

impl Calls {
    /// Of an engine, whose end waits for their thread's by `in_use`.
    pub fn new(in_use: Arc<Tally>) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), in_use }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread run, if it does not.
    ///
    /// # Errors
    /// The engine is closed, or there is no thread.
    pub fn start(self: &Arc<Self>) -> Result<(), Failure> {
        let mut state = self.state();
        if state.closed {
            let text = "engine: expected an open one, got one that ste_close has closed";
            return Err(Failure::new(Status::Closed, text));
        }
        if state.thread.is_none() {
            let (calls, token) = (self.clone(), self.in_use.token());
            let thread = std::thread::Builder::new().name("transfer calls".to_owned());
            let begun = thread.spawn(move || calls.run(token));
            let none = |error| Failure::new(Status::System, format!("a thread: expected one, got {error}"));
            state.thread = Some(begun.map_err(none)?.thread().id());
        }
        Ok(())
    }

    fn run(&self, _token: Token) {
        let mut state = self.state();
        loop {
            match state.waiting.pop_front() {
                Some((of, call)) => {
                    state.running = Some(of);
                    drop(state);
                    call();
                    state = self.state();
                    state.running = None;
                    self.changed.notify_all();
                }
                None if state.closed => return,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// A number for someone whose calls can be ended.
    pub fn number(&self) -> u64 {
        let mut state = self.state();
        state.next += 1;
        state.next
    }

    /// Has the thread make a call, of somebody with a number, or of 0.
    pub fn call(&self, of: u64, call: Call) {
        self.state().waiting.push_back((of, call));
        self.changed.notify_all();
    }

    /// Ends the calls of somebody: none runs when this returns, but for one that asks for it itself.
    pub fn end(&self, of: u64) {
        let is_its_own = self.is_here();
        let mut state = self.state();
        state.waiting.retain(|(whose, _)| *whose != of);
        while state.running == Some(of) && !is_its_own {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the caller is a function that this thread has called.
    pub fn is_here(&self) -> bool {
        self.state().thread == Some(std::thread::current().id())
    }

    /// No calls come any more. Those that wait are made.
    pub fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Longer than anything takes here.
    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn calls_are_made_in_order_and_the_thread_ends_behind_the_last() {
        let tally = Arc::new(Tally::default());
        let calls = Arc::new(Calls::new(tally.clone()));
        let (tell, heard) = channel();
        for number in 0..3 {
            let tell = tell.clone();
            calls.call(0, Box::new(move || _ = tell.send(number)));
        }
        calls.start().expect("a thread");
        calls.start().expect("the same thread");
        calls.close();
        assert_eq!(tally.left_after(Duration::from_secs(60)), 0);
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(calls.start().expect_err("it is closed").status, Status::Closed);
    }

    #[test]
    fn who_ends_its_calls_waits_for_the_one_that_runs_and_none_comes_after() {
        let calls = Arc::new(Calls::new(Arc::default()));
        let (one, other) = (calls.number(), calls.number());
        let ((tell, heard), (go, wait)) = (channel(), channel::<()>());
        let begun = tell.clone();
        calls.call(
            one,
            Box::new(move || {
                let _ = begun.send("runs");
                let _ = wait.recv();
                let _ = begun.send("over");
            }),
        );
        for (of, word) in [(one, "dropped"), (other, "made")] {
            let tell = tell.clone();
            calls.call(of, Box::new(move || _ = tell.send(word)));
        }
        calls.start().expect("a thread");
        assert_eq!(heard.recv_timeout(SOON), Ok("runs"));
        let ends = std::thread::spawn({
            let calls = calls.clone();
            move || {
                calls.end(one);
                let _ = tell.send("ended");
            }
        });
        // Time for one that would not wait.
        std::thread::sleep(Duration::from_millis(50));
        go.send(()).expect("it waits");
        ends.join().expect("it ends");
        let mut said = [0; 3].map(|_| heard.recv_timeout(SOON).expect("a word")).to_vec();
        assert_eq!(said.remove(0), "over");
        said.sort_unstable();
        assert_eq!(said, ["ended", "made"]);
        // A call may end its own.
        let ((tell, heard), own) = (channel(), calls.clone());
        calls.call(
            other,
            Box::new(move || {
                own.end(other);
                let _ = tell.send(own.is_here());
            }),
        );
        assert_eq!((heard.recv_timeout(SOON), calls.is_here()), (Ok(true), false));
        calls.close();
    }
}
