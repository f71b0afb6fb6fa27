//! The symmetric heap, registered buffers, and addresses of other PEs' memory.

use super::{call, status};
use crate::failure::Failure;
use crate::heap::{ALIGN, SymmetricHeap};
use crate::session::Session;
use std::ffi::{c_int, c_void};

/// An allocation, which all PEs make alike; nothing where no bytes are wanted or none are left.
fn allocate(name: &str, bytes: u64, align: u64, zeroed: bool) -> *mut c_void {
    let at = call(name, |s| {
        s.teams().agree(&format!("{bytes} bytes aligned to {align}"))?;
        if bytes == 0 {
            return Ok(0);
        }
        // All PEs have the same books, so all come to the same answer.
        let offset = match s.heap().books().alloc(bytes, align) {
            Ok(offset) => offset,
            Err(error) => {
                shunt_host::complain!("shunt: PE {}: {name}: {error}", s.me());
                return Ok(0);
            }
        };
        s.teams().reach(offset + bytes)?;
        let at = s.heap().addresses().start + offset;
        if zeroed {
            s.clear(offset, bytes)?;
            // Nobody writes there before it is empty everywhere.
            s.teams().agree("empty")?;
        }
        Ok(at)
    });
    std::ptr::with_exposed_provenance_mut(at as usize)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_malloc(bytes: usize) -> *mut c_void {
    allocate("nvshmem_malloc", bytes as u64, ALIGN, false)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_calloc(count: usize, size: usize) -> *mut c_void {
    match SymmetricHeap::array_bytes(count as u64, size as u64) {
        Ok(bytes) => allocate("nvshmem_calloc", bytes, ALIGN, true),
        Err(error) => {
            shunt_host::complain!("shunt: nvshmem_calloc: {error}");
            std::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_align(align: usize, bytes: usize) -> *mut c_void {
    allocate("nvshmem_align", bytes as u64, align as u64, false)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_free(at: *mut c_void) {
    call("nvshmem_free", |s| {
        if at.is_null() {
            return s.teams().agree("nothing to free");
        }
        let offset = s.heap().offset(at.expose_provenance() as u64, 0)?;
        // What is under way to it lands before it is given away again.
        s.quiet()?;
        s.teams().agree(&format!("the allocation at offset {offset}"))?;
        s.heap().books().free(offset)?;
        Ok(())
    });
}

/// Where symmetric memory of a PE is mapped here; null where it is not, or is none.
fn address(s: &Session, at: *const c_void, pe: c_int) -> Result<*mut c_void, Failure> {
    let pe = s.peers().check(pe)?;
    let Ok(offset) = s.heap().offset(at.expose_provenance() as u64, 0) else {
        return Ok(std::ptr::null_mut());
    };
    let heap = if pe == s.me() { Some(s.heap().addresses().start) } else { s.node().base(pe) };
    Ok(heap
        .map_or(std::ptr::null_mut(), |heap| std::ptr::with_exposed_provenance_mut((heap + offset) as usize)))
}

#[unsafe(no_mangle)]
extern "C" fn nvshmem_ptr(at: *const c_void, pe: c_int) -> *mut c_void {
    let found = call("nvshmem_ptr", |s| address(s, at, pe).map(|found| found.expose_provenance()));
    std::ptr::with_exposed_provenance_mut(found)
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_buffer_register(at: *mut c_void, bytes: usize) -> c_int {
    status("nvshmemx_buffer_register", |s| {
        let heap = s.heap().addresses();
        Ok(s.heap().registry().add(at.expose_provenance() as u64, bytes as u64, heap)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_buffer_unregister(at: *mut c_void) -> c_int {
    status("nvshmemx_buffer_unregister", |s| Ok(s.heap().registry().remove(at.expose_provenance() as u64)?))
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_buffer_unregister_all() {
    call("nvshmemx_buffer_unregister_all", |s| {
        s.heap().registry().clear();
        Ok(())
    });
}

/// Why no memory of the program's own becomes a part of the heap.
const OTHER_MEMORY: Failure = Failure::Unsupported(
    "memory of the program's own does not become a part of the symmetric heap, whose memory is of the host: take it \
     from nvshmem_malloc, or register it with nvshmemx_buffer_register",
);

/// Null, behind a sentence that says why.
fn refuse_symmetric(name: &str) -> *mut c_void {
    status(name, |_| Err(OTHER_MEMORY));
    std::ptr::null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_buffer_register_symmetric(
    _at: *mut c_void,
    _bytes: usize,
    _flags: c_int,
) -> *mut c_void {
    refuse_symmetric("nvshmemx_buffer_register_symmetric")
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_buffer_register_symmetric_at_preferred_address(
    _at: *mut c_void,
    _bytes: usize,
    _preferred: *mut c_void,
    _flags: c_int,
) -> *mut c_void {
    refuse_symmetric("nvshmemx_buffer_register_symmetric_at_preferred_address")
}

#[unsafe(no_mangle)]
extern "C" fn nvshmemx_buffer_unregister_symmetric(_at: *mut c_void, _bytes: usize) -> c_int {
    status("nvshmemx_buffer_unregister_symmetric", |_| Err(OTHER_MEMORY))
}

/// No multicast address: that is NVLink's, and PEs reach each other through NICs alone. Programs ask, and go another
/// way.
#[unsafe(no_mangle)]
extern "C" fn nvshmemx_mc_ptr(_team: c_int, _at: *const c_void) -> *mut c_void {
    std::ptr::null_mut()
}
