//! The symmetric heap's bookkeeping: which bytes are given away. Pure and deterministic, so that the same calls give
//! the same offsets on every PE.
//!
//! First fit over free ranges that are kept in order and joined when they touch.

use std::collections::BTreeMap;
use thiserror::Error;

/// Every allocation begins at a multiple of this.
pub const ALIGN: u64 = 256;
/// The heap itself begins at a multiple of this, not always the same on all PEs: offsets can promise no more.
pub const ALIGN_MAX: u64 = 4096;

/// Why a call gave nothing.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum HeapError {
    /// No free range is long enough.
    #[error(
        "the symmetric heap: expected at most {longest} bytes at once of {free} free ones, got {bytes} aligned to \
         {align}; set NVSHMEM_SYMMETRIC_SIZE to more"
    )]
    Full {
        /// Bytes asked for.
        bytes: u64,
        /// Alignment asked for.
        align: u64,
        /// Bytes free.
        free: u64,
        /// Longest free range.
        longest: u64,
    },
    /// No power of two, or too large a one.
    #[error("alignment: expected a power of two up to {ALIGN_MAX}, got {met}")]
    Align {
        /// What was asked for.
        met: u64,
    },
    /// More bytes than can be counted.
    #[error("{count} times {size} bytes are more than 64 bits can count")]
    Overflow {
        /// How many.
        count: u64,
        /// Bytes of each.
        size: u64,
    },
    /// Nothing was allocated there.
    #[error("address: expected the start of an allocation, got offset {at:#x} of the symmetric heap")]
    NotAllocated {
        /// Offset.
        at: u64,
    },
}

/// What is free and what is not.
#[derive(Clone, Debug)]
pub struct SymmetricHeap {
    bytes: u64,
    /// Start to length.
    free: BTreeMap<u64, u64>,
    /// Start to length as taken from the free ranges, and as asked for.
    taken: BTreeMap<u64, (u64, u64)>,
}

