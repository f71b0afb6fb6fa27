//! What all entry points share: who takes part, the state, where the outcome goes.

use crate::moe::Part;
use crate::{Answer, Outcome};
use shunt_device::platform::nvptx::{Block, Gpu, WARP_LANES, Warp, block_threads, grid_position};
use shunt_device::{Device, Lanes, Solo};

/// The device as entry points see it: the one whose root lies in the module's constant memory.
pub type Here<const FT: bool> = Device<'static, Gpu<FT>>;

/// A group of lanes that an entry point runs on.
pub trait Group: Lanes + Default {
    /// True for the threads of a block that take part.
    fn takes_part(thread: u32) -> bool;
}

impl Group for Solo {
    #[inline(always)]
    fn takes_part(thread: u32) -> bool {
        // Both, although one follows from the other: what only lane 0 runs need not be joined with other lanes.
        thread == 0 && Warp.rank() == 0
    }
}

impl Group for Warp {
    #[inline(always)]
    fn takes_part(thread: u32) -> bool {
        thread < WARP_LANES
    }
}

/// The first warp of a block by the number of the thread: an instruction less than by that of the lane, where what the
/// leader runs has nothing to be joined.
#[derive(Clone, Copy, Default)]
pub struct FirstWarp;

impl Lanes for FirstWarp {
    #[inline(always)]
    fn rank(self) -> u32 {
        grid_position().1
    }
    #[inline(always)]
    fn size(self) -> u32 {
        WARP_LANES
    }
    #[inline(always)]
    fn sync(self) {
        Warp.sync();
    }
    #[inline(always)]
    fn broadcast(self, value: u64, from: u32) -> u64 {
        Warp.broadcast(value, from)
    }
}

impl Group for FirstWarp {
    #[inline(always)]
    fn takes_part(thread: u32) -> bool {
        thread < WARP_LANES
    }
}

impl Group for Block {
    #[inline(always)]
    fn takes_part(_: u32) -> bool {
        true
    }
}

/// Runs `body` on the threads that take part; the first lane stores the outcome of its block.
///
/// # Safety
/// The module's root names a device state of this version that outlives the launch, `out` holds an outcome for each
/// block.
#[inline(always)]
pub unsafe fn launch<const FT: bool, L: Group, A: Answer, C>(
    call: &C,
    out: *mut Outcome,
    body: impl FnOnce(Here<FT>, L, u32, &C) -> A,
) {
    let (block, thread) = grid_position();
    if !L::takes_part(thread) {
        return;
    }
    let lanes = L::default();
    // SAFETY: the caller vouches for the state.
    let device = unsafe { Here::attached(core::ptr::null(), Gpu) };
    let answer = body(device, lanes, block, call);
    if lanes.rank() == 0 {
        // SAFETY: the caller vouches for one outcome a block.
        unsafe { answer.store(out, block) };
    }
}

/// How [`launch`] begins: the device, the lanes that this thread is one of, and their block; nothing to a thread that
/// takes no part. For entry points whose body is so large that a call by a function that is handed it would stay one:
/// they call it themselves, between this and [`leave`].
///
/// # Safety
/// The module's root names a device state of this version that outlives the launch.
#[inline(always)]
pub unsafe fn enter<const FT: bool, L: Group>() -> Option<(Here<FT>, L, u32)> {
    let (block, thread) = grid_position();
    if !L::takes_part(thread) {
        return None;
    }
    // SAFETY: the caller vouches for the state.
    let device = unsafe { Here::attached(core::ptr::null(), Gpu) };
    Some((device, L::default(), block))
}

/// How a phase of MoE begins, for each warp of `L`: the device, and the warp's part of the work of so many blocks.
///
/// # Safety
/// As for [`enter`].
#[inline(always)]
pub unsafe fn enter_warp<L: Group>(blocks: u32) -> Option<(Here<true>, Part)> {
    // SAFETY: forwarded to the caller.
    let (device, _, block) = unsafe { enter::<true, L>() }?;
    let all = L::takes_part(WARP_LANES);
    let warps = if all { block_threads() / WARP_LANES } else { 1 };
    // By a broadcast: all lanes have one number, and go one way where they branch on it.
    let warp = if all { Warp.broadcast((grid_position().1 / WARP_LANES) as u64, 0) as u32 } else { 0 };
    Some((
        device,
        Part { number: block * warps + warp, of: if blocks == 0 { warps } else { blocks * warps } },
    ))
}

/// How it ends: the first lane stores the outcome of its block.
///
/// # Safety
/// `out` holds an outcome for each block.
#[inline(always)]
pub unsafe fn leave<L: Group, A: Answer>(lanes: L, answer: A, out: *mut Outcome, block: u32) {
    if lanes.rank() == 0 {
        // SAFETY: forwarded to the caller.
        unsafe { answer.store(out, block) };
    }
}
