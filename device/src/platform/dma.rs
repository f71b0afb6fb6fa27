//! Barriers between a processor and devices that read and write its memory.
//!
//! A fence of the language orders what other processors see. On x86-64 devices see the same order. On aarch64 such a
//! fence is a barrier of the inner shareable domain (`dmb ish`), and a PCIe device may be outside of it. The barriers
//! of the outer domain order device and processor (Linux, arch/arm64/include/asm/barrier.h: `dma_wmb`, `dma_rmb`).

use core::sync::atomic::{Ordering, fence};

/// A device that sees a later store, to memory or to one of its registers, sees all earlier ones.
#[inline(always)]
pub(super) fn stores_before_store() {
    fence(Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier; it touches neither registers nor memory, and the compiler moves no access across it.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// Loads behind this see what a device wrote before it wrote what an earlier load saw.
#[inline(always)]
pub(super) fn load_before_loads() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    fence(Ordering::Acquire);
}
