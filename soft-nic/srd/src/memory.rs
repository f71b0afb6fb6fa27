//! Memory of the program's: what it registered, and the rings that it shares with its device.

use crate::format::Piece;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Rights of memory; the numbers are those of verbs.
pub mod access {
    /// Receives and reads may write to it.
    pub const LOCAL_WRITE: u32 = 1;
    /// Others may read it.
    pub const REMOTE_READ: u32 = 4;
}

/// Keys have so many bits.
const KEYS: u32 = 1 << 24;
/// The step from one key to the next: odd, so that all come by, and far, so that an old one is known for what it is.
const KEY_STEP: u32 = 0x9e_3779;

/// A region.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Protection domain.
    pub pd: u16,
    /// First address in the process.
    pub start: u64,
    /// Address that requests name it by.
    pub iova: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Rights.
    pub access: u32,
}

/// What is registered.
#[derive(Default)]
pub struct Regions {
    last: u32,
    all: BTreeMap<u32, Region>,
}

impl Regions {
    /// Registers a region: its key. `None` if there are too many, or it is beyond the address space.
    ///
    /// # Safety
    /// The memory stays mapped until [`Self::remove`]. What else touches it meanwhile races with a device.
    pub unsafe fn add(&mut self, region: Region) -> Option<u32> {
        if self.all.len() as u32 >= KEYS / 2 || region.start.checked_add(region.bytes).is_none() {
            return None;
        }
        loop {
            self.last = self.last.wrapping_add(KEY_STEP) % KEYS;
            if self.last != 0 && !self.all.contains_key(&self.last) {
                self.all.insert(self.last, region);
                return Some(self.last);
            }
        }
    }

    /// Forgets a region. False if there is none.
    pub fn remove(&mut self, key: u32) -> bool {
        self.all.remove(&key).is_some()
    }

    /// True if some are of this domain.
    pub fn has(&self, pd: u16) -> bool {
        self.all.values().any(|region| region.pd == pd)
    }

    /// Where a piece lies in the process, if a key of this domain allows that.
    fn place(&self, pd: u16, piece: Piece, access: u32) -> Option<usize> {
        let region = self.all.get(&piece.key)?;
        let offset = piece.address.checked_sub(region.iova)?;
        let end = offset.checked_add(piece.bytes.into())?;
        let fits = region.pd == pd && region.access & access == access && end <= region.bytes;
        fits.then(|| (region.start + offset) as usize)
    }

    /// True if a key of this domain allows it.
    pub fn allows(&self, pd: u16, piece: Piece, access: u32) -> bool {
        piece.bytes == 0 || self.place(pd, piece, access).is_some()
    }

    /// Reads a piece from its `skip`th byte on, as much as `into` holds. False if no key allows it.
    pub fn read(&self, pd: u16, piece: Piece, skip: u32, access: u32, into: &mut [u8]) -> bool {
        let Some(piece) = part(piece, skip, into.len()) else { return false };
        if into.is_empty() {
            return true;
        }
        let Some(from) = self.place(pd, piece, access) else { return false };
        // SAFETY: `place` is inside a region, which `add`'s caller keeps mapped; `into` is ours and lies elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, into.as_mut_ptr(), into.len()) };
        true
    }

    /// Writes bytes into a piece from its `skip`th byte on. False if no key allows it.
    pub fn write(&self, pd: u16, piece: Piece, skip: u32, bytes: &[u8]) -> bool {
        let Some(piece) = part(piece, skip, bytes.len()) else { return false };
        if bytes.is_empty() {
            return true;
        }
        let Some(to) = self.place(pd, piece, access::LOCAL_WRITE) else { return false };
        // SAFETY: as in `read`: a region that stays mapped, and bytes of ours.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        true
    }
}

/// A part of a piece.
fn part(piece: Piece, skip: u32, bytes: usize) -> Option<Piece> {
    let bytes = u32::try_from(bytes).ok()?;
    let fits = skip.checked_add(bytes)? <= piece.bytes;
    fits.then(|| Piece { address: piece.address.wrapping_add(skip.into()), bytes, ..piece })
}

/// Memory that the program maps, too: a ring, or a register.
#[derive(Debug)]
pub struct Shared {
    address: usize,
    bytes: usize,
}

impl Shared {
    /// Memory at this address.
    ///
    /// # Safety
    /// It is aligned to eight bytes, writable, and stays mapped as long as this is used. The program touches it by
    /// whole words, or not while the device does.
    pub unsafe fn new(address: u64, bytes: usize) -> Self {
        Self { address: address as usize, bytes }
    }

