//! Which ranks can go on together, and who may decide it. Pure.

use crate::rank_set::RankSet;
use shunt_layout::mutant::Mutant;

/// True if `some` of `members` may decide for all of them: more than half, or half with the lowest. Of one set of
/// members any two that may decide have a rank in common.
pub fn may_decide(some: &RankSet, members: &RankSet) -> bool {
    let (part, all) = (members.iter().filter(|rank| some.has(*rank)).count(), members.count() as usize);
    if Mutant::MinorityDecides.on() {
        return part > 0;
    }
    let tie = members.iter().next().is_some_and(|lowest| some.has(lowest)) || Mutant::TieUnbroken.on();
    2 * part > all || 2 * part == all && part > 0 && tie
}

/// The ranks of `members` to be kept: each can reach each, as far as anybody said. For every rank in turn, the set is
/// grown from it by all that fit, the lowest first; of these one whose ranks in `heard` may decide, then the one with
/// the most of them, then the largest, then the one that was grown from the lowest rank. A rank that is left out cannot
/// reach, or be reached by, one that is kept. `lost`: by rank, which ranks it says that it lost.
pub fn kept(members: &RankSet, heard: &RankSet, lost: &[RankSet]) -> RankSet {
    let ranks = 64 * members.words().len() as u32;
    let mut apart = lost.to_vec();
    for (rank, set) in (0..).zip(lost) {
        set.iter().for_each(|other| {
            apart[other as usize].add(rank);
        });
    }
    let (mut best, mut score) = (RankSet::none(ranks), (false, 0, 0));
    // Who is apart from nobody is in every set: the search begins at one of them.
    let mut whole = false;
    for first in members.iter() {
        if !apart[first as usize].meets(members) && std::mem::replace(&mut whole, true) {
            continue;
        }
        let mut set = RankSet::none(ranks);
        set.add(first);
        for rank in members.iter().filter(|rank| *rank != first) {
            if !apart[rank as usize].meets(&set) {
                set.add(rank);
            }
        }
        let ready = RankSet::of(ranks, |rank| set.has(rank) && heard.has(rank));
        let new = (may_decide(&ready, members), ready.count(), set.count());
        if new > score {
            (best, score) = (set, new);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranks: &[u32]) -> RankSet {
        RankSet::of(8, |rank| ranks.contains(&rank))
    }

    fn split(members: &[u32], heard: &[u32], lost: &[(u32, u32)]) -> Vec<u32> {
        let said: Vec<RankSet> = (0..8).map(|a| RankSet::of(8, |b| lost.contains(&(a, b)))).collect();
        kept(&set(members), &set(heard), &said).iter().collect()
    }

    #[test]
    fn more_than_half_may_decide_and_of_two_halves_the_one_with_the_lowest() {
        let all = set(&[1, 2, 5, 6]);
        assert!(may_decide(&set(&[2, 5, 6]), &all) && may_decide(&set(&[1, 6]), &all));
        assert!(!may_decide(&set(&[5, 6]), &all) && !may_decide(&set(&[1]), &all));
        assert!(!may_decide(&set(&[1, 0, 3, 4, 7]), &all), "others do not count");
        assert!(may_decide(&set(&[2, 3]), &set(&[2, 3, 4])) && !may_decide(&set(&[2]), &set(&[2, 3, 4])));
        assert!(may_decide(&set(&[0]), &set(&[0, 1])) && !may_decide(&set(&[1]), &set(&[0, 1])));
    }

    #[test]
    fn two_that_may_decide_have_a_rank_in_common() {
        for members in 1..64u32 {
            let of = |bits: u32| RankSet::of(8, |rank| rank < 6 && bits & members & 1 << rank != 0);
            let all = of(u32::MAX);
            for (a, b) in (0..64u32).flat_map(|a| (0..64u32).map(move |b| (a, b))) {
                let both = may_decide(&of(a), &all) && may_decide(&of(b), &all);
                assert!(!both || a & b & members != 0, "{a:b} and {b:b} of {members:b}");
            }
        }
    }

    #[test]
    fn the_largest_set_in_which_each_reaches_each() {
        let four = &[0, 1, 2, 3];
        assert_eq!(split(four, four, &[]), four);
        assert_eq!(split(four, &[0, 1, 2], &[(0, 3)]), [0, 1, 2], "one word is enough, either way");
        assert_eq!(split(four, four, &[(3, 0)]), [0, 1, 2]);
        assert_eq!(
            split(four, four, &[(0, 1), (0, 2), (0, 3)]),
            [1, 2, 3],
            "the lowest is the one that is lost"
        );
        assert_eq!(split(four, four, &[(0, 2), (0, 3), (1, 2), (1, 3)]), [0, 1], "a tie goes to the lowest");
        assert_eq!(split(four, &[1, 2, 3], &[(1, 0)]), [1, 2, 3], "who is not heard gives way");
        assert_eq!(split(&[0, 1, 2, 3, 4], &[0, 1, 2, 3, 4], &[(0, 3), (1, 4)]), [0, 1, 2]);
        assert_eq!(split(&[1, 3], &[1], &[(3, 1)]), [1]);
    }

    #[test]
    fn a_rank_left_out_is_apart_from_one_that_is_kept() {
        for seed in 0..2000u64 {
            let lost =
                |a: u32, b: u32| a != b && (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (a * 8 + b)) & 5 == 5;
            let said: Vec<RankSet> = (0..8).map(|a| RankSet::of(8, |b| lost(a, b))).collect();
            let kept = kept(&set(&[0, 1, 2, 3, 4, 5]), &set(&[0, 2, 4]), &said);
            assert!(kept.iter().all(|a| kept.iter().all(|b| !lost(a, b))), "seed {seed}");
            let out = (0..6).filter(|rank| !kept.has(*rank));
            for rank in out {
                assert!(
                    kept.iter().any(|other| lost(rank, other) || lost(other, rank)),
                    "seed {seed}: {rank}"
                );
            }
        }
    }
}
