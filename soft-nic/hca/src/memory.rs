//! Memory the NIC may touch: umems, memory keys, and the copies themselves.
//!
//! A [`Span`] is made only here, from a registered umem. Its registrar promised that the memory stays
//! valid until deregistered and is only accessed atomically meanwhile; the NIC promises that no span of a
//! umem is used after it let go of it (users are counted, posted writes are dropped).

use crate::object_table::Table;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Bytes in a registered umem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    address: u64,
    bytes: u64,
}

impl Span {
    /// No memory: of a queue that is never read.
    pub(crate) const NOTHING: Self = Self { address: 0, bytes: 0 };

    /// First address.
    pub(crate) fn address(self) -> u64 {
        self.address
    }

    /// Length.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// The part of `bytes` at `offset`.
    ///
    /// # Panics
    /// If it does not lie inside: every caller has checked a length against a context or a key before.
    pub(crate) fn part(self, offset: u64, bytes: u64) -> Self {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "a DMA outside its span");
        Self { address: self.address + offset, bytes }
    }

    /// Writes `bytes` at its start, the last byte no earlier than the others in program order.
    #[inline]
    pub(crate) fn store(self, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= self.bytes, "a DMA outside its span");
        // What was placed before must be visible before this: this may be the flag that covers it.
        fence(Ordering::Release);
        // SAFETY: a span lies in a registered umem, which its owner keeps valid and shares atomically only.
        unsafe { store_bytes(self.address as *mut u8, bytes) }
    }

    /// Reads as many bytes as `into` holds from its start.
    #[inline]
    pub(crate) fn load(self, into: &mut [u8]) {
        assert!(into.len() as u64 <= self.bytes, "a DMA outside its span");
        // SAFETY: as in `store`.
        unsafe { load_bytes(self.address as *const u8, into) }
    }

    /// The 64-bit word at `offset`, a multiple of eight from an aligned start.
    #[inline]
    fn word64(&self, offset: u64) -> &AtomicU64 {
        assert!(offset + 8 <= self.bytes && (self.address + offset).is_multiple_of(8), "not an aligned word");
        // SAFETY: as in `store`; alignment and bounds were just checked.
        unsafe { AtomicU64::from_ptr((self.address + offset) as *mut u64) }
    }

    /// The 32-bit word at `offset`.
    #[inline]
    fn word32(&self, offset: u64) -> &AtomicU32 {
        assert!(offset + 4 <= self.bytes && (self.address + offset).is_multiple_of(4), "not an aligned word");
        // SAFETY: as in `store`; alignment and bounds were just checked.
        unsafe { AtomicU32::from_ptr((self.address + offset) as *mut u32) }
    }

    /// Loads a 64-bit word with acquire.
    #[inline]
    pub(crate) fn load64(&self, offset: u64) -> u64 {
        self.word64(offset).load(Ordering::Acquire)
    }

    /// Stores a 64-bit word; all earlier stores become visible first.
    #[inline]
    pub(crate) fn store64_release(&self, offset: u64, value: u64) {
        self.word64(offset).store(value, Ordering::Release);
    }

    /// Stores a 64-bit word, unordered.
    #[inline]
    pub(crate) fn store64(&self, offset: u64, value: u64) {
        self.word64(offset).store(value, Ordering::Relaxed);
    }

    /// Loads a 32-bit word with acquire.
    #[inline]
    pub(crate) fn load32(&self, offset: u64) -> u32 {
        self.word32(offset).load(Ordering::Acquire)
    }
}

/// Bytes that are copied without a look at how many are left.
const LINE: usize = 64;

/// Stores whole words, in order. The count is known where it is compiled: nothing is left of the loop.
///
/// # Safety
/// `to` is a multiple of eight, valid for `N` bytes, and shared through atomic accesses only.
#[inline(always)]
unsafe fn store_words<const N: usize>(to: usize, bytes: &[u8; N]) {
    for (n, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: aligned, and inside what the caller vouches for.
        let place = unsafe { AtomicU64::from_ptr((to + 8 * n) as *mut u64) };
        place.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
    }
}

/// Loads whole words.
///
/// # Safety
/// As for [`store_words`].
#[inline(always)]
unsafe fn load_words<const N: usize>(from: usize, into: &mut [u8; N]) {
    for (n, word) in into.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // SAFETY: as in `store_words`.
        let place = unsafe { AtomicU64::from_ptr((from + 8 * n) as *mut u64) };
        *word = place.load(Ordering::Relaxed).to_ne_bytes();
    }
}

