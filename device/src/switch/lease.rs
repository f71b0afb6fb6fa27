//! Who carries a switch on, and for how long nobody else may. Invariant 9, rule 7.

use super::words::words;
use crate::part::part;
use crate::platform::Platform;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::OwnerWord;

part! {
    /// The owner word of a switch.
    pub(super) Lease {}
}

impl<P: Platform> Lease<'_, P> {
    /// Takes the owner word if it is free or its lease has run out. Invariant 9: one switcher. Steps take microseconds,
    /// so an owner whose lease ends is taken to be gone; one that was held up for as long must find that it is no more
    /// the owner before it acts: see `is_still`, and what stands at the stores of each step.
    #[inline(always)]
    pub(super) fn take(self, now: u64) -> Option<OwnerWord> {
        let owner = self.owner();
        // The clock is read again: a caller that was held up since `now` must not take a lease that is over already.
        let now = now.max(self.ptr.now_ns());
        if !owner.is_free() && !Mutant::ManySwitchers.on() {
            if !owner.part_is_over(now) || Mutant::LeaseNeverEnds.on() {
                return None;
            }
            if let Some(next) = owner.next_part(now)
                && !Mutant::LeaseByClock.on()
            {
                self.swap(owner, next);
                return None;
            }
        }
        let own = OwnerWord::new(now);
        if self.swap(owner, own) { Some(own) } else { None }
    }

    #[inline(always)]
    pub(super) fn owner(self) -> OwnerWord {
        OwnerWord(words(self.ptr).owner().load())
    }

    #[inline(always)]
    fn swap(self, met: OwnerWord, new: OwnerWord) -> bool {
        words(self.ptr).owner().compare_swap(met.0, new.0) == met.0
    }

    /// True while `own` is the owner.
    #[inline(always)]
    pub(super) fn is_still(self, own: OwnerWord) -> bool {
        self.owner().same_owner(own)
    }

    /// Lets go, unless somebody took it over. Twice: others may have begun a part of the lease in between, and the next
    /// one is a second away.
    #[inline(always)]
    pub(super) fn let_go(self, own: OwnerWord) {
        let word = self.owner();
        if word.same_owner(own) && !self.swap(word, OwnerWord::FREE) {
            let word = self.owner();
            if word.same_owner(own) {
                self.swap(word, OwnerWord::FREE);
            }
        }
    }
}
