//! The symmetric heap as the program has it: its addresses, its allocations, and buffers registered beside it.

use super::access::Access;
use super::locks::lock;
use crate::failure::Failure;
use crate::heap::SymmetricHeap;
use crate::registry::Registry;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the program has of a PE's heap.
pub struct Symmetric {
    addresses: Range<u64>,
    access: Arc<dyn Access>,
    books: Mutex<SymmetricHeap>,
    registry: Mutex<Registry>,
}

impl Symmetric {
    /// `bytes` from the address `base` on, none of them allocated.
    pub(super) fn new(base: u64, bytes: u64, access: Arc<dyn Access>) -> Self {
        let (books, registry) = (Mutex::new(SymmetricHeap::new(bytes)), Mutex::default());
        Self { addresses: base..base + bytes, access, books, registry }
    }

    /// What is allocated.
    pub fn books(&self) -> MutexGuard<'_, SymmetricHeap> {
        lock(&self.books)
    }

    /// Registered buffers.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Addresses that the program has of it.
    pub fn addresses(&self) -> Range<u64> {
        self.addresses.clone()
    }

    /// The heap offset of an address of the program's.
    pub fn offset(&self, at: u64, bytes: u64) -> Result<u64, Failure> {
        let Range { start, end } = self.addresses;
        let inside = at >= start && at <= end && bytes <= end - at;
        if inside { Ok(at - start) } else { Err(Failure::NotSymmetric { at, bytes, start, end }) }
    }

    /// Whether an aligned word of eight bytes lies there.
    pub(super) fn word(&self, at: u64) -> Result<(), Failure> {
        let offset = self.offset(at, 8)?;
        if offset.is_multiple_of(8) { Ok(()) } else { Err(Failure::Unaligned { at, bytes: 8 }) }
    }

    /// A word of eight bytes of this PE's; what was written before it is visible.
    ///
    /// # Errors
    /// It is none of the symmetric heap's.
    pub fn read_word(&self, at: u64) -> Result<u64, Failure> {
        self.word(at)?;
        // SAFETY: an aligned word of the heap.
        Ok(unsafe { self.access.load(at, 8) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::ByPointer;
    use super::*;

    #[test]
    fn only_what_lies_inside_has_an_offset() {
        let heap = Symmetric::new(4096, 64, Arc::new(ByPointer));
        assert_eq!(heap.offset(4096, 64).unwrap(), 0);
        assert_eq!(heap.offset(4160, 0).unwrap(), 64);
        for (at, bytes) in [(4095, 1), (4096, 65), (4161, 0), (u64::MAX, 8), (4104, u64::MAX)] {
            assert!(heap.offset(at, bytes).is_err(), "{at} {bytes}");
        }
        assert!(matches!(heap.read_word(4100), Err(Failure::Unaligned { at: 4100, bytes: 8 })));
    }
}
