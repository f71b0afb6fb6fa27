//! What tells two states apart: 128 bits of everything that their `Hash` names.

use std::hash::{Hash, Hasher};

/// Odd constants without a pattern: the fractions of the square roots of 2, 3, 5 and 7.
const KEYS: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// 128 bits of `state`.
pub fn of<T: Hash>(state: &T) -> u128 {
    let mut hasher = Mixer { first: KEYS[0], second: KEYS[1], pending: 0, bits: 0 };
    state.hash(&mut hasher);
    hasher.both()
}

/// Two lanes of multiply and fold. Small fields are gathered to words first.
struct Mixer {
    first: u64,
    second: u64,
    pending: u64,
    bits: u32,
}

/// The halves of a product, folded: each bit of the factors reaches all of the result.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Mixer {
    fn word(&mut self, word: u64) {
        self.first = fold(self.first ^ word, KEYS[2]);
        self.second = fold(self.second.rotate_left(23) ^ word ^ KEYS[3], KEYS[1]);
    }

    fn both(mut self) -> u128 {
        self.word(self.pending ^ u64::from(self.bits) << 56);
        u128::from(fold(self.first, KEYS[0])) << 64 | u128::from(fold(self.second, KEYS[3]))
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.first
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.pending |= u64::from(byte) << self.bits;
        self.bits += 8;
        if self.bits == 64 {
            self.word(self.pending);
            (self.pending, self.bits) = (0, 0);
        }
    }

    fn write_u64(&mut self, word: u64) {
        if self.bits == 0 {
            return self.word(word);
        }
        self.word(self.pending | word << self.bits);
        self.pending = word >> (64 - self.bits);
    }

    /// Lengths of arrays: all states have the same, but two bytes say so.
    fn write_usize(&mut self, length: usize) {
        self.write(&(length as u16).to_le_bytes());
    }

    /// Which variant an enum is: none has 256.
    fn write_isize(&mut self, variant: isize) {
        self.write_u8(variant as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::of;
    use std::collections::HashSet;

    #[test]
    fn neighbours_differ_in_both_halves() {
        let (mut high, mut low) = (HashSet::new(), HashSet::new());
        for a in 0..64u8 {
            for b in 0..64u64 {
                for c in [[0u8; 3], [0, 0, 1], [1, 0, 0]] {
                    let print = of(&(a, b, c));
                    assert!(high.insert((print >> 64) as u64) && low.insert(print as u64), "{a} {b} {c:?}");
                }
            }
        }
    }

    #[test]
    fn equal_states_are_equal() {
        assert_eq!(of(&(1u8, Some(2u64), "x")), of(&(1u8, Some(2u64), "x")));
        assert_ne!(of(&Some(0u8)), of(&None::<u8>));
    }
}
