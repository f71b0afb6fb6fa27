//! A post: reserve, wait for room, write, publish in order, ring. Rules 1 to 6.
//!
//! A group is the tickets one call takes: one reserve, one publish, one ring, whatever the number of lanes.
//! Only the group's leader works here, so no lane waits for a lane of its own warp.

use crate::access::{Channel, Device, PathView};
use crate::patience::Patience;
use crate::platform::Platform;
use crate::ring;
use crate::root::root;
use crate::types::Posted;
use crate::wqe_write::Segments;
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::{doorbell, wqe::Wqebb};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CLOSED, INDEX_MASK, Step, Word};

/// What a slow path is given where nothing was reserved. No word that was: indices never come that far. A word that is
/// reserved while the channel is closed has the flag as well, and the first one of all has nothing else.
pub(crate) const UNRESERVED: u64 = u64::MAX;
/// "No word": what a slow path answers when the channel is dead. The register of [`Posted::DEAD`], so that nobody turns
/// one into the other. A word that it answers has no flag.
pub(crate) const NO_WORD: u64 = Posted::DEAD.raw();
const _: () = assert!(is_none(NO_WORD) && is_none(Posted::UNBOUND.raw()));
/// True if there is no word: by the flag, one comparison on a GPU.
#[inline(always)]
pub(crate) const fn is_none(word: u64) -> bool {
    word & CLOSED != 0
}
/// How often a group tries to publish, or to ring, before it looks round: those before it have only stores to make.
const TURNS: u32 = 64;

