//! The host's body of [`Platform`]: real atomics, and a [`World`] that owns time.
//!
//! The world is either real (threads, a monotonic clock) or a simulator (coroutines, a virtual clock). Device
//! code cannot tell them apart.

use super::{InMemory, Platform, dma};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use shunt_layout::mlx5::wqe::Wqebb;

/// Time and waiting, as the one that runs device code on a CPU provides them.
pub trait World: Send + Sync {
    /// Nanoseconds on the one clock that kernels, agents and NICs share.
    fn now_ns(&self) -> u64;
    /// The body of every wait loop: lets others run. In a simulator this is the only place where time passes.
    fn relax(&self);
    /// A doorbell register was just written: the NIC engine should look.
    fn doorbell(&self);
    /// Somebody is about to load or store at an address through [`Host`], in a build with debug assertions: a simulator
    /// knows who, and who may.
    fn touches(&self, _address: u64) {}
}

/// Device code on a CPU.
#[derive(Clone, Copy)]
pub struct Host<'w> {
    world: &'w dyn World,
}

impl<'w> Host<'w> {
    /// Device code that lives in `world`.
    pub fn new(world: &'w dyn World) -> Self {
        Self { world }
    }

    #[inline(always)]
    fn touches<T>(self, address: *const T) {
        if cfg!(debug_assertions) {
            self.world.touches(address.addr() as u64);
        }
    }

    /// See [`word64`].
    ///
    /// # Safety
    /// As [`word64`].
    #[inline(always)]
    unsafe fn word64<'a>(self, address: *mut u64) -> &'a AtomicU64 {
        self.touches(address);
        // SAFETY: forwarded to the caller.
        unsafe { word64(address) }
    }

    /// See [`word64`].
    ///
    /// # Safety
    /// As [`word64`].
    #[inline(always)]
    unsafe fn word32<'a>(self, address: *mut u32) -> &'a AtomicU32 {
        self.touches(address);
        // SAFETY: forwarded to the caller.
        unsafe { word32(address) }
    }
}

/// Views an address as an atomic word.
///
/// # Safety
/// `address` is valid for reads and writes, aligned, and only accessed atomically while shared.
unsafe fn word64<'a>(address: *mut u64) -> &'a AtomicU64 {
    // SAFETY: forwarded to the caller.
    unsafe { AtomicU64::from_ptr(address) }
}

/// See [`word64`].
///
/// # Safety
/// As [`word64`].
unsafe fn word32<'a>(address: *mut u32) -> &'a AtomicU32 {
    // SAFETY: forwarded to the caller.
    unsafe { AtomicU32::from_ptr(address) }
}

// SAFETY (all blocks below): `Platform`'s contract puts validity, alignment and atomic-only sharing on the
// caller, which is device code working on a state that `Device::attach` checked.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Platform for Host<'_> {
    type Root = InMemory;
    fn now_ns(self) -> u64 {
        self.world.now_ns()
    }
    fn relax(self) {
        self.world.relax();
    }
    unsafe fn load(self, address: *const u64) -> u64 {
        unsafe { self.word64(address.cast_mut()).load(Ordering::Relaxed) }
    }
    unsafe fn load_acquire(self, address: *const u64) -> u64 {
        unsafe { self.word64(address.cast_mut()).load(Ordering::Acquire) }
    }
    unsafe fn store(self, address: *mut u64, value: u64) {
        unsafe { self.word64(address).store(value, Ordering::Relaxed) }
    }
    unsafe fn store_release(self, address: *mut u64, value: u64) {
        unsafe { self.word64(address).store(value, Ordering::Release) }
    }
    unsafe fn fetch_add(self, address: *mut u64, value: u64) -> u64 {
        unsafe { self.word64(address).fetch_add(value, Ordering::AcqRel) }
    }
    unsafe fn fetch_or(self, address: *mut u64, value: u64) -> u64 {
        unsafe { self.word64(address).fetch_or(value, Ordering::AcqRel) }
    }
    unsafe fn fetch_and(self, address: *mut u64, value: u64) -> u64 {
        unsafe { self.word64(address).fetch_and(value, Ordering::AcqRel) }
    }
    unsafe fn compare_swap(self, address: *mut u64, expected: u64, new: u64) -> u64 {
        match unsafe {
            self.word64(address).compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire)
        } {
            Ok(old) | Err(old) => old,
        }
    }
    unsafe fn try_lock(self, address: *mut u32) -> bool {
        unsafe { self.word32(address).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() }
    }
    unsafe fn unlock(self, address: *mut u32) {
        unsafe { self.word32(address).store(0, Ordering::Release) }
    }
    unsafe fn load32(self, address: *const u32) -> u32 {
        unsafe { self.word32(address.cast_mut()).load(Ordering::Acquire) }
    }
    unsafe fn store32(self, address: *mut u32, value: u32) {
        unsafe { self.word32(address).store(value, Ordering::Release) }
    }
    unsafe fn load_cqe(self, address: *const u32) -> u32 {
        unsafe { self.word32(address.cast_mut()).load(Ordering::Acquire) }
    }
    unsafe fn load_key(self, address: *const u32) -> u32 {
        unsafe { self.word32(address.cast_mut()).load(Ordering::Relaxed) }
    }
    unsafe fn load_wqe(self, address: *const Wqebb) -> Wqebb {
        self.touches(address);
        let words = address.cast::<u32>().cast_mut();
        let mut out = [0; 16];
        for (i, word) in out.iter_mut().enumerate() {
            *word = unsafe { word32(words.add(i)).load(Ordering::Relaxed) };
        }
        Wqebb(out)
    }
    unsafe fn store_segment(self, address: *mut u32, segment: [u32; 4]) {
        self.touches(address);
        for (i, word) in segment.into_iter().enumerate() {
            unsafe { word32(address.add(i)).store(word, Ordering::Relaxed) };
        }
    }
    fn wqes_before_publish(self) {
        dma::stores_before_store();
    }
    unsafe fn store_doorbell_record(self, address: *mut u32, value: u32) {
        // The NIC may fetch WQEs as soon as it sees the counter.
        dma::stores_before_store();
        unsafe { self.word32(address).store(value, Ordering::Release) }
    }
    fn record_before_register(self) {
        dma::stores_before_store();
    }
    unsafe fn store_register(self, address: *mut u64, value: u64) {
        unsafe { self.word64(address).store(value, Ordering::Release) };
        self.world.doorbell();
    }
    fn cqe_before_data(self) {
        dma::load_before_loads();
    }
    fn announce_before_recheck(self) {
        fence(Ordering::SeqCst);
    }
}
