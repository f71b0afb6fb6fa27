//! What the program's threads tell the agent, and how they wake it.
//!
//! An order is a change that the agent must hear of once: it is kept here. All else that the agent looks at stays where
//! it belongs (the state of a queue pair, the regions of a domain), and who changes it says [`Keeper::stirred`] after
//! that. The agent takes the word of [`Rest`] before it looks, and sleeps only by it.
//!
//! To wake a thread costs who does it some microseconds, and its processor, if there is no other. So a program that
//! connects a queue pair, or registers memory, sets a timer instead, which wakes the agent after [`LATER`].

use crate::queue_pair::{Keeper, QueuePair};
use shunt_verbs_near::rest::Rest;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What the program's threads tell the agent.
pub(super) enum Order {
    /// A queue pair is connected.
    Connected(Arc<QueuePair>),
    /// It is destroyed.
    Gone(Arc<QueuePair>),
}

/// What has time wakes an agent that sleeps after so many nanoseconds.
const LATER: libc::c_long = 1_000_000;

/// What wakes an agent that sleeps.
enum Bell {
    /// Descriptors, which are ready until they are read: one at once, and a timer.
    Descriptors([OwnedFd; 2]),
    /// A simulator's.
    Call(Box<dyn Fn() + Send + Sync>),
}

/// What an agent was told and has not taken.
#[derive(Default)]
pub struct Orders {
    list: Mutex<Vec<Order>>,
    rest: Rest,
    /// None: the agent never sleeps for long.
    bell: OnceLock<Bell>,
}

impl Orders {
    /// With descriptors that wake the agent, if the system gives some.
    pub(super) fn with_descriptors() -> Self {
        let orders = Self::default();
        // SAFETY: the descriptor is nobody's yet, if it is one.
        let own = |fd: RawFd| (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: neither call takes memory.
        let (now, later) = unsafe {
            let now = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            (now, libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK))
        };
        if let (Some(now), Some(later)) = (own(now), own(later)) {
            let _ = orders.bell.set(Bell::Descriptors([now, later]));
        }
        orders
    }

    /// This wakes the agent from now on, unless something does already. It may be called from any thread.
    pub fn wakes_by(&self, call: Box<dyn Fn() + Send + Sync>) {
        let _ = self.bell.set(Bell::Call(call));
    }

    fn give(&self, order: Order) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.stirred_later();
    }

    /// Those that were given since.
    pub(super) fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The agent is awake, and looks at everything after this. True if it was told of something.
    pub(super) fn begin_look(&self) -> bool {
        self.rest.take()
    }

    /// The agent wants to sleep, for long or not. False if there is something for it, or nothing would wake it.
    pub(super) fn lie_down(&self, long: bool) -> bool {
        self.rest.lie_down(long)
    }

    /// Something wakes the agent.
    pub(super) fn can_wake(&self) -> bool {
        self.bell.get().is_some()
    }

    /// Descriptors of which one is ready once the agent is to wake.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        let all = match self.bell.get() {
            Some(Bell::Descriptors(all)) => &all[..],
            _ => &[],
        };
        all.iter().map(AsRawFd::as_raw_fd)
    }

    /// The agent has slept: they are not ready any more. A ring that is late wakes it once for nothing.
    pub(super) fn hush(&self) {
        for fd in self.fds() {
            let mut count = [0u8; 8];
            // SAFETY: eight bytes, which are ours; it does not wait.
            unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        }
    }

    /// Waits until it is told of something. Without a descriptor: for a moment.
    pub(super) fn wait(&self) {
        if !self.can_wake() {
            return std::thread::sleep(std::time::Duration::from_millis(20));
        }
        if self.lie_down(true) {
            let one = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let mut all: Vec<libc::pollfd> = self.fds().map(one).collect();
            // SAFETY: so many entries, which are ours.
            unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) };
            self.hush();
        }
    }

    #[cold]
    fn ring(&self, later: bool) {
        match self.bell.get() {
            Some(Bell::Descriptors([_, timer])) if later => {
                let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                let once = libc::timespec { tv_sec: 0, tv_nsec: LATER };
                let when = libc::itimerspec { it_interval: none, it_value: once };
                // SAFETY: the time is ours. One that is set again before it has ended ends later, and does end.
                unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const when, null_mut()) };
            }
            Some(Bell::Descriptors([now, _])) => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: eight bytes, which are ours. One that is not taken finds the descriptor ready.
                unsafe { libc::write(now.as_raw_fd(), one.as_ptr().cast(), one.len()) };
            }
            Some(Bell::Call(call)) => call(),
            None => {}
        }
    }
}

impl Keeper for Orders {
    fn connected(&self, pair: &Arc<QueuePair>) {
        self.give(Order::Connected(pair.clone()));
    }

    fn gone(&self, pair: &Arc<QueuePair>) {
        self.give(Order::Gone(pair.clone()));
    }

    fn stirred(&self) {
        if self.rest.tell() {
            self.ring(false);
        }
    }

    fn stirred_later(&self) {
        if self.rest.tell_later() {
            self.ring(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completions::{Goes, Member};
    use shunt_mlx5_sys::{IBV_WC_RETRY_EXC_ERR, ibv_wc};

    fn is_ready(orders: &Orders, wait_ms: i32) -> bool {
        let one = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut all: Vec<libc::pollfd> = orders.fds().map(one).collect();
        // SAFETY: so many entries, which are ours.
        unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, wait_ms) == 1 }
    }

    /// Longer than any timer takes, on a busy machine as well.
    const LONG_MS: i32 = 20_000;

    #[test]
    fn a_descriptor_is_ready_once_an_agent_that_sleeps_is_told() {
        let orders = Orders::with_descriptors();
        orders.stirred();
        assert!(!is_ready(&orders, 0), "it is awake");
        assert!(!orders.lie_down(true) && orders.begin_look());
        for tell in [Orders::stirred, Orders::stirred_later] {
            assert!(orders.lie_down(true) && !is_ready(&orders, 0));
            tell(&orders);
            assert!(is_ready(&orders, LONG_MS));
            orders.hush();
            assert!(!is_ready(&orders, 0) && orders.begin_look() && !orders.begin_look());
        }
    }

    #[test]
    fn a_completion_that_fails_wakes_the_agent_at_once() {
        let orders = Arc::new(Orders::with_descriptors());
        let pair = crate::agent::charge::tests::pair();
        assert!(pair.keeper.set(orders.clone()).is_ok());
        pair.state().armed = true;
        assert!(orders.lie_down(true));
        let failed = ibv_wc { status: IBV_WC_RETRY_EXC_ERR, qp_num: pair.qpn, ..ibv_wc::default() };
        assert_eq!(pair.absorb(&failed), (Goes::Nowhere, false));
        assert!(is_ready(&orders, 0) && orders.begin_look() && pair.state().own_failed);
    }

    #[test]
    fn an_agent_is_woken_from_another_thread() {
        for tell in [Orders::stirred, Orders::stirred_later] {
            let orders = Arc::new(Orders::with_descriptors());
            let other = orders.clone();
            let told = std::thread::spawn(move || tell(&other));
            // It would wait without end if the ring were lost.
            orders.wait();
            told.join().expect("no panic");
            assert!(orders.begin_look());
        }
    }
}
