//! What device code needs of the host: the device library says that it is there, and handles of queue pairs.

use super::status;
use crate::failure::Failure;
use crate::session::Session;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// `SHUNT_NVSHMEM_DEVICE_VERSION`: of what library and device library tell each other.
const VERSION: u64 = 1;
/// Handles 0 and 1 are NVSHMEM's for the host's and the default queue pair; the next one is channel 1.
const FIRST_HANDLE: u32 = 2;

/// Told the root of the device state at the end of every initialisation.
type Up = extern "C" fn(root: *const c_void) -> c_int;

/// The device library of this program.
static UP: Mutex<Option<Up>> = Mutex::new(None);

#[unsafe(no_mangle)]
extern "C" fn shunt_nvshmem_register_device(version: u64, up: Option<Up>) -> c_int {
    if version != VERSION {
        eprintln!(
            "shunt: libnvshmem_device.a speaks version {version}, libnvshmem_host.so.3 version {VERSION}"
        );
        return 1;
    }
    *UP.lock().unwrap_or_else(PoisonError::into_inner) = up;
    0
}

/// Tells the device library, where the program has one. Its status.
pub(super) fn tell(session: &Session) -> c_int {
    let up = *UP.lock().unwrap_or_else(PoisonError::into_inner);
    up.map_or(0, |up| up(session.root().cast()))
}

/// Handles for `count` queue pairs to each peer, none of them the default one; all PEs call it alike.
#[unsafe(no_mangle)]
extern "C" fn nvshmemx_qp_create(count: c_int, handles: *mut *mut c_int) -> c_int {
    status("nvshmemx_qp_create", |s| {
        if handles.is_null() {
            return Err(Failure::Argument { what: "handles", met: 0, want: "an address" });
        }
        let made = s.take_channels(count)?;
        s.agree(&format!("nvshmemx_qp_create({count})"))?;
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
