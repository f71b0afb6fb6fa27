//! What the program's threads tell the agent, and how they wake it.
//!
//! An order is a change that the agent must hear of once: it is kept here. All else that the agent looks at stays where
//! it belongs (the state of a queue pair, the regions of a domain), and who changes it says [`Keeper::stirred`] after
//! that. The agent takes the word of [`Rest`] before it looks, and sleeps only by it.

use crate::queue_pair::{Keeper, QueuePair};
use shunt_verbs_near::rest::Rest;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What the program's threads tell the agent.
pub(super) enum Order {
    /// A queue pair is connected.
    Connected(Arc<QueuePair>),
    /// It is destroyed.
    Gone(Arc<QueuePair>),
}

/// What wakes an agent that sleeps.
enum Bell {
    /// Its descriptor, which is ready until it is read.
    Descriptor(OwnedFd),
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
    /// With a descriptor that wakes the agent, if the system gives one.
    pub(super) fn with_descriptor() -> Self {
        let orders = Self::default();
        // SAFETY: it takes no memory; the descriptor that it gives is nobody's yet.
        let made = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
        };
        if let Some(fd) = made {
            let _ = orders.bell.set(Bell::Descriptor(fd));
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

    /// The descriptor that is ready once the agent is to wake.
    pub(super) fn fd(&self) -> Option<RawFd> {
        match self.bell.get() {
            Some(Bell::Descriptor(fd)) => Some(fd.as_raw_fd()),
            _ => None,
        }
    }

    /// The agent has slept: the descriptor is not ready any more. A ring that is late wakes it once for nothing.
    pub(super) fn hush(&self) {
        if let Some(fd) = self.fd() {
            let mut count = [0u8; 8];
            // SAFETY: eight bytes, which are ours; it does not wait.
            unsafe { libc::read(fd, count.as_mut_ptr().cast(), count.len()) };
        }
    }

    /// Waits until it is told of something. Without a descriptor: for a moment.
    pub(super) fn wait(&self) {
        let Some(fd) = self.fd() else { return std::thread::sleep(std::time::Duration::from_millis(20)) };
        if self.lie_down(true) {
            let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which is ours.
            unsafe { libc::poll(&raw mut one, 1, -1) };
            self.hush();
        }
    }

    #[cold]
    fn ring(&self) {
        match self.bell.get() {
            Some(Bell::Descriptor(fd)) => {
                let one = 1u64.to_ne_bytes();
                // SAFETY: eight bytes, which are ours. One that is not taken finds the descriptor ready.
                unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
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
            self.ring();
        }
    }

    fn stirred_later(&self) {
        if self.rest.tell_later() {
            self.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(orders: &Orders) -> bool {
        let fd = orders.fd().expect("a descriptor");
        let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is ours.
        unsafe { libc::poll(&raw mut one, 1, 0) == 1 }
    }

    #[test]
    fn the_descriptor_is_ready_once_an_agent_that_sleeps_is_told() {
        let orders = Orders::with_descriptor();
        orders.stirred();
        assert!(!is_ready(&orders), "it is awake");
        assert!(!orders.lie_down(true) && orders.begin_look());
        assert!(orders.lie_down(true) && !is_ready(&orders));
        orders.stirred_later();
        assert!(is_ready(&orders));
        orders.hush();
        assert!(!is_ready(&orders) && orders.begin_look() && !orders.begin_look());
    }

    #[test]
    fn an_agent_is_woken_from_another_thread() {
        let orders = Arc::new(Orders::with_descriptor());
        let other = orders.clone();
        let told = std::thread::spawn(move || other.stirred());
        // It would wait without end if the ring were lost.
        orders.wait();
        told.join().expect("no panic");
        assert!(orders.begin_look());
    }
}
