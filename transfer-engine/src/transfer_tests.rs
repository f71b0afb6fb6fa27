//! Steps of transfers that the simulator takes only by chance.

use super::*;
use crate::life::proof;
use crate::piece::{Op, Span, Spans};
use std::sync::Arc;

const PEER: PeerId = PeerId(1);
const GIVE_UP: Nanos = Nanos::new(100);

fn facts(depth: u32) -> LaneFacts {
    LaneFacts { peer: PEER, local: 0, remote: 0, depth, rate: 1, lands_late: false }
}

fn transfers(lanes: &[u64], depth: u32) -> Transfers {
    let mut transfers = Transfers::new(GIVE_UP);
    lanes.iter().for_each(|lane| transfers.opened(LaneId(*lane), facts(depth)));
    transfers
}

fn begin(transfers: &mut Transfers, count: u64, imm: Option<u32>) -> TransferId {
    begin_as(transfers, count, Op::Write(imm))
}

fn begin_as(transfers: &mut Transfers, count: u64, op: Op) -> TransferId {
    let keys = Arc::<[u32]>::from([1]);
    let spans = Spans::Many((0..count).map(|at| Span { local: at, remote: at, len: 1 }).collect());
    let work = Work { op, local_keys: keys.clone(), remote_keys: keys, spans };
    transfers.begin(Nanos::ZERO, PEER, work, None::<fn(LaneId, &Batch<'_>)>)
}

/// What is posted: lane and place of each piece, by place.
fn post(transfers: &mut Transfers) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    transfers.post(|lane, batch| all.extend(batch.requests().map(|piece| (lane.0, piece.local))));
    all.sort_by_key(|(_, place)| *place);
    all
}

fn outputs(transfers: &mut Transfers) -> Vec<Output> {
    std::iter::from_fn(|| transfers.next_output()).collect()
}

fn ended(id: TransferId, result: Result<(), TransferError>, written: u64) -> Output {
    Output::Ended(Ended { transfer: id, result, quiesced: Some(proof(id, written)) })
}

#[test]
fn what_a_failed_lane_had_not_executed_goes_to_the_others_in_order() {
    let mut transfers = transfers(&[0, 1], 2);
    let id = begin(&mut transfers, 5, Some(7));
    assert_eq!(post(&mut transfers), [(0, 0), (0, 1), (1, 2), (1, 3)]);
    transfers.sent(LaneId(0), 2);
    assert_eq!(post(&mut transfers), [(0, 4)]);
    transfers.failed(Nanos::ZERO, LaneId(1));
    assert_eq!(outputs(&mut transfers), [Output::Close(LaneId(1))]);
    assert_eq!(post(&mut transfers), [], "not before the fence");
    transfers.closed(Nanos::ZERO, LaneId(1), Fence::Executed(1));
    assert_eq!(post(&mut transfers), [(0, 3)], "what was executed is not sent again");
    transfers.sent(LaneId(0), 1);
    assert_eq!(outputs(&mut transfers), [], "a piece is under way");
    transfers.sent(LaneId(0), 1);
    assert_eq!(outputs(&mut transfers), [ended(id, Ok(()), 5)]);
}

/// A peer that comes late has lanes that were never left: those do not return.
#[test]
fn a_lane_returns_only_between_rails_whose_lane_was_closed() {
    let mut transfers = transfers(&[0], 9);
    let lane = |peer, local| LaneFacts {
        peer: PeerId(peer),
        local,
        remote: local,
        depth: 9,
        rate: 1,
        lands_late: false,
    };
    let counts = |transfers: &mut Transfers, id, facts: Option<LaneFacts>| {
        match facts {
            Some(facts) => transfers.opened(LaneId(id), facts),
            None => transfers.closed(Nanos::ZERO, LaneId(id), Fence::Executed(0)),
        }
        let Counts { opened, closed, returned, .. } = transfers.counts();
        (opened, closed, returned)
    };
    assert_eq!(counts(&mut transfers, 1, Some(lane(1, 1))), (2, 0, 0), "a second rail");
    assert_eq!(counts(&mut transfers, 0, None), (2, 1, 0));
    assert_eq!(counts(&mut transfers, 2, Some(lane(2, 0))), (3, 1, 0), "another peer");
    assert_eq!(counts(&mut transfers, 3, Some(lane(1, 0))), (4, 1, 1), "it is back");
    assert_eq!(counts(&mut transfers, 4, Some(lane(1, 0))), (5, 1, 1), "one more than before");
    assert_eq!(counts(&mut transfers, 3, None), (5, 2, 1));
    assert_eq!(counts(&mut transfers, 5, Some(lane(1, 0))), (6, 2, 2), "it is back again");
}

#[test]
fn a_count_that_cannot_be_is_no_truth() {
    for count in [0, 4] {
        let mut transfers = transfers(&[0], 9);
        let id = begin(&mut transfers, 3, Some(7));
        post(&mut transfers);
        transfers.sent(LaneId(0), 1);
        transfers.closed(Nanos::ZERO, LaneId(0), Fence::Executed(count));
        let uncertain = Err(TransferError::Uncertain { peer: PEER, pieces: 2 });
        assert_eq!(outputs(&mut transfers), [ended(id, uncertain, 1)], "{count} of 1 to 3");
    }
}

#[test]
fn without_a_count_only_pieces_without_immediates_are_sent_again() {
    let mut transfers = transfers(&[0], 9);
    let (plain, counted) = (begin(&mut transfers, 1, None), begin(&mut transfers, 2, Some(7)));
    post(&mut transfers);
    transfers.closed(Nanos::ZERO, LaneId(0), Fence::NoTruth);
    let uncertain = Err(TransferError::Uncertain { peer: PEER, pieces: 2 });
    assert_eq!(outputs(&mut transfers), [ended(counted, uncertain, 0)]);
    transfers.opened(LaneId(1), facts(9));
    assert_eq!(post(&mut transfers), [(1, 0)]);
    transfers.sent(LaneId(1), 1);
    assert_eq!(outputs(&mut transfers), [ended(plain, Ok(()), 1)]);
}

#[test]
fn what_is_not_fenced_ends_without_a_proof() {
    let mut transfers = transfers(&[0], 1);
    let transfer = begin(&mut transfers, 3, None);
    post(&mut transfers);
    transfers.closed(Nanos::ZERO, LaneId(0), Fence::Unproven);
    let result = Err(TransferError::Unproven { peer: PEER, pieces: 1 });
    assert_eq!(outputs(&mut transfers), [Output::Ended(Ended { transfer, result, quiesced: None })]);
}

#[test]
fn each_way_to_cancel_waits_for_what_it_says() {
    let cancelled = |written| Err(TransferError::Cancelled { written, of: 3 });
    for (how, closes_at) in
        [(Cancel::Unposted, None), (Cancel::Drain(Nanos::new(10)), Some(10)), (Cancel::Now, Some(0))]
    {
        let mut transfers = transfers(&[0], 2);
        let id = begin(&mut transfers, 3, Some(7));
        post(&mut transfers);
        assert!(transfers.cancel(Nanos::ZERO, id, how));
        for now in [0, 9, 10] {
            transfers.tick(Nanos::new(now));
            let closes = closes_at == Some(now);
            let expected = if closes { vec![Output::Close(LaneId(0))] } else { Vec::new() };
            assert_eq!(outputs(&mut transfers), expected, "{how:?} at {now}");
        }
        let written = if closes_at.is_some() {
            transfers.closed(Nanos::new(11), LaneId(0), Fence::Executed(1));
            1
        } else {
            transfers.sent(LaneId(0), 2);
            2
        };
        assert_eq!(outputs(&mut transfers), [ended(id, cancelled(written), written)], "{how:?}");
    }
}

#[test]
fn a_peer_without_a_lane_is_lost_after_the_give_up_time_and_found_again() {
    let mut transfers = transfers(&[0], 9);
    transfers.failed(Nanos::new(5), LaneId(0));
    assert_eq!(outputs(&mut transfers), [Output::Close(LaneId(0))]);
    transfers.closed(Nanos::new(6), LaneId(0), Fence::Executed(0));
    let id = begin(&mut transfers, 2, None);
    assert_eq!(transfers.next_deadline(), Nanos::new(105));
    transfers.tick(Nanos::new(104));
    assert_eq!(outputs(&mut transfers), []);
    transfers.tick(Nanos::new(105));
    let lost = Err(TransferError::PeerLost { peer: PEER, waited_ns: 100, written: 0, of: 2 });
    assert_eq!(outputs(&mut transfers), [ended(id, lost, 0), Output::Lost(PEER)]);
    assert_eq!(transfers.next_deadline(), Nanos::MAX);
    transfers.opened(LaneId(1), facts(9));
    begin(&mut transfers, 1, None);
    assert_eq!(post(&mut transfers), [(1, 0)]);
}

/// The peer counts a read as executed once it has sent the answer, which may have been lost.
#[test]
fn a_read_is_done_when_its_answer_came_and_not_when_it_was_counted() {
    for fence in [Fence::Executed(3), Fence::NoTruth] {
        let mut transfers = transfers(&[0, 1], 3);
        let id = begin_as(&mut transfers, 3, Op::Read);
        transfers.failed(Nanos::ZERO, LaneId(1));
        transfers.closed(Nanos::ZERO, LaneId(1), Fence::Executed(0));
        assert_eq!(post(&mut transfers), [(0, 0), (0, 1), (0, 2)]);
        transfers.sent(LaneId(0), 1);
        transfers.failed(Nanos::ZERO, LaneId(0));
        transfers.closed(Nanos::ZERO, LaneId(0), fence.clone());
        transfers.opened(LaneId(2), facts(3));
        assert_eq!(post(&mut transfers), [(2, 1), (2, 2)], "{fence:?}");
        transfers.sent(LaneId(2), 2);
        assert_eq!(outputs(&mut transfers).pop(), Some(ended(id, Ok(()), 3)), "{fence:?}");
    }
    let mut transfers = transfers(&[0], 1);
    begin_as(&mut transfers, 1, Op::Read);
    post(&mut transfers);
    transfers.closed(Nanos::ZERO, LaneId(0), Fence::Unproven);
    let Some(Output::Ended(Ended { result, quiesced: None, .. })) = outputs(&mut transfers).pop() else {
        panic!("an end without a proof: the answer may still come");
    };
    assert_eq!(result, Err(TransferError::Unproven { peer: PEER, pieces: 1 }));
}

#[test]
fn a_lane_whose_oldest_piece_stays_is_fenced_though_younger_ones_are_done() {
    let mut transfers = transfers(&[0], 4).suspecting(Nanos::new(40));
    let id = begin(&mut transfers, 4, Some(7));
    assert_eq!(post(&mut transfers).len(), 4);
    let outputs_at = |transfers: &mut Transfers, now| {
        transfers.tick(Nanos::new(now));
        outputs(transfers)
    };
    assert_eq!(transfers.next_deadline(), Nanos::new(10));
    assert_eq!(outputs_at(&mut transfers, 10), []);
    for (number, now) in [(1, 20), (3, 30)] {
        transfers.executed(LaneId(0), number);
        assert_eq!(outputs_at(&mut transfers, now), [], "something is done");
    }
    // Its bytes are given 20 ns each.
    let fenced: Vec<_> = (4..18).filter(|ten| !outputs_at(&mut transfers, 10 * ten).is_empty()).collect();
    assert_eq!(fenced, [9], "once");
    transfers.closed(Nanos::new(200), LaneId(0), Fence::NoTruth);
    assert!(matches!(&outputs(&mut transfers)[..], [Output::Ended(ended)] if ended.transfer == id));
    transfers.tick(Nanos::new(210));
    assert!(transfers.next_deadline() > Nanos::new(250), "nothing is under way");
}

#[test]
fn nothing_waits_for_a_peer_that_has_left() {
    let mut transfers = transfers(&[0], 2);
    let parts = [1, 2, 3].map(|part| Arc::from([part; 20])).to_vec();
    let id = transfers.begin_message(Nanos::ZERO, PEER, parts);
    assert_eq!(post(&mut transfers).len(), 2);
    transfers.leave(PEER);
    assert_eq!(outputs(&mut transfers), [], "two parts are under way");
    transfers.closed(Nanos::ZERO, LaneId(0), Fence::NoTruth);
    let left = TransferError::PeerLeft { peer: PEER, written: 0, of: 3 };
    assert_eq!(outputs(&mut transfers), [ended(id, Err(left), 0)]);
    assert_eq!(transfers.counts().closed, 0, "no lane has failed");
    assert!(!transfers.routes.get(PEER).expect("it was there").has_any(), "a part is kept");
}

/// Two lanes that land late, of this depth; a transfer of 4 pieces, of which lane 0 has executed its two.
fn half_written(depth: u32) -> (Transfers, TransferId) {
    let mut transfers = Transfers::new(GIVE_UP);
    let late = LaneFacts { lands_late: true, ..facts(depth) };
    [0, 1].into_iter().for_each(|lane| transfers.opened(LaneId(lane), late));
    let id = begin(&mut transfers, 4, Some(7));
    assert_eq!(post(&mut transfers), [(0, 0), (0, 1), (1, 2), (1, 3)]);
    transfers.sent(LaneId(0), 2);
    (transfers, id)
}

/// What is posted: lane and operation.
fn ops(transfers: &mut Transfers) -> Vec<(u64, Op)> {
    let mut all = Vec::new();
    transfers.post(|lane, batch| all.extend(batch.requests().map(|piece| (lane.0, piece.op))));
    all
}

fn cancelled(written: u64) -> Result<(), TransferError> {
    Err(TransferError::Cancelled { written, of: 4 })
}

/// Cause: a cancelled transfer ended once the lanes that held pieces were fenced. What another lane had executed was in
/// the receiver's NIC, and landed later.
#[test]
fn what_ends_early_waits_for_a_read_behind_what_each_lane_has_written() {
    let (mut transfers, id) = half_written(2);
    assert!(transfers.cancel(Nanos::ZERO, id, Cancel::Now));
    assert_eq!(outputs(&mut transfers), [Output::Close(LaneId(1))], "it holds pieces");
    assert_eq!(ops(&mut transfers), []);
    transfers.closed(Nanos::ZERO, LaneId(1), Fence::Executed(1));
    assert_eq!(outputs(&mut transfers), []);
    assert_eq!(ops(&mut transfers), [(0, Op::Flush)]);
    assert!(transfers.cancel(Nanos::ZERO, id, Cancel::Now));
    assert_eq!(outputs(&mut transfers), [], "a lane that is only read from is not fenced");
    transfers.sent(LaneId(0), 1);
    assert_eq!(outputs(&mut transfers), [ended(id, cancelled(3), 3)]);
}

#[test]
fn a_fence_of_the_lane_is_an_answer_as_well() {
    for fence in [Fence::Executed(2), Fence::Executed(3), Fence::NoTruth, Fence::Unproven] {
        let (mut transfers, id) = half_written(2);
        transfers.cancel(Nanos::ZERO, id, Cancel::Unposted);
        transfers.sent(LaneId(1), 1);
        transfers.failed(Nanos::ZERO, LaneId(0));
        transfers.closed(Nanos::ZERO, LaneId(1), Fence::Executed(1));
        assert_eq!(outputs(&mut transfers), [Output::Close(LaneId(0))], "it may have bytes of it");
        transfers.closed(Nanos::ZERO, LaneId(0), fence.clone());
        let end = match fence {
            Fence::Unproven => Output::Ended(Ended {
                transfer: id,
                result: Err(TransferError::Unproven { peer: PEER, pieces: 3 }),
                quiesced: None,
            }),
            _ => ended(id, cancelled(3), 3),
        };
        assert_eq!((outputs(&mut transfers), ops(&mut transfers)), (vec![end], vec![]));
    }
}

#[test]
fn a_lane_that_is_lost_with_its_read_is_not_asked_on_another() {
    for number in [None, Some(2)] {
        let (mut transfers, id) = half_written(2);
        transfers.cancel(Nanos::ZERO, id, Cancel::Now);
        transfers.closed(Nanos::ZERO, LaneId(1), Fence::Executed(0));
        assert_eq!(ops(&mut transfers), [(0, Op::Flush)]);
        match number {
            Some(number) => transfers.denied(Nanos::ZERO, LaneId(0), number),
            None => transfers.failed(Nanos::ZERO, LaneId(0)),
        }
        transfers.opened(LaneId(2), facts(2));
        outputs(&mut transfers);
        transfers.closed(Nanos::ZERO, LaneId(0), Fence::NoTruth);
        assert_eq!(outputs(&mut transfers), [ended(id, cancelled(2), 2)]);
        assert_eq!(ops(&mut transfers), [], "it is of no use there");
    }
}

#[test]
fn a_read_that_waits_for_room_on_its_lane_holds_up_no_other() {
    let (mut transfers, id) = half_written(2);
    let other = begin(&mut transfers, 2, Some(8));
    assert_eq!(post(&mut transfers), [(0, 0), (0, 1)]);
    transfers.sent(LaneId(1), 1);
    transfers.cancel(Nanos::ZERO, id, Cancel::Now);
    transfers.closed(Nanos::ZERO, LaneId(1), Fence::Executed(1));
    transfers.opened(LaneId(2), facts(2));
    let next = begin(&mut transfers, 1, Some(9));
    assert_eq!(ops(&mut transfers), [(2, Op::Write(Some(9)))], "lane 0 has no room");
    transfers.sent(LaneId(0), 1);
    assert_eq!(ops(&mut transfers), [(0, Op::Flush)]);
    outputs(&mut transfers);
    transfers.sent(LaneId(0), 2);
    assert_eq!(outputs(&mut transfers), [ended(id, cancelled(3), 3), ended(other, Ok(()), 2)]);
    transfers.sent(LaneId(2), 1);
    assert_eq!(outputs(&mut transfers), [ended(next, Ok(()), 1)]);
}

#[test]
fn what_may_land_through_a_lane_without_a_proof_has_none_later() {
    let (mut transfers, id) = half_written(2);
    transfers.failed(Nanos::ZERO, LaneId(0));
    transfers.closed(Nanos::ZERO, LaneId(0), Fence::Unproven);
    transfers.cancel(Nanos::ZERO, id, Cancel::Now);
    outputs(&mut transfers);
    transfers.closed(Nanos::ZERO, LaneId(1), Fence::Executed(0));
    let result = Err(TransferError::Unproven { peer: PEER, pieces: 2 });
    assert_eq!(outputs(&mut transfers), [Output::Ended(Ended { transfer: id, result, quiesced: None })]);
}

/// Cause: a message that follows a write over another lane was there before the write's bytes.
#[test]
fn a_write_without_an_immediate_ends_once_its_bytes_are_there() {
    for (imm, reads) in [(None, true), (Some(7), false)] {
        let mut transfers = Transfers::new(GIVE_UP);
        let late = LaneFacts { lands_late: true, ..facts(4) };
        [0, 1].into_iter().for_each(|lane| transfers.opened(LaneId(lane), late));
        let ids = [0, 1].map(|_| begin(&mut transfers, 1, imm));
        assert_eq!(ops(&mut transfers).len(), 2);
        [0, 1].into_iter().for_each(|lane| transfers.sent(LaneId(lane), 1));
        if reads {
            assert_eq!(outputs(&mut transfers), []);
            assert_eq!(ops(&mut transfers), [(0, Op::Flush), (1, Op::Flush)]);
            [0, 1].into_iter().for_each(|lane| transfers.sent(LaneId(lane), 1));
        }
        assert_eq!(outputs(&mut transfers), ids.map(|id| ended(id, Ok(()), 1)));
    }
}

/// Cause: a READ whose key was taken back was refused when writes behind it had been executed, and their count was no
/// truth: they ended uncertain.
#[test]
fn what_is_behind_a_read_that_is_refused_is_what_the_receiver_says() {
    for (op, count, again) in [(Op::Read, 3, vec![]), (Op::Read, 1, vec![(1, 0), (1, 1)])] {
        let mut transfers = transfers(&[0], 9);
        let (read, write) = (begin_as(&mut transfers, 1, op), begin(&mut transfers, 2, Some(7)));
        post(&mut transfers);
        transfers.denied(Nanos::ZERO, LaneId(0), 0);
        transfers.closed(Nanos::ZERO, LaneId(0), Fence::Executed(count));
        transfers.opened(LaneId(1), facts(9));
        assert_eq!(post(&mut transfers), again);
        transfers.sent(LaneId(1), again.len() as u64);
        let denied = TransferError::Denied { peer: PEER, written: 0, of: 1 };
        let mut ends = outputs(&mut transfers);
        ends.retain(|output| matches!(output, Output::Ended(_)));
        assert_eq!(ends, [ended(read, Err(denied), 0), ended(write, Ok(()), 2)]);
    }
}

#[test]
fn what_is_flushed_is_read_from_behind_all_that_was_written_by_any_lane() {
    let flush = |transfers: &mut Transfers| {
        let spans = Spans::One(Span { local: 0, remote: 0, len: 1 });
        let work =
            Work { op: Op::Write(None), local_keys: Arc::default(), remote_keys: Arc::default(), spans };
        transfers.flush(PEER, work)
    };
    let (mut transfers, counted) = half_written(4);
    transfers.sent(LaneId(1), 2);
    assert_eq!(outputs(&mut transfers), [ended(counted, Ok(()), 4)]);
    let id = flush(&mut transfers);
    assert_eq!(ops(&mut transfers), [(0, Op::Flush), (1, Op::Flush)]);
    transfers.sent(LaneId(0), 1);
    assert_eq!(outputs(&mut transfers), [], "the other one may have bytes");
    transfers.sent(LaneId(1), 1);
    assert_eq!(outputs(&mut transfers), [ended(id, Ok(()), 0)]);
    let unproven = Err(TransferError::Unproven { peer: PEER, pieces: 1 });
    let (during, lane) = (flush(&mut transfers), LaneId(0));
    transfers.failed(Nanos::ZERO, lane);
    transfers.closed(Nanos::ZERO, lane, Fence::Unproven);
    ops(&mut transfers);
    transfers.sent(LaneId(1), 1);
    let end = |transfer| Output::Ended(Ended { transfer, result: unproven.clone(), quiesced: None });
    assert_eq!(outputs(&mut transfers), [Output::Close(lane), end(during)]);
    let after = flush(&mut transfers);
    ops(&mut transfers);
    transfers.sent(LaneId(1), 1);
    assert_eq!(outputs(&mut transfers), [end(after)], "what that lane had may land at any time");
}
