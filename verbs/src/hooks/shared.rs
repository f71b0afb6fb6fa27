//! Shared receive queues: made, posted to, destroyed.

use super::data;
use crate::objects::At;
use crate::real;
use crate::registry;
use crate::settings::{Mode, settings};
use crate::shared_receive::SharedQueue;
use core::ffi::c_int;
use shunt_mlx5_sys::{ibv_pd, ibv_recv_wr, ibv_srq, ibv_srq_init_attr};
use shunt_verbs_journal::request::Receive;
use std::ptr::null_mut;
use std::sync::Arc;

/// `ibv_create_srq`.
///
/// # Safety
/// As its manual says.
pub unsafe fn create(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: forwarded to the caller.
    let srq = unsafe { real::ibv_create_srq(pd, attr) };
    if srq.is_null() || settings().mode != Mode::On {
        return srq;
    }
    // SAFETY: just made; the attributes are the caller's, with what was made of them.
    let (context, attr) = unsafe { ((*srq).context, (*attr).attr) };
    if let Some(post) = registry::context(context).and_then(|context| context.ops.post_srq_recv) {
        let known = Arc::new(SharedQueue::new(At(srq), attr, post));
        registry::with_mut(|objects| objects.shared.insert(srq.addr(), known));
    }
    srq
}

/// `ibv_destroy_srq`.
///
/// # Safety
/// As its manual says.
pub unsafe fn destroy(srq: *mut ibv_srq) -> c_int {
    let known = registry::shared(srq);
    // SAFETY: forwarded to the caller.
    let errno = unsafe { real::ibv_destroy_srq(srq) };
    if let Some(destroyed) = known.filter(|_| errno == 0) {
        registry::with_mut(|objects| objects.take_shared(srq, &destroyed));
    }
    errno
}

/// `post_srq_recv` of a context.
///
/// # Safety
/// As the manual of `ibv_post_srq_recv` says.
pub unsafe extern "C" fn post(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let Some(shared) = registry::shared(srq) else {
        // SAFETY: the queue is alive, by the caller.
        let ops = registry::context(unsafe { (*srq).context }).map(|context| context.ops);
        // SAFETY: forwarded to the caller.
        return ops
            .and_then(|ops| ops.post_srq_recv)
            .map_or(libc::EOPNOTSUPP, |post| unsafe { post(srq, list, bad) });
    };
    let mut at = list;
    let mut errno = 0;
    while !at.is_null() && errno == 0 {
        // SAFETY: an element of the caller's list, with as many buffers as it says.
        let (wr, pieces) = unsafe { (&*at, data::pieces((*at).sg_list, (*at).num_sge)) };
        let receive = Receive { wr_id: wr.wr_id, pieces: pieces.to_vec() };
        let own = || {
            let mut one = ibv_recv_wr { next: null_mut(), ..*wr };
            let mut first = null_mut();
            // SAFETY: as the caller vouches.
            unsafe { (shared.post)(srq, &raw mut one, &raw mut first) }
        };
        match shared.push(receive, own) {
            Ok(()) => at = wr.next,
            Err(refused) => errno = refused,
        }
    }
    if errno != 0 {
        // SAFETY: the caller's place for it.
        unsafe { *bad = at };
    }
    shared.moved().iter().for_each(|taker| taker.serve());
    errno
}
