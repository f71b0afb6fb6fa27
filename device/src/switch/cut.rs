//! What is known of the journal once its path is fenced: D from completions, X from the receiver's count. Rules 12 and
//! 13.

use super::old_ring::OldRing;
use super::state::State;
use super::words::words;
use crate::completion_queue::CompletionQueue;
use crate::cut::{self, Window};
use crate::doorbell::Doorbell;
use crate::journal;
use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::platform::Platform;
use crate::send_queue::SendQueue;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::FencePolicy;

part! {
    /// Reads completions and counts of the path that is left.
    pub(super) Cut { state: State, old_ring: OldRing, multi_block: MultiBlock, doorbell: Doorbell }
}

impl<P: Platform> Cut<'_, P> {
    /// Raises D over what was completed since the close: a completion says that an answer arrived, which no count at
    /// the receiver does. True if the operation at D has an error completion.
    #[inline(never)]
    pub(super) fn raise_done(self) -> bool {
        let words = words(self.ptr);
        let from = words.from().load();
        let (old, cq) = (self.old_ring().queue(), CompletionQueue::of(self.ptr, from));
        let end = words.journal_end().load();
        let mut done = words.done_at_close().load();
        let wide = self.multi_block().posted(from);
        if wide != 0 && done < end && OldRing::is_second(&old, done) {
            done += 1; // a caller had asked after a ticket in the middle of an operation
        }
        let mut lag = self.old_ring().lag_at(done) as u32;
        let mut failed = false;
        while done < end {
            match cq.tail_behind(done.wrapping_sub(old.base) as u32, lag) {
                Some(tail) if tail.opcode == opcode::REQ => {}
                Some(_) => {
                    failed = true;
                    break;
                }
                None => break,
            }
            let blocks = if wide == 0 { 1 } else { OldRing::entry(&old, done).blocks };
            done += blocks;
            lag += (blocks > 1) as u32;
        }
        if done == end && words.posted_reads().load() > 0 {
            // The flush READ of a drain stands behind the journal; its error proves as much as any.
            let tail = cq.tail_behind(done.wrapping_sub(old.base) as u32, lag);
            failed = tail.is_some_and(|tail| tail.opcode != opcode::REQ);
        }
        self.ptr.platform().cqe_before_data();
        self.state().raise_done_to(done);
        failed
    }

    /// The receiver's count as a ticket, if it passes its cross-check.
    pub(super) fn truth(self, from: u32, executed24: u32) -> Option<u64> {
        let words = words(self.ptr);
        let queue = SendQueue::of(self.ptr, from);
        let at = words.done_at_close().load();
        let done = at.wrapping_sub(queue.base);
        let rung = self.doorbell().posted().wrapping_sub(queue.base) + words.posted_reads().load();
        // Every WQE that channels post is one message: as many went before `done` as there were blocks, less the
        // second ones.
        let lag = if Mutant::BlocksTakenForMessages.on() { 0 } else { self.old_ring().lag_at(at) };
        let window = Window { done, rung, messages: done.wrapping_sub(lag) };
        let old = self.old_ring().queue();
        // The ring holds what was announced and not completed until the path is recreated, which waits for this switch
        // to leave it.
        let physical = cut::from_truth(window, executed24, |index| journal::shape(&old.block(index).load()));
        let physical = physical.or(if Mutant::RefutedTruthBelieved.on() { Some(done) } else { None })?;
        // A flush READ of a failed drain counts as a message, but is no ticket.
        Some(physical.wrapping_add(queue.base).min(words.journal_end().load()))
    }

    /// Fence by time: the old path's requester is proven in ERR by any error completion of this incarnation, and the
    /// packet lifetime has passed since one was seen. A deadline proves nothing.
    ///
    /// Time counts as far as somebody was there to see it pass, an eighth of the lifetime a look at most: a clock that
    /// jumps does not end a lifetime.
    pub(super) fn is_proven_by_time(self, now: u64) -> bool {
        let policy = self.ptr.state.policy();
        if policy.fence != FencePolicy::Time as u32 {
            return false;
        }
        let words = words(self.ptr);
        let seen = words.erred_seen_ns().load();
        if seen == 0 {
            if self.raise_done() || Mutant::TimeFenceByDeadline.on() {
                words.erred_age_ns().store(0);
                words.erred_seen_ns().store(now.max(1));
            }
            return false;
        }
        let lifetime_ns = policy.packet_lifetime_ns;
        let age_ns = words.erred_age_ns().load() + now.saturating_sub(seen).min(lifetime_ns / 8 + 1);
        words.erred_age_ns().store(age_ns);
        words.erred_seen_ns().store(now.max(seen));
        age_ns >= lifetime_ns || Mutant::TimeFenceAtOnce.on()
    }
}
