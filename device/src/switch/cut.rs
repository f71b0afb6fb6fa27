//! What is known of the journal once its path is fenced: D, X and N, and whether an operation is left that nobody can
//! know about. Rules 12 to 14, H13.

use super::record::count;
use super::{Next, get, set};
use crate::access::Channel;
use crate::cut;
use crate::journal;
use crate::platform::Platform;
use crate::root::root;
use crate::types::{FaultKind, Operation};
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::opcode;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{FencePolicy, NO_SLOT, PathState, Resolution, Step};

impl<P: Platform> Channel<'_, P> {
    /// Raises D over what was completed since the close: a completion says that an answer arrived, which no count at
    /// the receiver does. True if the operation at D has an error completion.
    #[inline(never)]
    pub(super) fn raise_done(self) -> bool {
        let from = get!(self, from: u32);
        let (old, view, end) = (self.journal(), self.completions(from), get!(self, journal_end: u64));
        let mut done = get!(self, done_at_close: u64);
        let wide = self.wide_posted(from);
        if wide != 0 && done < end && self.is_second(&old, done) {
            done += 1; // a caller had asked after a ticket in the middle of an operation
        }
        let mut lag = self.lag_at(done) as u32;
        let mut failed = false;
        while done < end {
            match self.tail_of(&view, done.wrapping_sub(old.base) as u32, lag) {
                Some(tail) if tail.opcode == opcode::REQ => {}
                Some(_) => {
                    failed = true;
                    break;
                }
                None => break,
            }
            let blocks = if wide == 0 { 1 } else { self.journal_entry(&old, done).blocks };
            done += blocks;
            lag += (blocks > 1) as u32;
        }
        if done == end && get!(self, posted_reads: u64) > 0 {
            // The flush READ of a drain stands behind the journal; its error proves as much as any.
            let tail = self.tail_of(&view, done.wrapping_sub(old.base) as u32, lag);
            failed = tail.is_some_and(|tail| tail.opcode != opcode::REQ);
        }
        self.platform().cqe_before_data();
        self.raise_done_to(done);
        failed
    }

    fn is_second(self, old: &crate::access::PathView, ticket: u64) -> bool {
        let physical = ticket.wrapping_sub(old.base);
        // SAFETY: as in `journal_entry`.
        let block = unsafe { self.platform().load_wqe(self.block(old, physical)) };
        !journal::starts_at(&block, physical, old.qpn_shifted)
    }

    /// Wide WQEs before `ticket` on the path that is left: all that were posted, less those in the journal behind it.
    fn lag_at(self, ticket: u64) -> u64 {
        let wide = self.wide_posted(get!(self, from: u32));
        if wide == 0 {
            return 0;
        }
        wide.wrapping_sub(self.seconds_between(&self.journal(), ticket, get!(self, journal_end: u64)))
    }

    /// The receiver's count as a ticket, if it passes its cross-check (H2 b).
    pub(super) fn truth(self, from: u32, executed24: u32) -> Option<u64> {
        let view = self.view(from);
        let at = get!(self, done_at_close: u64);
        let done = at.wrapping_sub(view.base);
        let rung = self.load_posted().wrapping_sub(view.base) + get!(self, posted_reads: u64);
        // Every WQE that channels post is one message: as many went before `done` as there were blocks, less the
        // second ones.
        let lag = if Mutant::BlocksTakenForMessages.on() { 0 } else { self.lag_at(at) };
        let window = cut::Window { done, rung, messages: done.wrapping_sub(lag) };
        let old = self.journal();
        let physical = cut::from_truth(window, executed24, |index| {
            // SAFETY: the ring holds what was announced and not completed until the path is made anew, which waits
            // for this switch to leave it.
            journal::shape(&unsafe { self.platform().load_wqe(self.block(&old, index)) })
        });
        let physical = physical.or(if Mutant::RefutedTruthBelieved.on() { Some(done) } else { None })?;
        // A flush READ of a failed drain counts as a message, but is no ticket.
        Some(physical.wrapping_add(view.base).min(get!(self, journal_end: u64)))
    }

    /// Fence by time: the old path's requester is proven in ERR by any error completion of this incarnation, and the
    /// packet lifetime has passed since one was seen. A deadline proves nothing (F9).
    ///
    /// Time counts as far as somebody was there to see it pass, an eighth of the lifetime a look at most: a clock that
    /// jumps does not end a lifetime.
    pub(super) fn proven_by_time(self, now: u64) -> bool {
        let policy = self.device.policy();
        if policy.fence != FencePolicy::Time as u32 {
            return false;
        }
        let seen = get!(self, erred_seen_ns: u64);
        if seen == 0 {
            if self.raise_done() || Mutant::TimeFenceByDeadline.on() {
                set!(self, erred_age_ns: u64 = 0);
                set!(self, erred_seen_ns: u64 = now.max(1));
            }
            return false;
        }
        let lifetime_ns = policy.packet_lifetime_ns;
        let age_ns = get!(self, erred_age_ns: u64) + now.saturating_sub(seen).min(lifetime_ns / 8 + 1);
        set!(self, erred_age_ns: u64 = age_ns);
        set!(self, erred_seen_ns: u64 = now.max(seen));
        age_ns >= lifetime_ns || Mutant::TimeFenceAtOnce.on()
    }

    /// What the agent would have done: nobody goes back to the path before it is made anew. It was not yet, because
    /// this switch has not left it.
    pub(super) fn mark_fenced(self, slot: u32) {
        // SAFETY: a field of a valid row.
        unsafe { self.platform().store32(addr_of_mut!((*self.path(slot)).state), PathState::Fenced as u32) }
    }

    /// The cut is known as well as it ever will be: goes on to the replay, or stops at the first operation that may
    /// not be repeated and may not be left out.
    #[inline(never)]
    pub(super) fn proceed(self, now: u64) -> Next {
        // A path was found: how long there was none is over (rule 21).
        if !Mutant::DeadSinceKept.on() {
            set!(self, dead_since_ns: u64 = 0);
        }
        let Some(at) = self.first_uncertain() else { return self.enter(Step::Replay, now) };
        let entry = self.journal_entry(&self.journal(), at);
        set!(self, asked: u64 = at);
        set!(self, resolution: u64 = 0);
        // While the owner is asked no path is kept waiting; one is chosen afterwards.
        set!(self, to: u32 = NO_SLOT);
        self.name_uncertain(entry.operation, entry.remote.wrapping_sub(self.device.peer_heap(self.peer())));
        count!(self, uncertain += 1);
        self.enter(Step::Uncertain, now)
    }

    fn name_uncertain(self, operation: Operation, address: u64) {
        // SAFETY: fields of a valid channel, written by the owner of its switch.
        unsafe {
            self.platform().store(addr_of_mut!((*self.words()).uncertain_address), address);
            self.platform().store32(addr_of_mut!((*self.words()).uncertain_op), operation as u32);
        }
    }

    /// The first ticket whose operation was executed with its answer lost, or whose execution nobody can know. What
    /// lies in `[X, N)` may have been executed; puts, kind 1 signals and ledger words may be repeated there, because
    /// nothing that covers them was applied (but for puts where receivers do not wait for that), and gets always.
    fn first_uncertain(self) -> Option<u64> {
        if Mutant::UncertainRepeated.on() {
            return None;
        }
        let old = self.journal();
        let (executed, asked) = (get!(self, executed: u64), get!(self, asked: u64));
        let end = get!(self, unexecuted: u64).min(get!(self, journal_end: u64));
        let mut ticket = get!(self, done_at_close: u64);
        while ticket < end {
            let entry = self.journal_entry(&old, ticket);
            let answer_lost = entry.operation == Operation::Fetch && !Mutant::LostAnswerIgnored.on();
            let unknown = match ticket < executed {
                true => answer_lost,
                false => entry.is_unprovable() || entry.is_data() && self.are_puts_polled(),
            };
            if unknown && ticket >= asked {
                return Some(ticket);
            }
            ticket += entry.blocks;
        }
        None
    }

    /// H11: the receiver acts on the data of puts before a signal covers it, so a repetition may overwrite what is used
    /// already.
    fn are_puts_polled(self) -> bool {
        root!(self.device, policy.polled_puts) != 0 && !Mutant::PolledPutNotRefused.on()
    }

    /// Waits for the owner's word, as long as a chain of switches may take at most.
    #[inline(never)]
    pub(super) fn await_answer(self, now: u64) -> Next {
        let (at, answer) = (get!(self, asked: u64), Resolution(get!(self, resolution: u64)));
        if answer.0 == 0 {
            if self.step_overdue(now, self.chain_bound_ns()) {
                return self.die(FaultKind::Uncertain, now);
            }
            return Next::Wait;
        }
        let generation = self.load_ticket().generation();
        let known = at < get!(self, executed: u64);
        if !answer.is_for(at, generation) || (known && !answer.applied()) {
            set!(self, resolution: u64 = 0);
            return Next::Again; // for one that was settled before, or against what is known
        }
        let behind = at + self.journal_entry(&self.journal(), at).blocks;
        if !answer.applied() {
            set!(self, unexecuted: u64 = at); // nor was anything behind it: RC executes in order
        } else if !known && !Mutant::ResolvedNotKept.on() {
            self.raise_executed_to(behind);
        }
        self.name_uncertain(Operation::None, 0);
        let next = self.enter(Step::Choose, now);
        // Last, so that whoever takes over in between finds the answer again and comes to the same.
        set!(self, asked: u64 = behind);
        set!(self, resolution: u64 = 0);
        next
    }
}
