//! The switch-back: drain the backup, flush its NIC at the receiver, open on the primary. Rule 19.
//!
//! Nothing is replayed. If the backup fails or takes too long, it *is* a switch from its fence on.

use super::{Next, Stamp, get, set};
use crate::access::Channel;
use crate::complete::Look;
use crate::patience::in_units;
use crate::platform::Platform;
use crate::wqe_write::{self, Place};
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CauseKind, Step, Word};

/// Bytes of a flush READ: one word of the peer's heap.
const FLUSH_BYTES: u32 = 8;

impl<P: Platform> Channel<'_, P> {
    /// Closed, but `done` is not frozen: groups that wait for room still find it, and whoever publishes now
    /// does not ring, so the drainer does.
    pub(super) fn drain(self, now: u64) -> Next {
        let close = get!(self, close: u64);
        let closed = self.load_ticket();
        if !closed.flag() {
            return Next::Wait; // opened by another since
        }
        let ready = self.ready();
        let view = self.view(get!(self, from: u32));
        if !self.try_post_lock() {
            if self.step_overdue(now, self.drain_limit_ns()) {
                return self.drain_failed(CauseKind::DrainFailed, 0, now);
            }
            return Next::Wait;
        }
        if self.still_closed(closed) {
            self.ring_locked(ready.index(), &view);
        }
        self.release_post_lock();
        let at = match self.look() {
            Look::Failed { at: _, syndrome } => {
                return self.drain_failed(CauseKind::Completion, syndrome, now);
            }
            Look::At(at) => at,
        };
        if Mutant::NoDrain.on() && ready.index() >= close {
            return self.left_undrained(close, now);
        }
        if at.index() < close || ready.index() < close {
            // The deadline is for standing still: a deep window may take long and is no failure.
            if at.index() > get!(self, done_at_close: u64) {
                self.raise_done_to(at.index());
                set!(self, step_since_ns: u64 = now);
            }
            if self.drain_stands_still(at, now) {
                return self.drain_failed(CauseKind::DrainFailed, 0, now);
            }
            return Next::Wait;
        }
        // Frozen before the READ is posted: its completion is no ticket's.
        if !self.freeze() {
            return Next::Wait;
        }
        if Mutant::NoFlushAfterDrain.on() {
            return self.left_undrained(close, now);
        }
        set!(self, journal_end: u64 = close); // empty: D is `close` as well
        set!(self, posted_reads: u64 = 1);
        let physical = close.wrapping_sub(view.base);
        let device = self.device;
        let place = Place { index: physical, qpn_shifted: view.qpn_shifted };
        let rkey = device.rkey(self.peer(), view.remote_rail, 0);
        let lkey = device.scratch_lkey(view.local_rail);
        let from = device.peer_heap(self.peer());
        let read = wqe_write::read(place, from, rkey, self.scratch(0) as u64, lkey, FLUSH_BYTES);
        self.write_wqe(&view, physical, &read);
        if !self.ring_physical(&view, closed, physical + 1) {
            return Next::Wait; // and comes here again, or finds the drain late
        }
        self.stamp(Stamp::Fenced, now);
        self.enter(Step::DrainFlush, now)
    }

    /// What the mutants of a drain do: the backup is left as it is.
    fn left_undrained(self, close: u64, now: u64) -> Next {
        let from = get!(self, from: u32);
        let next = close.wrapping_sub(self.view(from).base);
        self.freeze();
        set!(self, done_at_close: u64 = close);
        set!(self, journal_end: u64 = close);
        set!(self, executed: u64 = close.max(get!(self, executed: u64)));
        // SAFETY: as in `drain_flush`.
        unsafe { self.platform().store(addr_of_mut!((*self.path(from)).next_index), next) };
        self.enter(Step::Choose, now)
    }

    /// How long a drain may stand still: never less than a path may before it is suspected.
    fn drain_limit_ns(self) -> u64 {
        self.device.policy().drain_ns.max(self.limits().bound_ns)
    }

    /// True if nothing was finished for that long, and by more than the bytes of the oldest message excuse.
    fn drain_stands_still(self, at: Word, now: u64) -> bool {
        let since_ns = now.saturating_sub(get!(self, step_since_ns: u64));
        let limit_ns = self.drain_limit_ns();
        if since_ns <= limit_ns {
            return false;
        }
        let beyond = if Mutant::DrainKnowsNoBytes.on() { u32::MAX } else { in_units(since_ns - limit_ns) };
        !self.is_moving_slow(at.slot(), at, beyond)
    }

    /// Waits for the flush READ: it does not pass earlier posted writes of the receiver's NIC (F1).
    pub(super) fn drain_flush(self, now: u64) -> Next {
        let from = get!(self, from: u32);
        let (close, view) = (get!(self, close: u64), self.completions(from));
        let physical = close.wrapping_sub(self.view(from).base);
        // All of them are done.
        let lag = self.wide_posted(from) as u32;
        match self.tail_of(&view, physical as u32, lag) {
            Some(tail) if tail.opcode == opcode::REQ => {}
            Some(_) => {
                self.platform().cqe_before_data();
                let syndrome = self.syndrome(&view, physical as u32, lag);
                return self.flush_failed(CauseKind::Completion, syndrome, now);
            }
            None if self.step_overdue(now, self.drain_limit_ns()) => {
                return self.flush_failed(CauseKind::DrainFailed, 0, now);
            }
            None => return Next::Wait,
        }
        self.platform().cqe_before_data();
        // The path that is left goes on counting from here when it is entered again (H6).
        // SAFETY: a row this switch is leaving; nobody else writes the field.
        unsafe { self.platform().store(addr_of_mut!((*self.path(from)).next_index), physical + 1) };
        set!(self, posted_reads: u64 = 0);
        self.raise_executed_to(close);
        self.stamp(Stamp::Cut, now);
        self.enter(Step::Choose, now)
    }

    /// The backup failed while it was drained: from here on it is a switch because of a fault.
    fn drain_failed(self, cause: CauseKind, syndrome: u32, now: u64) -> Next {
        if !self.freeze() {
            return Next::Wait;
        }
        // What waits for a fence is bounded from the close: a drain of any length is no part of that.
        self.stamp(Stamp::Closed, now);
        self.flush_failed(cause, syndrome, now)
    }

    fn flush_failed(self, cause: CauseKind, syndrome: u32, now: u64) -> Next {
        set!(self, back: u32 = 0);
        set!(self, cause: u32 = cause as u32);
        set!(self, syndrome: u32 = syndrome);
        self.note_first_cause(get!(self, from: u32), cause, syndrome);
        self.enter(Step::Settle, now)
    }
}
