//! Peers that are being cut off: when nothing of one lands here any more, and when its lanes are over. Pure.

use crate::ids::{LaneId, PeerId};
use shunt_layout::mutant::Mutant;
use shunt_recovery::nanos::Nanos;

/// How far it is.
#[derive(Debug)]
enum Stage {
    /// Its halves are being destroyed.
    Destroying,
    /// They are, and NICs bring into memory what they had accepted: commands that are not answered. A NIC that cannot
    /// prove it has done so by then.
    Flushing(Vec<u64>, Nanos),
    /// No packet of theirs is on its way any more by then.
    Gone(Nanos),
}

/// A peer that is being cut off.
#[derive(Debug)]
struct Leaving {
    peer: PeerId,
    /// Its paths: keys, which others may get, and rails of this end.
    paths: Vec<(usize, u32)>,
    lanes: Vec<LaneId>,
    stage: Stage,
}

/// What has come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// All halves to this peer are destroyed, and what they had accepted is in memory: nothing of it lands here any
    /// more.
    Peer(PeerId),
    /// No packet of this lane is on its way any more.
    Lane(LaneId),
}

/// All of them. A packet lives for `lifetime` at most.
#[derive(Debug)]
pub(super) struct Leavings {
    all: Vec<Leaving>,
    lifetime: Nanos,
}

impl Leavings {
    /// None yet.
    pub const fn new(lifetime: Nanos) -> Self {
        Self { all: Vec::new(), lifetime }
    }

    /// One more, with these paths and lanes.
    pub fn begin(&mut self, peer: PeerId, paths: Vec<(usize, u32)>, lanes: Vec<LaneId>) {
        self.all.push(Leaving { peer, paths, lanes, stage: Stage::Destroying });
    }

    /// True while none is.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A command to flush has ended: what its NIC had accepted is in memory, or its NIC does not say so.
    pub fn flushed(&mut self, now: Nanos, command: u64, is_proven: bool) {
        for one in &mut self.all {
            let Stage::Flushing(commands, until) = &mut one.stage else { continue };
            let Some(at) = commands.iter().position(|one| *one == command) else { continue };
            commands.swap_remove(at);
            if !is_proven {
                *until = now + self.lifetime;
            }
        }
    }

    /// What has come about since the last call. `is_there`: a path still has a half at this end. `flush` has the NIC of
    /// a rail flush, and answers with the command's number.
    pub fn look(
        &mut self,
        now: Nanos,
        is_there: impl Fn(usize) -> bool,
        mut flush: impl FnMut(u32) -> u64,
    ) -> Vec<Gone> {
        let (mut gone, lifetime) = (Vec::new(), self.lifetime);
        self.all.retain_mut(|one| {
            let is_destroyed =
                !one.paths.iter().any(|(key, _)| is_there(*key)) || Mutant::LeftBeforeDestroyed.on();
            if matches!(one.stage, Stage::Destroying) && is_destroyed {
                one.stage = Stage::Flushing(one.paths.iter().map(|(_, rail)| flush(*rail)).collect(), now);
            }
            match &one.stage {
                Stage::Flushing(commands, until) if commands.is_empty() && now >= *until => {
                    gone.push(Gone::Peer(one.peer));
                    one.stage = Stage::Gone(now + lifetime);
                    true
                }
                Stage::Gone(at) if now >= *at => {
                    gone.extend(one.lanes.iter().copied().map(Gone::Lane));
                    false
                }
                _ => true,
            }
        });
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Nanos {
        Nanos::millis(ms)
    }

    #[test]
    fn a_peer_is_gone_once_every_half_is_destroyed_and_flushed_and_its_lanes_a_packets_life_later() {
        let mut all = Leavings::new(at(50));
        assert_eq!(all.look(at(0), |_| false, |_| unreachable!("there is none")), []);
        all.begin(PeerId(3), vec![(4, 0), (6, 1)], vec![LaneId(8), LaneId(9)]);
        let look = |all: &mut Leavings, ms, there: &[usize]| {
            all.look(at(ms), |key| there.contains(&key), |rail| 14 + u64::from(rail))
        };
        assert_eq!(look(&mut all, 1, &[4, 6]), []);
        assert_eq!(look(&mut all, 1000, &[6, 7]), [], "one half is there");
        assert_eq!(look(&mut all, 1001, &[7]), [], "their NICs may have accepted what is not in memory");
        all.flushed(at(1002), 14, true);
        all.flushed(at(1002), 16, true);
        assert_eq!(look(&mut all, 1003, &[]), [], "one of them has flushed");
        all.flushed(at(1004), 15, true);
        assert_eq!(look(&mut all, 1004, &[7]), [Gone::Peer(PeerId(3))], "however long it took");
        assert_eq!(look(&mut all, 1053, &[]), [], "a packet may be on its way");
        let lanes = [Gone::Lane(LaneId(8)), Gone::Lane(LaneId(9))];
        assert_eq!(look(&mut all, 1054, &[4]), lanes, "the key is another's now");
        assert!(look(&mut all, 2000, &[]).is_empty() && all.is_empty());
    }

    #[test]
    fn a_nic_that_cannot_flush_is_given_a_packets_life() {
        let mut all = Leavings::new(at(50));
        all.begin(PeerId(3), vec![(4, 0)], vec![]);
        let look = |all: &mut Leavings, ms| all.look(at(ms), |_| false, |_| 7);
        assert_eq!(look(&mut all, 1), []);
        all.flushed(at(20), 7, false);
        assert_eq!((look(&mut all, 69), look(&mut all, 70)), (vec![], vec![Gone::Peer(PeerId(3))]));
    }
}
