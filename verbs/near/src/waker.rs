//! Descriptors that wake a thread: one at once, and a timer for what has time.
//!
//! To wake a thread costs who does it some microseconds, and its processor, if there is no other. A timer that is set
//! costs less.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::{read, write};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::time::Duration;

/// Both, ready until they are read.
#[derive(Debug)]
pub struct Waker {
    now: OwnedFd,
    later: OwnedFd,
}

impl Waker {
    /// None if the system gives no descriptors.
    pub fn new() -> Option<Self> {
        let now = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Some(Self { now, later: timerfd_create(TimerfdClockId::Monotonic, flags).ok()? })
    }

    /// One of them is ready once it is woken.
    pub fn fds(&self) -> [RawFd; 2] {
        [&self.now, &self.later].map(AsRawFd::as_raw_fd)
    }

    /// Wakes. A count that cannot be written finds the descriptor ready.
    #[cold]
    pub fn wake(&self) {
        let _ = write(&self.now, &1u64.to_ne_bytes());
    }

    /// Wakes after less than a second. A timer that is set again before it has ended ends later, and does end.
    #[cold]
    pub fn wake_after(&self, wait: Duration) {
        let (it_interval, it_value) =
            (Timespec { tv_sec: 0, tv_nsec: 0 }, Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() });
        let when = Itimerspec { it_interval, it_value };
        let _ = timerfd_settime(&self.later, TimerfdTimerFlags::empty(), &when);
    }

    /// Neither is ready any more.
    pub fn clear(&self) {
        for fd in [&self.now, &self.later] {
            let _ = read(fd, &mut [0u8; 8]);
        }
    }

    /// Waits until it is woken, for so long at most; without a limit if there is none. True if it was.
    pub fn wait(&self, most: Option<Duration>) -> bool {
        let limit =
            most.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
        let mut fds = [&self.now, &self.later].map(|fd| PollFd::new(fd, PollFlags::IN));
        poll(&mut fds, limit.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_from_a_wake_until_it_is_cleared() {
        let waker = Waker::new().expect("descriptors");
        assert!(!waker.wait(Some(Duration::ZERO)));
        waker.wake();
        waker.wake();
        assert!(waker.wait(Some(Duration::ZERO)));
        waker.clear();
        assert!(!waker.wait(Some(Duration::ZERO)));
        waker.wake_after(Duration::from_millis(1));
        assert!(waker.wait(None));
        waker.clear();
        assert!(!waker.wait(Some(Duration::ZERO)));
    }
}
