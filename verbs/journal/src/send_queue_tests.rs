//! What the journal does with counts that fit, and with those that do not.

use super::*;
use crate::request::Data;
use shunt_mlx5_sys::{IBV_SEND_INLINE, IBV_SEND_SIGNALED};

/// Posts one, with a byte of inline data, and gives it to a NIC.
fn post(queue: &mut SendQueue, wr_id: u64, kind: Kind, signaled: bool) {
    let flags = IBV_SEND_INLINE | if signaled { IBV_SEND_SIGNALED } else { 0 };
    let mut record = Record::new(wr_id, kind, (0, 0));
    (record.words.count, record.words.flags) = (1, flags);
    queue.push(record, |beside| beside.bytes = vec![wr_id as u8]);
    queue.given(1);
}

/// Requests 10, 11, .. of these kinds, all signaled and given to a NIC.
fn queue(kinds: &[Kind]) -> SendQueue {
    let mut queue = SendQueue::default();
    for (n, kind) in kinds.iter().enumerate() {
        post(&mut queue, 10 + n as u64, *kind, true);
    }
    queue
}

fn ids(seen: &[Done]) -> Vec<u64> {
    seen.iter().map(|done| done.wr_id).collect()
}

const UNREAD: Policy = Policy { answers: Answers::Unread, rule: Rule::Exact };
const SEND: Kind = Kind::Send(None);
const WRITE: Kind = Kind::Write(None);

#[test]
fn what_was_executed_is_seen_once_and_the_rest_is_posted_again_in_order() {
    let mut queue = queue(&[SEND, WRITE, SEND, WRITE, SEND]);
    assert_eq!(queue.signaled_done(1), Ok(()));
    assert_eq!(ids(&queue.cut(3, 0, 0).unwrap()), [11, 12]);
    assert_eq!((queue.first(), queue.next(), queue.two_sided()), (3, 3, 2));
    assert_eq!(queue.peek().map(|(request, executed)| (request.wr_id, executed)), Some((13, false)));
    queue.given(1);
    assert_eq!(queue.peek().map(|(request, _)| request.wr_id), Some(14));
    queue.given(1);
    assert_eq!(ids(&queue.numbered_done(4).unwrap()), [13, 14]);
    assert_eq!((queue.two_sided(), queue.is_empty()), (3, true));
}

#[test]
fn a_read_is_posted_again_and_holds_the_completions_behind_it() {
    let mut queue = queue(&[WRITE, Kind::Read, SEND, WRITE]);
    assert_eq!(ids(&queue.cut(3, 0, 0).unwrap()), [10]);
    let mut posted = Vec::new();
    while let Some((request, executed)) = queue.peek() {
        posted.push((request.wr_id, executed));
        queue.given(1);
    }
    assert_eq!(posted, [(11, true), (12, true), (13, false)]);
    assert_eq!(queue.two_sided(), 1, "counted when it was executed, not when it is complete");
    assert_eq!(ids(&queue.numbered_done(3).unwrap()), [11, 12, 13]);
    assert_eq!(queue.two_sided(), 1);
}

const ADD: Kind = Kind::FetchAdd(1);

#[test]
fn an_atomic_is_done_once_or_posted_again_or_its_answer_is_lost() {
    let mut queue = queue(&[ADD, WRITE, ADD, SEND, ADD]);
    assert_eq!(queue.signaled_done(1), Ok(()), "executed and answered");
    assert_eq!((ids(&queue.cut(3, 0, 0).unwrap()), queue.answer_is_lost()), (vec![11], true));
    assert_eq!(queue.peek(), None, "nothing goes past it");
    assert!(queue.needs_answers());
    assert_eq!((queue.give_up(), queue.has_atomics()), (vec![12, 13, 14], true), "the error is its own");
}

#[test]
fn an_atomic_whose_answer_nobody_reads_is_done_when_it_was_executed() {
    let mut queue = SendQueue::new(UNREAD, false, 0);
    for (n, kind) in [ADD, Kind::Read, Kind::CompareSwap(1, 2), ADD].into_iter().enumerate() {
        post(&mut queue, 10 + n as u64, kind, true);
    }
    assert!(!queue.needs_answers());
    assert_eq!((ids(&queue.cut(3, 0, 0).unwrap()), queue.answer_is_lost()), (vec![10], false));
    let mut posted = Vec::new();
    while let Some((request, executed)) = queue.peek() {
        posted.push((request.wr_id, executed));
        queue.given(1);
    }
    assert_eq!(posted, [(11, true), (12, true), (13, false)], "only the last is an atomic once more");
    assert_eq!(ids(&queue.numbered_done(3).unwrap()), [11, 12, 13]);
}

#[test]
fn the_papers_rule_repeats_writes_that_were_executed_and_gives_up_each_atomic() {
    let policy = Policy { answers: Answers::Unread, rule: Rule::Paper };
    let mut queue = SendQueue::new(policy, false, 0);
    for (n, kind) in [SEND, WRITE, SEND, WRITE, SEND].into_iter().enumerate() {
        post(&mut queue, 10 + n as u64, kind, true);
    }
    assert_eq!((ids(&queue.cut(4, 0, 0).unwrap()), queue.two_sided()), (vec![10], 2));
    let mut posted = Vec::new();
    while let Some((request, executed)) = queue.peek() {
        posted.push((request.wr_id, executed));
        queue.given(1);
    }
    assert_eq!(posted, [(11, false), (12, true), (13, false), (14, false)]);
    assert_eq!(queue.numbered_done(4).map(|seen| ids(&seen)), Ok(vec![11, 12, 13, 14]));
    post(&mut queue, 15, ADD, true);
    assert!(!queue.answer_is_lost() && queue.needs_answers());
    assert_eq!((ids(&queue.cut(5, 5, 5).unwrap()), queue.answer_is_lost()), (vec![], true), "not executed");
}

