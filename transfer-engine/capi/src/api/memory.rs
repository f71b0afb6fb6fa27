//! Register, deregister, describe, import.

use crate::engine::{Engine, RegionOf, TargetOf};
use crate::failure::{Failure, guarded};
use crate::handles::{self, Handle, Object, find, pointer};
use crate::raw;
use shunt_transfer_engine::region::{MrDesc, Rights};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// # Safety
/// The memory stays readable and writable until it is taken back or its engine is closed; `region` is NULL or can be
/// written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_register(
    engine: Handle,
    address: *mut c_void,
    bytes: usize,
    rights: u32,
    region: *mut *mut c_void,
) -> c_int {
    guarded("ste_register", || {
        let engine = find::<Engine>(engine)?;
        let rights = match rights {
            0 => Rights::Local,
            1 => Rights::Write,
            2 => Rights::Read,
            3 => Rights::ReadWrite,
            other => return Err(Failure::refused("rights", "one of STE_LOCAL .. STE_READ_WRITE", other)),
        };
        raw::present("region", region)?;
        // SAFETY: the caller of this function keeps the memory, as the header asks.
        let registered = unsafe { engine.register(address.expose_provenance(), bytes, rights) }?;
        // SAFETY: the caller's pointer.
        unsafe { raw::write("region", region, pointer(handles::give(Object::Region(registered)))) }
    })
}

/// # Safety
/// `bytes` is NULL or says how many bytes `buffer` has, which is NULL or has them.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_describe(region: Handle, buffer: *mut u8, bytes: *mut usize) -> c_int {
    guarded("ste_describe", || {
        let description = find::<RegionOf>(region)?.region()?.describe().to_bytes();
        // SAFETY: the caller's word and buffer.
        unsafe { raw::give("buffer", &description, buffer, bytes) }
    })
}

/// # Safety
/// `description` has `bytes` bytes; `target` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_import(
    engine: Handle,
    description: *const u8,
    bytes: usize,
    target: *mut *mut c_void,
) -> c_int {
    guarded("ste_import", || {
        // One that is open: the target is of no use without it.
        find::<Engine>(engine)?.with(|_| Ok::<_, Failure>(()))?;
        // SAFETY: the caller's bytes.
        let description = unsafe { raw::bytes("description", description, bytes) }?;
        raw::present("target", target)?;
        let read = MrDesc::from_bytes(description).map_err(|error| Failure::from(&error))?;
        let handle = pointer(handles::give(Object::Target(Arc::new(TargetOf(read)))));
        // SAFETY: the caller's pointer.
        unsafe { raw::write("target", target, handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ste_deregister(region: Handle) -> c_int {
    guarded("ste_deregister", || find::<RegionOf>(region)?.deregister())
}

#[unsafe(no_mangle)]
extern "C" fn ste_free_region(region: Handle) -> c_int {
    guarded("ste_free_region", || handles::free::<RegionOf>(region).map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn ste_free_target(target: Handle) -> c_int {
    guarded("ste_free_target", || handles::free::<TargetOf>(target).map(|_| ()))
}
