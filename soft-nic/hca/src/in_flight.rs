//! WQEs that were fetched and are not complete, and how far each got on the wire.
//!
//! One row of work and three PSNs: what is sent next, what the next WQE gets, what is not acknowledged yet.

use crate::fetch::{Task, Work, WorkError};
use shunt_soft_wire::psn;
use std::collections::VecDeque;

/// What an acknowledgement changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advance {
    /// More is acknowledged than before.
    pub(crate) progress: bool,
    /// An answer before it never came.
    pub(crate) answer_lost: bool,
}

/// Work in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    work: VecDeque<Work>,
    /// Entry of `work` that is sent next.
    cursor: usize,
    /// PSN sent next; one in the past after a rewind.
    send_psn: u32,
    /// PSN of the next WQE fetched.
    next_psn: u32,
    /// Oldest PSN not acknowledged.
    oldest: u32,
    /// READs and atomics in `work`.
    answers_due: u32,
}

impl InFlight {
    /// Nothing; the next WQE begins at PSN `first`.
    pub(crate) fn starting_at(first: u32) -> Self {
        Self { send_psn: first, next_psn: first, oldest: first, ..Self::default() }
    }

    /// PSN sent next.
    #[inline(always)]
    pub(crate) fn send_psn(&self) -> u32 {
        self.send_psn
    }

    /// PSN of the next WQE fetched.
    pub(crate) fn next_psn(&self) -> u32 {
        self.next_psn
    }

    /// Oldest PSN that is not acknowledged.
    #[inline(always)]
    pub(crate) fn oldest(&self) -> u32 {
        self.oldest
    }

    /// READs and atomics that are not complete.
    #[inline]
    pub(crate) fn answers_due(&self) -> u32 {
        self.answers_due
    }

    /// Packets that are not acknowledged.
    #[inline(always)]
    pub(crate) fn under_way(&self) -> i32 {
        psn::distance(self.send_psn, self.oldest)
    }

    /// True if packets are unacknowledged.
    #[inline(always)]
    pub(crate) fn any_under_way(&self) -> bool {
        self.send_psn != self.oldest
    }

    /// True if nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// True if everything fetched was sent.
    #[inline(always)]
    pub(crate) fn all_sent(&self) -> bool {
        self.cursor == self.work.len()
    }

    /// A WQE was fetched: gives it its PSNs.
    #[inline]
    pub(crate) fn push(&mut self, mut work: Work) {
        work.first_psn = self.next_psn;
        self.next_psn = work.end_psn();
        self.answers_due += work.wants_answer() as u32;
        self.work.push_back(work);
    }

    /// The WQE whose packet is sent next; some were fetched that are not sent.
    #[inline(always)]
    pub(crate) fn to_send(&self) -> &Work {
        &self.work[self.cursor]
    }

    /// Its data cannot be read: the error it completes with once all before it are done.
    pub(crate) fn fail_to_send(&mut self, error: WorkError) {
        self.work[self.cursor].error = Some(error);
    }

    /// It has no packets: the next one's turn.
    pub(crate) fn skip(&mut self) {
        self.cursor += 1;
    }

    /// A packet of it was sent, with which it is sent as a `whole` or not; `next` is sent next.
    #[inline]
    pub(crate) fn sent(&mut self, next: u32, whole: bool) {
        self.send_psn = next;
        self.cursor += whole as usize;
    }

    /// Nobody acknowledges what was sent: all of it counts as arrived.
    pub(crate) fn forget_sent(&mut self) {
        self.oldest = self.send_psn;
    }

    /// Everything up to `upto` was received. READs and atomics need their own answers, so an acknowledgement
    /// beyond one that has none means that the answer was lost.
    #[inline]
    pub(crate) fn advance(&mut self, upto: u32) -> Advance {
        let (mut progress, mut answer_lost) = (false, false);
        for work in &self.work {
            if work.packets == 0 {
                continue;
            }
            if psn::distance(upto, work.first_psn) < 0 {
                break;
            }
            if work.wants_answer() {
                let needed = if matches!(work.task, Task::Read { .. }) { work.packets } else { 1 };
                if work.answered < needed {
                    answer_lost = psn::distance(upto, self.oldest) >= 0;
                    break;
                }
            }
            let end = work.end_psn();
            let reached = psn::add(upto, 1);
            let reached = if psn::distance(reached, end) > 0 { end } else { reached };
            if psn::distance(reached, self.oldest) > 0 {
                self.oldest = reached;
                progress = true;
            }
        }
        self.catch_up();
        Advance { progress, answer_lost }
    }

    /// What is acknowledged is not sent again.
    #[inline]
    fn catch_up(&mut self) {
        if psn::distance(self.oldest, self.send_psn) > 0 {
            self.send_psn = self.oldest;
        }
    }

    /// The entry that PSN `at` belongs to.
    pub(crate) fn entry_of(&self, at: u32) -> Option<usize> {
        let holds = |work: &Work| {
            work.packets > 0 && {
                let index = psn::distance(at, work.first_psn);
                index >= 0 && (index as u32) < work.packets
            }
        };
        self.work.iter().position(holds)
    }

    /// An entry, by its place.
    pub(crate) fn entry(&self, entry: usize) -> &Work {
        &self.work[entry]
    }

    /// A packet that answers an entry came, which acknowledges PSN `at`.
    pub(crate) fn answered(&mut self, entry: usize, at: u32) {
        self.work[entry].answered += 1;
        self.oldest = psn::add(at, 1);
        self.catch_up();
    }

    /// Goes back to the oldest unacknowledged packet. Returns how many packets are sent again.
    pub(crate) fn rewind(&mut self) -> u64 {
        let again = self.under_way().max(0);
        self.send_psn = self.oldest;
        let oldest = self.oldest;
        let done = |work: &&Work| work.packets == 0 || psn::distance(work.end_psn(), oldest) <= 0;
        self.cursor = self.work.iter().take_while(done).count();
        again as u64
    }

    /// The oldest entry.
    #[inline]
    pub(crate) fn front(&self) -> Option<&Work> {
        self.work.front()
    }

    /// True if the oldest entry is done: acknowledged, or passed by if it has no packets.
    #[inline]
    pub(crate) fn front_is_done(&self) -> bool {
        self.work.front().is_some_and(|work| match work.packets {
            0 => self.cursor > 0,
            _ => psn::distance(self.oldest, work.end_psn()) >= 0,
        })
    }

    /// Takes the oldest entry, which is done.
    #[inline]
    pub(crate) fn pop_done(&mut self) -> Option<Work> {
        let work = self.work.pop_front()?;
        self.cursor = self.cursor.saturating_sub(1);
        self.answers_due -= work.wants_answer() as u32;
        Some(work)
    }

    /// Takes the oldest entry, which fails: nothing is sent after it.
    pub(crate) fn pop_failed(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// All is flushed.
    pub(crate) fn end(&mut self) {
        self.cursor = 0;
        self.answers_due = 0;
    }
}