/// Copies out to shared memory: whole aligned words where it can, so that nobody sees a torn word.
///
/// # Safety
/// `to` is valid for `bytes.len()` bytes and shared through atomic accesses only.
unsafe fn store_bytes(to: *mut u8, bytes: &[u8]) {
    let mut at = to as usize;
    let mut rest = bytes;
    while !rest.is_empty() {
        // Largest power of two, up to 8, that the address is aligned to and the rest can fill.
        if at.is_multiple_of(8) && rest.len() >= 8 {
            let (lines, tail) = rest.as_chunks::<LINE>();
            for line in lines {
                // SAFETY: aligned, and inside what the caller vouches for.
                unsafe { store_words(at, line) };
                at += LINE;
            }
            let (words, tail) = tail.as_chunks::<8>();
            for word in words {
                // SAFETY: as above.
                unsafe { store_words(at, word) };
                at += 8;
            }
            rest = tail;
        } else if at.is_multiple_of(4) && rest.len() >= 4 {
            let value = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]);
            // SAFETY: as above.
            unsafe { AtomicU32::from_ptr(at as *mut u32) }.store(value, Ordering::Relaxed);
            at += 4;
            rest = &rest[4..];
        } else if at.is_multiple_of(2) && rest.len() >= 2 {
            let value = u16::from_ne_bytes([rest[0], rest[1]]);
            // SAFETY: as above.
            unsafe { AtomicU16::from_ptr(at as *mut u16) }.store(value, Ordering::Relaxed);
            at += 2;
            rest = &rest[2..];
        } else {
            // SAFETY: as above.
            unsafe { AtomicU8::from_ptr(at as *mut u8) }.store(rest[0], Ordering::Relaxed);
            at += 1;
            rest = &rest[1..];
        }
    }
}

/// Copies in from shared memory, whole aligned words where it can.
///
/// # Safety
/// `from` is valid for `into.len()` bytes and shared through atomic accesses only.
unsafe fn load_bytes(from: *const u8, into: &mut [u8]) {
    let mut at = from as usize;
    let mut rest = into;
    while !rest.is_empty() {
        if at.is_multiple_of(8) && rest.len() >= 8 {
            let (lines, tail) = rest.as_chunks_mut::<LINE>();
            for line in lines {
                // SAFETY: aligned, and inside what the caller vouches for.
                unsafe { load_words(at, line) };
                at += LINE;
            }
            let (words, tail) = tail.as_chunks_mut::<8>();
            for word in words {
                // SAFETY: as above.
                unsafe { load_words(at, word) };
                at += 8;
            }
            rest = tail;
        } else if at.is_multiple_of(4) && rest.len() >= 4 {
            // SAFETY: as above.
            let value = unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Ordering::Relaxed);
            let (word, tail) = rest.split_at_mut(4);
            word.copy_from_slice(&value.to_ne_bytes());
            at += 4;
            rest = tail;
        } else {
            let (byte, tail) = rest.split_at_mut(1);
            // SAFETY: as above.
            byte[0] = unsafe { AtomicU8::from_ptr(at as *mut u8) }.load(Ordering::Relaxed);
            at += 1;
            rest = tail;
        }
    }
}

/// A registered span of process memory.
#[derive(Clone, Copy, Debug)]
struct Umem {
    span: Span,
    users: u32,
}

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    LocalRead,
    LocalWrite,
    RemoteRead,
    RemoteWrite,
    RemoteAtomic,
}

/// A memory key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mkey {
    /// `index << 8 | low byte`.
    pub(crate) key: u32,
    pub(crate) pd: u32,
    /// The only queue pair allowed, or 0xffffff.
    pub(crate) qpn: u32,
    /// First virtual address.
    pub(crate) start: u64,
    /// The memory.
    pub(crate) span: Span,
    /// One bit for each [`Access`].
    pub(crate) allows: u8,
    /// Writes may pass earlier writes.
    pub(crate) relaxed: bool,
    pub(crate) umem: u32,
}

/// One use of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) key: u32,
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// Why a registration or deregistration was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UmemFault {
    Unknown,
    Busy(u32),
}

/// First memory key index handed out: key 0 and its neighbours never work.
const FIRST_MKEY: u32 = 0x100;

/// Umems and keys of one NIC.
pub(crate) struct Memory {
    umems: Table<Umem>,
    mkeys: Table<Mkey>,
}

impl Memory {
    /// Nothing registered; the first `keys_skipped` indices of keys are never handed out.
    pub(crate) fn new(keys_skipped: u16) -> Self {
        let first = FIRST_MKEY + u32::from(keys_skipped);
        Self { umems: Table::starting_at(1), mkeys: Table::starting_at(first) }
    }

    /// Registered spans and keys that nobody let go of.
    pub(crate) fn live(&self) -> usize {
        self.umems.live() + self.mkeys.live()
    }

    /// Registers memory.
    ///
    /// # Safety
    /// The memory stays valid until deregistered and is only accessed atomically meanwhile.
    pub(crate) unsafe fn register(&mut self, address: u64, bytes: u64) -> u32 {
        self.umems.add(Umem { span: Span { address, bytes }, users: 0 })
    }

