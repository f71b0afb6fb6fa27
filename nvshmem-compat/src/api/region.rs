//! Regions of transfers that may be posted together: hints, which change nothing here. Posts are made at once, and
//! those that come together share a doorbell anyway.

use super::status;
use crate::failure::Failure;
use std::ffi::c_int;

/// `NVSHMEMX_REGION_HINT_BATCH_RMA`, the one hint there is.
const BATCH: u32 = 1;
/// What every region is called.
const HANDLE: u64 = 1;

fn hints(hints: u32) -> Result<(), Failure> {
    let known = Failure::Argument { what: "hints of a region", met: hints.into(), want: "0 or 1" };
    if hints & !BATCH == 0 { Ok(()) } else { Err(known) }
}

fn address(there: bool, what: &'static str) -> Result<(), Failure> {
    if there { Ok(()) } else { Err(Failure::Argument { what, met: 0, want: "an address" }) }
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_region_start(handle: *mut u64, attrs: *const u32) -> c_int {
    status("nvshmemx_region_start", |_| {
        address(!handle.is_null(), "handle")?;
        address(!attrs.is_null(), "attributes")?;
        // SAFETY: the caller's structure, of which hints are the first word; its word for the handle.
        unsafe {
            hints(attrs.read())?;
            handle.write(HANDLE);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_region_stop(handle: u64) -> c_int {
    status("nvshmemx_region_stop", |_| match handle {
        HANDLE => Ok(()),
        met => {
            Err(Failure::Argument { what: "handle", met: met as i64, want: "one of nvshmemx_region_start" })
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_region_is_active(asked: u32, active: *mut c_int) -> c_int {
    status("nvshmemx_region_is_active", |_| {
        address(!active.is_null(), "active")?;
        hints(asked)?;
        // SAFETY: the caller's word.
        unsafe { active.write(0) };
        Ok(())
    })
}
