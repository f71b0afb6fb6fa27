//! What all entry points share: who takes part, the state, where the outcome goes.

use crate::{Call, Outcome};
use shunt_device::platform::nvptx::{Block, Gpu, WARP_LANES, Warp, grid_position};
use shunt_device::{Device, Fault, Lanes, Solo};
use shunt_layout::state::DeviceState;

/// The device as entry points see it. The state outlives every kernel that is given it.
pub type Here = Device<'static, Gpu>;

/// A group of lanes that an entry point runs on.
pub trait Group: Lanes + Default {
    /// True for the threads of a block that take part.
    fn takes_part(thread: u32) -> bool;
}

impl Group for Solo {
    #[inline(always)]
    fn takes_part(thread: u32) -> bool {
        thread == 0
    }
}

impl Group for Warp {
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
/// `state` is a device state that outlives the launch, `out` holds an outcome for each block.
#[inline(always)]
pub unsafe fn launch<L: Group>(
    state: *const DeviceState,
    call: &Call,
    out: *mut Outcome,
    body: impl FnOnce(Here, L, u32, &Call) -> Result<Outcome, Fault>,
) {
    let (block, thread) = grid_position();
    if !L::takes_part(thread) {
        return;
    }
    let lanes = L::default();
    // SAFETY: the caller vouches for the state.
    let outcome = match unsafe { Here::attach(state, Gpu) } {
        Ok(device) => match body(device, lanes, block, call) {
            Ok(outcome) => outcome,
            Err(fault) => Outcome::fault(&fault),
        },
        Err(met) => Outcome::mismatch(&met),
    };
    if lanes.rank() == 0 {
        // SAFETY: the caller vouches for one outcome a block.
        unsafe { out.add(block as usize).write(outcome) };
    }
}
