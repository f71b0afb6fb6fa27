//! Peers that are being cut off: when nothing of one lands here any more, and when its lanes are over. Pure.

use crate::ids::{LaneId, PeerId};
use shunt_layout::mutant::Mutant;
use shunt_recovery::nanos::Nanos;

/// A peer that is being cut off.
#[derive(Debug)]
struct Leaving {
    peer: PeerId,
    /// Of its paths, whose halves are being destroyed.
    keys: Vec<usize>,
    lanes: Vec<LaneId>,
    /// When no packet of theirs is on its way any more: known once all halves are destroyed.
    quiet: Option<Nanos>,
}

/// What has come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// All halves to this peer are destroyed: nothing of it lands here any more.
    Peer(PeerId),
    /// No packet of this lane is on its way any more.
    Lane(LaneId),
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Leavings(Vec<Leaving>);

impl Leavings {
    /// One more, with these paths and lanes.
    pub fn begin(&mut self, peer: PeerId, keys: Vec<usize>, lanes: Vec<LaneId>) {
        self.0.push(Leaving { peer, keys, lanes, quiet: None });
    }

    /// True while none is.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What has come about since the last call. `is_there`: a path still has a half at this end. A packet lives for
    /// `lifetime` at most.
    pub fn look(&mut self, now: Nanos, lifetime: Nanos, is_there: impl Fn(usize) -> bool) -> Vec<Gone> {
        let mut gone = Vec::new();
        self.0.retain_mut(|one| match one.quiet {
            None if one.keys.iter().any(|key| is_there(*key)) && !Mutant::LeftBeforeDestroyed.on() => true,
            None => {
                gone.push(Gone::Peer(one.peer));
                one.quiet = Some(now + lifetime);
                true
            }
            Some(quiet) if now < quiet => true,
            Some(_) => {
                gone.extend(one.lanes.iter().copied().map(Gone::Lane));
                false
            }
        });
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_gone_once_every_half_is_destroyed_and_its_lanes_a_packets_life_later() {
        let (mut all, at) = (Leavings::default(), |ms| Nanos::millis(ms));
        assert_eq!(all.look(at(0), at(50), |_| false), []);
        all.begin(PeerId(3), vec![4, 6], vec![LaneId(8), LaneId(9)]);
        let mut look = |ms, there: &[usize]| all.look(at(ms), at(50), |key| there.contains(&key));
        assert_eq!(look(1, &[4, 6]), []);
        assert_eq!(look(1000, &[6, 7]), [], "one half is there");
        assert_eq!(look(1001, &[7]), [Gone::Peer(PeerId(3))], "however long it took");
        assert_eq!(look(1050, &[]), [], "a packet may be on its way");
        assert_eq!(
            look(1051, &[4]),
            [Gone::Lane(LaneId(8)), Gone::Lane(LaneId(9))],
            "the key is another's now"
        );
        assert_eq!(look(2000, &[]), []);
    }
}
