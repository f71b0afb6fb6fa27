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