    /// A word's place, judged.
    fn at(&self, offset: usize, bytes: usize) -> usize {
        assert!(offset + bytes <= self.bytes && offset.is_multiple_of(bytes), "offset {offset:#x}");
        self.address + offset
    }

    /// The register at an offset; what the program wrote before it is seen after it.
    pub fn register(&self, offset: usize) -> u32 {
        // SAFETY: inside the memory and aligned, as `at` has judged; it stays mapped, says `new`'s caller.
        unsafe { &*(self.at(offset, 4) as *const AtomicU32) }.load(Ordering::Acquire)
    }

    fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as in `register`.
        unsafe { &*(self.at(offset, 8) as *const AtomicU64) }
    }

    /// An entry of a ring.
    pub fn entry<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        for (n, into) in bytes.chunks_exact_mut(8).enumerate() {
            into.copy_from_slice(&self.long(offset + n * 8).load(Ordering::Relaxed).to_ne_bytes());
        }
        bytes
    }

    /// Writes an entry: its first word last, so that who sees that one sees all.
    pub fn put(&self, offset: usize, words: &[u64]) {
        for (n, word) in words.iter().enumerate().skip(1) {
            self.long(offset + n * 8).store(*word, Ordering::Relaxed);
        }
        if let Some(first) = words.first() {
            self.long(offset).store(*first, Ordering::Release);
        }
    }

    /// Empties it.
    pub fn clear(&self) {
        for offset in (0..self.bytes & !7).step_by(8) {
            self.long(offset).store(0, Ordering::Relaxed);
        }
        fence(Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(memory: &mut [u8], access: u32) -> Region {
        let start = memory.as_mut_ptr().expose_provenance() as u64;
        Region { pd: 3, start, iova: 0x10_0000, bytes: memory.len() as u64, access }
    }

    #[test]
    fn keys_allow_what_they_say_and_nothing_else() {
        let mut memory = *b"0123456789";
        let mut regions = Regions::default();
        // SAFETY: it lives until the test ends; so below.
        let key = unsafe { regions.add(region(&mut memory, access::REMOTE_READ)) }.unwrap();
        let piece = |offset: u64, bytes| Piece { key, address: 0x10_0000 + offset, bytes };
        let mut into = [0; 4];
        assert!(regions.read(3, piece(2, 8), 1, access::REMOTE_READ, &mut into));
        assert_eq!(&into, b"3456");
        assert!(regions.read(3, piece(2, 8), 0, 0, &mut into), "its own program may");
        for (pd, piece, skip) in [
            (4, piece(2, 8), 0),
            (3, piece(7, 8), 0),
            (3, piece(2, 4), 1),
            (3, Piece { key: key + 1, ..piece(0, 4) }, 0),
            (3, Piece { address: 0, ..piece(0, 4) }, 0),
            (3, Piece { address: u64::MAX, ..piece(0, 4) }, 0),
            (3, piece(0, 4), u32::MAX),
        ] {
            assert!(!regions.read(pd, piece, skip, 0, &mut into), "{piece:?} {skip}");
        }
        assert!(!regions.write(3, piece(0, 4), 0, b"xx"), "without the right to write");
        assert!(regions.remove(key) && !regions.remove(key));
        assert!(!regions.read(3, piece(2, 8), 0, 0, &mut into));
        // SAFETY: as above.
        let next = unsafe { regions.add(region(&mut memory, access::LOCAL_WRITE)) }.unwrap();
        assert!(next != key && next < KEYS);
        let piece = Piece { key: next, address: 0x10_0000, bytes: 10 };
        assert!(regions.write(3, piece, 8, b"xy") && !regions.write(3, piece, 9, b"xy"));
        assert!(!regions.read(3, piece, 0, access::REMOTE_READ, &mut into));
        assert_eq!(&memory, b"01234567xy");
    }

    #[test]
    fn rings_are_read_and_written() {
        let mut words = [0u64; 8];
        let address = words.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: as above.
        let shared = unsafe { Shared::new(address, 64) };
        shared.put(16, &[0x1_0000_0002, 3]);
        assert_eq!((shared.register(16), shared.register(20), shared.register(24)), (2, 1, 3));
        let bytes: [u8; 16] = shared.entry(16);
        assert_eq!((bytes[0], bytes[4], bytes[8]), (2, 1, 3));
        shared.clear();
        assert_eq!(shared.entry::<64>(0), [0; 64]);
    }
}
