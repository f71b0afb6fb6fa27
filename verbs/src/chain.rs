//! Which NICs stand by for a queue pair, and which paths lead from one end's NICs to the other's. Pure.

use shunt_recovery::slots::{End, RailPair, rank};

/// NICs of one end of a queue pair, at most: the program's own and seven backups.
pub const NICS_MAX: usize = 8;
/// Up to so many NICs at the longer end, every pair of them is a path.
const ALL_PAIRS: usize = 4;

/// Rails of a queue pair: the one of the program's NIC, then its backups, at most `backups`.
///
/// These are the rails behind it, round in a circle, and those that are up before all others. `fits` tells a rail that
/// can stand in.
pub fn chain(
    rail: u32,
    count: u32,
    backups: u32,
    fits: impl Fn(u32) -> bool,
    up: impl Fn(u32) -> bool,
) -> Vec<u32> {
    let mut others: Vec<u32> =
        (1..count).map(|step| (rail + step) % count).filter(|rail| fits(*rail)).collect();
    others.sort_by_key(|rail| !up(*rail));
    others.truncate(backups as usize);
    [vec![rail], others].concat()
}

/// One path: places in the chains of both ends, as one end sees it. Place 0 is the program's own NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Place in this end's chain.
    pub here: usize,
    /// Place in the other's.
    pub there: usize,
}

/// The paths between chains of these lengths, best first: the program's own, those between backups, those from either's
/// backup to the other's own. Both ends derive the same list if one leads and the other does not. Between long chains
/// the paths from one backup to another are those of equal places alone.
pub fn links(leads: bool, here: usize, there: usize) -> Vec<Link> {
    let end = |first: bool, nics: usize| End { pe: u32::from(!first), rails: nics as u32 };
    let all = rank(end(leads, here), end(!leads, there), 0);
    let every = here.max(there) <= ALL_PAIRS;
    let kept = |pair: &RailPair| every || pair.local == pair.remote || pair.local == 0 || pair.remote == 0;
    let link = |pair: RailPair| Link { here: pair.local as usize, there: pair.remote as usize };
    all.into_iter().filter(kept).map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_the_next_ones_that_fit_and_those_that_are_up_first() {
        let any = |_| true;
        assert_eq!(chain(0, 2, 1, any, any), [0, 1]);
        assert_eq!(chain(1, 4, 2, any, any), [1, 2, 3]);
        assert_eq!(chain(1, 4, 7, any, any), [1, 2, 3, 0], "all that there are");
        assert_eq!(chain(0, 4, 2, any, |rail| rail == 3), [0, 3, 1]);
        assert_eq!(chain(0, 4, 2, |rail| rail != 1, any), [0, 2, 3]);
        assert_eq!(chain(0, 1, 1, any, any), [0]);
    }

    fn pairs(leads: bool, here: usize, there: usize) -> Vec<(usize, usize)> {
        links(leads, here, there).into_iter().map(|link| (link.here, link.there)).collect()
    }

    #[test]
    fn both_ends_have_one_list_and_any_nic_left_at_each_end_has_a_path() {
        assert_eq!(pairs(true, 2, 2), [(0, 0), (1, 1), (0, 1), (1, 0)]);
        for (here, there) in [(1, 1), (2, 2), (2, 3), (3, 3), (4, 2), (4, 4), (8, 8), (3, 8)] {
            let (one, other) = (pairs(true, here, there), pairs(false, there, here));
            assert_eq!(one, other.iter().map(|(a, b)| (*b, *a)).collect::<Vec<_>>(), "{here}, {there}");
            assert_eq!(one[0], (0, 0), "the program's own");
            let equal = |pair: &&(usize, usize)| pair.0 == pair.1;
            assert!(one[1..here.min(there)].iter().all(|pair| equal(&pair)), "no NIC in two of the first");
            let mut known = one.clone();
            known.sort_unstable();
            known.dedup();
            assert_eq!(known.len(), one.len(), "each once");
            // Atomics stay at the NIC that the program chose, whichever end has lost its own.
            assert!(
                (0..here).all(|nic| one.contains(&(nic, 0))) && (0..there).all(|nic| one.contains(&(0, nic)))
            );
            if here.max(there) <= ALL_PAIRS {
                assert_eq!(one.len(), here * there);
            }
        }
        assert_eq!(pairs(true, 8, 8).len(), 22);
    }
}