impl<P: Platform> Channel<'_, P> {
    /// Takes `count` tickets. The word that comes back names the path and says whether a switch is under way.
    #[inline(always)]
    pub(crate) fn reserve(self, count: u64) -> Word {
        // Acquire: a generation met here was opened after its path's `base` was written.
        // SAFETY: a channel word.
        Word(unsafe { self.platform().fetch_add_acquire(self.ticket_word(), count) })
    }

    /// Reserves and waits for room: a word, or [`NO_WORD`].
    #[inline(always)]
    pub(crate) fn take(self, count: u64) -> u64 {
        self.admit(self.reserve(count), count)
    }

    /// The channel is bound to the words' home: what a kind 3 operation needs before its ticket (rule 16).
    #[inline(always)]
    pub(crate) fn bound(self) -> bool {
        self.is_bound() || Self::bind_slow(self.device, self.row())
    }

    /// [`take`](Self::take) for an operation of kind 3, which needs a channel that is bound to the words' home before
    /// its ticket (rule 16). No word is the register of a [`Posted`] here. One call for all that may hold it up.
    #[inline(always)]
    pub(crate) fn take_bound(self, count: u64) -> u64 {
        let reserved = if self.is_bound() { self.reserve(count) } else { Word(UNRESERVED) };
        if self.admits(reserved, count) {
            return reserved.0;
        }
        Self::take_bound_slow(self.device, self.row(), reserved.0, count as u32)
    }

    /// The same for a channel that is not bound yet, or whose ring is full or closed.
    #[inline(never)]
    fn take_bound_slow(device: Device<'_, P>, row: u32, reserved: u64, count: u32) -> u64 {
        if reserved != UNRESERVED {
            return Self::admit_slow(device, row, Word(reserved), count);
        }
        match Self::bind_slow(device, row) {
            true => device.row(row).take(count as u64),
            false => Posted::UNBOUND.raw(),
        }
    }

    /// Publishes and rings. Answers with the last ticket, or says that the channel is dead.
    #[inline(always)]
    pub(crate) fn leave(self, word: Word, count: u64, view: &PathView) -> Posted {
        self.leave_rung(word, count, view, true)
    }

    /// The same, and rings only if `ring`. What is not rung is part of the stream all the same: who posts behind it
    /// rings for it, or who waits (`attend`), or the switch that finds it in the journal.
    #[inline(always)]
    pub(crate) fn leave_rung(self, word: Word, count: u64, view: &PathView, ring: bool) -> Posted {
        let (p, first) = (self.platform(), word.index());
        p.wqes_before_publish();
        // SAFETY: channel words.
        let in_turn = unsafe {
            let published = if Mutant::PublishOutOfOrder.on() {
                p.fetch_add(self.ready_word(), count);
                true
            } else {
                p.compare_swap_in_turn(self.ready_word(), first, first + count, TURNS) == first
            };
            published && (!ring || p.try_lock_for(addr_of_mut!((*self.words()).post_lock), TURNS))
        };
        if !in_turn {
            return Posted::from_raw(Self::leave_slow(self.device, self.row(), word, count as u32));
        }
        if ring {
            self.ring_or_leave_it(word, first + count, view);
            self.release_post_lock();
        }
        Posted::at(first + count - 1)
    }

    /// The same behind others who take their time: publishes, unless that is done, and rings.
    #[inline(never)]
    fn leave_slow(device: Device<'_, P>, row: u32, word: Word, count: u32) -> u64 {
        let (channel, end) = (device.row(row), word.index() + count as u64);
        let published =
            channel.load_ready().index() >= end || channel.publish_late(word.index(), count as u64);
        if !published {
            return Posted::DEAD.raw();
        }
        channel.ring_slow(word, end);
        Posted::at(end - 1).raw()
    }

    /// Rings as soon as whoever holds the post lock lets it go. It may be gone with its kernel: after as long as a path
    /// may be silent this leaves the doorbell to whoever rings next, or else to the switch that the silence brings.
    fn ring_slow(self, word: Word, end: u64) {
        let p = self.platform();
        let (start, patience_ns) = (p.now_ns(), root!(self.device, policy.suspect_ns));
        while !self.try_post_lock() {
            let late = p.now_ns().saturating_sub(start) > patience_ns;
            if late || matches!(self.load_step(), Step::Dead) {
                return;
            }
        }
        self.ring_or_leave_it(word, end, &self.view(word.slot()));
        self.release_post_lock();
    }

    /// Rings what was published and not rung: its caller left the doorbell to whoever comes, or is about to ring. Only
    /// while the channel is open: what a switch finds published, it rings on the next path.
    #[inline(never)]
    pub(crate) fn ring_left_slow(device: Device<'_, P>, row: u32) {
        let channel = device.row(row);
        let ticket = channel.load_ticket();
        if ticket.flag() || Mutant::LeftUnrung.on() || !channel.try_post_lock() {
            return;
        }
        channel.ring_or_leave_it(ticket, channel.load_ready().index(), &channel.view(ticket.slot()));
        channel.release_post_lock();
    }

    /// True if `count` tickets from `reserved` fit the ring of their own generation: the no-fault path. Never for no
    /// word.
    #[inline(always)]
    pub(crate) fn admits(self, reserved: Word, count: u64) -> bool {
        let done = self.load_done();
        if Mutant::HintReadByPuts.on() && self.device.tolerant() {
            let _ = self.port_down(reserved.slot());
        }
        !reserved.flag()
            && done.same_generation(reserved)
            && ring::fits_near(reserved.index(), count, done.index(), root!(self.device, ring_mask))
    }

    /// Waits until `count` tickets from `reserved` fit the ring of some generation; answers with the slot and
    /// generation to write them in, or with [`NO_WORD`] when the channel is dead.
    #[inline(always)]
    pub(crate) fn admit(self, reserved: Word, count: u64) -> u64 {
        if self.admits(reserved, count) {
            return reserved.0;
        }
        Self::admit_slow(self.device, self.row(), reserved, count as u32)
    }

    /// Rule 5, for a group that found the ring full or closed. Polls and switches meanwhile: producers that
    /// never poll must not starve themselves. Answers with a word or, when the channel is dead, with
    /// [`NO_WORD`]: one register, where a `Result` would give a GPU's caller a stack.
    #[inline(never)]
    pub(crate) fn admit_slow(device: Device<'_, P>, row: u32, reserved: Word, count: u32) -> u64 {
        let channel = device.row(row);
        let (count, depth) = (count as u64, channel.depth());
        let start = channel.platform().now_ns();
        let (mut patience, mut queue) = (Patience::new(start), Patience::new(start));
        loop {
            // `done` before the ticket word: a generation is adopted only if both show it.
            let done = channel.load_done();
            let ticket = channel.load_ticket();
            let own = !reserved.flag() && done.same_generation(reserved);
            let both = done.same_generation(ticket) || Mutant::AdoptByDoneAlone.on();
            let older = Mutant::GenerationCompared.on() && done.generation() < reserved.generation();
            let newer = both && !done.same_generation(reserved) && !older;
            let fits = ring::fits(reserved.index(), count, done.index(), depth);
            if (own || newer) && fits {
                return done.with_index(reserved.index()).0 & !CLOSED;
            }
            if (own || newer) && done.flag() {
                channel.announce_blocked(reserved.index(), done);
            }
            if channel.attend(&mut patience).is_err() || (Mutant::LeaveAfterReserve.on() && done.flag()) {
                return NO_WORD;
            }
            let now = channel.platform().now_ns();
            // While the owner is asked about an operation, its own time counts.
            if queue.stalled(channel.load_done().0, !channel.asks(), now, channel.patience_with_owners_ns())
                && !Mutant::HoleAwaitedForEver.on()
            {
                // Nothing was finished for as long as a chain of switches may take: whoever took the ring is gone.
                channel.abandon(now);
            }
            channel.platform().relax();
        }
    }

    /// Head of the publish chain, frozen out: say so, or the switcher waits for us and we for it (F7). Only
    /// the head group changes the word, so a swap that fails was overtaken by a switch that opened.
    #[inline(always)]
    fn announce_blocked(self, first: u64, frozen: Word) {
        let ready = self.load_ready();
        if ready.index() == first && !ready.blocked_in(frozen.generation()) && !Mutant::BlockedNeverSaid.on()
        {
            let blocked = ready.with_blocked(frozen.generation());
            // SAFETY: a channel word.
            unsafe { self.platform().compare_swap(self.ready_word(), ready.0, blocked.0) };
        }
    }

    /// Writes one WQE of the group.
    #[inline(always)]
    pub(crate) fn write_wqe(self, view: &PathView, physical: u64, wqe: &Segments) {
        let block = self.block(view, physical).cast::<u32>();
        // SAFETY: the slot is this group's until it publishes: `admit` found room for it.
        unsafe {
            self.platform().store_segment(block, wqe.segments[0]);
            self.platform().store_segment(block.add(4), wqe.segments[1]);
            if wqe.ds > 2 {
                self.platform().store_segment(block.add(8), wqe.segments[2]);
            }
        }
    }

    /// Writes a whole block (replay).
    #[inline(always)]
    pub(crate) fn write_block(self, view: &PathView, physical: u64, wqe: &Wqebb) {
        let block = self.block(view, physical).cast::<u32>();
        let mut i = 0;
        while i < 4 {
            let segment = [wqe.0[i * 4], wqe.0[i * 4 + 1], wqe.0[i * 4 + 2], wqe.0[i * 4 + 3]];
            // SAFETY: the switcher owns the ring it replays into.
            unsafe { self.platform().store_segment(block.add(i * 4), segment) };
            i += 1;
        }
    }

    /// Publishes `first .. first + count` behind the groups before this one; false when the channel is dead.
    #[inline(always)]
    fn publish_late(self, first: u64, count: u64) -> bool {
        let start = self.platform().now_ns();
        let (mut patience, mut queue) = (Patience::new(start), Patience::new(start));
        loop {
            // Our turn once the index is ours; a BLOCKED of our own, from a generation that is over, goes
            // with it.
            let ready = self.load_ready();
            // SAFETY: a channel word.
            let swap = |from| unsafe { self.platform().compare_swap(self.ready_word(), from, first + count) };
            if ready.index() == first && swap(ready.0) == ready.0 {
                return true;
            }
            if self.attend(&mut patience).is_err() {
                return false;
            }
            let now = self.platform().now_ns();
            let stalled =
                queue.stalled(self.load_ready().0, !self.asks(), now, self.patience_with_owners_ns());
            if stalled && !Mutant::HoleAwaitedForEver.on() {
                // A group before us vanished between its reserve and its publish: the stream has a hole for
                // good.
                self.abandon(now);
            }
            self.platform().relax();
        }
    }

    /// Tells the NIC of everything up to `end`, unless a later group did, or a switch is under way: then what
    /// is published is the journal, and the switcher rings it on the next path. Rule 3. The caller holds the post lock.
    #[inline(always)]
    fn ring_or_leave_it(self, written: Word, end: u64, view: &PathView) {
        // The written word has no flag: nothing but the index may differ.
        if (self.load_ticket().0 ^ written.0) <= INDEX_MASK {
            self.ring_locked(end, view);
        }
    }

    /// The doorbell itself. The caller holds the post lock.
    #[inline(always)]
    pub(crate) fn ring_locked(self, end: u64, view: &PathView) {
        let p = self.platform();
        // SAFETY: `posted` is guarded by the post lock; record and register are those of the path being rung.
        unsafe {
            let posted = addr_of_mut!((*self.words()).posted);
            if p.load(posted) < end || Mutant::RingBackwards.on() {
                p.store(posted, end);
                let next = end.wrapping_sub(view.base);
                p.published_before_ring();
                p.store_doorbell_record(view.doorbell_record as *mut u32, doorbell::send_counter(next));
                p.record_before_register();
                p.store_register(
                    view.doorbell_register as *mut u64,
                    doorbell::register(next, view.qpn_shifted),
                );
            }
        }
    }

    /// Takes the post lock, unless it stays held. Who holds it stores a doorbell and leaves, but it may sleep, or be
    /// gone with its kernel: nobody waits for it without a deadline.
    #[inline(never)]
    pub(crate) fn try_post_lock(self) -> bool {
        let tries = if Mutant::PostLockAwaited.on() { u32::MAX } else { TURNS };
        // SAFETY: the lock word of a valid channel.
        unsafe { self.platform().try_lock_for(addr_of_mut!((*self.words()).post_lock), tries) }
    }

    /// Once through the post lock, unless somebody holds it.
    #[inline(always)]
    pub(crate) fn pass_post_lock(self) -> bool {
        // SAFETY: the lock word of a valid channel.
        let free = unsafe { self.platform().try_lock(addr_of_mut!((*self.words()).post_lock)) };
        if free {
            self.release_post_lock();
        }
        free
    }

    #[inline(always)]
    pub(crate) fn release_post_lock(self) {
        // SAFETY: the lock word of a valid channel, held by this caller.
        unsafe { self.platform().unlock(addr_of_mut!((*self.words()).post_lock)) };
    }

    /// `posted`, for a caller that holds the post lock or the switch.
    #[inline(always)]
    pub(crate) fn load_posted(self) -> u64 {
        // SAFETY: a field of a valid channel.
        unsafe { self.platform().load_acquire(addr_of_mut!((*self.words()).posted)) }
    }
}
