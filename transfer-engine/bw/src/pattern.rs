//! What memory holds: bytes that tell transfer and page.

/// Stands where a page was read.
pub const READ: u8 = 0xcc;

/// The word that a page is filled with, of the so-many-th use of a slot. No byte pattern of [`READ`].
pub const fn word(slot: usize, turn: u64, page: u64) -> u64 {
    let mixed =
        (slot as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ turn.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // The lowest byte counts pages, and the next one is never that of READ.
    (mixed ^ mixed >> 31) & !0xffff | (page & 0xff)
}

/// The bytes of a page.
pub fn bytes(slot: usize, turn: u64, page: u64, size: u64) -> Vec<u8> {
    word(slot, turn, page).to_le_bytes().repeat(size as usize / 8)
}

/// Pages of a slot whose bytes are not those of its turn.
pub fn wrong(slot: usize, turn: u64, memory: &[u8], size: u64) -> u64 {
    let pages = (0..).zip(memory.chunks_exact(size as usize));
    let is_wrong = |(page, bytes): &(u64, &[u8])| {
        let word = word(slot, turn, *page).to_le_bytes();
        bytes.chunks_exact(8).any(|chunk| chunk != word)
    };
    pages.filter(is_wrong).count() as u64
}

/// Whether memory of a slot holds something else than its turn's bytes and [`READ`]: a cancelled transfer leaves both,
/// and over TCP it is cut off at any byte.
pub fn is_foreign(slot: usize, turn: u64, memory: &[u8], size: u64) -> bool {
    let pages = (0..).zip(memory.chunks_exact(size as usize));
    let is_foreign = |(page, bytes): (u64, &[u8])| {
        let word = word(slot, turn, page).to_le_bytes();
        let is_theirs = |(byte, own): (&u8, &u8)| byte == own || *byte == READ;
        bytes.chunks_exact(8).any(|chunk| !chunk.iter().zip(&word).all(is_theirs))
    };
    pages.into_iter().any(is_foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_turn_are_foreign() {
        let mut memory = [READ; 64];
        memory[8..16].copy_from_slice(&bytes(3, 7, 0, 8));
        assert!(!is_foreign(3, 7, &memory, 32));
        assert!(is_foreign(3, 8, &memory, 32) && is_foreign(3, 7, &memory, 8));
        memory[40] = 0;
        assert!(is_foreign(3, 7, &memory, 32));
    }

    #[test]
    fn a_write_that_was_cut_off_at_any_byte_is_not_foreign() {
        for cut in 0..=32 {
            let mut memory = [READ; 32];
            memory[..cut].copy_from_slice(&bytes(3, 7, 0, 32)[..cut]);
            assert!(!is_foreign(3, 7, &memory, 32), "cut at {cut}");
        }
    }
}
