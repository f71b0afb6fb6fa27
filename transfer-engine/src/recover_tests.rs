//! Which of the pieces in doubt are sent again, and as what.

use super::*;
use crate::piece::Span;
use proptest::prelude::*;

fn held(transfer: u64, at: u64, len: u32, op: Op) -> Held {
    Held::of_transfer(Piece::new(TransferId(transfer), op, Span { local: at, remote: at, len }))
}

fn write(at: u64) -> Held {
    held(0, at, 1, Op::Write(Some(7)))
}

fn places<'a>(all: impl IntoIterator<Item = &'a Held>) -> Vec<u64> {
    all.into_iter().map(|held| held.piece.local).collect()
}

fn counts(missing: u64, reached: bool) -> BTreeMap<u32, Counted> {
    BTreeMap::from([(7, Counted { missing, reached })])
}

#[test]
fn what_arrived_as_a_whole_or_not_at_all_needs_no_replay() {
    let pieces = || VecDeque::from([write(0), write(1), held(1, 2, 1, Op::Read)]);
    for reached in [false, true] {
        let all = plan(pieces(), &counts(0, reached));
        assert_eq!((places(&all.executed), places(&all.again)), (vec![0, 1], vec![2]));
        for missing in [2, 3] {
            let none = plan(pieces(), &counts(missing, reached));
            assert_eq!((places(&none.executed), places(&none.again)), (vec![], vec![2, 0, 1]));
        }
        let one = plan(pieces(), &counts(1, reached));
        let replayed = one.replays.iter().map(|(pieces, missing)| (places(pieces), *missing));
        assert_eq!(replayed.collect::<Vec<_>>(), if reached { vec![] } else { vec![(vec![0, 1], 1)] });
        assert_eq!(places(&one.in_doubt), if reached { vec![0, 1] } else { vec![] });
    }
    assert_eq!(places(&plan(pieces(), &BTreeMap::new()).executed), [0, 1], "none is named: all arrived");
}

#[test]
fn immediates_without_bytes_are_like_each_other() {
    let bare = |at| held(0, at, 0, Op::Write(Some(7)));
    let plan = plan(VecDeque::from([bare(0), bare(1), bare(2)]), &counts(2, true));
    assert_eq!((places(&plan.again), places(&plan.executed)), (vec![0, 1], vec![2]));
}

#[test]
fn bytes_come_again_without_the_immediate_and_then_what_is_missing_of_it() {
    let mut replays = Replays::default();
    let post = replays.begin(vec![write(0), write(1), held(0, 2, 0, Op::Write(Some(7)))], 2);
    assert_eq!(places(&post), [0, 1], "what has no bytes is not written again");
    assert!(post.iter().all(|held| held.piece.op == Op::Write(None)));
    let tags: Vec<_> = post.iter().filter_map(|held| held.tag).collect();
    assert_eq!(replays.executed(tags[1]), Follows::default());
    let follows = replays.executed(tags[0]);
    let bare = |held: &Held| (held.piece.len, held.piece.op) == (0, Op::Write(Some(7)));
    assert!(follows.post.len() == 2 && follows.post.iter().all(bare), "{follows:?}");
    let bare = follows.post[0].tag.expect("of the replay");
    assert_eq!(replays.executed(bare), Follows::default(), "one is missing still");
    assert_eq!(places(&replays.executed(bare).executed), [0, 1, 2]);
    assert!(replays.all.is_empty());
}

#[test]
fn what_was_stopped_counts_nothing_more() {
    let mut replays = Replays::default();
    let post = replays.begin(vec![write(0), held(1, 1, 1, Op::Write(Some(7))), write(2)], 1);
    let tags: Vec<_> = post.iter().filter_map(|held| held.tag).collect();
    replays.executed(tags[2]);
    assert_eq!(replays.stop(TransferId(5)), Follows::default(), "another transfer");
    let follows = replays.stop(TransferId(1));
    assert_eq!(places(&follows.in_doubt), [2], "the others are under way");
    assert!(tags.iter().all(|tag| replays.is_over(*tag)));
    assert_eq!(places(&replays.executed(tags[0]).in_doubt), [0]);
    assert_eq!(places(&replays.lost(tags[1]).in_doubt), [1]);
    assert!(replays.all.is_empty());
}

/// Regression: an immediate that was still under way came after the end of its transfer, and was counted for the next.
#[test]
fn what_was_stopped_has_not_ended_while_an_immediate_of_it_is_under_way() {
    let mut replays = Replays::default();
    let post = replays.begin(vec![write(0), write(1), held(0, 2, 0, Op::Write(Some(7)))], 2);
    let tags: Vec<_> = post.iter().filter_map(|held| held.tag).collect();
    replays.executed(tags[0]);
    let bare = replays.executed(tags[1]).post[0].tag.expect("of the replay");
    assert_eq!(replays.stop(TransferId(0)), Follows::default());
    assert_eq!(replays.executed(bare), Follows::default(), "one is under way still");
    assert_eq!(places(&replays.lost(bare).in_doubt), [0, 1, 2]);
    assert!(replays.all.is_empty());
}

proptest! {
    /// Whatever is lost on the way, each member has one end, and immediates are sent as often as they are missing, or
    /// not at all.
    #[test]
    fn every_member_of_a_replay_ends_once(
        lens in proptest::collection::vec(0..2u32, 1..6),
        missing in 1..6u64,
        steps in proptest::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..40),
    ) {
        prop_assume!(lens.contains(&1) && missing < lens.len() as u64);
        let mut replays = Replays::default();
        let pieces = |(at, len): (usize, &u32)| held(at as u64 % 2, at as u64, *len, Op::Write(Some(7)));
        let mut out = replays.begin(lens.iter().enumerate().map(pieces).collect(), missing);
        let (mut ended, mut immediates, mut stopped) = (Vec::new(), 0, false);
        for (which, what) in steps {
            let follows = match what {
                0 => {
                    stopped = true;
                    replays.stop(TransferId(1))
                }
                _ if out.is_empty() => break,
                what => {
                    let held = out.swap_remove(which.index(out.len()));
                    let tag = held.tag.expect("of a replay");
                    immediates += u64::from(held.piece.len == 0);
                    stopped |= what == 1;
                    if what == 1 { replays.lost(tag) } else { replays.executed(tag) }
                }
            };
            ended.extend(places(&follows.executed));
            ended.extend(places(&follows.in_doubt));
            prop_assert!(stopped || follows.in_doubt.is_empty());
            prop_assert!(follows.executed.is_empty() || immediates == missing);
            out.extend(follows.post);
        }
        while let Some(held) = out.pop() {
            let follows = replays.executed(held.tag.expect("of a replay"));
            ended.extend(places(&follows.executed));
            ended.extend(places(&follows.in_doubt));
            out.extend(follows.post);
        }
        ended.sort_unstable();
        prop_assert_eq!(ended, (0..lens.len() as u64).collect::<Vec<_>>());
        prop_assert!(replays.all.is_empty());
    }
}
