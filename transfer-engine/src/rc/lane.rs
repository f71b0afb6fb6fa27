//! One incarnation of a path, as transfers use it.

use super::queue::{DEPTH, Queue, Request};
use super::rails::Patience;
use crate::domain::{Batch, Fence};
use shunt_device::platform::host::World;
use shunt_layout::state::AnswerStatus;
use shunt_mlx5::nic::qp::MASK_24;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::slots::RailPair;
use shunt_recovery::verdict::Verdict;
use std::collections::VecDeque;
use std::sync::Arc;

/// Probes whose completions were not read yet take room beside pieces.
const PROBES: u64 = 16;
/// Most pieces under way on a lane.
pub(super) const LANE_DEPTH: u32 = (DEPTH - PROBES) as u32;

/// The lane.
pub(super) struct Lane {
    pub key: usize,
    pub rails: RailPair,
    queue: Arc<Queue>,
    /// Index of its first piece, in the queue.
    first: u64,
    /// Pieces that are known to be executed.
    executed: u64,
    /// Of these, those that took a receive of the peer.
    received: u64,
    /// Bytes of each piece under way, and whether it takes a receive of the peer.
    under_way: VecDeque<(u64, bool)>,
    bytes: u64,
    /// A request failed: none behind it was executed.
    broken: bool,
    /// It failed because a NIC refused what it names.
    denied: bool,
    /// When the last piece completed, or the first one was posted on an idle lane.
    progress: Nanos,
    /// [`Event::Failed`](crate::domain::Event::Failed) was said.
    pub told: bool,
    /// The request for its fence, while it is out.
    pub asked: Option<u64>,
}

impl Lane {
    /// On a queue pair that nobody posts on any more.
    pub fn new(key: usize, rails: RailPair, queue: Arc<Queue>, now: Nanos) -> Self {
        let first = queue.next();
        Self {
            key,
            rails,
            queue,
            first,
            executed: 0,
            received: 0,
            under_way: VecDeque::new(),
            bytes: 0,
            broken: false,
            denied: false,
            progress: now,
            told: false,
            asked: None,
        }
    }

    /// Posts pieces. They are lost to the fence if the queue pair works no more.
    pub fn post(&mut self, world: &dyn World, now: Nanos, batch: &Batch<'_>) {
        let (key, rails) =
            (|keys: &[u32], rail: u32| keys.get(rail as usize).copied().unwrap_or(0), self.rails);
        let requests = batch.requests().map(|request| Request {
            op: request.op,
            part: request.part,
            local: (request.local, request.len, key(request.local_keys, rails.local)),
            remote: (request.remote, key(request.remote_keys, rails.remote)),
        });
        if self.under_way.is_empty() {
            self.progress = now;
        }
        if self.queue.post(world, requests).is_err() {
            // What was not posted is lost to the fence.
            self.broken = true;
        }
        for request in batch.requests() {
            let len = u64::from(request.len);
            self.under_way.push_back((len, request.op.takes_receive()));
            self.bytes += len;
        }
    }

    /// Pieces executed since the last look.
    pub fn poll(&mut self, world: &dyn World, now: Nanos) -> u64 {
        if self.under_way.is_empty() {
            // Nothing can have completed.
            return 0;
        }
        let before = self.executed;
        while let Some((at, result)) = self.queue.poll_sent(world) {
            if let Err(syndrome) = result {
                self.denied |= !self.broken && at >= self.first && syndrome.is_program_error();
                self.broken = true;
            }
            if at >= self.first && !self.broken {
                self.executed += 1;
                let (bytes, receives) = self.under_way.pop_front().unwrap_or((0, false));
                self.bytes -= bytes;
                self.received += u64::from(receives);
            }
        }
        if self.executed > before {
            self.progress = now;
        }
        self.executed - before
    }

    /// True once a request has failed.
    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// True if that was because a NIC refused what it names.
    pub const fn is_denied(&self) -> bool {
        self.denied
    }

    /// Pieces that are known to be executed: the number of the one that is refused.
    pub const fn executed(&self) -> u64 {
        self.executed
    }

    /// Bytes under way.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The rail of this end.
    pub const fn rail(&self) -> u32 {
        self.rails.local
    }

    /// True if pieces are under way and none has completed for longer than all bytes that are under way on its rail
    /// take: its NIC may send those of other lanes first.
    pub fn is_silent(&self, now: Nanos, patience: &Patience, on_rail: u64) -> bool {
        !self.under_way.is_empty()
            && now > self.progress + patience.suspect + takes(on_rail, patience.slowest)
    }

    /// True if the count of what the peer has received would tell more than a fence without a count.
    pub fn wants_count(&self, verdict: Verdict) -> bool {
        verdict.status == AnswerStatus::FencedNoTruth && self.under_way.iter().any(|(_, receives)| *receives)
    }

    /// What the peer's count of receives says of its pieces.
    pub fn fence_by_count(&self, came: u64) -> Fence {
        let more = came.checked_sub(self.received);
        let covered =
            more.and_then(|more| covered(more, self.under_way.iter().map(|(_, receives)| *receives)));
        covered.map_or(Fence::NoTruth, |pieces| Fence::Executed(self.executed + pieces))
    }

    /// What an answer about its fence says of its pieces.
    pub fn fence(&self, verdict: Verdict) -> Fence {
        match verdict.status {
            AnswerStatus::Truth => {
                // The count has 24 bits and began with the queue pair; the pieces known to be executed are a lower
                // bound, and no lane has 2^24 pieces under way.
                let known = self.first + self.executed;
                let more = verdict.executed.wrapping_sub(known as u32) & MASK_24;
                Fence::Executed(self.executed + u64::from(more))
            }
            AnswerStatus::FencedNoTruth => Fence::NoTruth,
            _ => Fence::Unproven,
        }
    }
}

/// How long so many bytes take at so many a second.
fn takes(bytes: u64, rate: u64) -> Nanos {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Nanos::new(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// How many pieces, which were executed in order, so many receives cover: the last one that took a receive was
/// executed, and so was all before it. What lies between that and the next one changes nothing when it is done twice.
/// None: fewer pieces than that take a receive.
fn covered(received: u64, pieces: impl Iterator<Item = bool>) -> Option<u64> {
    let mut takers = (1..).zip(pieces).filter(|(_, receives)| *receives).map(|(number, _)| number);
    match received.checked_sub(1) {
        None => Some(0),
        Some(before) => takers.nth(before as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_that_were_taken_say_what_was_executed() {
        let pieces = [false, true, true, false, true, false];
        let covered = |received| covered(received, pieces.into_iter());
        assert_eq!([0, 1, 2, 3, 4].map(covered), [Some(0), Some(2), Some(3), Some(5), None]);
    }

    #[test]
    fn long_pieces_are_given_the_time_that_they_take() {
        assert_eq!((takes(50_000_000, 50_000_000), takes(0, 0)), (Nanos::secs(1), Nanos::ZERO));
        assert_eq!(takes(u64::MAX, 0), Nanos::MAX);
    }
}
