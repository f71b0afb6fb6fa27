//! Ranking of a channel's path slots: which rail pairs it may use, in which order. Pure.
//!
//! A path is one QP pair for both directions, so both ends must derive the same list. It is always computed
//! from the lower PE's side and read backwards by the other.

use shunt_layout::state::SLOTS_MAX;

/// A (local rail, remote rail) pair, as one end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RailPair {
    /// Rail of this end.
    pub local: u32,
    /// Rail of the other end.
    pub remote: u32,
}

/// One end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The PE.
    pub pe: u32,
    /// Rails it has.
    pub rails: u32,
}

/// Slots of `channel` between `me` and `peer`, best first, at most [`SLOTS_MAX`].
///
/// Slot 0 is rail `channel % rails` at both ends. Then come pairs that share neither end with it, equal ranks
/// before crossed ones, and then the rest. Where the list goes on from slot 0 depends on the channel, so that
/// the load of a dead rail lands on all healthy ones and not on one neighbour.
pub fn rank(me: End, peer: End, channel: u32) -> Vec<RailPair> {
    let (low, high) = if me.pe <= peer.pe { (me, peer) } else { (peer, me) };
    if low.rails == 0 || high.rails == 0 {
        return Vec::new();
    }
    let primary = RailPair { local: channel % low.rails, remote: channel % high.rails };
    let turn = channel / low.rails.max(high.rails);
    let (locals, remotes) =
        (others(low.rails, primary.local, turn), others(high.rails, primary.remote, turn));
    let mut pairs = vec![primary];
    pairs.extend(locals.iter().zip(&remotes).map(|(l, r)| RailPair { local: *l, remote: *r }));
    for (i, local) in locals.iter().enumerate() {
        for (j, remote) in remotes.iter().enumerate() {
            if i != j {
                pairs.push(RailPair { local: *local, remote: *remote });
            }
        }
    }
    // Pairs that share an end with the primary, its two ends in turn: either may be the one that died.
    for i in 0..locals.len().max(remotes.len()) {
        pairs.extend(remotes.get(i).map(|remote| RailPair { local: primary.local, remote: *remote }));
        pairs.extend(locals.get(i).map(|local| RailPair { local: *local, remote: primary.remote }));
    }
    pairs.truncate(SLOTS_MAX);
    if me.pe > peer.pe {
        pairs.iter_mut().for_each(|pair| *pair = RailPair { local: pair.remote, remote: pair.local });
    }
    pairs
}

/// The other rails, from the one after `primary` round, started `turn` further.
fn others(rails: u32, primary: u32, turn: u32) -> Vec<u32> {
    let count = rails - 1;
    (0..count).map(|i| (primary + 1 + (i + turn) % count) % rails).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    fn end(pe: u32, rails: u32) -> End {
        End { pe, rails }
    }

    fn pairs(list: &[(u32, u32)]) -> Vec<RailPair> {
        list.iter().map(|&(local, remote)| RailPair { local, remote }).collect()
    }

    #[test]
    fn two_rails() {
        assert_eq!(rank(end(0, 2), end(1, 2), 0), pairs(&[(0, 0), (1, 1), (0, 1), (1, 0)]));
        assert_eq!(rank(end(0, 2), end(1, 2), 1), pairs(&[(1, 1), (0, 0), (1, 0), (0, 1)]));
        assert_eq!(rank(end(1, 2), end(0, 2), 0), pairs(&[(0, 0), (1, 1), (1, 0), (0, 1)]));
    }

    #[test]
    fn one_rail_at_one_end() {
        assert_eq!(rank(end(0, 1), end(1, 1), 5), pairs(&[(0, 0)]));
        assert_eq!(rank(end(0, 1), end(1, 3), 0), pairs(&[(0, 0), (0, 1), (0, 2)]));
        assert_eq!(rank(end(1, 3), end(0, 1), 0), pairs(&[(0, 0), (1, 0), (2, 0)]));
        assert_eq!(rank(end(0, 0), end(1, 3), 0), []);
    }

    #[test]
    fn both_ends_see_one_list_without_repeats() {
        for low in 1..=9 {
            for high in 1..=9 {
                for channel in 0..40 {
                    let mine = rank(end(3, low), end(7, high), channel);
                    let theirs = rank(end(7, high), end(3, low), channel);
                    let turned: Vec<_> =
                        theirs.iter().map(|p| RailPair { local: p.remote, remote: p.local }).collect();
                    assert_eq!(mine, turned, "{low} and {high} rails, channel {channel}");
                    assert_eq!(mine.len(), ((low * high) as usize).min(SLOTS_MAX));
                    assert_eq!(mine.iter().collect::<HashSet<_>>().len(), mine.len());
                    assert_eq!(mine[0], RailPair { local: channel % low, remote: channel % high });
                    let disjoint = |p: &RailPair| p.local != mine[0].local && p.remote != mine[0].remote;
                    let first_shared = mine[1..].iter().position(|p| !disjoint(p)).unwrap_or(mine.len());
                    assert!(mine[1..].iter().skip(first_shared).all(|p| !disjoint(p)), "{mine:?}");
                }
            }
        }
    }

    #[test]
    fn a_dead_rail_is_spread_over_all_others() {
        let rails = 4;
        let mut load = HashMap::new();
        for channel in (0..rails * (rails - 1)).filter(|c| c % rails == 2) {
            *load.entry(rank(end(0, rails), end(1, rails), channel)[1]).or_insert(0) += 1;
        }
        assert_eq!(load.len() as u32, rails - 1);
        assert!(load.values().all(|n| *n == 1), "{load:?}");
    }
}
