//! Lanes whose fence told no count, because a NIC is gone: the peer is asked how many receives it took. Pure.

use crate::ids::LaneId;
use shunt_recovery::nanos::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// A question is repeated after this time.
const AGAIN: Nanos = Nanos::millis(10);
/// A peer has this long to answer.
const PATIENCE: Nanos = Nanos::millis(500);
/// Queue pairs that were destroyed and whose count is kept.
const KEPT: usize = 256;

/// A path and one of its incarnations.
pub(super) type At = (usize, u32);

#[derive(Clone, Copy, Debug)]
struct Doubt {
    at: At,
    until: Nanos,
    again: Nanos,
}

/// What a domain knows of it.
#[derive(Debug, Default)]
pub(super) struct Counting {
    pub doubts: Doubts,
    pub ended: Ended,
    /// Questions of peers: who asks about which path, by its number too.
    pub questions: Vec<(u32, u32, At)>,
    /// Answers of peers.
    pub counts: Vec<(At, Option<u64>)>,
}

impl Counting {
    /// True while nobody asks and nobody is asked.
    pub fn is_empty(&self) -> bool {
        self.doubts.0.is_empty() && self.questions.is_empty() && self.counts.is_empty()
    }
}

/// The lanes in doubt.
#[derive(Debug, Default)]
pub(super) struct Doubts(BTreeMap<LaneId, Doubt>);

impl Doubts {
    /// One more, on an incarnation of a path.
    pub fn begin(&mut self, now: Nanos, lane: LaneId, at: At) {
        self.0.insert(lane, Doubt { at, until: now + PATIENCE, again: now });
    }

    /// What peers are to be asked now.
    pub fn ask(&mut self, now: Nanos) -> Vec<At> {
        let due = self.0.values_mut().filter(|doubt| doubt.again <= now);
        due.map(|doubt| {
            doubt.again = now + AGAIN;
            doubt.at
        })
        .collect()
    }

    /// Lanes whose peer did not answer in time. They are in doubt no more.
    pub fn overdue(&mut self, now: Nanos) -> Vec<LaneId> {
        self.0.extract_if(.., |_, doubt| doubt.until <= now).map(|(lane, _)| lane).collect()
    }

    /// The lane on an incarnation of a path. It is in doubt no more.
    pub fn answered(&mut self, at: At) -> Option<LaneId> {
        let lane = self.0.iter().find(|(_, doubt)| doubt.at == at).map(|(lane, _)| *lane)?;
        self.0.remove(&lane);
        Some(lane)
    }

    /// A lane is of no interest any more.
    pub fn forget(&mut self, lane: LaneId) {
        self.0.remove(&lane);
    }
}

/// What queue pairs had received when they were destroyed, the newest of them.
#[derive(Debug, Default)]
pub(super) struct Ended(VecDeque<(u32, At, u64)>);

impl Ended {
    /// A peer's has been.
    pub fn put(&mut self, peer: u32, at: At, came: u64) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((peer, at, came));
    }

    /// How many receives it took.
    pub fn came(&self, peer: u32, at: At) -> Option<u64> {
        self.0.iter().rev().find(|(of, known, _)| (*of, *known) == (peer, at)).map(|(.., came)| *came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId(7);

    #[test]
    fn a_question_is_repeated_until_it_is_answered_or_too_late() {
        let (mut doubts, at) = (Doubts::default(), |ms| Nanos::millis(ms));
        doubts.begin(at(1), LANE, (3, 2));
        assert_eq!(
            (doubts.ask(at(1)), doubts.ask(at(10)), doubts.ask(at(11))),
            (vec![(3, 2)], vec![], vec![(3, 2)])
        );
        assert_eq!((doubts.answered((3, 1)), doubts.overdue(at(500))), (None, vec![]), "another incarnation");
        assert_eq!((doubts.answered((3, 2)), doubts.answered((3, 2))), (Some(LANE), None));
        doubts.begin(at(1), LANE, (3, 3));
        assert_eq!((doubts.overdue(at(501)), doubts.overdue(at(502))), (vec![LANE], vec![]));
        doubts.begin(at(1), LANE, (3, 4));
        doubts.forget(LANE);
        assert_eq!((doubts.answered((3, 4)), doubts.overdue(at(900))), (None, vec![]));
    }

    #[test]
    fn counts_of_destroyed_queue_pairs_are_kept_for_a_while() {
        let mut ended = Ended::default();
        ended.put(1, (3, 2), 40);
        assert_eq!(
            (ended.came(1, (3, 2)), ended.came(2, (3, 2)), ended.came(1, (3, 1))),
            (Some(40), None, None)
        );
        (0..KEPT as u64).for_each(|count| ended.put(1, (4, 1), count));
        assert_eq!((ended.came(1, (3, 2)), ended.came(1, (4, 1))), (None, Some(KEPT as u64 - 1)));
    }
}
