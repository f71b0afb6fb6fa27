//! Who takes part on a GPU: warps and blocks, and where a thread stands in the grid.

use crate::platform::{Lanes, WarpLanes};
use core::arch::asm;

/// The 32 lanes of a warp. Every lane of the warp calls, none has exited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Warp;

/// Lanes of a warp.
pub const WARP_LANES: u32 = 32;

#[inline(always)]
fn shuffle(value: u32, from: u32) -> u32 {
    let out;
    // SAFETY: registers only. All lanes of the mask take part, which is what `Warp` promises.
    unsafe {
        asm!("shfl.sync.idx.b32 {}, {}, {}, 31, 0xffffffff;",
             out(reg32) out, in(reg32) value, in(reg32) from, options(nostack))
    };
    out
}

impl Lanes for Warp {
    #[inline(always)]
    fn rank(self) -> u32 {
        let lane;
        // SAFETY: reads a special register that never changes for a lane.
        unsafe { asm!("mov.u32 {}, %laneid;", out(reg32) lane, options(pure, nomem, nostack)) };
        lane
    }

    #[inline(always)]
    fn size(self) -> u32 {
        WARP_LANES
    }

    #[inline(always)]
    fn sync(self) {
        // SAFETY: a barrier among the lanes of this warp, all of which call. It orders their memory accesses
        // too.
        unsafe { asm!("bar.warp.sync 0xffffffff;", options(nostack)) };
    }

    #[inline(always)]
    fn broadcast(self, value: u64, from: u32) -> u64 {
        let (low, high) = (shuffle(value as u32, from), shuffle((value >> 32) as u32, from));
        u64::from(high) << 32 | u64::from(low)
    }
}

impl WarpLanes for Warp {
    #[inline(always)]
    fn ballot(self, yes: bool) -> u32 {
        let answers;
        // SAFETY: registers only. All lanes of the mask take part, which is what `Warp` promises; they meet by mask, so
        // copies of this in two branches do no harm.
        unsafe {
            asm!("{{ .reg .pred %shunt_yes; setp.ne.u32 %shunt_yes, {}, 0; \
                  vote.sync.ballot.b32 {}, %shunt_yes, 0xffffffff; }}",
                 in(reg32) yes as u32, out(reg32) answers, options(nostack))
        };
        answers
    }

    #[inline(always)]
    fn across<const BIT: u32>(self, value: u32) -> u32 {
        let out;
        // SAFETY: as for `ballot`.
        unsafe {
            asm!("shfl.sync.bfly.b32 {}, {}, {}, 31, 0xffffffff;",
                 out(reg32) out, in(reg32) value, const BIT, options(nostack))
        };
        out
    }
}

/// Position of this thread in the grid: (block, thread), first dimension only.
#[inline(always)]
pub fn grid_position() -> (u32, u32) {
    let (block, thread);
    // SAFETY: reads special registers that never change for a thread.
    unsafe {
        asm!("mov.u32 {}, %ctaid.x;", out(reg32) block, options(pure, nomem, nostack));
        asm!("mov.u32 {}, %tid.x;", out(reg32) thread, options(pure, nomem, nostack));
    }
    (block, thread)
}

/// Threads in a block, first dimension.
#[inline(always)]
pub fn block_threads() -> u32 {
    let threads;
    // SAFETY: reads a special register that never changes.
    unsafe { asm!("mov.u32 {}, %ntid.x;", out(reg32) threads, options(pure, nomem, nostack)) };
    threads
}

/// Ends the kernel with an error. `code` is left where a debugger finds it: the register of the last
/// instruction.
#[inline(always)]
pub fn trap(code: u32) -> ! {
    // SAFETY: `trap` does not return; the move before it only loads a register.
    unsafe {
        asm!("{{ .reg .b32 %shunt_trap; mov.b32 %shunt_trap, {}; trap; }}", in(reg32) code,
             options(noreturn, nostack))
    }
}

/// Makes `shunt_block_word`, by which a block tells all its threads what one of them knows. A module that uses
/// [`Block`] calls it once, at its top: what a library crate says in assembly is not in the module.
#[macro_export]
macro_rules! block_word_in_shared_memory {
    () => {
        core::arch::global_asm!(".shared .align 8 .b64 shunt_block_word;");
    };
}

/// All threads of a block, which are whole warps. Every thread calls, none has exited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Block;

impl Lanes for Block {
    #[inline(always)]
    fn rank(self) -> u32 {
        grid_position().1
    }

    #[inline(always)]
    fn size(self) -> u32 {
        block_threads()
    }

    #[inline(always)]
    fn sync(self) {
        // Not `bar.sync`, the aligned form: it wants all threads of a warp at one instruction. The compiler may copy
        // that into both arms of a branch, because inline assembly is not convergent.
        // SAFETY: a barrier among the threads of this block, all of which call. It orders their memory accesses too.
        unsafe { asm!("barrier.sync 0;", options(nostack)) };
    }

    #[inline(always)]
    fn broadcast(self, value: u64, from: u32) -> u64 {
        let out;
        if self.rank() == from {
            // SAFETY: a word of this block's own. Nobody reads it: all left the broadcast before by its last barrier.
            unsafe {
                asm!("st.volatile.shared.b64 [shunt_block_word], {};", in(reg64) value, options(nostack))
            };
        }
        self.sync();
        // SAFETY: a word of this block's own. Nobody writes it before all have read.
        unsafe { asm!("ld.volatile.shared.b64 {}, [shunt_block_word];", out(reg64) out, options(nostack)) };
        self.sync();
        out
    }
}
