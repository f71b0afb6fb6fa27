//! What the workload writes: a word that depends on seed, put and offset, so that a stale, torn, misplaced or
//! repeated byte is seen; and the poison that a checked slot is left with, so that a late write is seen.
//!
//! Memory is `[AtomicU64]` with relaxed accesses: a NIC writes it while we look.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Odd, so that the words of one put differ from each other whatever the put.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
/// Words between two poisoned ones: one in every 512 bytes.
const POISON_STRIDE: usize = 64;
const POISON: u64 = 0xdead_5107_dead_5107;

/// Which run and which stream of it a word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Salt(u64);

impl Salt {
    /// The salt of one stream of a run.
    pub fn new(seed: u64, source: u32, channel: u32) -> Self {
        Self(scramble(seed ^ scramble((source as u64) << 32 | channel as u64)))
    }
}

/// A bijection that spreads every bit (the finaliser of splitmix64).
fn scramble(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// First word of put `put`; word k is `base + k * STRIDE`.
fn base(salt: Salt, put: u64) -> u64 {
    scramble(salt.0.wrapping_add(scramble(put.wrapping_add(STRIDE))))
}

/// The word of put `put` at word offset `k`.
pub fn word(salt: Salt, put: u64, k: usize) -> u64 {
    base(salt, put).wrapping_add((k as u64).wrapping_mul(STRIDE))
}

/// Writes put `put` into `slot`.
pub fn fill(slot: &[AtomicU64], salt: Salt, put: u64) {
    let mut value = base(salt, put);
    for word in slot {
        word.store(value, Relaxed);
        value = value.wrapping_add(STRIDE);
    }
}

/// Word offset of the first word that is not that of put `put`.
pub fn first_mismatch(slot: &[AtomicU64], salt: Salt, put: u64) -> Option<usize> {
    let mut value = base(salt, put);
    for (k, word) in slot.iter().enumerate() {
        if word.load(Relaxed) != value {
            return Some(k);
        }
        value = value.wrapping_add(STRIDE);
    }
    None
}

/// Word offsets that carry poison: one in 64, the first and the last included.
fn poisoned(words: usize) -> impl Iterator<Item = usize> {
    (0..words).step_by(POISON_STRIDE).chain(words.checked_sub(1))
}

/// Marks a slot that nobody may write until its credit was returned.
pub fn poison(slot: &[AtomicU64]) {
    for k in poisoned(slot.len()) {
        slot[k].store(POISON ^ k as u64, Relaxed);
    }
}

/// Word offset of the first poisoned word that was overwritten.
pub fn broken_poison(slot: &[AtomicU64]) -> Option<usize> {
    poisoned(slot.len()).find(|&k| slot[k].load(Relaxed) != POISON ^ k as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn any_other_put_stream_seed_or_shift_is_seen() {
        let (a, memory) = (Salt::new(1, 0, 0), slot(512));
        fill(&memory, a, 7);
        assert_eq!(first_mismatch(&memory, a, 7), None);
        assert_eq!(memory[100].load(Relaxed), word(a, 7, 100));
        assert_eq!(first_mismatch(&memory, a, 8), Some(0));
        assert_eq!(first_mismatch(&memory, Salt::new(2, 0, 0), 7), Some(0));
        assert_eq!(first_mismatch(&memory, Salt::new(1, 0, 1), 7), Some(0));
        assert_eq!(first_mismatch(&memory, Salt::new(1, 1, 0), 7), Some(0));
        assert_eq!(first_mismatch(&memory[1..], a, 7), Some(0));
        memory[511].store(0, Relaxed);
        assert_eq!(first_mismatch(&memory, a, 7), Some(511));
    }

    #[test]
    fn one_byte_of_poison_is_enough() {
        for words in [1, 2, 64, 65, 8192] {
            let memory = slot(words);
            poison(&memory);
            assert_eq!(broken_poison(&memory), None);
            for k in [0, words - 1] {
                poison(&memory);
                memory[k].fetch_xor(1, Relaxed);
                assert_eq!(broken_poison(&memory), Some(k), "{words}");
            }
        }
    }

    #[test]
    fn a_put_breaks_every_poisoned_word() {
        let memory = slot(64);
        poison(&memory);
        fill(&memory, Salt::new(3, 0, 0), 1);
        assert_eq!(broken_poison(&memory), Some(0));
    }
}
