//! Send, receive.

use super::patience;
use super::transfers::{Out, begin};
use crate::engine::Engine;
use crate::failure::{Failure, Status, guarded};
use crate::handles::{Handle, find};
use crate::operation::Begun;
use crate::raw;
use shunt_transfer::Node;
use std::ffi::{c_int, c_void};

/// # Safety
/// `message` has `bytes` bytes; `operation` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_send(
    engine: Handle,
    peer: u32,
    message: *const u8,
    bytes: usize,
    user: *mut c_void,
    operation: *mut *mut c_void,
) -> c_int {
    guarded("ste_send", || {
        let engine = find::<Engine>(engine)?;
        // SAFETY: the caller's bytes.
        let message = unsafe { raw::bytes("message", message, bytes) }?;
        let send = |node: &Node| node.send(peer, message).map(Begun::Transfer);
        // SAFETY: the caller's pointer.
        unsafe { begin(&engine, Out { user, operation }, send) }
    })
}

/// # Safety
/// `peer` is NULL or can be written; `bytes` is NULL or says how many bytes `buffer` has, which is NULL or has them.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_receive(
    engine: Handle,
    timeout_ns: u64,
    peer: *mut u32,
    buffer: *mut u8,
    bytes: *mut usize,
) -> c_int {
    guarded("ste_receive", || {
        let engine = find::<Engine>(engine)?;
        raw::present("peer", peer)?;
        // SAFETY: the caller's word.
        let room = unsafe { raw::read("bytes", bytes) }?;
        if room > 0 {
            raw::present("buffer", buffer)?;
        }
        let came = engine.wait(|node| node.receive_within(room, patience(timeout_ns)))?;
        let came = came.ok_or_else(|| {
            let text = format!("ste_receive: expected a message within {:?}, got none", patience(timeout_ns));
            Failure::new(Status::Timeout, text)
        })?;
        let len = came.as_ref().map_or_else(|len| *len, |(_, message)| message.len());
        // SAFETY: the caller's word.
        unsafe { raw::write("bytes", bytes, len) }?;
        let (from, message) = came.map_err(|len| {
            Failure::new(Status::TooSmall, format!("buffer: expected {len} bytes or more, got {room}"))
        })?;
        if !message.is_empty() {
            // SAFETY: the caller's buffer has room for so many bytes, by its own word.
            unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), buffer, message.len()) };
        }
        // SAFETY: the caller's word.
        unsafe { raw::write("peer", peer, from) }
    })
}
