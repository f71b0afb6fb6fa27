//! The three words of a channel that change while it works. Rules 1, 4, 5 of docs/FAILOVER.md.

/// Top bit of a ticket word: a switch is under way, wait for the next generation.
pub const CLOSED: u64 = 1 << 63;
/// Top bit of a done word: pollers must not advance it.
pub const FROZEN: u64 = 1 << 63;
/// Top bit of a ready word: the group at the head of the publish chain cannot fit while the ring is frozen.
pub const BLOCKED: u64 = 1 << 63;
/// Low bits: the logical index.
pub const INDEX_MASK: u64 = (1 << 52) - 1;
/// Generations wrap here.
pub const GENERATION_MASK: u64 = 0xff;

const SLOT_SHIFT: u32 = 60;
const GENERATION_SHIFT: u32 = 52;

/// A ticket or done word: flag 1, slot 3, generation 8, index 52 bits.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u64);

impl Word {
    /// Composes a word without its flag.
    #[inline(always)]
    pub const fn new(slot: u32, generation: u64, index: u64) -> Self {
        Self(
            (slot as u64 & 7) << SLOT_SHIFT
                | (generation & GENERATION_MASK) << GENERATION_SHIFT
                | index & INDEX_MASK,
        )
    }

    /// CLOSED (ticket word) or FROZEN (done word).
    #[inline(always)]
    pub const fn flag(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Path slot.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        (self.0 >> SLOT_SHIFT) as u32 & 7
    }

    /// Generation, modulo 256.
    #[inline(always)]
    pub const fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT & GENERATION_MASK
    }

    /// Logical index.
    #[inline(always)]
    pub const fn index(self) -> u64 {
        self.0 & INDEX_MASK
    }

    /// The same flag, slot and generation with another index.
    #[inline(always)]
    pub const fn with_index(self, index: u64) -> Self {
        Self(self.0 & !INDEX_MASK | index & INDEX_MASK)
    }

    /// True if slot and generation are those of `other`, whatever the flags.
    #[inline(always)]
    pub const fn same_generation(self, other: Self) -> bool {
        (self.0 ^ other.0) & !(INDEX_MASK | CLOSED) == 0
    }
}

/// The rail of a PE through which the words that many write take their atomics, for one channel index: rule 16. Low
/// half: the rail; high half: the version, which each move makes one more.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeWord(pub u64);

impl HomeWord {
    /// The word for a rail and a version.
    #[inline(always)]
    pub const fn new(rail: u32, version: u32) -> Self {
        Self((version as u64) << 32 | rail as u64)
    }

    /// The rail.
    #[inline(always)]
    pub const fn rail(self) -> u32 {
        self.0 as u32
    }

    /// How often it has moved.
    #[inline(always)]
    pub const fn version(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A ready word: BLOCKED 1, the generation it was said in 8, tickets published 52 bits.
///
/// The generation makes a late BLOCKED void: a group may fall asleep between seeing its ring frozen and
/// saying so.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyWord(pub u64);

impl ReadyWord {
    /// The head group announced that it cannot fit.
    #[inline(always)]
    pub const fn blocked(self) -> bool {
        self.0 & BLOCKED != 0
    }

    /// The generation BLOCKED was said in; 0 without the flag.
    #[inline(always)]
    pub const fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT & GENERATION_MASK
    }

    /// The head group cannot fit the ring that is frozen in `generation`.
    #[inline(always)]
    pub const fn blocked_in(self, generation: u64) -> bool {
        self.blocked() && self.generation() == generation & GENERATION_MASK
    }

    /// The word that says so.
    #[inline(always)]
    pub const fn with_blocked(self, generation: u64) -> Self {
        Self(BLOCKED | (generation & GENERATION_MASK) << GENERATION_SHIFT | self.index())
    }

    /// First ticket not published.
    #[inline(always)]
    pub const fn index(self) -> u64 {
        self.0 & INDEX_MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch() {
        let word = Word::new(5, 0x1fe, (1 << 52) + 7);
        assert_eq!((word.flag(), word.slot(), word.generation(), word.index()), (false, 5, 0xfe, 7));
    }

    #[test]
    fn a_hint_keeps_what_is_not_changed() {
        use super::super::HintWord;
        let word = HintWord::default().changed(true).suspected(true);
        assert!(word.down() && word.suspect());
        assert!(!word.changed(false).down() && word.changed(false).suspect());
        assert!(word.suspected(false).down() && !word.suspected(false).suspect());
        let mute = word.muted(true);
        assert!(mute.mute() && !word.mute() && mute.down() && mute.suspect());
        assert!(mute.changed(false).mute() && mute.suspected(false).mute() && !mute.muted(false).mute());
        let last = HintWord(!0).suspected(true);
        assert!(last.mute() && last.down(), "a count that wraps changes no flag");
        assert_ne!(word.changed(false).changed(true), word, "every change is counted");
    }
}
