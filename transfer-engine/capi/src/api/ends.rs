//! Open, close, exchange, who and how many, counters, faults of soft NICs.

use super::patience;
use crate::engine::{Engine, Opening, open};
use crate::failure::{Failure, Status, guarded};
use crate::handles::{self, Handle, Object, find, pointer};
use crate::raw;
use shunt_transfer::{NicKind, Node, Transport, Way};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::time::Duration;

/// Most rails of an end, and ends of a process.
const RAILS_MAX: u32 = 8;
const ENDS_MAX: u32 = 64;

/// `ste_options`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// Bytes of this structure.
    pub bytes: usize,
    /// How long it may take.
    pub timeout_ns: u64,
    /// `STE_NIC_..`.
    pub nic: u32,
    /// Rails of each end.
    pub rails: u32,
    /// Ends in this process; 0: the launcher's job.
    pub ends: u32,
    /// `STE_TRANSPORT_..`.
    pub transport: u32,
    /// Gb/s of a rail in software.
    pub soft_gbps: f64,
    /// The provider of libfabric, or NULL.
    pub provider: *const c_char,
    /// Addresses of rails of libfabric with commas between them, or NULL.
    pub addresses: *const c_char,
}

/// `ste_counters`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Counters {
    /// Lanes left because of a fault.
    pub failovers: u64,
    /// Lanes opened.
    pub opened: u64,
    /// Pieces sent again on another lane.
    pub again: u64,
}

/// The caller's options.
///
/// # Errors
/// NULL, or others than there can be.
///
/// # Safety
/// Unless it is NULL, [`Options`] lie at the pointer, and a text at each of their own that is not NULL.
pub(super) unsafe fn opening(options: *const Options) -> Result<(Opening, Duration), Failure> {
    raw::present("options", options)?;
    // SAFETY: the caller of this function vouches for the structure, which begins with its size.
    let bytes = unsafe { raw::read("options", options.cast::<usize>()) }?;
    if bytes != size_of::<Options>() {
        let want = format!("{}, as this version has them", size_of::<Options>());
        return Err(Failure::refused("options.bytes", &want, bytes));
    }
    // SAFETY: as above; it has the size of this version's.
    let options = unsafe { raw::read("options", options) }?;
    let Options { timeout_ns, nic, rails, ends, transport, soft_gbps, provider, addresses, .. } = options;
    if timeout_ns == 0 {
        return Err(Failure::refused("options.timeout_ns", "1 or more", timeout_ns));
    }
    let Some(transport) = Transport::ALL.get(transport as usize) else {
        return Err(Failure::refused("options.transport", "one of STE_TRANSPORT_..", transport));
    };
    // SAFETY: the caller of this function vouches for both texts.
    let [provider, addresses] = unsafe { [text("provider", provider)?, text("addresses", addresses)?] };
    let way = Way {
        transport: *transport,
        provider,
        addresses: addresses.iter().flat_map(|all| all.split(',')).map(str::to_owned).collect(),
        has_nic: nic != 0,
        has_gbps: soft_gbps != 0.0,
        ..Way::default()
    };
    let nic = match nic {
        0 => None,
        1 => Some(NicKind::Auto),
        2 => Some(NicKind::Mlx5),
        3 => Some(NicKind::Soft),
        other => return Err(Failure::refused("options.nic", "one of STE_NIC_..", other)),
    };
    let rails = if rails == 0 { 2 } else { rails };
    if rails > RAILS_MAX {
        return Err(Failure::refused("options.rails", "at most 8", rails));
    }
    if ends == 1 || ends > ENDS_MAX {
        return Err(Failure::refused("options.ends", "0 for the launcher's job, or 2 to 64", ends));
    }
    let soft_gbps = if soft_gbps == 0.0 { 1.0 } else { soft_gbps };
    if !soft_gbps.is_finite() || soft_gbps < 0.0 {
        return Err(Failure::refused("options.soft_gbps", "a number above 0", soft_gbps));
    }
    let opening = Opening { way, nic, rails, soft_gbps, ends: (ends > 0).then_some(ends) };
    Ok((opening, patience(timeout_ns)))
}

/// A text of the options, unless it is NULL.
///
/// # Safety
/// As [`raw::text`].
unsafe fn text(what: &str, pointer: *const c_char) -> Result<Option<String>, Failure> {
    // SAFETY: the caller of this function vouches for it.
    (!pointer.is_null()).then(|| unsafe { raw::text(what, pointer) }).transpose()
}

