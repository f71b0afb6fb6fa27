//! The root of a device state, field by field.
//!
//! On a GPU it lies in constant memory, where a field is an operand of an instruction and no load: no pointer to it
//! goes through the code, and no reference to it is followed. So no code here says `state.field`.

use crate::access::Device;
use crate::platform::{Platform, Root};
use shunt_layout::state::{DeviceState, Policy};

/// A field of the root. Paths work: `root!(device, policy.fence)`.
macro_rules! root {
    ($device:expr, $first:ident $(. $rest:ident)*) => {
        $crate::root::read::<_, _, { core::mem::offset_of!(shunt_layout::state::DeviceState, $first $(. $rest)*) }>(
            $device,
            |state| state.$first $(. $rest)*,
        )
    };
}
pub(crate) use root;

/// Types that fields of the root have.
pub(crate) trait Field: Copy {
    /// The field at byte `OFFSET`.
    ///
    /// # Safety
    /// As [`Root::word32`].
    unsafe fn read<R: Root, const OFFSET: usize>(root: R) -> Self;
}

impl Field for u32 {
    #[inline(always)]
    unsafe fn read<R: Root, const OFFSET: usize>(root: R) -> Self {
        // SAFETY: forwarded to the caller.
        unsafe { root.word32::<OFFSET>() }
    }
}

impl Field for u64 {
    #[inline(always)]
    unsafe fn read<R: Root, const OFFSET: usize>(root: R) -> Self {
        // SAFETY: forwarded to the caller.
        unsafe { root.word64::<OFFSET>() }
    }
}

/// What [`root!`] calls. The function tells the field's type and is never called.
#[inline(always)]
pub(crate) fn read<P: Platform, T: Field, const OFFSET: usize>(
    device: Device<'_, P>,
    _: fn(&DeviceState) -> T,
) -> T {
    // SAFETY: `attach` was given a valid root; the macro took offset and type from one field.
    unsafe { T::read::<_, OFFSET>(device.root) }
}

impl<P: Platform> Device<'_, P> {
    /// True if a failure is to be survived.
    #[inline(always)]
    pub(crate) fn tolerant(self) -> bool {
        P::FAULT_TOLERANCE && root!(self, policy.fault_tolerance) != 0
    }

    /// The numbers of the policy. On a GPU those that nobody looks at are not read.
    #[inline(always)]
    pub(crate) fn policy(self) -> Policy {
        Policy {
            fault_tolerance: root!(self, policy.fault_tolerance),
            bracket: root!(self, policy.bracket),
            suspect_ns: root!(self, policy.suspect_ns),
            fence_wait_ns: root!(self, policy.fence_wait_ns),
            give_up_ns: root!(self, policy.give_up_ns),
            recovery_window_ns: root!(self, policy.recovery_window_ns),
            drain_ns: root!(self, policy.drain_ns),
            ledger_ns: root!(self, policy.ledger_ns),
            suspect_floor_ns: root!(self, policy.suspect_floor_ns),
            packet_lifetime_ns: root!(self, policy.packet_lifetime_ns),
            fence: root!(self, policy.fence),
            ordering: root!(self, policy.ordering),
            polled_puts: root!(self, policy.polled_puts),
            rc_gives_up_ms: root!(self, policy.rc_gives_up_ms),
        }
    }
}
