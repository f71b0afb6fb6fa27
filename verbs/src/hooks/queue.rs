//! Completion queues: made, polled in the extended way, destroyed.

use crate::completions::CompletionQueue;
use crate::objects::At;
use crate::real;
use crate::registry;
use crate::settings::{Mode, settings};
use core::ffi::{c_int, c_void};
use shunt_mlx5_sys::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex,
    ibv_poll_cq_attr,
};
use std::ptr::null_mut;
use std::sync::Arc;

/// `ibv_create_cq`.
///
/// # Safety
/// As its manual says.
pub unsafe fn create(
    context: *mut ibv_context,
    cqe: c_int,
    of: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: forwarded to the caller.
    let cq = unsafe { real::ibv_create_cq(context, cqe, of, channel, vector) };
    let protects = !cq.is_null() && settings().mode == Mode::On;
    if let Some(context) = registry::context(context).filter(|_| protects) {
        let known = Arc::new(CompletionQueue::new(At(cq), context, !channel.is_null()));
        registry::with_mut(|objects| objects.put_queue(cq, known));
    }
    cq
}

/// `create_cq_ex` of a context. What it makes may be polled by `ibv_poll_cq` like any other. One that is polled by
/// `ibv_start_poll` tells so by doing it: see [`start_poll`].
///
/// # Safety
/// As the manual of `ibv_create_cq_ex` says.
pub unsafe extern "C" fn create_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    let Some(known) = registry::context(context) else { return null_mut() };
    let Some(create) = known.ex.create_cq_ex else { return null_mut() };
    // SAFETY: forwarded to the caller.
    let cq = unsafe { create(context, attr) };
    // SAFETY: the caller's attributes.
    let attr = unsafe { &*attr };
    // A parent domain may bring locks or memory of the program's own.
    let plain = attr.comp_mask & !IBV_CQ_INIT_ATTR_MASK_FLAGS == 0;
    if !cq.is_null() && plain && settings().mode == Mode::On {
        let mut queue = CompletionQueue::new(At(cq.cast()), known, !attr.channel.is_null());
        // SAFETY: just made, and used by nobody else yet.
        unsafe {
            queue.start_poll = (*cq).start_poll;
            (*cq).start_poll = queue.start_poll.map(|_| start_poll as _);
        }
        registry::with_mut(|objects| objects.put_queue(cq.cast(), Arc::new(queue)));
    }
    cq
}

/// `start_poll` of a completion queue. What it finds is read from the provider's entry: no completion of another queue
/// pair can be told that way, so whatever completes here is not protected any more.
///
/// # Safety
/// As the manual of `ibv_start_poll` says.
pub unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    let Some(known) = registry::queue(cq.cast()) else { return libc::EINVAL };
    known.give_up_members();
    // SAFETY: forwarded to the caller.
    known.start_poll.map_or(libc::EOPNOTSUPP, |start| unsafe { start(cq, attr) })
}

/// `ibv_destroy_cq`.
///
/// # Safety
/// As its manual says.
pub unsafe fn destroy(cq: *mut ibv_cq) -> c_int {
    let known = registry::queue(cq);
    // SAFETY: forwarded to the caller.
    let errno = unsafe { real::ibv_destroy_cq(cq) };
    if let Some(destroyed) = known.filter(|_| errno == 0) {
        registry::with_mut(|objects| objects.take_queue(cq, &destroyed));
    }
    errno
}