/// # Safety
/// As the header says: `options` is NULL or points to options, `engines` is NULL or has as many places as they say.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_open(options: *const Options, engines: *mut *mut c_void) -> c_int {
    guarded("ste_open", || {
        // SAFETY: the caller's structure.
        let (opening, patience) = unsafe { opening(options) }?;
        raw::present("engines", engines)?;
        shunt_transfer::report::install_log()?;
        let opened = open(opening, patience)?;
        for (place, engine) in opened.into_iter().enumerate() {
            let handle = pointer(handles::give(Object::Engine(Arc::new(engine))));
            // SAFETY: the caller's array has a place for each end that it asked for.
            unsafe { engines.add(place).write_unaligned(handle) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn ste_close(engine: Handle, timeout_ns: u64) -> c_int {
    guarded("ste_close", || {
        if engine.is_null() {
            return Ok(());
        }
        find::<Engine>(engine)?.close(patience(timeout_ns))?;
        // Two threads may close it at once: one of them frees it.
        let _ = handles::free::<Engine>(engine);
        Ok(())
    })
}

/// # Safety
/// `end` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_end(engine: Handle, end: *mut u32) -> c_int {
    // SAFETY: the caller's word.
    guarded("ste_end", || unsafe { raw::write("end", end, find::<Engine>(engine)?.end()) })
}

/// # Safety
/// `ends` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_ends(engine: Handle, ends: *mut u32) -> c_int {
    // SAFETY: the caller's word.
    guarded("ste_ends", || unsafe {
        raw::write("ends", ends, find::<Engine>(engine)?.with(|node| Ok::<_, Failure>(node.ends()))?)
    })
}

/// # Safety
/// `mine` has `bytes` bytes, `all` has `each` for every end, `sizes` is NULL or has a place for every end.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_exchange(
    engine: Handle,
    mine: *const u8,
    bytes: usize,
    all: *mut u8,
    each: usize,
    sizes: *mut usize,
    timeout_ns: u64,
) -> c_int {
    guarded("ste_exchange", || {
        let engine = find::<Engine>(engine)?;
        // SAFETY: the caller's bytes.
        let mine = unsafe { raw::bytes("mine", mine, bytes) }?;
        if each > 0 {
            raw::present("all", all)?;
        }
        if bytes > each || sizes.is_null() && bytes != each {
            let want = if sizes.is_null() { "bytes == each, as sizes is NULL" } else { "at most each" };
            return Err(Failure::refused("bytes", &format!("{want}, {each}"), bytes));
        }
        let gathered = engine.exchange(mine, patience(timeout_ns))?;
        for (end, theirs) in gathered.iter().enumerate() {
            if theirs.len() > each || sizes.is_null() && theirs.len() != each {
                let text = format!("all: expected {each} bytes of end {end}, got {}", theirs.len());
                return Err(Failure::new(Status::TooSmall, text));
            }
        }
        for (end, theirs) in gathered.iter().enumerate() {
            // SAFETY: the caller's array has `each` bytes for every end, and these are no more; it is not NULL where
            // there are any.
            unsafe {
                std::ptr::copy_nonoverlapping(theirs.as_ptr(), all.wrapping_add(end * each), theirs.len())
            };
            if !sizes.is_null() {
                // SAFETY: the caller's array has a place for every end.
                unsafe { sizes.add(end).write_unaligned(theirs.len()) };
            }
        }
        Ok(())
    })
}

/// # Safety
/// `count` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_writes_of(engine: Handle, bytes: u64, count: *mut u32) -> c_int {
    guarded("ste_writes_of", || {
        let engine = find::<Engine>(engine)?;
        // SAFETY: the caller's word.
        unsafe { raw::write("count", count, engine.with(|node| node.writes_of(bytes))?) }
    })
}

/// # Safety
/// `counters` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_counts(engine: Handle, counters: *mut Counters) -> c_int {
    guarded("ste_counts", || {
        let counts = find::<Engine>(engine)?.with(Node::counts)?;
        let (failovers, opened, again) = (counts.closed, counts.opened, counts.again);
        // SAFETY: the caller's structure.
        unsafe { raw::write("counters", counters, Counters { failovers, opened, again }) }
    })
}

/// # Safety
/// `lanes` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_lanes_to(engine: Handle, peer: u32, lanes: *mut u32) -> c_int {
    guarded("ste_lanes_to", || {
        let rails = find::<Engine>(engine)?.with(|node| node.rails_to(peer))?;
        // SAFETY: the caller's word.
        unsafe { raw::write("lanes", lanes, rails.len() as u32) }
    })
}

/// # Safety
/// `fault` is NULL or a text.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_soft_fault(engine: Handle, rail: u32, fault: *const c_char) -> c_int {
    guarded("ste_soft_fault", || {
        let engine = find::<Engine>(engine)?;
        // SAFETY: the caller's text.
        engine.soft_fault(rail, &unsafe { raw::text("fault", fault) }?)
    })
}
