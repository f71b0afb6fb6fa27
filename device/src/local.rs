//! This PE's own part of the heap, for kernels that keep their words and messages there: what other blocks and NICs
//! look at, and what NICs placed.
//!
//! Offsets are the caller's: aligned to the access, and inside what [`Device::holds`] said yes to.

use crate::access::{Channel, Device};
use crate::platform::{Lanes, Platform};
use crate::types::{Fault, FaultKind, HeapOffset};

/// Bytes that one access moves at most.
pub const PIECE_BYTES: u64 = 16;

impl<P: Platform> Device<'_, P> {
    /// Whether `bytes` from `at` on lie in the heap, and `at` is aligned to a piece.
    #[inline(always)]
    pub fn holds(self, at: HeapOffset, bytes: u64) -> bool {
        at.0.is_multiple_of(PIECE_BYTES) && self.heap_contains(at, bytes)
    }

    /// Stores a word; release: who acquires it sees what this lane stored before.
    #[inline(always)]
    pub fn store(self, at: HeapOffset, value: u64) {
        // SAFETY: an aligned word of the heap (module documentation).
        unsafe { self.platform.store_release(self.local_address(at) as *mut u64, value) }
    }

    /// Adds to a word of this PE's own, atomically among lanes; what it was. Not atomic with what NICs do to the word.
    #[inline(always)]
    pub fn add(self, at: HeapOffset, value: u64) -> u64 {
        // SAFETY: as above.
        unsafe { self.platform.fetch_add(self.local_address(at) as *mut u64, value) }
    }

    /// Makes a word of this PE's own `new` if it is `expected`; what it was.
    #[inline(always)]
    pub fn swap_if(self, at: HeapOffset, expected: u64, new: u64) -> u64 {
        // SAFETY: as above.
        unsafe { self.platform.compare_swap(self.local_address(at) as *mut u64, expected, new) }
    }

    /// One piece of 16 bytes, relaxed: a word that covers it was acquired before.
    #[inline(always)]
    pub fn load_piece(self, at: HeapOffset) -> [u64; 2] {
        // SAFETY: an aligned piece of the heap.
        unsafe { self.platform.load_two(self.local_address(at) as *const u64) }
    }

    /// Stores one piece of 16 bytes, relaxed: what covers it is posted or stored afterwards.
    #[inline(always)]
    pub fn store_piece(self, at: HeapOffset, piece: [u64; 2]) {
        let [low, high] = piece;
        let segment = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
        // SAFETY: as above.
        unsafe { self.platform.store_segment(self.local_address(at) as *mut u32, segment) }
    }

    /// The body of a wait loop of the kernel's own: one that has a deadline.
    #[inline(always)]
    pub fn relax(self) {
        self.platform.relax();
    }

    /// What the leader acquired, all lanes may read from here on.
    #[inline(always)]
    pub fn share<L: Lanes>(self, lanes: L, value: u64) -> u64 {
        lanes.sync();
        let value = lanes.broadcast(value, 0);
        self.platform.cqe_before_data();
        value
    }
}

/// Memory of another rank of this node, at the address under which this one reaches it: what NVLink leads to, or what
/// threads of one process share.
impl<P: Platform> Device<'_, P> {
    /// One word, acquire: what its writer stored before is visible.
    ///
    /// # Safety
    /// An aligned word of memory that is mapped here, and that others touch as words alone.
    #[inline(always)]
    pub unsafe fn load_near(self, at: u64) -> u64 {
        // SAFETY: forwarded to the caller.
        unsafe { self.platform.load_acquire(at as *const u64) }
    }

    /// Stores one word, release.
    ///
    /// # Safety
    /// As for `load_near`.
    #[inline(always)]
    pub unsafe fn store_near(self, at: u64, value: u64) {
        // SAFETY: forwarded to the caller.
        unsafe { self.platform.store_release(at as *mut u64, value) }
    }

    /// Stores one piece of 16 bytes, relaxed: a word that covers it is stored afterwards.
    ///
    /// # Safety
    /// An aligned piece of memory that is mapped here, and that nobody reads before a word covers it.
    #[inline(always)]
    pub unsafe fn store_piece_near(self, at: u64, piece: [u64; 2]) {
        let [low, high] = piece;
        let segment = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
        // SAFETY: forwarded to the caller.
        unsafe { self.platform.store_segment(at as *mut u32, segment) }
    }
}

impl<P: Platform> Channel<'_, P> {
    /// A fault of this kind, with what is known of the channel: for a kernel that found out by itself, as by a word
    /// that did not come.
    #[inline(always)]
    pub fn told(self, kind: FaultKind) -> Fault {
        self.fault(kind)
    }
}
