//! Values at random, by seed: edges as often as the middle.

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// A source that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A value of `bits` bits, 1 to 64: none, all or one of them set in three of eight draws.
    pub fn bits(&mut self, bits: u32) -> u64 {
        let mask = u64::MAX >> (64 - bits);
        match self.any() % 8 {
            0 => 0,
            1 => mask,
            2 => 1 << (self.any() % bits as u64),
            _ => self.any() & mask,
        }
    }

    /// A value of `bits` bits, 1 to 32.
    pub fn word(&mut self, bits: u32) -> u32 {
        (self.bits(bits) & 0xffff_ffff) as u32
    }

    /// A value below `end`, all alike.
    pub fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }

    /// Heads or tails.
    pub fn coin(&mut self) -> bool {
        self.any() % 2 == 1
    }

    /// Bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.bits(8) as u8)
    }

    /// Bytes, all alike.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.any().to_le_bytes()[..chunk.len()]);
        }
    }
}
