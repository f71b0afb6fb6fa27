//! Nodes that connect to each other one by one: listen, connect, who is there, what changed; peers that are cut off.

use super::ends::{Options, opening};
use super::patience;
use crate::engine::{self, Engine};
use crate::failure::{Failure, Status, guarded};
use crate::handles::{self, Handle, Object, find, pointer};
use crate::raw;
use shunt_transfer::{Change, Node};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

/// `ste_change`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Changed {
    /// Who.
    pub peer: u32,
    /// 1: it is there now; 0: it has left.
    pub joined: i32,
}

/// # Safety
/// As the header says: `options` is NULL or points to options, `at` is NULL or a text, `engine` is NULL or can be
/// written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_listen(
    options: *const Options,
    at: *const c_char,
    number: u32,
    engine: *mut *mut c_void,
) -> c_int {
    guarded("ste_listen", || {
        // SAFETY: the caller's structure.
        let (opening, patience) = unsafe { opening(options) }?;
        // SAFETY: the caller's text.
        let at = unsafe { raw::text("at", at) }?;
        raw::present("engine", engine)?;
        if let Some(ends) = opening.ends {
            return Err(Failure::refused("options.ends", "0 for a node that listens", ends));
        }
        let opened = engine::listen(opening, at, number, patience)?;
        // SAFETY: the caller's pointer.
        unsafe { raw::write("engine", engine, pointer(handles::give(Object::Engine(Arc::new(opened))))) }
    })
}

/// # Safety
/// `bytes` is NULL or says how many bytes `text` has, which is NULL or has them.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_listens_at(engine: Handle, text: *mut c_char, bytes: *mut usize) -> c_int {
    guarded("ste_listens_at", || {
        let at = find::<Engine>(engine)?.with(Node::listens_at)?.to_string() + "\0";
        // SAFETY: the caller's word and buffer.
        unsafe { raw::give("text", at.as_bytes(), text.cast(), bytes) }
    })
}

/// # Safety
/// `to` is NULL or a text; `peer` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_connect(
    engine: Handle,
    to: *const c_char,
    timeout_ns: u64,
    peer: *mut u32,
) -> c_int {
    guarded("ste_connect", || {
        let engine = find::<Engine>(engine)?;
        // SAFETY: the caller's text.
        let to = unsafe { raw::text("to", to) }?;
        raw::present("peer", peer)?;
        let number = engine.wait(|node| node.connect(&to, patience(timeout_ns)))?;
        // SAFETY: the caller's word.
        unsafe { raw::write("peer", peer, number) }
    })
}

/// # Safety
/// `count` is NULL or says how many places `peers` has, which is NULL or has them.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_peers(engine: Handle, peers: *mut u32, count: *mut usize) -> c_int {
    guarded("ste_peers", || {
        let there = find::<Engine>(engine)?.with(Node::peers)?;
        // SAFETY: the caller's word and array.
        unsafe { raw::give("peers", &there, peers, count) }
    })
}

/// # Safety
/// `change` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_next_change(engine: Handle, timeout_ns: u64, change: *mut Changed) -> c_int {
    guarded("ste_next_change", || {
        let engine = find::<Engine>(engine)?;
        raw::present("change", change)?;
        let next = engine.wait(|node| node.next_change(patience(timeout_ns)))?;
        let changed = match next {
            Some(Change::Joined(peer)) => Changed { peer, joined: 1 },
            Some(Change::Left(peer)) => Changed { peer, joined: 0 },
            None => {
                let text =
                    format!("ste_next_change: expected one within {:?}, got none", patience(timeout_ns));
                return Err(Failure::new(Status::Timeout, text));
            }
        };
        // SAFETY: the caller's structure.
        unsafe { raw::write("change", change, changed) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn ste_revoke(engine: Handle, peer: u32, timeout_ns: u64) -> c_int {
    guarded("ste_revoke", || {
        let patience = patience(timeout_ns);
        if find::<Engine>(engine)?.wait(|node| node.revoke(peer, patience))? {
            return Ok(());
        }
        let text = format!(
            "peer {peer}: expected its queue pairs at this end destroyed within {patience:?}, got no word of it; it is \
             cut off, and may still write"
        );
        Err(Failure::new(Status::Timeout, text))
    })
}
