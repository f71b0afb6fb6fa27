//! Buffers of the program's own that it registered: ranges that do not overlap. Pure.
//!
//! Transfers from and to memory outside the symmetric heap go through a staging buffer inside it, registered or not:
//! registering such memory on NICs is what a GPU's heap needs. What is kept here is the promise that calls are
//! answered as they should be.

use std::collections::BTreeMap;
use thiserror::Error;

/// Why a call is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RegistryError {
    /// No bytes, or no address.
    #[error("buffer: expected an address and at least one byte, got {bytes} bytes at {at:#x}")]
    Nothing {
        /// Address.
        at: u64,
        /// Length.
        bytes: u64,
    },
    /// It touches another.
    #[error("{bytes} bytes at {at:#x} overlap a buffer at {other:#x} that is registered")]
    Overlaps {
        /// Address.
        at: u64,
        /// Length.
        bytes: u64,
        /// The other's address.
        other: u64,
    },
    /// It lies in the symmetric heap, which is registered as a whole.
    #[error("{at:#x} lies in the symmetric heap, which is registered already")]
    Symmetric {
        /// Address.
        at: u64,
    },
    /// None begins there.
    #[error("buffer: expected the address that one was registered with, got {at:#x}")]
    Unknown {
        /// Address.
        at: u64,
    },
}

/// The buffers.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    buffers: BTreeMap<u64, u64>,
}

impl Registry {
    /// Registers a buffer. `heap` is the symmetric heap's first address and the one behind it.
    ///
    /// # Errors
    /// It is none, overlaps another, or lies in the heap.
    pub fn add(&mut self, at: u64, bytes: u64, heap: std::ops::Range<u64>) -> Result<(), RegistryError> {
        let end = at.checked_add(bytes).filter(|_| at != 0 && bytes != 0);
        let end = end.ok_or(RegistryError::Nothing { at, bytes })?;
        if at < heap.end && heap.start < end {
            return Err(RegistryError::Symmetric { at });
        }
        if let Some((&other, &length)) = self.buffers.range(..end).next_back()
            && other + length > at
        {
            return Err(RegistryError::Overlaps { at, bytes, other });
        }
        self.buffers.insert(at, bytes);
        Ok(())
    }

    /// Forgets the buffer that begins there.
    ///
    /// # Errors
    /// There is none.
    pub fn remove(&mut self, at: u64) -> Result<(), RegistryError> {
        self.buffers.remove(&at).map(|_| ()).ok_or(RegistryError::Unknown { at })
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.buffers.clear();
    }

    /// Whether a range lies in one of them.
    pub fn contains(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        self.buffers.range(..=at).next_back().is_some_and(|(start, length)| end <= start + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAP: std::ops::Range<u64> = 1000..2000;

    #[test]
    fn buffers_are_found_and_forgotten() {
        let mut registry = Registry::default();
        assert_eq!(registry.add(100, 50, HEAP), Ok(()));
        assert_eq!(
            registry.add(149, 1, HEAP),
            Err(RegistryError::Overlaps { at: 149, bytes: 1, other: 100 })
        );
        assert_eq!(
            registry.add(90, 11, HEAP),
            Err(RegistryError::Overlaps { at: 90, bytes: 11, other: 100 })
        );
        assert_eq!(registry.add(150, 10, HEAP), Ok(()));
        assert!(registry.contains(100, 50) && !registry.contains(100, 51) && !registry.contains(99, 1));
        assert_eq!(registry.remove(110), Err(RegistryError::Unknown { at: 110 }));
        assert_eq!(registry.remove(100), Ok(()));
        assert!(!registry.contains(100, 1));
        registry.clear();
        assert!(!registry.contains(150, 1));
    }

    #[test]
    fn what_is_no_buffer_is_refused() {
        let mut registry = Registry::default();
        for (at, bytes) in [(0, 8), (8, 0), (u64::MAX, 8)] {
            assert_eq!(registry.add(at, bytes, HEAP), Err(RegistryError::Nothing { at, bytes }));
        }
        assert_eq!(registry.add(1999, 8, HEAP), Err(RegistryError::Symmetric { at: 1999 }));
        assert_eq!(registry.add(999, 1, HEAP), Ok(()));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_map_of_bytes(calls in prop::collection::vec((1u64..64, 1u64..12, any::<bool>()), 0..60)) {
            let (mut registry, mut bytes) = (Registry::default(), [0u64; 128]);
            for (at, length, add) in calls {
                let span = at as usize..(at + length) as usize;
                if add {
                    let clear = bytes[span.clone()].iter().all(|owner| *owner == 0);
                    prop_assert_eq!(registry.add(at, length, HEAP).is_ok(), clear);
                    if clear {
                        bytes[span].fill(at);
                    }
                } else {
                    let there = bytes[at as usize] == at;
                    prop_assert_eq!(registry.remove(at).is_ok(), there);
                    bytes.iter_mut().filter(|owner| **owner == at).for_each(|owner| *owner = 0);
                }
                let owner = bytes[at as usize];
                let inside = owner != 0 && bytes[at as usize..(at + length) as usize].iter().all(|o| *o == owner);
                prop_assert_eq!(registry.contains(at, length), inside);
            }
        }
    }
}
