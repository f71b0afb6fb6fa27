//! Scatters and barriers.

use super::operations::Outcome;
use super::patience;
use super::transfers::{Out, begin, imm};
use crate::engine::{Engine, RegionOf, TargetOf};
use crate::failure::{Failure, guarded};
use crate::handles::{Handle, find};
use crate::operation::{Begun, Operation};
use crate::raw;
use shunt_transfer::Node;
use shunt_transfer_engine::engine::Share;
use shunt_transfer_engine::ids::PeerId;
use std::ffi::{c_int, c_void};

/// `ste_share`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawShare {
    /// To whom.
    pub peer: u32,
    /// 0.
    pub reserved: u32,
    /// Target.
    pub to: Handle,
    /// First byte in it.
    pub to_offset: u64,
    /// First byte in the source.
    pub from_offset: u64,
    /// How many.
    pub bytes: u64,
    /// What the peer counts once, or `STE_NO_IMM`.
    pub imm: i64,
}

/// `ste_other`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawOther {
    /// Who.
    pub peer: u32,
    /// 0.
    pub reserved: u32,
    /// A region of it.
    pub target: Handle,
}

fn check_reserved(reserved: u32) -> Result<(), Failure> {
    match reserved {
        0 => Ok(()),
        other => Err(Failure::refused("reserved", "0", other)),
    }
}

/// # Safety
/// `shares` has `count` places; `operation` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_scatter(
    engine: Handle,
    from: Handle,
    shares: *const RawShare,
    count: usize,
    user: *mut c_void,
    operation: *mut *mut c_void,
) -> c_int {
    guarded("ste_scatter", || {
        let engine = find::<Engine>(engine)?;
        let from = find::<RegionOf>(from)?.of(&engine)?;
        // SAFETY: the caller's array.
        let raw_shares = unsafe { raw::array("shares", shares, count) }?;
        let target = |share: &RawShare| {
            check_reserved(share.reserved)?;
            Ok((*share, find::<TargetOf>(share.to)?, imm(share.imm)?))
        };
        let targets = raw_shares.iter().map(target).collect::<Result<Vec<_>, Failure>>()?;
        let shares = targets.iter().map(|(share, target, imm)| {
            let RawShare { peer, to_offset, from_offset, bytes, .. } = *share;
            Share { peer: PeerId(peer), len: bytes, imm: *imm, from: from_offset, to: (&target.0, to_offset) }
        });
        let shares: Vec<_> = shares.collect();
        let scatter = |node: &Node| node.scatter(&from, &shares).map(Begun::Scatter);
        // SAFETY: the caller's pointer.
        unsafe { begin(&engine, Out { user, operation }, scatter) }
    })
}

/// # Safety
/// `count` is NULL or says how many places `results` has, which is NULL or has them.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_shares(operation: Handle, results: *mut Outcome, count: *mut usize) -> c_int {
    guarded("ste_shares", || {
        let ends: Vec<_> = find::<Operation>(operation)?.shares()?.iter().map(Outcome::from).collect();
        // SAFETY: the caller's word and array.
        unsafe { raw::give("results", &ends, results, count) }
    })
}

/// # Safety
/// `others` has `count` places; `operation` is NULL or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn ste_barrier(
    engine: Handle,
    imm: u32,
    region: Handle,
    others: *const RawOther,
    count: usize,
    timeout_ns: u64,
    user: *mut c_void,
    operation: *mut *mut c_void,
) -> c_int {
    guarded("ste_barrier", || {
        let engine = find::<Engine>(engine)?;
        let region = find::<RegionOf>(region)?.of(&engine)?;
        // SAFETY: the caller's array.
        let raw_others = unsafe { raw::array("others", others, count) }?;
        let other = |other: &RawOther| {
            check_reserved(other.reserved)?;
            Ok((other.peer, find::<TargetOf>(other.target)?))
        };
        let targets = raw_others.iter().map(other).collect::<Result<Vec<_>, Failure>>()?;
        let others: Vec<_> = targets.iter().map(|(peer, target)| (*peer, &target.0)).collect();
        let barrier =
            |node: &Node| node.barrier(imm, &region, &others, patience(timeout_ns)).map(Begun::Barrier);
        // SAFETY: the caller's pointer.
        unsafe { begin(&engine, Out { user, operation }, barrier) }
    })
}
