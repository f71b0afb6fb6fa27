//! The root of a device state, field by field.
//!
//! On a GPU it lies in constant memory, where a field is an operand of an instruction and no load: no pointer to it
//! goes through the code, and no reference to it is followed. So no code here says `state.field`.

use crate::platform::Root;
use shunt_layout::state::DeviceState;

/// A field of the root that a `StatePtr` holds. Paths work: `root!(state, policy.fence)`.
macro_rules! root {
    ($state:expr, $first:ident $(. $rest:ident)*) => {
        $crate::root::read::<_, _, { core::mem::offset_of!(shunt_layout::state::DeviceState, $first $(. $rest)*) }>(
            $state.root,
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
pub(crate) fn read<R: Root, T: Field, const OFFSET: usize>(root: R, _: fn(&DeviceState) -> T) -> T {
    // SAFETY: only `StatePtr::at` makes a root, of a valid state; the macro took offset and type from one field.
    unsafe { T::read::<_, OFFSET>(root) }
}
