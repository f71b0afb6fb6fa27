//! The other ends of a job, whose links say that one ends in order.

use shunt::host::connect::Oob;
use shunt::host::nanos::Nanos;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Links are looked at so often.
const LOOK: Nanos = Nanos::millis(10);

/// Those that are there, as far as is known. Pure.
#[derive(Debug, Default)]
pub struct Mates {
    there: BTreeSet<u32>,
    next: Nanos,
}

impl Mates {
    /// All ends of a job but this one.
    pub(crate) fn of_job(own: u32, ends: u32) -> Self {
        Self { there: (0..ends).filter(|end| *end != own).collect(), next: Nanos::ZERO }
    }

    /// Those that have left since the last look, if it is time for one.
    pub fn look(&mut self, now: Nanos, has_left: impl Fn(u32) -> bool) -> Vec<u32> {
        if now < self.next || self.there.is_empty() {
            return Vec::new();
        }
        self.next = now + LOOK;
        self.there.extract_if(.., |end| has_left(*end)).collect()
    }
}

/// Ends of this process that have ended: their links to each other are memory, which says nothing.
pub(crate) type EndedHere = Arc<Mutex<BTreeSet<u32>>>;

/// The link of an end of this process. The others know when it is dropped.
pub(crate) struct LinkHere {
    pub link: Box<dyn Oob>,
    pub end: u32,
    pub ended: EndedHere,
}

impl Oob for LinkHere {
    fn send(&self, to_pe: u32, bytes: Vec<u8>) {
        self.link.send(to_pe, bytes);
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        self.link.try_recv()
    }

    fn reachable(&self, pe: u32) -> bool {
        self.link.reachable(pe)
    }

    fn has_left(&self, pe: u32) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(&pe)
    }
}

impl Drop for LinkHere {
    fn drop(&mut self) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_has_left_is_told_once_and_links_are_not_looked_at_all_the_time() {
        let (mut mates, at) = (Mates::of_job(1, 4), |ms| Nanos::millis(ms));
        assert!(mates.look(at(1), |_| false).is_empty());
        assert!(mates.look(at(10), |_| true).is_empty(), "not yet");
        assert_eq!(mates.look(at(11), |end| end == 2), [2]);
        assert_eq!(mates.look(at(30), |_| true), [0, 3], "each once, and never this end");
        assert!(mates.look(at(60), |_| true).is_empty());
        assert!(Mates::default().look(at(1), |_| true).is_empty());
    }
}
