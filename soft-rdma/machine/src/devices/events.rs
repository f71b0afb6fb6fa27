//! Events from NICs to those who subscribed, and the sleep of those who wait for a NIC.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Somebody who gets every event of a NIC.
pub trait EventSink: Send {
    /// Takes a 64-byte event queue entry. It does not wait, and neither adds nor removes sinks.
    fn event(&mut self, eqe: &[u8; 64]);
}

/// A sink's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubscriptionId(u64);

/// Rung when a NIC has something for its host.
#[derive(Default)]
pub(super) struct Bell {
    rung: Mutex<u64>,
    heard: Condvar,
}

impl Bell {
    pub(super) fn ring(&self) {
        *lock(&self.rung) += 1;
        self.heard.notify_all();
    }

    /// How often it rang: look at what it rings for after this, and sleep if there was nothing.
    pub(super) fn count(&self) -> u64 {
        *lock(&self.rung)
    }

    /// Sleeps until it rang more often, or the deadline. False if the deadline passed first.
    pub(super) fn wait(&self, since: u64, deadline: Instant) -> bool {
        let mut rung = lock(&self.rung);
        while *rung == since {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            rung = self.heard.wait_timeout(rung, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

/// The sinks of one NIC.
#[derive(Default)]
pub(super) struct Sinks {
    next: AtomicU64,
    list: Mutex<Vec<(SubscriptionId, Box<dyn EventSink>)>>,
}

impl Sinks {
    pub(super) fn add(&self, sink: Box<dyn EventSink>) -> SubscriptionId {
        let id = SubscriptionId(self.next.fetch_add(1, Ordering::Relaxed));
        lock(&self.list).push((id, sink));
        id
    }

    /// The sink is called no more once this returned.
    pub(super) fn remove(&self, id: SubscriptionId) {
        let removed = {
            let mut list = lock(&self.list);
            let at = list.iter().position(|(known, _)| *known == id);
            at.map(|at| list.swap_remove(at))
        };
        drop(removed); // Not under the lock: its end may be long.
    }

    pub(super) fn deliver(&self, eqe: &[u8; 64]) {
        lock(&self.list).iter_mut().for_each(|(_, sink)| sink.event(eqe));
    }
}

/// What a panicking sink held is whole: nothing of it is changed half.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
