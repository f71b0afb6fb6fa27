//! Write, write pages, read, expect, counters of immediates.

use super::patience;
use crate::engine::{Engine, RegionOf, TargetOf};
use crate::failure::{Failure, guarded};
use crate::handles::{self, Handle, Object, find, pointer};
use crate::operation::{Begun, Operation};
use crate::raw::{self, RawPages};
use shunt_transfer::{CallError, Node, Region};
use shunt_transfer_engine::region::MrDesc;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Where a handle goes, and what the caller calls the operation.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub user: *mut c_void,
    pub operation: *mut *mut c_void,
}

/// Begins something, and gives the caller its handle.
///
/// # Safety
/// The place of the handle is NULL or can be written.
pub(super) unsafe fn begin(
    engine: &Arc<Engine>,
    out: Out,
    begin: impl FnOnce(&Node) -> Result<Begun, CallError>,
) -> Result<(), Failure> {
    // Before anything is posted.
    raw::present("operation", out.operation)?;
    let begun = engine.with(begin)?;
    let operation = Arc::new(Operation::new(begun, engine.events().clone(), out.user.expose_provenance()));
    let handle = handles::give(Object::Operation(operation.clone()));
    operation.tell(handle);
    // SAFETY: the caller's pointer.
    unsafe { raw::write("operation", out.operation, pointer(handle)) }
}

pub(super) fn imm(imm: i64) -> Result<Option<u32>, Failure> {
    match (imm, u32::try_from(imm)) {
        (-1, _) => Ok(None),
        (_, Ok(imm)) => Ok(Some(imm)),
        _ => Err(Failure::refused("imm", "STE_NO_IMM or 0 to 2^32 - 1", imm)),
    }
}

fn own_and_theirs(
    engine: Handle,
    region: Handle,
    target: Handle,
) -> Result<(Arc<Engine>, Region, MrDesc), Failure> {
    let engine = find::<Engine>(engine)?;
    let region = find::<RegionOf>(region)?.of(&engine)?;
    Ok((engine, region, find::<TargetOf>(target)?.0.clone()))
}

/// # Safety
/// `operation` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_write(
    engine: Handle,
    peer: u32,
    from: Handle,
    from_offset: u64,
    to: Handle,
    to_offset: u64,
    bytes: u64,
    imm_or_none: i64,
    user: *mut c_void,
    operation: *mut *mut c_void,
) -> c_int {
    guarded("ste_write", || {
        let (engine, from, to) = own_and_theirs(engine, from, to)?;
        let imm = imm(imm_or_none)?;
        let write = |node: &Node| {
            node.write(peer, bytes, imm, (&from, from_offset), (&to, to_offset)).map(Begun::Transfer)
        };
        // SAFETY: the caller's pointer.
        unsafe { begin(&engine, Out { user, operation }, write) }
    })
}

/// # Safety
/// Pages have as many indices as they say; `operation` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_write_pages(
    engine: Handle,
    peer: u32,
    page_bytes: u64,
    from: Handle,
    from_pages: *const RawPages,
    to: Handle,
    to_pages: *const RawPages,
    imm_or_none: i64,
    user: *mut c_void,
    operation: *mut *mut c_void,
) -> c_int {
    guarded("ste_write_pages", || {
        let (engine, from, to) = own_and_theirs(engine, from, to)?;
        let imm = imm(imm_or_none)?;
        // SAFETY: the caller's pages.
        let from_pages = unsafe { raw::pages("from_pages", from_pages) }?;
        // SAFETY: as above.
        let to_pages = unsafe { raw::pages("to_pages", to_pages) }?;
        let write = |node: &Node| {
            let (from, to) = ((&from, from_pages), (&to, to_pages));
            node.write_pages(peer, page_bytes, imm, from, to).map(Begun::Transfer)
        };
        // SAFETY: the caller's pointer.
        unsafe { begin(&engine, Out { user, operation }, write) }
    })
}

/// # Safety
/// `operation` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_read(
    engine: Handle,
    peer: u32,
    from: Handle,
    from_offset: u64,
    to: Handle,
    to_offset: u64,
    bytes: u64,
    user: *mut c_void,
    operation: *mut *mut c_void,
) -> c_int {
    guarded("ste_read", || {
        let (engine, to, from) = own_and_theirs(engine, to, from)?;
        let read =
            |node: &Node| node.read(peer, bytes, (&from, from_offset), (&to, to_offset)).map(Begun::Transfer);
        // SAFETY: the caller's pointer.
        unsafe { begin(&engine, Out { user, operation }, read) }
    })
}

/// # Safety
/// `operation` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_expect(
    engine: Handle,
    peer: u32,
    imm: u32,
    count: u64,
    timeout_ns: u64,
    user: *mut c_void,
    operation: *mut *mut c_void,
) -> c_int {
    guarded("ste_expect", || {
        let engine = find::<Engine>(engine)?;
        let expect =
            |node: &Node| node.expect(peer, imm, count, Some(patience(timeout_ns))).map(Begun::Expectation);
        // SAFETY: the caller's pointer.
        unsafe { begin(&engine, Out { user, operation }, expect) }
    })
}

/// # Safety
/// `count` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_counter(engine: Handle, peer: u32, imm: u32, count: *mut u64) -> c_int {
    guarded("ste_counter", || {
        let counted = find::<Engine>(engine)?.with(|node| node.counter(peer, imm))?;
        // SAFETY: the caller's word.
        unsafe { raw::write("count", count, counted) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ste_forget(engine: Handle, peer: u32, imm: u32) -> c_int {
    guarded("ste_forget", || find::<Engine>(engine)?.with(|node| node.forget(peer, imm)))
}
