//! What device code needs of the host: handles of queue pairs, and modules that are loaded by themselves.

use super::{session, status, status_of};
use crate::failure::Failure;
use crate::kernels::Kernels;
use std::ffi::{c_int, c_void};

/// Handles 0 and 1 are NVSHMEM's for the host's and the default queue pair; the next one is kernels' channel 1.
const FIRST_HANDLE: u32 = 2;

/// Handles for `count` queue pairs to each peer, none of them the default one; all PEs call it alike.
#[unsafe(no_mangle)]
extern "C" fn nvshmemx_qp_create(count: c_int, handles: *mut *mut c_int) -> c_int {
    status("nvshmemx_qp_create", |s| {
        if handles.is_null() {
            return Err(Failure::Argument { what: "handles", met: 0, want: "an address" });
        }
        let made = s.kernels().take_channels(count)?;
        s.teams().agree(&format!("nvshmemx_qp_create({count})"))?;
        // SAFETY: room for as many numbers, or null; C frees it, as it does NVSHMEM's.
        let array = unsafe { libc::calloc(made.len(), size_of::<c_int>()) }.cast::<c_int>();
        if array.is_null() {
            return Err(Failure::Argument { what: "number of queue pairs", met: count.into(), want: "less" });
        }
        for (at, channel) in made.enumerate() {
            // SAFETY: one of them.
            unsafe { array.add(at).write((channel + FIRST_HANDLE - 1) as c_int) };
        }
        // SAFETY: the caller's word.
        unsafe { handles.write(array) };
        Ok(())
    })
}

/// A module of CUDA's driver, for who finds these functions in the host library: libnvshmem_device.a has the same, and
/// does the work.
fn module(name: &str, of: *mut c_void, is_library: bool, enter: bool) -> c_int {
    let me = session().map(|session| session.me());
    let kernels = match Kernels::of_program() {
        Ok(kernels) => kernels,
        Err(error) => return status_of(name, me, &Failure::Init(error)),
    };
    let answer = kernels.module(of, is_library, enter);
    answer.unwrap_or_else(|| status_of(name, me, &Failure::NoDeviceLibrary))
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_cumodule_init(of: *mut c_void) -> c_int {
    module("nvshmemx_cumodule_init", of, false, true)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_cumodule_finalize(of: *mut c_void) -> c_int {
    module("nvshmemx_cumodule_finalize", of, false, false)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_culibrary_init(of: *mut c_void) -> c_int {
    module("nvshmemx_culibrary_init", of, true, true)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_culibrary_finalize(of: *mut c_void) -> c_int {
    module("nvshmemx_culibrary_finalize", of, true, false)
}
