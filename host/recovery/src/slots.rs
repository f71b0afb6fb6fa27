//! Ranking of a channel's pairs of rails: which it may use, in which order. Pure.
//!
//! A path is one QP pair for both directions, so both ends must derive the same list. It is always computed
//! from the lower PE's side and read backwards by the other.

use shunt_layout::mutant::Mutant;

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

/// Every pair of rails of `channel` between `me` and `peer`, best first: up to 8 x 8 for PEs of eight rails.
///
/// First the primary: rail `channel % rails` at both ends. Then pairs that share no rail with it and none with each
/// other, as many as the end with fewer rails has: those are made ahead. Then the other pairs without a rail of the
/// primary, and at last those with one. In which order the other rails come depends on the channel, so that the load of
/// a dead rail, and of several, lands on all healthy ones and not on one neighbour.
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
    // Equal places first, then those one apart, two apart: neighbours in the list never share a rail.
    let round = locals.len().max(remotes.len());
    for apart in 0..round {
        for (i, local) in locals.iter().enumerate() {
            let remote = remotes.get((i + apart) % round);
            pairs.extend(remote.map(|remote| RailPair { local: *local, remote: *remote }));
        }
    }
    // Pairs that share an end with the primary, its two ends in turn: either may be the one that died.
    for i in 0..round {
        pairs.extend(remotes.get(i).map(|remote| RailPair { local: primary.local, remote: *remote }));
        pairs.extend(locals.get(i).map(|local| RailPair { local: *local, remote: primary.remote }));
    }
    if me.pe > peer.pe {
        pairs.iter_mut().for_each(|pair| *pair = RailPair { local: pair.remote, remote: pair.local });
    }
    pairs
}

/// The rail of a PE that takes the atomics of a channel index at first: where the primary of every sender leads.
pub const fn home_at_start(rails: u32, channel: u32) -> u32 {
    if rails == 0 { 0 } else { channel % rails }
}

/// The other rails in the order of turn `turn`.
///
/// All orders come up as turns go on, the first place changing with each turn, the second with each round of those and
/// so on. That later places also follow the earlier ones and the primary spreads what two dead rails leave behind when
/// there are few channels.
fn others(rails: u32, primary: u32, turn: u32) -> Vec<u32> {
    let mut left: Vec<u32> = (1..rails).map(|i| (primary + i) % rails).collect();
    let (mut turn, mut shift) = (turn as usize, 0);
    let mut order = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let place = if Mutant::NeighbourOnly.on() { 0 } else { (turn + shift) % left.len() };
        turn /= left.len();
        shift += place + primary as usize;
        order.push(left.remove(place));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

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
                    assert_eq!(mine.len(), (low * high) as usize);
                    assert_eq!(mine.iter().collect::<HashSet<_>>().len(), mine.len());
                    assert_eq!(mine[0], RailPair { local: channel % low, remote: channel % high });
                    assert_eq!(
                        mine[0].remote,
                        home_at_start(high, channel),
                        "nothing is paid while all is well"
                    );
                    assert_eq!(theirs[0].remote, home_at_start(low, channel));
                    let disjoint = |p: &RailPair| p.local != mine[0].local && p.remote != mine[0].remote;
                    let first_shared = mine[1..].iter().position(|p| !disjoint(p)).unwrap_or(mine.len());
                    assert!(mine[1..].iter().skip(first_shared).all(|p| !disjoint(p)), "{mine:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_made_ahead_shares_no_rail() {
        for (low, high) in [(8, 8), (2, 2), (4, 8), (8, 3), (1, 5)] {
            for channel in 0..200 {
                let ranked = rank(end(0, low), end(1, high), channel);
                let ahead = &ranked[..low.min(high) as usize];
                let rails = |of: fn(&RailPair) -> u32| ahead.iter().map(of).collect::<HashSet<_>>().len();
                assert_eq!(rails(|pair| pair.local), ahead.len(), "{ahead:?}");
                assert_eq!(rails(|pair| pair.remote), ahead.len(), "{ahead:?}");
            }
        }
    }

    /// Channels on each healthy rail of `rails`, most and fewest, when some are dead.
    fn spread(rails: u32, channels: u32, dead: &[u32]) -> (u32, u32) {
        let mut load = vec![0; rails as usize];
        for channel in 0..channels {
            let ranked = rank(end(0, rails), end(1, rails), channel);
            let healthy = |pair: &&RailPair| !dead.contains(&pair.local) && !dead.contains(&pair.remote);
            load[ranked.iter().find(healthy).expect("a healthy pair").local as usize] += 1;
        }
        let healthy = || (0..rails).filter(|rail| !dead.contains(rail)).map(|rail| load[rail as usize]);
        (healthy().max().expect("a healthy rail"), healthy().min().expect("a healthy rail"))
    }

    #[test]
    fn the_load_of_dead_rails_is_spread_over_all_others() {
        for a in 0..8 {
            assert_eq!(spread(8, 56, &[a]), (8, 8), "each healthy rail gets one of seven");
            for b in (0..8).filter(|b| *b != a) {
                let (most, fewest) = spread(8, 56, &[a, b]);
                assert!(most - fewest <= 1, "{a} and {b} dead: {fewest} to {most}");
                assert_eq!(spread(8, 8 * 7 * 6, &[a, b]), (56, 56), "{a} and {b} dead");
            }
        }
        for dead in [&[0][..], &[1, 3], &[2, 0]] {
            let (most, fewest) = spread(4, 4 * 3 * 2, dead);
            assert_eq!(most, fewest, "{dead:?} dead");
        }
    }
}
