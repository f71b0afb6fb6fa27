//! The seam between device code and the machine it runs on: memory, barriers, time, lanes.
//!
//! Everything above this module is one source for nvptx64 and for the host. Barriers are named for what they
//! keep apart; docs/ORDERING lists each with its pair.

#[cfg(not(target_arch = "nvptx64"))]
mod dma;
#[cfg(not(target_arch = "nvptx64"))]
pub mod host;
#[cfg(target_arch = "nvptx64")]
pub mod nvptx;

use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::state::DeviceState;

/// Where the root of a device state is, and how its words are read. Nobody writes them while device code runs.
pub trait Root: Copy {
    /// The root at `state`, or the one place where it is.
    fn at(state: *const DeviceState) -> Self;
    /// The 32-bit word at byte `OFFSET`.
    ///
    /// # Safety
    /// The root is there and written; `OFFSET` is that of a field of this size.
    unsafe fn word32<const OFFSET: usize>(self) -> u32;
    /// The 64-bit word at byte `OFFSET`.
    ///
    /// # Safety
    /// As for `word32`.
    unsafe fn word64<const OFFSET: usize>(self) -> u64;
}

/// A root in memory.
#[derive(Clone, Copy, Debug)]
pub struct InMemory(*const DeviceState);

// SAFETY: nobody writes the root while anybody may read it.
unsafe impl Send for InMemory {}
// SAFETY: nobody writes the root while anybody may read it.
unsafe impl Sync for InMemory {}

impl Root for InMemory {
    #[inline(always)]
    fn at(state: *const DeviceState) -> Self {
        Self(state)
    }
    #[inline(always)]
    unsafe fn word32<const OFFSET: usize>(self) -> u32 {
        // SAFETY: forwarded to the caller.
        unsafe { self.0.byte_add(OFFSET).cast::<u32>().read() }
    }
    #[inline(always)]
    unsafe fn word64<const OFFSET: usize>(self) -> u64 {
        // SAFETY: forwarded to the caller.
        unsafe { self.0.byte_add(OFFSET).cast::<u64>().read() }
    }
}

