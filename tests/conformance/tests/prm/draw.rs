//! Values at random, by seed: edges as often as the middle.

/// A source of numbers.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A value of `bits` bits.
    pub fn bits(&mut self, bits: u32) -> u64 {
        let mask = u64::MAX >> (64 - bits);
        match self.next() % 8 {
            0 => 0,
            1 => mask,
            2 => 1 << (self.next() % bits as u64),
            _ => self.next() & mask,
        }
    }

    /// A value of `bits` bits as a `u32`.
    pub fn word(&mut self, bits: u32) -> u32 {
        assert!(bits <= 32);
        self.bits(bits) as u32
    }

    /// A value below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        (self.next() % end as u64) as u32
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.bits(8) as u8)
    }
}
