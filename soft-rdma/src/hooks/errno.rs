//! How the C library's functions fail.

use libc::c_int;
use rustix::io::Errno;
use shunt_soft_machine::log::Level;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Sets this thread's `errno`.
pub(crate) fn set_errno(raw: c_int) {
    // SAFETY: the C library's `errno` is this thread's.
    unsafe { *libc::__errno_location() = raw }
}

/// This thread's `errno`.
pub(super) fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Runs what may panic: a panic inside is EIO outside.
pub(super) fn guard<T>(f: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| {
        shunt_soft_machine::log!(Level::Error, "a call failed by a panic, which is a defect");
        Err(Errno::IO)
    })
}

/// A result as the C library returns it.
pub(super) fn returned(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|error| {
        set_errno(error.raw_os_error());
        -1
    })
}

/// Fails with this error.
pub(super) fn fails(error: c_int) -> c_int {
    set_errno(error);
    -1
}
