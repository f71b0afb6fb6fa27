//! Devices: the table of a context is changed where it lies, so that functions which headers define come here as well.

use super::{data, events, poll, qp, queue, shared};
use crate::objects::{At, Context, Extended};
use crate::real;
use crate::registry;
use crate::settings::{Mode, settings};
use crate::status;
use core::ffi::{CStr, c_int};
use core::mem::{offset_of, size_of};
use shunt_mlx5_sys::{ibv_context, ibv_device, verbs_context, verbs_get_ctx};
use std::sync::{Arc, OnceLock};

/// The extended context, if it is long enough for the functions that are changed in it: those lie before its end, and
/// `create_qp_ex` lies farthest from it.
unsafe fn outer(context: *mut ibv_context) -> Option<*mut verbs_context> {
    // SAFETY: the context is open, by the caller.
    let outer = unsafe { verbs_get_ctx(context) };
    if outer.is_null() {
        return None;
    }
    let reach = |at: usize| size_of::<verbs_context>() - at;
    let farthest =
        reach(offset_of!(verbs_context, create_qp_ex)).max(reach(offset_of!(verbs_context, create_cq_ex)));
    // SAFETY: as above: the outer context is as long as it says, from its end backwards.
    unsafe { ((*outer).sz >= farthest).then_some(outer) }
}

/// `ibv_open_device`.
///
/// # Safety
/// As its manual says.
pub unsafe fn open(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: forwarded to the caller.
    let context = unsafe { real::ibv_open_device(device) };
    if !context.is_null() {
        // SAFETY: just opened, and nobody else has it yet.
        unsafe { meet(context) };
    }
    context
}

/// Takes on a context that is not known yet. Some are opened by a provider's own function (`mlx5dv_open_device`), which
/// passes this library by.
///
/// # Safety
/// The context is open.
pub unsafe fn meet(context: *mut ibv_context) {
    if settings().mode != Mode::Off && registry::context(context).is_none() {
        status::begin();
        // SAFETY: open, by the caller. A program makes a domain before it posts or polls anything.
        unsafe { adopt(context) };
    }
}

unsafe fn adopt(context: *mut ibv_context) {
    // SAFETY: open, and used by nobody else, by the caller. Its tables are the provider's and may be written.
    unsafe {
        let name = real::ibv_get_device_name((*context).device);
        let device =
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into() };
        let outer = outer(context);
        let ex = outer.map_or_else(Extended::default, |outer| Extended {
            create_cq_ex: (*outer).create_cq_ex,
            create_qp_ex: (*outer).create_qp_ex,
        });
        let ops = (*context).ops;
        let channel = OnceLock::new();
        let known = Arc::new(Context { raw: At(context), device, ops, ex, channel });
        registry::with_mut(|objects| objects.contexts.insert(context.addr(), known));
        (*context).ops.post_send = ops.post_send.map(|_| data::post_send as _);
        (*context).ops.post_recv = ops.post_recv.map(|_| data::post_recv as _);
        (*context).ops.post_srq_recv = ops.post_srq_recv.map(|_| shared::post as _);
        (*context).ops.poll_cq = ops.poll_cq.map(|_| poll::poll_cq as _);
        if let Some(outer) = outer {
            (*outer).create_cq_ex = ex.create_cq_ex.map(|_| queue::create_ex as _);
            (*outer).create_qp_ex = ex.create_qp_ex.map(|_| qp::create_qp_ex as _);
        }
    }
}

/// `ibv_close_device`.
///
/// # Safety
/// As its manual says.
pub unsafe fn close(context: *mut ibv_context) -> c_int {
    registry::with_mut(|objects| objects.contexts.remove(&context.addr()));
    events::forget(context);
    // SAFETY: forwarded to the caller.
    unsafe { real::ibv_close_device(context) }
}
