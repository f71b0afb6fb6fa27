//! Devices: the table of a context is changed where it lies, so that functions which headers define come here as well.

use super::{data, qp, shared};
use crate::objects::{At, Context, CreateQpEx, Extended};
use crate::real;
use crate::registry;
use crate::settings::{Mode, settings};
use crate::status;
use core::ffi::{CStr, c_int};
use core::mem::{offset_of, size_of};
use shunt_mlx5_sys::{ibv_context, ibv_device, verbs_context, verbs_get_ctx};
use std::sync::{Arc, OnceLock};

/// Where the extended context has that function, if it is long enough.
unsafe fn slot(context: *mut ibv_context) -> Option<*mut Option<CreateQpEx>> {
    // SAFETY: the context is open, by the caller.
    let outer = unsafe { verbs_get_ctx(context) };
    if outer.is_null() {
        return None;
    }
    let reach = size_of::<verbs_context>() - offset_of!(verbs_context, create_qp_ex);
    // SAFETY: as above: the outer context is as long as it says, from its end backwards.
    unsafe { ((*outer).sz >= reach).then(|| &raw mut (*outer).create_qp_ex) }
}

/// `ibv_open_device`.
///
/// # Safety
/// As its manual says.
pub unsafe fn open(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: forwarded to the caller.
    let context = unsafe { real::ibv_open_device(device) };
    if !context.is_null() && settings().mode != Mode::Off {
        status::begin();
        // SAFETY: just opened, and nobody else has it yet.
        unsafe { adopt(context) };
    }
    context
}

unsafe fn adopt(context: *mut ibv_context) {
    // SAFETY: open, and used by nobody else, by the caller. Its tables are the provider's and may be written.
    unsafe {
        let name = real::ibv_get_device_name((*context).device);
        let device =
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into() };
        let slot = slot(context);
        let ex = Extended { create_qp_ex: slot.and_then(|slot| *slot) };
        let ops = (*context).ops;
        let channel = OnceLock::new();
        let known = Arc::new(Context { raw: At(context), device, ops, ex, channel });
        registry::with_mut(|objects| objects.contexts.insert(context.addr(), known));
        (*context).ops.post_send = ops.post_send.map(|_| data::post_send as _);
        (*context).ops.post_recv = ops.post_recv.map(|_| data::post_recv as _);
        (*context).ops.post_srq_recv = ops.post_srq_recv.map(|_| shared::post as _);
        (*context).ops.poll_cq = ops.poll_cq.map(|_| data::poll_cq as _);
        if let (Some(slot), Some(_)) = (slot, ex.create_qp_ex) {
            *slot = Some(qp::create_qp_ex);
        }
    }
}

/// `ibv_close_device`.
///
/// # Safety
/// As its manual says.
pub unsafe fn close(context: *mut ibv_context) -> c_int {
    registry::with_mut(|objects| objects.contexts.remove(&context.addr()));
    // SAFETY: forwarded to the caller.
    unsafe { real::ibv_close_device(context) }
}
