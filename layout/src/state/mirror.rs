//! Where a switch stands, in one word, and the line in which the agent reads it.

use super::channel::{NO_SLOT, Step};

/// Where the switch of a channel stands: step 4, slot 3, slot that is entered 4, lock passed 1, version 52 bits.
///
/// The version counts every change, so no two words of a channel are equal, a later one is the greater number, and a
/// change from a word that is no more the newest fails. It never wraps: a change a nanosecond would take fifty days.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwitchWord(pub u64);

const SLOT_SHIFT: u32 = 4;
const TO_SHIFT: u32 = 7;
/// In the field of the slot that is entered: none.
const TO_NONE: u64 = 8;
const PASSED: u64 = 1 << 11;
const VERSION: u64 = 1 << 12;

impl SwitchWord {
    /// Of a channel that nobody has switched: on slot 0, which no switch announced.
    pub const START: Self = Self(TO_NONE << TO_SHIFT);

    /// The step.
    #[inline(always)]
    pub const fn step(self) -> Step {
        Step::from_raw((self.0 & 0xf) as u32)
    }

    /// The slot of the open generation, or of the one that is being left.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        (self.0 >> SLOT_SHIFT) as u32 & 7
    }

    /// The slot that is announced: being entered, or entered last. [`NO_SLOT`] if none is.
    #[inline(always)]
    pub const fn to(self) -> u32 {
        let to = self.0 >> TO_SHIFT & 0xf;
        if to < TO_NONE { to as u32 } else { NO_SLOT }
    }

    /// Of a dead channel: who held the post lock when it died has let it go.
    #[inline(always)]
    pub const fn lock_passed(self) -> bool {
        self.0 & PASSED != 0
    }

    /// How often it has changed.
    #[inline(always)]
    pub const fn version(self) -> u64 {
        self.0 / VERSION
    }

    const fn with(self, mask: u64, bits: u64) -> Self {
        Self((self.0 & !mask | bits) + VERSION)
    }

    /// The next word: at `step`.
    #[inline(always)]
    pub const fn at_step(self, step: Step) -> Self {
        self.with(0xf, step as u64)
    }

    /// The next word: at `step`, with nothing announced.
    #[inline(always)]
    pub const fn cleared(self, step: Step) -> Self {
        self.with(0xf | 0xf << TO_SHIFT, step as u64 | TO_NONE << TO_SHIFT)
    }

    /// The next word: `slot` is announced, or with [`NO_SLOT`] none.
    #[inline(always)]
    pub const fn announced(self, slot: u32) -> Self {
        let to = if slot == NO_SLOT { TO_NONE } else { slot as u64 & 7 };
        self.with(0xf << TO_SHIFT, to << TO_SHIFT)
    }

    /// The next word: open on `slot`, whose announcement stands.
    #[inline(always)]
    pub const fn opened(self, slot: u32) -> Self {
        self.with(0xf | 7 << SLOT_SHIFT, Step::Idle as u64 | (slot as u64 & 7) << SLOT_SHIFT)
    }

    /// The next word: the post lock was free after the channel's death.
    #[inline(always)]
    pub const fn passed(self) -> Self {
        self.with(PASSED, PASSED)
    }

    /// True if the channel does not use a slot: it is elsewhere and no switch is entering the slot, or a switch that
    /// leaves it has its cut and keeps the journal's place itself. Of a dead channel: nobody can ring any more.
    #[inline(always)]
    pub const fn has_left(self, slot: u32) -> bool {
        match self.step() {
            Step::Dead => self.lock_passed(),
            Step::Choose | Step::Ledger | Step::Replay | Step::Uncertain => self.to() != slot,
            Step::Idle | Step::Settle | Step::Fence | Step::Drain | Step::DrainFlush => {
                self.slot() != slot && self.to() != slot
            }
        }
    }
}

/// What the agent reads of a channel. Only device code writes it, in memory of the host; the agent only loads.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub struct Mirror {
    /// A copy of [`super::Switch::word`]: [`SwitchWord`]. It only grows.
    pub word: u64,
    /// [`super::Channel::bound`] is not 0. Set once.
    pub bound: u64,
    /// Tickets published, as a waiter saw it now and then. For counts only.
    pub posted: u64,
    /// When the switch under way was noticed.
    pub noticed_ns: u64,
    /// When the channel was last opened, or ended.
    pub opened_ns: u64,
    /// When the channel first had no usable path; 0 while it has one.
    pub dead_since_ns: u64,
    /// A copy of [`super::Switch::journal_queue`].
    pub journal_queue: u64,
    /// A copy of [`super::Switch::executed`].
    pub executed: u64,
    /// Generations opened because of a fault.
    pub failovers: u64,
    /// Generations opened by a switch-back.
    pub switchbacks: u64,
    /// A copy of [`super::Switch::cause`].
    pub cause: u32,
    /// Unused, zero.
    pub reserved: u32,
    /// Unused, zero.
    pub pad: [u64; 5],
}

const _: () = assert!(size_of::<Mirror>() == 128 && align_of::<Mirror>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 10] = [
        Step::Idle,
        Step::Settle,
        Step::Fence,
        Step::Choose,
        Step::Ledger,
        Step::Replay,
        Step::Drain,
        Step::DrainFlush,
        Step::Dead,
        Step::Uncertain,
    ];

    #[test]
    fn fields_do_not_touch_and_every_change_is_greater() {
        let start = SwitchWord::START;
        assert_eq!((start.step(), start.slot(), start.to(), start.version()), (Step::Idle, 0, NO_SLOT, 0));
        for step in STEPS {
            for slot in 0..8 {
                let word = start.cleared(step).announced(slot).opened(7 - slot).at_step(step);
                assert_eq!((word.step(), word.slot(), word.to()), (step, 7 - slot, slot));
                assert_eq!((word.version(), word.lock_passed()), (4, false));
                assert!(word.passed().lock_passed() && word.passed() > word);
                assert_eq!(word.announced(NO_SLOT).to(), NO_SLOT);
                assert!(word.cleared(Step::Idle) > word && word.at_step(Step::Idle) > word);
            }
        }
    }

    #[test]
    fn a_slot_is_left_once_nothing_of_it_is_used() {
        let open = SwitchWord::START.cleared(Step::Choose).announced(2).opened(2);
        assert!(open.has_left(0) && open.has_left(1) && !open.has_left(2));
        let fence = open.cleared(Step::Settle).at_step(Step::Fence);
        assert!(!fence.has_left(2) && fence.has_left(1), "its completions are still read");
        let choose = fence.at_step(Step::Choose);
        assert!(choose.has_left(2) && choose.has_left(1));
        let replay = choose.announced(1).at_step(Step::Replay);
        assert!(replay.has_left(2) && !replay.has_left(1));
        let dead = replay.at_step(Step::Dead);
        assert!((0..8).all(|slot| !dead.has_left(slot) && dead.passed().has_left(slot)));
    }
}
