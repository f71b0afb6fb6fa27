//! A post: reserve, wait for room, write, publish in order, ring. Rules 1 to 6.
//!
//! A group is the tickets one call takes: one reserve, one publish, one ring, whatever the number of lanes.
//! Only the group's leader works here, so no lane waits for a lane of its own warp.

use crate::atomic_owner::AtomicOwner;
use crate::doorbell::{Doorbell, TURNS};
use crate::part::part;
use crate::paths::Paths;
use crate::platform::Platform;
use crate::ring;
use crate::root::root;
use crate::send_queue::SendQueue;
use crate::stall::StallDetector;
use crate::state_ptr::StatePtr;
use crate::switch::Switch;
use crate::types::{Deadline, FaultKind, Posted};
use crate::waiter::Waiter;
use crate::wqe_write;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{CLOSED, Step, Word};

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

part! {
    /// Takes tickets and publishes what was written for them.
    pub(crate) Poster { doorbell: Doorbell, waiter: Waiter, switch: Switch, owner: AtomicOwner, paths: Paths }
}

impl<P: Platform> Poster<'_, P> {
    /// Takes `count` tickets. The word that comes back names the path and says whether a switch is under way.
    #[inline(always)]
    pub(crate) fn reserve(self, count: u64) -> Word {
        // Acquire: a generation met here was opened after its path's `base` was written.
        Word(self.ptr.ticket_word().fetch_add_acquire(count))
    }

    /// Reserves and waits for room: a word, or [`NO_WORD`].
    #[inline(always)]
    pub(crate) fn take(self, count: u64) -> u64 {
        let done = self.glance_at_done();
        self.admit(done, self.reserve(count), count)
    }

    /// The done word for [`admits`](Self::admits), before the reserve: then a GPU waits for both words at once. A later
    /// one can only show more room. It orders nothing: what is written into the ring stands behind the branch on it.
    #[inline(always)]
    pub(crate) fn glance_at_done(self) -> Word {
        Word(self.ptr.done_word().load())
    }

    /// The channel is bound to the words' home: what a kind 3 operation needs before its ticket (rule 16).
    #[inline(always)]
    pub(crate) fn bind(self) -> bool {
        self.owner().is_bound() || Self::bind_slow(self.ptr.state, self.ptr.row())
    }

    /// [`take`](Self::take) for an operation of kind 3, which needs a channel that is bound to the words' home before
    /// its ticket (rule 16). No word is the register of a [`Posted`] here. One call for all that may hold it up.
    #[inline(always)]
    pub(crate) fn take_bound(self, count: u64) -> u64 {
        let done = self.glance_at_done();
        let reserved = if self.owner().is_bound() { self.reserve(count) } else { Word(UNRESERVED) };
        if self.admits(done, reserved, count) {
            return reserved.0;
        }
        Self::take_bound_slow(self.ptr.state, self.ptr.row(), reserved.0, count as u32)
    }

    /// The same for a channel that is not bound yet, or whose ring is full or closed.
    #[inline(never)]
    fn take_bound_slow(state: StatePtr<'_, P>, row: u32, reserved: u64, count: u32) -> u64 {
        if reserved != UNRESERVED {
            return Poster::admit_slow(state, row, Word(reserved), count);
        }
        match Poster::bind_slow(state, row) {
            true => Poster::of(state.row(row)).take(count as u64),
            false => Posted::UNBOUND.raw(),
        }
    }

    /// Binds the channel, and waits until it stands at home. False if it does not
    /// come to that in time, or is dead. Nothing is reserved yet, so leaving is free.
    #[inline(never)]
    fn bind_slow(state: StatePtr<'_, P>, row: u32) -> bool {
        let poster = Poster::of(state.row(row));
        let (ptr, owner) = (poster.ptr, poster.owner());
        owner.begin_binding();
        let tolerant = state.tolerant();
        let start = ptr.now_ns();
        let mut stall = StallDetector::new(start);
        loop {
            let ticket = ptr.load_ticket();
            let at_home = !ticket.flag() && owner.leads_to(ticket.slot(), owner.rail());
            // Without fault tolerance nothing is ever switched.
            if at_home || !tolerant || Mutant::BoundUnseen.on() {
                owner.set_bound();
                return true;
            }
            if poster.waiter().attend(&mut stall).is_err() {
                return false;
            }
            if ptr.now_ns().saturating_sub(start) > poster.switch().chain_bound_ns() {
                return false;
            }
            ptr.platform().relax();
        }
    }

    /// Publishes and rings. Answers with the last ticket, or says that the channel is dead.
    #[inline(always)]
    pub(crate) fn publish(self, word: Word, count: u64, queue: &SendQueue<'_, P>) -> Posted {
        self.publish_with_doorbell(word, count, queue, (0, true))
    }

    /// The same of what a NIC reads, or writes, in this PE's heap before offset `end`, and rings only if `ring`. What
    /// is not rung is part of the stream all the same: who posts behind it rings for it, or who waits
    /// (`Waiter::attend`), or the switch that finds it in the journal.
    #[inline(always)]
    pub(crate) fn publish_with_doorbell(
        self,
        word: Word,
        count: u64,
        queue: &SendQueue<'_, P>,
        (end, ring): (u64, bool),
    ) -> Posted {
        let (doorbell, first) = (self.doorbell(), word.index());
        self.ptr.state.wqes_before_publish(end);
        let published = if Mutant::PublishOutOfOrder.on() {
            self.ptr.ready_word().fetch_add(count);
            true
        } else {
            self.ptr.ready_word().compare_swap_acquire(first, first + count) == first
        };
        let in_turn = published && (!ring || doorbell.try_lock_once());
        if !in_turn {
            return Posted::from_raw(Self::publish_slow(self.ptr.state, self.ptr.row(), word, count as u32));
        }
        if ring {
            doorbell.ring_if_open(word, first + count, queue);
            doorbell.unlock();
        }
        Posted::at(first + count - 1)
    }

    /// The same behind others who take their time: publishes, unless that is done, and rings.
    #[inline(never)]
    fn publish_slow(state: StatePtr<'_, P>, row: u32, word: Word, count: u32) -> u64 {
        let (poster, end) = (Poster::of(state.row(row)), word.index() + count as u64);
        let published = poster.ptr.load_ready().index() >= end
            || poster.publish_in_turn(word.index(), end)
            || poster.publish_late(word.index(), count as u64);
        if !published {
            return Posted::DEAD.raw();
        }
        poster.ring_slow(word, end);
        Posted::at(end - 1).raw()
    }

    /// Publishes behind groups that have only stores to make: false if that takes longer than a moment.
    #[inline(always)]
    fn publish_in_turn(self, first: u64, end: u64) -> bool {
        let mut turns = TURNS;
        while turns > 0 {
            if self.ptr.ready_word().compare_swap_acquire(first, end) == first {
                return true;
            }
            self.ptr.platform().relax();
            turns -= 1;
        }
        false
    }

    /// Rings as soon as the holder of the post lock lets it go. It may be gone with its kernel: after as long as a path
    /// may be silent this leaves the doorbell to the next that rings, or else to the switch that the silence brings.
    fn ring_slow(self, word: Word, end: u64) {
        let (ptr, doorbell) = (self.ptr, self.doorbell());
        let (start, limit_ns) = (ptr.now_ns(), root!(ptr.state, policy.suspect_ns));
        while !doorbell.try_lock() {
            let late = ptr.now_ns().saturating_sub(start) > limit_ns;
            if late || self.switch().is_dead() {
                return;
            }
        }
        doorbell.ring_if_open(word, end, &SendQueue::of(ptr, word.slot()));
        doorbell.unlock();
    }

    /// True if `count` tickets from `reserved` fit the ring of their own generation: the no-fault path. Never for no
    /// word. `done` is that word, read before.
    #[inline(always)]
    pub(crate) fn admits(self, done: Word, reserved: Word, count: u64) -> bool {
        if Mutant::HintReadByPuts.on() && self.ptr.state.tolerant() {
            let _ = self.paths().port_down(reserved.slot());
        }
        !reserved.flag() && ring::fits_as_words(reserved, count, done, root!(self.ptr.state, ring_mask))
    }

    /// Waits until `count` tickets from `reserved` fit the ring of some generation; answers with the slot and
    /// generation to write them in, or with [`NO_WORD`] when the channel is dead.
    #[inline(always)]
    fn admit(self, done: Word, reserved: Word, count: u64) -> u64 {
        if self.admits(done, reserved, count) {
            return reserved.0;
        }
        Self::admit_slow(self.ptr.state, self.ptr.row(), reserved, count as u32)
    }

    /// Rule 5, for a group that found the ring full or closed. Polls and switches meanwhile: producers that
    /// never poll must not starve themselves. Answers with a word or, when the channel is dead, with
    /// [`NO_WORD`]: one register, where a `Result` would give a GPU's caller a stack.
    #[inline(never)]
    pub(crate) fn admit_slow(state: StatePtr<'_, P>, row: u32, reserved: Word, count: u32) -> u64 {
        let poster = Poster::of(state.row(row));
        let (ptr, switch) = (poster.ptr, poster.switch());
        let (count, depth) = (count as u64, ptr.depth());
        let start = ptr.now_ns();
        let (mut stall, mut queue) = (StallDetector::new(start), StallDetector::new(start));
        loop {
            // `done` before the ticket word: a generation is adopted only if both show it.
            let done = ptr.load_done();
            let ticket = ptr.load_ticket();
            let own = !reserved.flag() && done.same_generation(reserved);
            let both = done.same_generation(ticket) || Mutant::AdoptByDoneAlone.on();
            let older = Mutant::GenerationCompared.on() && done.generation() < reserved.generation();
            let newer = both && !done.same_generation(reserved) && !older;
            let fits = ring::fits(reserved.index(), count, done.index(), depth);
            if (own || newer) && fits {
                return done.with_index(reserved.index()).0 & !CLOSED;
            }
            if (own || newer) && done.flag() {
                poster.announce_blocked(reserved.index(), done);
            }
            if poster.waiter().attend(&mut stall).is_err() || (Mutant::LeaveAfterReserve.on() && done.flag())
            {
                return NO_WORD;
            }
            let now = ptr.now_ns();
            // While the owner is asked about an operation, its own time counts.
            if queue.stalled(ptr.load_done().0, !switch.asks(), now, switch.chain_bound_with_owners_ns())
                && !Mutant::HoleAwaitedForEver.on()
            {
                // Nothing was finished for as long as a chain of switches may take: who took the ring is gone.
                switch.abandon(now);
            }
            ptr.platform().relax();
        }
    }

    /// Head of the publish chain, frozen out: say so, or the switcher waits for us and we for it. Only
    /// the head group changes the word, so a swap that fails was overtaken by a switch that opened.
    #[inline(always)]
    fn announce_blocked(self, first: u64, frozen: Word) {
        let ready = self.ptr.load_ready();
        if ready.index() == first && !ready.blocked_in(frozen.generation()) && !Mutant::BlockedNeverSaid.on()
        {
            let blocked = ready.with_blocked(frozen.generation());
            self.ptr.ready_word().compare_swap(ready.0, blocked.0);
        }
    }

    /// Publishes `first .. first + count` behind the groups before this one; false when the channel is dead.
    #[inline(always)]
    fn publish_late(self, first: u64, count: u64) -> bool {
        let (ptr, switch) = (self.ptr, self.switch());
        let start = ptr.now_ns();
        let (mut stall, mut queue) = (StallDetector::new(start), StallDetector::new(start));
        loop {
            // Our turn once the index is ours; a BLOCKED of our own, from a generation that is over, goes
            // with it.
            let ready = ptr.load_ready();
            let swap = |from| ptr.ready_word().compare_swap(from, first + count);
            if ready.index() == first && swap(ready.0) == ready.0 {
                return true;
            }
            if self.waiter().attend(&mut stall).is_err() {
                return false;
            }
            let now = ptr.now_ns();
            let ready = ptr.load_ready().0;
            let stalled = queue.stalled(ready, !switch.asks(), now, switch.chain_bound_with_owners_ns());
            if stalled && !Mutant::HoleAwaitedForEver.on() {
                // A group before us vanished between its reserve and its publish: the stream has a hole for
                // good.
                switch.abandon(now);
            }
            ptr.platform().relax();
        }
    }

    /// Whether a post of `count` entries would begin at once.
    #[inline(always)]
    pub(crate) fn has_room(self, count: u64) -> bool {
        let done = self.ptr.load_done();
        self.admits(done, self.ptr.load_ticket(), count)
    }

    /// Waits until a post of `count` entries would begin at once. Nothing is reserved, so leaving is free; another
    /// poster may be faster.
    ///
    /// # Errors
    /// `Overdue` when the deadline passes; `Uncertain` while the channel asks its owner; the kind of its fault once
    /// it is dead.
    #[inline(never)]
    pub(crate) fn wait_for_room(self, count: u64, deadline: Deadline) -> Result<(), FaultKind> {
        let ptr = self.ptr;
        let mut stall = StallDetector::new(ptr.now_ns());
        while !self.has_room(count) {
            if let Err(fault) = self.waiter().attend(&mut stall) {
                return Err(fault.kind);
            }
            if self.switch().asks() {
                return Err(FaultKind::Uncertain);
            }
            if ptr.now_ns() > deadline.at_ns {
                return Err(FaultKind::Overdue);
            }
            ptr.platform().relax();
        }
        Ok(())
    }

    /// Posts one zero-length write if the channel is at rest; true if it did. Never waits, so the agent may call it:
    /// a peer that is gone shows only where something is outstanding.
    #[inline(never)]
    pub(crate) fn touch(self) -> bool {
        let ptr = self.ptr;
        let (done, ticket, ready) = (ptr.load_done(), ptr.load_ticket(), ptr.load_ready());
        let at_rest = !done.flag() && ticket == done && ready.index() == ticket.index();
        if !at_rest || !matches!(self.switch().step(), Step::Idle) {
            return false;
        }
        let next = ticket.with_index(ticket.index() + 1);
        // A swap where others add: it takes the ticket only while all before it are done, so there is room in the ring
        // and nobody to wait for.
        if ptr.ticket_word().compare_swap(ticket.0, next.0) != ticket.0 {
            return false;
        }
        let queue = SendQueue::of(ptr, ticket.slot());
        let place = queue.place(ticket, 0);
        queue.write(place.index, &wqe_write::placeholder(place));
        self.publish(ticket, 1, &queue).ticket().is_some()
    }
}
