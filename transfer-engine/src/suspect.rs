//! Lanes whose oldest piece is not done. Pure.
//!
//! A lane without an order goes on with younger pieces although one is lost: that some are done says nothing of it.

use crate::ids::LaneId;
use shunt_recovery::nanos::Nanos;
use std::collections::BTreeMap;

/// The slowest that lanes carry together, bytes a second: long pieces are no silence.
const SLOWEST: u64 = 50_000_000;
/// Lanes are looked at so often in the time after which one is suspected.
const LOOKS: u64 = 4;

/// Of a lane with pieces under way: what stays the same until the oldest of them is done.
pub(crate) type Oldest = (LaneId, u64);

/// Which piece is the oldest of each lane, and since when.
#[derive(Debug)]
pub(crate) struct Suspects {
    after: Nanos,
    next: Nanos,
    since: BTreeMap<LaneId, (u64, Nanos)>,
}

impl Suspects {
    /// A lane is suspected once its oldest piece is that for so long; never with the longest time there is.
    pub const fn new(after: Nanos) -> Self {
        Self { after, next: Nanos::MAX, since: BTreeMap::new() }
    }

    fn pause(&self) -> Nanos {
        if self.after == Nanos::MAX { Nanos::MAX } else { Nanos::new((self.after.get() / LOOKS).max(1)) }
    }

    /// Something is posted: when lanes are looked at next.
    pub fn wake(&mut self, now: Nanos) -> Nanos {
        self.next = self.next.min(now + self.pause());
        self.next
    }

    /// Lanes that are suspected, of those with pieces under way. All of them together have so many bytes under way.
    /// `more`: there will be something to look at.
    pub fn look(
        &mut self,
        now: Nanos,
        lanes: impl Iterator<Item = Oldest>,
        bytes: u64,
        more: bool,
    ) -> Vec<LaneId> {
        if now < self.next {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.since);
        let patience = self.after + takes(bytes);
        for (lane, piece) in lanes {
            let known = before.get(&lane).filter(|(known, _)| *known == piece);
            self.since.insert(lane, (piece, known.map_or(now, |(_, since)| *since)));
        }
        self.next = if more { now + self.pause() } else { Nanos::MAX };
        let is_late = |(_, (_, since)): &(&LaneId, &(u64, Nanos))| now >= *since + patience;
        self.since.iter().filter(is_late).map(|(lane, _)| *lane).collect()
    }

    /// When [`Suspects::look`] has something to do next.
    pub const fn next_deadline(&self) -> Nanos {
        self.next
    }
}

/// How long so many bytes take at the slowest.
fn takes(bytes: u64) -> Nanos {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(SLOWEST);
    Nanos::new(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: LaneId = LaneId(1);
    const TWO: LaneId = LaneId(2);

    #[test]
    fn a_lane_is_suspected_once_its_oldest_piece_is_old() {
        let at = Nanos::millis;
        let mut suspects = Suspects::new(at(40));
        assert_eq!((suspects.next_deadline(), suspects.wake(at(5))), (Nanos::MAX, at(15)));
        let mut look = |ms, lanes: &[Oldest]| suspects.look(at(ms), lanes.iter().copied(), 0, true);
        assert_eq!(look(14, &[(ONE, 7)]), [], "too early to look");
        assert_eq!([look(15, &[(ONE, 7), (TWO, 1)]), look(25, &[(ONE, 7), (TWO, 2)])], [vec![], vec![]]);
        assert_eq!([look(45, &[(ONE, 7), (TWO, 2)]), look(55, &[(ONE, 7), (TWO, 2)])], [vec![], vec![ONE]]);
        assert_eq!([look(65, &[(ONE, 8), (TWO, 2)]), look(75, &[(TWO, 3)])], [vec![TWO], vec![]]);
        assert_eq!(suspects.next_deadline(), at(85));
        assert_eq!(suspects.look(at(85), std::iter::empty(), 0, false), []);
        assert_eq!(suspects.next_deadline(), Nanos::MAX, "nothing is under way");
    }

    #[test]
    fn long_pieces_are_given_the_time_that_they_take() {
        let (at, bytes) = (Nanos::millis, 5_000_000);
        let mut suspects = Suspects::new(at(40));
        suspects.wake(at(0));
        let mut look = |ms| suspects.look(at(ms), [(ONE, 0)].into_iter(), bytes, true);
        assert_eq!([look(10), look(149), look(160)], [vec![], vec![], vec![ONE]]);
        assert_eq!((takes(u64::MAX), takes(0)), (Nanos::MAX, Nanos::ZERO));
    }
}