    /// Lets go of a umem, and says where it was.
    pub(crate) fn deregister(&mut self, id: u32) -> Result<Span, UmemFault> {
        match self.umems.get(id) {
            Some(umem) if umem.users > 0 => Err(UmemFault::Busy(umem.users)),
            _ => self.umems.remove(id).map(|umem| umem.span).ok_or(UmemFault::Unknown),
        }
    }

    /// A part of a umem, if it lies inside.
    pub(crate) fn span(&self, umem: u32, offset: u64, bytes: u64) -> Option<Span> {
        let umem = self.umems.get(umem)?;
        let inside = offset <= umem.span.bytes && bytes <= umem.span.bytes - offset;
        inside.then(|| umem.span.part(offset, bytes))
    }

    /// Counts one more object that lies in each of these umems.
    pub(crate) fn hold(&mut self, umems: &[u32]) {
        for umem in umems {
            if let Some(umem) = self.umems.get_mut(*umem) {
                umem.users += 1;
            }
        }
    }

    /// Counts one object less.
    pub(crate) fn release(&mut self, umems: &[u32]) {
        for umem in umems {
            if let Some(umem) = self.umems.get_mut(*umem) {
                umem.users -= 1;
            }
        }
    }

    /// Adds a key, fills in its index, and returns that; `None` when all indices are used up.
    pub(crate) fn add_mkey(&mut self, low_byte: u8, mkey: Mkey) -> Option<u32> {
        let index = self.mkeys.next_number()?;
        self.hold(&[mkey.umem]);
        self.mkeys.add(Mkey { key: index << 8 | low_byte as u32, ..mkey });
        Some(index)
    }

    /// The key of an index.
    #[inline]
    pub(crate) fn mkey(&self, index: u32) -> Option<&Mkey> {
        self.mkeys.get(index)
    }

    /// Destroys a key; false if there is none.
    pub(crate) fn remove_mkey(&mut self, index: u32) -> bool {
        let removed = self.mkeys.remove(index);
        if let Some(mkey) = &removed {
            self.release(&[mkey.umem]);
        }
        removed.is_some()
    }

    /// True if a key belongs to the protection domain.
    pub(crate) fn uses_pd(&self, pd: u32) -> bool {
        self.mkeys.iter().any(|mkey| mkey.pd == pd)
    }

    /// Translates an access, or refuses it. The flag says whether writes may pass others.
    #[inline]
    pub(crate) fn check(&self, want: Use) -> Option<(Span, bool)> {
        let mkey = self.mkey(want.key >> 8)?;
        let offset = want.address.wrapping_sub(mkey.start);
        let good = mkey.key == want.key
            && mkey.pd == want.pd
            && (mkey.qpn == 0xff_ffff || mkey.qpn == want.qpn)
            && mkey.allows & 1 << want.access as u8 != 0
            && offset <= mkey.span.bytes
            && want.bytes <= mkey.span.bytes - offset;
        good.then(|| (mkey.span.part(offset, want.bytes), mkey.relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_at_every_alignment() {
        let source: Vec<u8> = (0..160).map(|i| i as u8 ^ 0x5a).collect();
        for offset in 0..9 {
            for bytes in [0, 1, 7, 8, 9, 20, 39, 63, 64, 65, 71, 72, 127, 128, 150] {
                let mut memory = [0u64; 20];
                let mut table = Memory::new(0);
                // SAFETY: the array outlives the table, and nobody else touches it.
                let id = unsafe { table.register(memory.as_mut_ptr() as u64, 160) };
                let span = table.span(id, offset, bytes).unwrap();
                span.store(&source[..bytes as usize]);
                let mut back = vec![0; bytes as usize];
                span.load(&mut back);
                assert_eq!(back, source[..bytes as usize], "offset {offset}, {bytes} bytes");
                let mut whole = [0; 160];
                table.span(id, 0, 160).unwrap().load(&mut whole);
                let outside = whole.iter().take(offset as usize).chain(&whole[(offset + bytes) as usize..]);
                assert_eq!(outside.filter(|byte| **byte != 0).count(), 0);
            }
        }
    }

    #[test]
    fn bounds_and_users() {
        let mut memory = [0u64; 2];
        let mut table = Memory::new(0);
        // SAFETY: as above.
        let id = unsafe { table.register(memory.as_mut_ptr() as u64, 16) };
        assert!(table.span(id, 8, 9).is_none() && table.span(id, 17, 0).is_none());
        assert!(table.span(id, u64::MAX, 2).is_none() && table.span(0, 0, 1).is_none());
        table.hold(&[id]);
        assert_eq!(table.deregister(id), Err(UmemFault::Busy(1)));
        table.release(&[id]);
        assert!(table.deregister(id).is_ok());
        assert_eq!(table.deregister(id), Err(UmemFault::Unknown));
    }
}
