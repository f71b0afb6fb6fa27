//! Protection domains and regions: noted, so that they can be had on the backup NIC as well.

use super::device;
use crate::agent;
use crate::objects::{At, Domain, Region};
use crate::real;
use crate::registry;
use core::ffi::{c_int, c_uint, c_void};
use shunt_mlx5_sys::{ibv_context, ibv_mr, ibv_pd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `ibv_alloc_pd`.
///
/// # Safety
/// As its manual says.
pub unsafe fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: open, by the caller.
    unsafe { device::meet(context) };
    // SAFETY: forwarded to the caller.
    let pd = unsafe { real::ibv_alloc_pd(context) };
    if let Some(context) = registry::context(context).filter(|_| !pd.is_null()) {
        let domain = Arc::new(Domain::new(At(pd), context));
        registry::with_mut(|objects| objects.domains.insert(pd.addr(), domain));
    }
    pd
}

/// `ibv_dealloc_pd`.
///
/// # Safety
/// As its manual says.
pub unsafe fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let known = registry::with(|objects| objects.domains.get(&pd.addr()).cloned());
    // SAFETY: forwarded to the caller.
    let errno = unsafe { real::ibv_dealloc_pd(pd) };
    if let Some(known) = known.filter(|_| errno == 0) {
        // Its address may be that of another by now, which stays.
        let is_it = |objects: &registry::Objects| {
            objects.domains.get(&pd.addr()).is_some_and(|domain| Arc::ptr_eq(domain, &known))
        };
        registry::with_mut(|objects| {
            if is_it(objects) {
                objects.domains.remove(&pd.addr());
            }
        });
    }
    errno
}

/// Notes a region.
unsafe fn note(pd: *mut ibv_pd, mr: *mut ibv_mr, iova: u64, access: c_uint) -> *mut ibv_mr {
    let domain = registry::with(|objects| objects.domains.get(&pd.addr()).cloned());
    if let Some(domain) = domain.filter(|_| !mr.is_null()) {
        // SAFETY: just made, by the caller.
        let (address, length, lkey, rkey) =
            unsafe { ((*mr).addr.addr() as u64, (*mr).length, (*mr).lkey, (*mr).rkey) };
        let region = Region { address, length, iova, access, lkey, rkey, spares: Default::default() };
        domain.regions_mut().known.insert(mr.addr(), region);
        domain.changes.fetch_add(1, Ordering::Release);
        agent::regions_changed();
    }
    mr
}

/// `ibv_reg_mr`.
///
/// # Safety
/// As its manual says.
pub unsafe fn reg_mr(pd: *mut ibv_pd, at: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    // SAFETY: forwarded to the caller.
    unsafe { note(pd, real::ibv_reg_mr(pd, at, length, access), at.addr() as u64, access as c_uint) }
}

/// `ibv_reg_mr_iova`.
///
/// # Safety
/// As its manual says.
pub unsafe fn reg_mr_iova(
    pd: *mut ibv_pd,
    at: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: forwarded to the caller.
    unsafe { note(pd, real::ibv_reg_mr_iova(pd, at, length, iova, access), iova, access as c_uint) }
}

/// `ibv_reg_mr_iova2`.
///
/// # Safety
/// As its manual says.
pub unsafe fn reg_mr_iova2(
    pd: *mut ibv_pd,
    at: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: forwarded to the caller.
    unsafe { note(pd, real::ibv_reg_mr_iova2(pd, at, length, iova, access), iova, access) }
}

/// Forgets a region, and takes it off backup NICs.
unsafe fn forget(mr: *mut ibv_mr) {
    // SAFETY: alive, by the caller.
    let pd = unsafe { (*mr).pd };
    let Some(domain) = registry::with(|objects| objects.domains.get(&pd.addr()).cloned()) else { return };
    let mut regions = domain.regions_mut();
    if let Some(region) = regions.known.remove(&mr.addr()) {
        regions.drop_spares(&region);
        domain.changes.fetch_add(1, Ordering::Release);
        drop(regions);
        agent::regions_changed();
    }
}

/// `ibv_rereg_mr`. What it makes of a region is not carried over: the region is unknown afterwards.
///
/// # Safety
/// As its manual says.
pub unsafe fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    at: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    // SAFETY: forwarded to the caller.
    unsafe {
        forget(mr);
        real::ibv_rereg_mr(mr, flags, pd, at, length, access)
    }
}

/// `ibv_dereg_mr`.
///
/// # Safety
/// As its manual says.
pub unsafe fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: forwarded to the caller.
    unsafe {
        forget(mr);
        real::ibv_dereg_mr(mr)
    }
}