impl SymmetricHeap {
    /// An empty heap of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let free = if bytes == 0 { BTreeMap::new() } else { BTreeMap::from([(0, bytes)]) };
        Self { bytes, free, taken: BTreeMap::new() }
    }

    /// Bytes of the heap.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are free.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// Offset of `bytes` that are aligned to `align` at least.
    ///
    /// # Errors
    /// `align` is no power of two, or nothing fits.
    pub fn alloc(&mut self, bytes: u64, align: u64) -> Result<u64, HeapError> {
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(HeapError::Align { met: align });
        }
        let align_to = align.max(ALIGN);
        let full = |heap: &Self| HeapError::Full {
            bytes,
            align,
            free: heap.free_bytes(),
            longest: heap.free.values().copied().max().unwrap_or(0),
        };
        let Some(length) = bytes.max(1).checked_next_multiple_of(ALIGN) else { return Err(full(self)) };
        let fits = |(start, free): (&u64, &u64)| {
            let at = start.checked_next_multiple_of(align_to)?;
            let end = at.checked_add(length)?;
            (end <= start + free).then_some((*start, *free, at))
        };
        let Some((start, free, at)) = self.free.iter().find_map(fits) else { return Err(full(self)) };
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + length < start + free {
            self.free.insert(at + length, start + free - at - length);
        }
        self.taken.insert(at, (length, bytes));
        Ok(at)
    }

    /// The bytes of `count` elements of `size`.
    ///
    /// # Errors
    /// They cannot be counted.
    pub fn array_bytes(count: u64, size: u64) -> Result<u64, HeapError> {
        count.checked_mul(size).ok_or(HeapError::Overflow { count, size })
    }

    /// Takes an allocation back; answers with the bytes that were asked for.
    ///
    /// # Errors
    /// Nothing begins there.
    pub fn free(&mut self, at: u64) -> Result<u64, HeapError> {
        let (mut length, asked) = self.taken.remove(&at).ok_or(HeapError::NotAllocated { at })?;
        let mut start = at;
        if let Some((&before, &bytes)) = self.free.range(..at).next_back()
            && before + bytes == at
        {
            self.free.remove(&before);
            (start, length) = (before, length + bytes);
        }
        if let Some(bytes) = self.free.remove(&(start + length)) {
            length += bytes;
        }
        self.free.insert(start, length);
        Ok(asked)
    }

    /// Allocations that were not freed.
    pub fn live(&self) -> usize {
        self.taken.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One call; `Free` names an allocation by its place among those that live.
    #[derive(Clone, Debug)]
    enum Call {
        Alloc(u64, u32),
        Free(usize),
    }

    fn calls() -> impl Strategy<Value = Vec<Call>> {
        let alloc = (0u64..5000, 0u32..13).prop_map(|(bytes, align)| Call::Alloc(bytes, align));
        let call = prop_oneof![3 => alloc, 2 => (0usize..64).prop_map(Call::Free)];
        prop::collection::vec(call, 0..120)
    }

    /// Offsets and refusals, the heap, and what lives in it.
    type Made = (Vec<Result<u64, HeapError>>, SymmetricHeap, Vec<(u64, u64)>);

    /// Makes the calls; answers with all offsets and the heap.
    fn make(calls: &[Call], bytes: u64) -> Made {
        let (mut heap, mut live, mut answers) = (SymmetricHeap::new(bytes), Vec::new(), Vec::new());
        for call in calls {
            match call {
                Call::Alloc(bytes, align) => {
                    let answer = heap.alloc(*bytes, 1 << align);
                    if let Ok(at) = answer {
                        assert_eq!(at % (1 << align), 0);
                        live.push((at, *bytes));
                    }
                    answers.push(answer);
                }
                Call::Free(which) if !live.is_empty() => {
                    let (at, bytes) = live.swap_remove(which % live.len());
                    assert_eq!(heap.free(at), Ok(bytes));
                }
                Call::Free(_) => {}
            }
        }
        (answers, heap, live)
    }

    proptest! {
        #[test]
        fn the_same_calls_give_the_same_offsets(calls in calls(), bytes in 0u64..1 << 17) {
            prop_assert_eq!(make(&calls, bytes).0, make(&calls, bytes).0);
        }

        #[test]
        fn what_lives_never_overlaps_and_all_comes_back(calls in calls(), bytes in 0u64..1 << 17) {
            let (_, mut heap, mut live) = make(&calls, bytes);
            live.sort_unstable();
            for pair in live.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0);
            }
            if let Some((at, length)) = live.last() {
                prop_assert!(at + length <= bytes);
            }
            for (at, _) in live {
                prop_assert!(heap.free(at).is_ok());
                prop_assert_eq!(heap.free(at), Err(HeapError::NotAllocated { at }));
            }
            prop_assert_eq!((heap.free_bytes(), heap.live(), heap.free.len()), (bytes, 0, usize::from(bytes > 0)));
        }
    }

    #[test]
    fn what_does_not_fit_is_said_with_what_is_left() {
        let mut heap = SymmetricHeap::new(1024);
        assert_eq!((heap.alloc(1, 1), heap.alloc(256, 512), heap.alloc(0, 8)), (Ok(0), Ok(512), Ok(256)));
        let full = HeapError::Full { bytes: 300, align: 1, free: 256, longest: 256 };
        assert_eq!(heap.alloc(300, 1), Err(full));
        for met in [0, 3, 8192] {
            assert_eq!(heap.alloc(1, met), Err(HeapError::Align { met }));
        }
        assert_eq!(
            heap.alloc(u64::MAX, 1)
                .map_err(|error| error.to_string().contains("at most 256 bytes at once of 256 free ones")),
            Err(true)
        );
        assert!(SymmetricHeap::array_bytes(u64::MAX, 2).is_err());
        assert_eq!(heap.free(8), Err(HeapError::NotAllocated { at: 8 }));
    }
}