/// Memory, barriers and time. Words are 64 bits and shared by all lanes of the device unless said otherwise.
///
/// # Safety
/// Every method that takes an address requires that it is valid for the access, aligned to its type, and that
/// all concurrent accesses are atomic or made by a NIC. Device code gets its addresses from a `DeviceState`.
#[allow(clippy::missing_safety_doc)] // stated once, above
pub trait Platform: Copy {
    /// False: nothing is switched, whatever the policy says, and the code that would is not there.
    const FAULT_TOLERANCE: bool = true;
    /// True: a peer that there is not ends the program with a sentence. False where nothing may panic: callers give
    /// peers that there are.
    const CHECKS_PEERS: bool = true;
    /// Where the root of the device state is.
    type Root: Root;
    /// Nanoseconds, monotonic, the same clock for all lanes.
    fn now_ns(self) -> u64;
    /// Body of every wait loop.
    fn relax(self);
    /// Relaxed load.
    unsafe fn load(self, address: *const u64) -> u64;
    /// Acquire load.
    unsafe fn load_acquire(self, address: *const u64) -> u64;
    /// Relaxed store.
    unsafe fn store(self, address: *mut u64, value: u64);
    /// Release store.
    unsafe fn store_release(self, address: *mut u64, value: u64);
    /// Atomic add; returns the old value. Acquire and release.
    unsafe fn fetch_add(self, address: *mut u64, value: u64) -> u64;
    /// Atomic or; returns the old value. Acquire and release.
    unsafe fn fetch_or(self, address: *mut u64, value: u64) -> u64;
    /// Atomic and; returns the old value. Acquire and release.
    unsafe fn fetch_and(self, address: *mut u64, value: u64) -> u64;
    /// Compare and swap; returns the old value. Acquire and release.
    unsafe fn compare_swap(self, address: *mut u64, expected: u64, new: u64) -> u64;
    /// Atomic add, acquire only: for a caller that hands nothing over by it. On a GPU the release half of
    /// [`fetch_add`](Self::fetch_add) would wait for every store of the kernel so far.
    #[inline(always)]
    unsafe fn fetch_add_acquire(self, address: *mut u64, value: u64) -> u64 {
        // SAFETY: forwarded to the caller.
        unsafe { self.fetch_add(address, value) }
    }
    /// Compare and swap behind a barrier of the caller's, such as [`cqe_before_data`](Self::cqe_before_data): it needs
    /// no order of its own.
    #[inline(always)]
    unsafe fn compare_swap_behind_barrier(self, address: *mut u64, expected: u64, new: u64) -> u64 {
        // SAFETY: forwarded to the caller.
        unsafe { self.compare_swap(address, expected, new) }
    }
    /// Compare and swap that acquires, behind a barrier of the caller's.
    #[inline(always)]
    unsafe fn compare_swap_acquire(self, address: *mut u64, expected: u64, new: u64) -> u64 {
        // SAFETY: forwarded to the caller.
        unsafe { self.compare_swap(address, expected, new) }
    }
    /// Takes a lock word if it is free.
    unsafe fn try_lock(self, address: *mut u32) -> bool;
    /// Takes a lock word, or says after `tries` that it is not free.
    #[inline(always)]
    unsafe fn try_lock_for(self, address: *mut u32, mut tries: u32) -> bool {
        loop {
            // SAFETY: forwarded to the caller.
            let taken = unsafe { self.try_lock(address) };
            tries = tries.saturating_sub(1);
            if taken || tries == 0 {
                return taken;
            }
            self.relax();
        }
    }
    /// Frees a lock word.
    unsafe fn unlock(self, address: *mut u32);
    /// Acquire load of a 32-bit word the agent may write.
    unsafe fn load32(self, address: *const u32) -> u32;
    /// Release store of a 32-bit word the agent may read.
    unsafe fn store32(self, address: *mut u32, value: u32);
    /// The last word of a CQE, which the NIC writes last.
    unsafe fn load_cqe(self, address: *const u32) -> u32;
    /// The same, `tries` times at most, until it agrees with `due` in the bits of `mask`. Answers with the bits where
    /// it does not.
    #[inline(always)]
    unsafe fn poll_cqe(self, address: *const u32, due: u32, mask: u32, mut tries: u32) -> u32 {
        loop {
            // SAFETY: forwarded to the caller.
            let word = unsafe { self.load_cqe(address) };
            tries = tries.saturating_sub(1);
            if (word ^ due) & mask == 0 || tries == 0 {
                return word ^ due;
            }
            self.relax();
        }
    }
    /// Relaxed load of two neighbouring words the agent may write, each whole by itself. Aligned to 16 bytes.
    #[inline(always)]
    unsafe fn load_two(self, address: *const u64) -> [u64; 2] {
        // SAFETY: forwarded to the caller.
        unsafe { [self.load(address), self.load(address.add(1))] }
    }
    /// The same of four 32-bit words.
    #[inline(always)]
    unsafe fn load_four(self, address: *const u32) -> [u32; 4] {
        // SAFETY: forwarded to the caller.
        unsafe {
            [
                self.load32(address),
                self.load32(address.add(1)),
                self.load32(address.add(2)),
                self.load32(address.add(3)),
            ]
        }
    }
    /// A word of a table that no kernel sees change. An entry changes once, from 0, and kernels that were launched
    /// before that do not use it.
    unsafe fn load_key(self, address: *const u32) -> u32;
    /// The same of 64 bits.
    #[inline(always)]
    unsafe fn load_base(self, address: *const u64) -> u64 {
        // SAFETY: forwarded to the caller.
        unsafe { self.load(address) }
    }
    /// A block of the journal.
    unsafe fn load_wqe(self, address: *const Wqebb) -> Wqebb;
    /// One 16-byte segment of a WQE.
    unsafe fn store_segment(self, address: *mut u32, segment: [u32; 4]);
    /// The same by the lanes that are to store: on a GPU all of them stay together.
    #[inline(always)]
    unsafe fn store_segment_if(self, stores: bool, address: *mut u32, segment: [u32; 4]) {
        if stores {
            // SAFETY: forwarded to the caller.
            unsafe { self.store_segment(address, segment) }
        }
    }
    /// WQE stores of this group are visible, to NICs too, before `ready` says so.
    fn wqes_before_publish(self);
    /// [`wqes_before_publish`](Self::wqes_before_publish) and [`record_before_register`](Self::record_before_register)
    /// where rings and records lie in the memory of the device that this runs on. NICs read what is there as a fence of
    /// the device left it, so a fence of the whole system is not needed.
    #[inline(always)]
    fn own_stores_before_store(self) {
        self.wqes_before_publish();
    }
    /// The send counter of a doorbell record, visible to the NIC after the WQEs it covers.
    unsafe fn store_doorbell_record(self, address: *mut u32, value: u32);
    /// The doorbell record is visible before the register is written.
    fn record_before_register(self);
    /// The doorbell register.
    unsafe fn store_register(self, address: *mut u64, value: u64);
    /// A CQE was read before anything it vouches for is read.
    fn cqe_before_data(self);
    /// "I take this path" is visible before its state is read again (pairs with the agent's release check).
    fn announce_before_recheck(self);
}

/// Who takes part in a collective call. Bodies are strides over lanes, so one lane is a correct slow warp.
pub trait Lanes: Copy {
    /// This lane, 0 to `size() - 1`.
    fn rank(self) -> u32;
    /// Lanes taking part.
    fn size(self) -> u32;
    /// All lanes arrive before any leaves; their stores are visible to each other afterwards.
    fn sync(self);
    /// The value that lane `from` passed in. Every lane calls it.
    fn broadcast(self, value: u64, from: u32) -> u64;
}

/// Lanes of one warp, 32 at most, which tell each other something without memory. Neither call orders memory.
pub trait WarpLanes: Lanes {
    /// The answers of all lanes: bit `rank` is set where one said yes. Every lane calls it.
    fn ballot(self, yes: bool) -> u32;
    /// The value of the lane whose rank differs from this one's in `BIT`. Every lane calls it; `BIT` is a power of two
    /// below `size()`, which is one, too.
    fn across<const BIT: u32>(self, value: u32) -> u32;
}

/// One lane alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo;

impl Lanes for Solo {
    #[inline(always)]
    fn rank(self) -> u32 {
        0
    }
    #[inline(always)]
    fn size(self) -> u32 {
        1
    }
    #[inline(always)]
    fn sync(self) {}
    #[inline(always)]
    fn broadcast(self, value: u64, _from: u32) -> u64 {
        value
    }
}

impl WarpLanes for Solo {
    #[inline(always)]
    fn ballot(self, yes: bool) -> u32 {
        yes as u32
    }
    #[inline(always)]
    fn across<const BIT: u32>(self, value: u32) -> u32 {
        value
    }
}
