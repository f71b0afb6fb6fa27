//! The steps of a switch because of a fault: settle, fence and cut, choose. Rules 8 to 13, 21.

use super::record::count;
use super::{Next, Stamp, get, set};
use crate::access::Channel;
use crate::journal;
use crate::patience::{SLOWEST_BYTES, UNIT_NS};
use crate::platform::Platform;
use crate::root::root;
use crate::types::FaultKind;
use core::ptr::addr_of_mut;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{
    AnswerStatus, CauseKind, CqMap, FencePolicy, InHand, NO_SLOT, PathState, Step, Word,
};

/// `Switch::ledger`: the cut waits for the ledger.
pub(super) const LEDGER_TO_READ: u32 = 1;
/// `Switch::ledger`: the cut came from it.
pub(super) const LEDGER_READ: u32 = 2;

impl<P: Platform> Channel<'_, P> {
    /// True if the oldest unfinished message of a path is so large that it may still be on its way, `beyond` the time
    /// after which the path would be suspected. Looked at by who is about to suspect it, and by nobody else: one copy,
    /// out of the way of the waits.
    #[inline(never)]
    pub(crate) fn is_moving_slow(self, slot: u32, at: Word, beyond: u32) -> bool {
        if self.port_down(slot) || Mutant::BytesUnseen.on() {
            return false;
        }
        let view = self.view(slot);
        let block = self.block(&view, at.index().wrapping_sub(view.base)).cast::<u32>();
        // SAFETY: a slot of the path's send queue. What lies there of another generation is a number that comes to
        // nothing: the close compares generations.
        let bytes = unsafe {
            let p = self.platform();
            journal::bytes_moved(p.load32(block), p.load32(block.add(1)), p.load32(block.add(8)))
        };
        let most = self.chain_bound_ns() / 2 / UNIT_NS;
        let allowed = bytes / SLOWEST_BYTES;
        (beyond as u64) < most && beyond < allowed
    }

    /// Waits until everything reserved before the close is published, or the head group is blocked. What is
    /// published then is the journal.
    pub(super) fn settle(self, now: u64) -> Next {
        let ready = self.ready();
        let generation = self.load_done().generation();
        let all = ready.index() == get!(self, close: u64) || Mutant::NotSettled.on();
        if !all && !ready.blocked_in(generation) {
            if self.step_overdue(now, self.chain_bound_ns()) {
                return self.die(FaultKind::PeerLost, now); // a caller vanished between reserve and publish
            }
            return Next::Wait;
        }
        // Once through the post lock: no doorbell of the old generation is still on its way (F8). Its holder may sleep,
        // or be gone with its kernel: whoever drives this has other channels to look after.
        if !self.pass_post_lock() {
            return self.lock_awaited(now);
        }
        set!(self, journal_end: u64 = ready.index());
        let view = self.view(get!(self, from: u32));
        set!(self, journal_queue: u64 = view.send_queue);
        set!(self, journal_base: u64 = view.base);
        self.request_fence(get!(self, from: u32), get!(self, from_incarnation: u32));
        self.enter(Step::Fence, now)
    }

    /// Rule 9: asks the agent to fence a path of this channel. The request number makes old answers void
    /// (H8).
    pub(super) fn request_fence(self, slot: u32, incarnation: u32) {
        count!(self, fences_asked += 1);
        let request = get!(self, request: u64) + 1;
        set!(self, request: u64 = request);
        let (mailbox, p) = (self.mailbox(), self.platform());
        // SAFETY: the request line of this channel's mailbox belongs to the switcher.
        unsafe {
            p.store32(addr_of_mut!((*mailbox).request_slot), slot);
            p.store32(addr_of_mut!((*mailbox).request_incarnation), incarnation);
            p.store_release(addr_of_mut!((*mailbox).request), request);
            p.fetch_add(root!(self.device, wake) as *mut u64, 1);
        }
    }

    /// True if the agent said since the last look that it works on the request: its NIC may have thousands of others to
    /// fence before. The wait begins anew, for as long as a whole chain of switches may take at the most.
    fn is_in_hand(self, now: u64) -> bool {
        let (mailbox, p) = (self.mailbox(), self.platform());
        // SAFETY: a field of this channel's mailbox, written by the agent.
        let said = InHand(unsafe { p.load_acquire(addr_of_mut!((*mailbox).in_hand)) });
        // SAFETY: the request line of this channel's mailbox belongs to the switcher.
        let seen = unsafe { addr_of_mut!((*mailbox).in_hand_seen) };
        // SAFETY: as above.
        let news = said.is_of(get!(self, request: u64)) && unsafe { p.load(seen) } != said.0;
        // SAFETY: a stamp of a valid channel's switch.
        let closed_ns =
            unsafe { p.load(addr_of_mut!((*self.words()).switch.stamps[Stamp::Closed as usize])) };
        let bounded = now.saturating_sub(closed_ns) < self.chain_bound_ns();
        if !news || !bounded || Mutant::QueueIsSilence.on() {
            return false;
        }
        // SAFETY: as above.
        unsafe { p.store(seen, said.0) };
        set!(self, step_since_ns: u64 = now);
        true
    }

    /// Waits for the agent's answer and computes the cut.
    pub(super) fn fence(self, now: u64) -> Next {
        let (mailbox, p) = (self.mailbox(), self.platform());
        let (from, incarnation) = (get!(self, from: u32), get!(self, from_incarnation: u32));
        // SAFETY: a field of this channel's mailbox.
        let number = unsafe { addr_of_mut!((*mailbox).answer) };
        // SAFETY: the answer line is written by the agent: number zero, fields, number.
        let answer = unsafe { p.load_acquire(number) };
        // SAFETY: as above.
        let (slot, answered, status, executed) = unsafe {
            (
                p.load32(addr_of_mut!((*mailbox).answer_slot)),
                p.load32(addr_of_mut!((*mailbox).answer_incarnation)),
                AnswerStatus::from_raw(p.load32(addr_of_mut!((*mailbox).answer_status))),
                p.load32(addr_of_mut!((*mailbox).answer_executed)),
            )
        };
        // SAFETY: as above.
        if unsafe { p.load_acquire(number) } != answer {
            return Next::Wait; // the fields may be of two answers
        }
        let awaited = answer == get!(self, request: u64) || (answer != 0 && Mutant::OldAnswerTaken.on());
        let refused = !awaited || status == AnswerStatus::Unprovable;
        let by_time = refused && self.proven_by_time(now);
        if !awaited && !by_time {
            if Mutant::DeadlineForFence.on() && self.step_overdue(now, 50_000) {
                return self.enter(Step::Choose, now);
            }
            // At each look, so that the wait is renewed by what was said, and from when it was seen.
            let in_hand = !Mutant::OldWordRenews.on() && self.is_in_hand(now);
            let overdue = self.step_overdue(now, root!(self.device, policy.fence_wait_ns));
            if !in_hand && overdue && !(Mutant::OldWordRenews.on() && self.is_in_hand(now)) {
                return self.die(FaultKind::FenceUnproven, now);
            }
            return Next::Wait;
        }
        let other = (slot != from || answered != incarnation) && !Mutant::OldAnswerTaken.on();
        if !by_time && (other || status == AnswerStatus::Unprovable) {
            // The agent could prove nothing; time may still.
            let policy = self.device.policy();
            if policy.fence == FencePolicy::Time as u32 && !self.step_overdue(now, policy.fence_wait_ns) {
                return Next::Wait;
            }
            return self.die(FaultKind::FenceUnproven, now);
        }
        if by_time {
            self.mark_fenced(from);
        }
        self.raise_done();
        self.stamp(Stamp::Fenced, now);
        let kept = if Mutant::CutRecomputed.on() { 0 } else { get!(self, executed: u64) };
        let watermark = kept.max(get!(self, done_at_close: u64));
        let truth = if !by_time && status == AnswerStatus::Truth { self.truth(from, executed) } else { None };
        let truth = if Mutant::NoTruth.on() { Some(watermark) } else { truth };
        let truth = if Mutant::OutstandingForgotten.on() { Some(self.announced()) } else { truth };
        let to_read = truth.is_none() && !Mutant::NoLedger.on();
        set!(self, ledger: u32 = if to_read { LEDGER_TO_READ } else { 0 });
        count!(self, ledger_cuts += truth.is_none() as u64);
        // Rule 12: monotone, and stored before anything is replayed (F6).
        if Mutant::CutRecomputed.on() {
            set!(self, executed: u64 = 0);
        }
        self.raise_executed_to(watermark.max(truth.unwrap_or(0)));
        // The count tells of every message; without it nothing is known behind X, until the ledger says more.
        let watermark = get!(self, executed: u64);
        set!(self, unexecuted: u64 = if truth.is_some() { watermark } else { self.announced() });
        if truth.is_some() {
            self.stamp(Stamp::Cut, now);
        }
        self.enter(Step::Choose, now)
    }

    /// The best usable slot other than the one being left: ranked by slot number, ports up, not tried in
    /// vain; one with a suspect rail only if there is no other. Of a bound channel, among those to its home (rule 16).
    pub(crate) fn next_slot(self, leaving: u32, excluded: u32) -> Option<u32> {
        let home = if Mutant::AwayChosen.on() { None } else { self.home_rail() };
        let mut second = None;
        let mut slot = 0;
        while slot < root!(self.device, slots) {
            let usable = slot != leaving
                && !(slot > 1 && Mutant::OneBackup.on())
                && excluded & (1 << slot) == 0
                && self.path_state(slot) == PathState::Ready
                && self.leads_to(slot, home)
                && !self.port_down(slot);
            if usable && !self.suspect(slot) {
                return Some(slot);
            }
            if usable && second.is_none() {
                second = Some(slot);
            }
            slot += 1;
        }
        if Mutant::SuspicionMasks.on() { None } else { second }
    }

    /// Chooses the next path, or waits for one: the agents revive what they can. Rule 21: the peer is lost
    /// only when every path has stayed dead for the give-up time.
    pub(super) fn choose(self, now: u64) -> Next {
        let (from, back) = (get!(self, from: u32), get!(self, back: u32) != 0);
        // The path being left counts again once it was made anew, and always when it was left by a drain.
        let remade = self.incarnation(from) != get!(self, from_incarnation: u32);
        let leaving = if back || remade { NO_SLOT } else { from };
        if self.ledger_path_awaited(now) {
            return Next::Wait;
        }
        let Some(slot) = self.next_slot(leaving, get!(self, excluded: u32)) else {
            return self.no_path(now);
        };
        set!(self, to: u32 = slot);
        // Announce, then look again: the agent makes a path anew only if nobody announced it (Dekker's
        // handshake). The same barrier stands between the close and the look at `bound`: see `home.rs`.
        self.platform().announce_before_recheck();
        let home = if Mutant::AwayChosen.on() { None } else { self.home_rail() };
        if self.path_state(slot) != PathState::Ready || !self.leads_to(slot, home) {
            set!(self, to: u32 = NO_SLOT);
            return Next::Wait;
        }
        set!(self, posted_reads: u64 = 0);
        // Nobody has used the path since it was made or drained, so all wide WQEs on it are done.
        let generation = self.load_ticket().generation() + 1;
        self.set_cq_map(slot, CqMap::new(0, self.wide_posted(slot) as u32, generation));
        if get!(self, ledger: u32) == LEDGER_TO_READ {
            self.enter(Step::Ledger, now)
        } else {
            self.proceed(now)
        }
    }

    fn no_path(self, now: u64) -> Next {
        let since = get!(self, dead_since_ns: u64);
        if since == 0 {
            set!(self, dead_since_ns: u64 = now.max(1));
            count!(self, pathless += 1);
        }
        // What was tried in vain may have been made anew by now.
        set!(self, excluded: u32 = 0);
        let dead_ns = if since == 0 { 0 } else { now.saturating_sub(since) };
        if dead_ns >= root!(self.device, policy.give_up_ns) || Mutant::PeerLostAtOnce.on() {
            return self.lose_peer(now);
        }
        Next::Wait
    }

    /// Ends the channel and notes, for the report, why each path is unusable.
    fn lose_peer(self, now: u64) -> Next {
        let mut slot = 0;
        while slot < root!(self.device, slots) {
            if self.port_down(slot) {
                self.note_first_cause(slot, CauseKind::PortDown, 0);
            } else if self.path_state(slot) != PathState::Ready {
                self.note_first_cause(slot, CauseKind::FencedByPeer, 0);
            }
            slot += 1;
        }
        self.die(FaultKind::PeerLost, now)
    }
}
