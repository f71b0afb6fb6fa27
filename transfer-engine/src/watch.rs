//! Words that others write and the engine looks at: how far a kernel has come, say.

use crate::ids::WatcherId;
use std::collections::BTreeMap;
use std::sync::atomic::{Ordering, fence};

/// What becomes of a watcher that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// It is called at the next change.
    On,
    /// It is not called again.
    Off,
}

/// Reads the word, in one piece.
pub type ReadWord = Box<dyn FnMut() -> u64 + Send>;

/// Who is told of a change, with the value before and the value now.
pub type OnChange = Box<dyn FnMut(u64, u64) -> Goes + Send>;

struct Watcher {
    read: ReadWord,
    last: u64,
    each: OnChange,
}

/// All watchers of an engine.
#[derive(Default)]
pub struct Watchers {
    next: u64,
    all: BTreeMap<WatcherId, Watcher>,
}

impl Watchers {
    /// Watches a word from what it is now. `call` reads it; what it answers with `None` has panicked, and is watched no
    /// more.
    pub fn watch(
        &mut self,
        mut read: ReadWord,
        each: OnChange,
        call: impl FnOnce(&mut dyn FnMut() -> u64) -> Option<u64>,
    ) -> WatcherId {
        let id = WatcherId(self.next);
        self.next += 1;
        if let Some(last) = call(&mut read) {
            self.all.insert(id, Watcher { read, last, each });
        }
        id
    }

    /// Ends one. False if it has ended.
    pub fn unwatch(&mut self, id: WatcherId) -> bool {
        self.all.remove(&id).is_some()
    }

    /// Looks at every word. `call` reads it and runs its callback; what it answers with `None` has panicked, and its
    /// watcher ends. True if a word had changed.
    #[inline]
    pub fn look(&mut self, mut call: impl FnMut(&mut dyn FnMut() -> Goes) -> Option<Goes>) -> bool {
        let mut changed = false;
        if self.all.is_empty() {
            return changed;
        }
        self.all.retain(|_, Watcher { read, last, each }| {
            let mut look = || {
                let new = read();
                if new == *last {
                    return Goes::On;
                }
                changed = true;
                // What the writer wrote before the word is seen by who is called.
                fence(Ordering::Acquire);
                let old = std::mem::replace(last, new);
                each(old, new)
            };
            call(&mut look) == Some(Goes::On)
        });
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::sync::{Arc, Mutex};

    #[test]
    fn each_change_is_told_once_until_it_is_enough() {
        let (word, told) = (Arc::new(AtomicU64::new(5)), Arc::new(Mutex::new(Vec::new())));
        let (read, to) = (word.clone(), told.clone());
        let mut watchers = Watchers::default();
        let id = watchers.watch(
            Box::new(move || read.load(Ordering::Relaxed)),
            Box::new(move |old, new| {
                to.lock().unwrap().push((old, new));
                if new == 9 { Goes::Off } else { Goes::On }
            }),
            |read| Some(read()),
        );
        let mut look = |value| {
            word.store(value, Ordering::Release);
            watchers.look(|call| Some(call()))
        };
        assert_eq!([5, 7, 7, 6, 9, 10].map(&mut look), [false, true, false, true, true, false]);
        assert_eq!(*told.lock().unwrap(), [(5, 7), (7, 6), (6, 9)]);
        assert!(!watchers.unwatch(id), "it has ended");
    }

    #[test]
    fn one_whose_callback_panicked_ends_alone() {
        let mut watchers = Watchers::default();
        let count = || {
            let mut value = 0;
            Box::new(move || {
                value += 1;
                value
            })
        };
        let (bad, good) = (
            watchers.watch(count(), Box::new(|_, _| Goes::On), |read| Some(read())),
            watchers.watch(count(), Box::new(|_, _| Goes::On), |read| Some(read())),
        );
        let none = watchers.watch(count(), Box::new(|_, _| Goes::On), |_| None);
        assert!(!watchers.unwatch(none), "it could not be read");
        let mut first = true;
        assert!(watchers.look(|call| if std::mem::take(&mut first) { None } else { Some(call()) }));
        assert!(!watchers.unwatch(bad) && watchers.unwatch(good));
    }
}