#[test]
fn a_read_before_an_atomic_without_answer_completes_first() {
    let mut queue = queue(&[Kind::Read, ADD, SEND]);
    assert_eq!((ids(&queue.cut(3, 0, 0).unwrap()), queue.answer_is_lost()), (vec![], false));
    assert_eq!(queue.peek().map(|(request, _)| request.wr_id), Some(10));
    queue.given(1);
    assert_eq!(queue.peek(), None);
    assert_eq!(queue.numbered_done(0).map(|seen| ids(&seen)), Ok(vec![10]));
    assert!(queue.answer_is_lost());
}

#[test]
fn a_count_of_another_queue_pair_is_refused() {
    assert_eq!(queue(&[SEND, SEND]).cut(3, 0, 0), Err(Impossible), "more than was posted");
    let mut older = queue(&[SEND, SEND]);
    assert_eq!(older.signaled_done(1), Ok(()));
    assert_eq!(older.cut(0, 0, 0), Err(Impossible), "less than is known to be complete");
}

#[test]
fn counts_wrap_and_probes_count() {
    // Three probes came before request 2, the first of this queue pair, and 2^24 - 4 of the program's before that.
    let mut queue = queue(&[SEND, SEND, SEND, SEND, SEND]);
    assert_eq!(queue.numbered_done(1).map(|seen| seen.len()), Ok(2));
    assert_eq!(ids(&queue.cut(1, 2, MASK).unwrap()), [12, 13]);
    assert_eq!(queue.first(), 4);
}

#[test]
fn a_completion_covers_what_was_not_signaled_before_it() {
    let mut queue = SendQueue::default();
    for (wr_id, signaled) in [(1, false), (2, true), (3, false), (4, true)] {
        post(&mut queue, wr_id, SEND, signaled);
    }
    assert_eq!((queue.signaled_done(1), queue.newest_done(), queue.first()), (Ok(()), 2, 2));
    assert_eq!(ids(&queue.cut(3, 0, 0).unwrap()), [0; 0], "3 wants no completion");
    assert_eq!(queue.give_up(), [4]);
    assert_eq!(queue.signaled_done(1), Err(Impossible), "nothing is left");
}

#[test]
fn what_is_beside_a_record_comes_later_than_records() {
    let mut queue = SendQueue::new(Policy::default(), false, 2);
    let mut plain = Record::new(1, WRITE, (0, 7));
    plain.words.count = 1;
    queue.push(plain, |_| panic!("nothing is beside it"));
    queue.given(1);
    post(&mut queue, 2, WRITE, true);
    queue.next = queue.first;
    assert!(queue.peek().is_some_and(|(request, _)| matches!(request.data, Data::Pieces(_))));
    queue.given(1);
    assert!(queue.peek().is_some_and(|(request, _)| request.data == Data::Inline(vec![2])));
}

#[test]
fn memory_is_used_again_and_grows_where_it_must() {
    let mut queue = SendQueue::new(Policy::default(), false, 2);
    assert_eq!(queue.slots.room(), 0, "made when it is needed");
    for turn in 0..3 {
        (0..3).for_each(|at| post(&mut queue, turn * 10 + at, WRITE, true));
        assert_eq!((queue.signaled_done(3), queue.newest_done()), (Ok(()), turn * 10 + 2));
    }
    assert_eq!(queue.slots.room(), 4);
    for wr_id in 0..9 {
        let mut plain = Record::new(wr_id, WRITE, (wr_id, 7));
        plain.words.count = 1;
        if wr_id % 2 == 0 {
            queue.push(plain, |_| panic!("nothing is beside it"));
        } else {
            post(&mut queue, wr_id, WRITE, true);
        }
    }
    assert_eq!((queue.slots.room(), queue.len()), (16, 9));
    queue.next = queue.first;
    for wr_id in 0..9 {
        let (request, executed) = queue.peek().unwrap();
        assert_eq!((request.wr_id, executed), (wr_id, false));
        let inline = wr_id % 2 == 1;
        assert_eq!(matches!(&request.data, Data::Inline(bytes) if **bytes == [wr_id as u8]), inline);
        queue.given(1);
    }
    queue.push(Record::new(77, SEND, (0, 0)), |_| {});
    queue.take_back();
    assert_eq!((queue.peek(), queue.len()), (None, 9));
}

/// One that kept as many under way as it may looked back with each request: room was for no more than those.
#[test]
fn a_program_that_keeps_its_queue_full_looks_back_seldom() {
    let (depth, posts) = (16, 160_u64);
    let mut queue = SendQueue::new(UNREAD, true, depth);
    let (mut looks, mut known) = (0, 0);
    for number in 0..posts {
        if queue.is_full() {
            looks += 1;
            // With the one that comes now it has as many under way as it may.
            let done = (number + 1).saturating_sub(depth as u64);
            assert_eq!(queue.signaled_done(done - known), Ok(()));
            known = done;
            queue.make_room();
        }
        let mut record = Record::new(number, WRITE, (0, 0));
        record.words.count = 1;
        queue.push(record, |_| unreachable!("it has room for all"));
        queue.given(1);
    }
    assert!(looks <= posts / depth as u64 + 1, "{looks}");
}
