//! Memory between fetch and write. What is in flight there is never more than the watermark: who wants more waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of the staging region that hold one piece.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    /// The first, counted from the region's first.
    pub at: u64,
    /// How many.
    pub bytes: u64,
}

#[derive(Debug)]
struct State {
    /// Start and length of each hole.
    free: BTreeMap<u64, u64>,
    in_flight: u64,
    waits: u64,
    is_closed: bool,
}

impl State {
    /// The first hole that is large enough.
    fn cut(&mut self, bytes: u64) -> Option<u64> {
        let (at, len) = self.free.iter().find(|(_, len)| **len >= bytes).map(|(at, len)| (*at, *len))?;
        self.free.remove(&at);
        if len > bytes {
            self.free.insert(at + bytes, len - bytes);
        }
        Some(at)
    }

    /// Joins a hole with its neighbours.
    fn put_back(&mut self, mut at: u64, mut bytes: u64) {
        if let Some(next) = self.free.remove(&(at + bytes)) {
            bytes += next;
        }
        if let Some((before, len)) = self.free.range(..at).next_back().map(|(at, len)| (*at, *len))
            && before + len == at
        {
            (at, bytes) = (before, bytes + len);
        }
        self.free.insert(at, bytes);
    }
}

/// Room for pieces.
#[derive(Debug)]
pub struct Staging {
    watermark: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Staging {
    /// A region of so many bytes, which are the watermark as well.
    pub fn new(watermark: u64) -> Self {
        let free = BTreeMap::from([(0, watermark)]);
        let state = State { free, in_flight: 0, waits: 0, is_closed: false };
        Self { watermark, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room: for the bytes that are fetched, and those that are staged. `None` once it is closed, and where
    /// there can never be room.
    pub fn take(&self, fetched: u64, staged: u64) -> Option<Slot> {
        let all = fetched.checked_add(staged).filter(|all| *all <= self.watermark)?;
        let (mut state, mut waited) = (self.state(), false);
        while !state.is_closed {
            if state.in_flight + all <= self.watermark
                && let Some(at) = state.cut(staged)
            {
                state.in_flight += all;
                return Some(Slot { at, bytes: staged });
            }
            state.waits += u64::from(!waited);
            waited = true;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// The fetched bytes of a piece are gone: it is staged.
    pub fn staged(&self, fetched: u64) {
        self.state().in_flight -= fetched;
        self.changed.notify_all();
    }

    /// A piece is written.
    pub fn give(&self, slot: Slot) {
        let mut state = self.state();
        state.in_flight -= slot.bytes;
        state.put_back(slot.at, slot.bytes);
        self.changed.notify_all();
    }

    /// Nobody gets room any more.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// How often somebody waited for room.
    pub fn waits(&self) -> u64 {
        self.state().waits
    }
}

/// Counts bytes that are there, and the most that there were. It knows nothing of a [`Staging`]: it is to watch it.
#[derive(Debug, Default)]
pub struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    /// So many more.
    pub fn add(&self, bytes: u64) {
        let now = self.now.fetch_add(bytes, Ordering::AcqRel) + bytes;
        self.peak.fetch_max(now, Ordering::AcqRel);
    }

    /// So many fewer.
    pub fn sub(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The most there were.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Acquire)
    }

    /// How many there are.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Slots never overlap, and what is given back is there again.
        #[test]
        fn slots_lie_side_by_side(
            steps in proptest::collection::vec((any::<bool>(), 1..40u64, any::<usize>()), 1..200),
        ) {
            let staging = Staging::new(128);
            let mut taken: Vec<Slot> = Vec::new();
            for (takes, bytes, which) in steps {
                if takes {
                    let used: u64 = taken.iter().map(|slot| slot.bytes).sum();
                    let has_hole = staging.state().free.values().any(|len| *len >= bytes);
                    if used + bytes <= 128 && has_hole {
                        let slot = staging.take(0, bytes).expect("there is room");
                        prop_assert!(slot.at + slot.bytes <= 128);
                        let ends = |it: &Slot| it.at + it.bytes;
                        prop_assert!(taken.iter().all(|it| ends(it) <= slot.at || ends(&slot) <= it.at));
                        taken.push(slot);
                    }
                } else if !taken.is_empty() {
                    staging.give(taken.remove(which % taken.len()));
                }
            }
            taken.into_iter().for_each(|slot| staging.give(slot));
            prop_assert_eq!(&staging.state().free, &BTreeMap::from([(0, 128)]));
            prop_assert_eq!((staging.waits(), staging.state().in_flight), (0, 0));
        }
    }

    /// Until so many have waited.
    fn until_waits(staging: &Staging, count: u64) {
        for _ in 0..20_000 {
            if staging.waits() >= count {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        staging.close();
        panic!("expected {count} that waited, got {}", staging.waits());
    }

    #[test]
    fn who_asks_for_too_much_waits_and_who_asks_for_more_than_there_is_gets_nothing() {
        let staging = Staging::new(100);
        assert_eq!((staging.take(60, 41), staging.take(u64::MAX, 1)), (None, None));
        let first = staging.take(50, 50).expect("all of it");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| staging.take(30, 20));
            until_waits(&staging, 1);
            staging.staged(50);
            let second = second.join().expect("it waits").expect("room");
            assert_eq!((second.at, second.bytes), (50, 20));
            let third = scope.spawn(|| staging.take(1, 0));
            until_waits(&staging, 2);
            staging.close();
            assert_eq!(third.join().expect("it waits"), None);
        });
        staging.give(first);
        assert_eq!(staging.take(1, 1), None, "closed");
    }
}
