//! Who carries a switch on, and what an owner that comes back after its lease must not undo. Invariant 9, rule 7.

use super::{SWAPS_MAX, get, set_word};
use crate::access::Channel;
use crate::platform::Platform;
use core::ptr::addr_of_mut;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{FROZEN, OwnerWord, Word};

impl<P: Platform> Channel<'_, P> {
    /// Takes the owner word if it is free or its lease has run out. Invariant 9: one switcher. Steps take microseconds,
    /// so an owner whose lease ends is taken to be gone; one that was held up for as long must find that it is no more
    /// the owner before it acts: see `still_mine`, and what stands at the stores of each step.
    #[inline(always)]
    pub(super) fn take_switch(self, now: u64) -> Option<OwnerWord> {
        let owner = self.owner();
        // The clock is read anew: a caller that was held up since `now` must not take a lease that is over already.
        let now = now.max(self.platform().now_ns());
        if !owner.is_free() && !Mutant::ManySwitchers.on() {
            if !owner.part_is_over(now) || Mutant::LeaseNeverEnds.on() {
                return None;
            }
            if let Some(next) = owner.next_part(now)
                && !Mutant::LeaseByClock.on()
            {
                self.swap_owner(owner, next);
                return None;
            }
        }
        let own = OwnerWord::new(now);
        if self.swap_owner(owner, own) { Some(own) } else { None }
    }

    #[inline(always)]
    pub(super) fn owner(self) -> OwnerWord {
        OwnerWord(get!(self, owner: u64))
    }

    #[inline(always)]
    fn swap_owner(self, met: OwnerWord, new: OwnerWord) -> bool {
        // SAFETY: the owner word of a valid channel.
        let word = unsafe { addr_of_mut!((*self.words()).switch.owner) };
        // SAFETY: as above.
        unsafe { self.platform().compare_swap(word, met.0, new.0) == met.0 }
    }

    #[inline(always)]
    pub(super) fn still_mine(self, own: OwnerWord) -> bool {
        self.owner().same_owner(own)
    }

    /// Lets go, unless somebody took it over. Twice: others may have begun a part of the lease in between, and the next
    /// one is a second away.
    #[inline(always)]
    pub(super) fn let_go(self, own: OwnerWord) {
        let word = self.owner();
        if word.same_owner(own) && !self.swap_owner(word, OwnerWord::FREE) {
            let word = self.owner();
            if word.same_owner(own) {
                self.swap_owner(word, OwnerWord::FREE);
            }
        }
    }

    /// Freezes `done` of the generation that is closed; D is where it stands. False if that generation is over, or
    /// callers complete faster than this looks: then it is tried again.
    #[inline(never)]
    pub(crate) fn freeze(self) -> bool {
        let flag = if Mutant::DoneNotFrozen.on() { 0 } else { FROZEN };
        let (mut done, mut tries) = (self.load_done(), 0);
        while tries < SWAPS_MAX {
            if !self.still_closed(done) {
                return false;
            }
            // SAFETY: a channel word. A generation met here is never frozen again once it is over.
            let met = Word(unsafe { self.platform().compare_swap(self.done_word(), done.0, done.0 | flag) });
            if met == done {
                self.raise_done_to(done.index());
                return true;
            }
            done = met;
            tries += 1;
        }
        false
    }

    /// D and X only grow: an owner that comes back after its lease must not take back what was known since.
    #[inline(always)]
    pub(crate) fn raise_done_to(self, index: u64) {
        // SAFETY: a field of a valid channel's switch.
        let word = unsafe { set_word!(self, done_at_close) };
        self.raise(word, index);
    }

    /// As [`raise_done_to`](Self::raise_done_to), for X (rule 12).
    #[inline(always)]
    pub(crate) fn raise_executed_to(self, index: u64) {
        // SAFETY: a field of a valid channel's switch.
        let word = unsafe { set_word!(self, executed) };
        self.raise(word, index);
    }

    #[inline(never)]
    fn raise(self, word: *mut u64, value: u64) {
        let mut tries = 0;
        // SAFETY: a field of a valid channel's switch. Only owners write it, so a swap that fails met one that is back.
        let mut met = unsafe { self.platform().load(word) };
        while (met < value || Mutant::ReturnedOwnerGoesOn.on()) && tries < SWAPS_MAX {
            // SAFETY: as above.
            let seen = unsafe { self.platform().compare_swap(word, met, value) };
            if seen == met {
                return;
            }
            met = seen;
            tries += 1;
        }
    }
}
