//! The doorbell: the post lock, and how far the NIC was told. Rule 3.

use crate::part::part;
use crate::platform::Platform;
use crate::send_queue::SendQueue;
use crate::shared::fields;
use crate::state_ptr::StatePtr;
use core::ops::Range;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{Channel, INDEX_MASK, Word};

fields!(Channel { posted: u64, post_lock: u32 });

/// How often a group tries to publish, or to ring, before it looks round: those before it have only stores to make.
pub(crate) const TURNS: u32 = 64;

part! {
    /// The post lock of a channel and the word it guards, `posted`: everything below it was announced to the NIC.
    pub(crate) Doorbell {}
}

impl<P: Platform> Doorbell<'_, P> {
    /// Takes the post lock if it is free.
    #[inline(always)]
    pub(crate) fn try_lock_once(self) -> bool {
        self.ptr.words().post_lock().try_lock()
    }

    /// Takes the post lock, unless it stays held. Who holds it stores a doorbell and leaves, but it may sleep, or be
    /// gone with its kernel: nobody waits for it without a deadline.
    #[inline(never)]
    pub(crate) fn try_lock(self) -> bool {
        let tries = if Mutant::PostLockAwaited.on() { u32::MAX } else { TURNS };
        self.ptr.words().post_lock().try_lock_for(tries)
    }

    /// Once through the post lock, unless somebody holds it.
    #[inline(always)]
    pub(crate) fn pass_lock(self) -> bool {
        let free = self.try_lock_once();
        if free {
            self.unlock();
        }
        free
    }

    /// Lets the post lock go, which the caller holds.
    #[inline(always)]
    pub(crate) fn unlock(self) {
        self.ptr.words().post_lock().unlock();
    }

    /// End of what was announced to the NIC. Exact for a caller that holds the post lock or the switch.
    #[inline(always)]
    pub(crate) fn posted(self) -> u64 {
        self.ptr.words().posted().load_acquire()
    }

    /// Tells the NIC of everything up to `end`, unless a later group did, or a switch is under way: then what
    /// is published is the journal, and the switcher rings it on the next path. The caller holds the post lock.
    #[inline(always)]
    pub(crate) fn ring_if_open(self, written: Word, end: u64, queue: &SendQueue<'_, P>) {
        // First the word that the lock guards: then a GPU waits for both at once.
        let posted = self.ptr.words().posted().load();
        // The written word has no flag: nothing but the index may differ.
        if (self.ptr.load_ticket().0 ^ written.0) <= INDEX_MASK {
            self.ring_locked(posted, end, queue);
        }
    }

    /// The same whatever the ticket word says. `posted` is that word, read under the lock.
    #[inline(always)]
    pub(crate) fn ring_locked(self, posted: u64, end: u64, queue: &SendQueue<'_, P>) {
        if posted < end || Mutant::RingBackwards.on() {
            self.ptr.words().posted().store(end);
            queue.ring_doorbell(end.wrapping_sub(queue.base));
        }
    }

    /// Rings what was published and not rung: its caller left the doorbell to the next that comes, or is about to ring.
    /// Only while the channel is open: what a switch finds published, it rings on the next path.
    #[inline(never)]
    pub(crate) fn ring_unrung_slow(state: StatePtr<'_, P>, row: u32) {
        let doorbell = Doorbell::of(state.row(row));
        let ptr = doorbell.ptr;
        let ticket = ptr.load_ticket();
        if ticket.flag() || Mutant::LeftUnrung.on() || !doorbell.try_lock() {
            return;
        }
        doorbell.ring_if_open(ticket, ptr.load_ready().index(), &SendQueue::of(ptr, ticket.slot()));
        doorbell.unlock();
    }

    /// Rings a path that nobody else rings: it is being entered or drained.
    ///
    /// Nothing is rung unless the channel is still closed in the generation of `closed`: an owner that comes back after
    /// its lease must not ring what another one has long gone beyond. False if somebody else holds the lock.
    pub(crate) fn ring_closed(self, queue: &SendQueue<'_, P>, closed: Word, next: u64) -> bool {
        if !self.try_lock() {
            return false;
        }
        if self.ptr.still_closed(closed) {
            self.store_doorbell(queue, next);
        }
        self.unlock();
        true
    }

    fn store_doorbell(self, queue: &SendQueue<'_, P>, next: u64) {
        self.ptr.state.wqes_before_publish(0);
        queue.ring_doorbell(next);
    }

    /// Notes that everything below `window.end` is announced on the path being entered, and rings it if that is
    /// anything. Only while the channel is closed in the generation of `closed`: callers that ring
    /// have long gone beyond otherwise, and what is not below `posted` counts as never sent. None if another holds the
    /// lock.
    pub(crate) fn announce(self, new: &SendQueue<'_, P>, closed: Word, window: Range<u64>) -> Option<bool> {
        if !self.try_lock() {
            return None;
        }
        let closed = self.ptr.still_closed(closed);
        if closed {
            self.ptr.words().posted().store(window.end);
            if window.end > window.start {
                self.store_doorbell(new, window.end.wrapping_sub(new.base));
            }
        }
        self.unlock();
        Some(closed)
    }
}
