//! What the symbols of libibverbs lead to: `build.rs` makes a versioned one for each function here, of the same name
//! without `shunt_`. What is not here is found in the real library.
#![allow(missing_docs, clippy::missing_safety_doc)] // the functions are libibverbs', and so are their rules

use core::ffi::{c_int, c_uint, c_void};
use shunt_mlx5_sys::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_mr, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_srq, ibv_srq_init_attr,
};
use shunt_verbs::hooks::{device, events, memory, qp, queue, shared};

/// Functions of libibverbs, each with what it is here.
macro_rules! symbols {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty { $body:expr })*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the arguments are the caller's, who keeps to the rules of the library's function.
            unsafe { $body }
        }
    )*};
}

symbols! {
    shunt_ibv_open_device(device: *mut ibv_device) -> *mut ibv_context { device::open(device) }
    shunt_ibv_close_device(context: *mut ibv_context) -> c_int { device::close(context) }
    shunt_ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd { memory::alloc_pd(context) }
    shunt_ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int { memory::dealloc_pd(pd) }
    shunt_ibv_reg_mr(pd: *mut ibv_pd, at: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
        memory::reg_mr(pd, at, length, access)
    }
    shunt_ibv_reg_mr_iova(pd: *mut ibv_pd, at: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr {
        memory::reg_mr_iova(pd, at, length, iova, access)
    }
    shunt_ibv_reg_mr_iova2(pd: *mut ibv_pd, at: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr {
        memory::reg_mr_iova2(pd, at, length, iova, access)
    }
    shunt_ibv_rereg_mr(
        mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, at: *mut c_void, length: usize, access: c_int
    ) -> c_int {
        memory::rereg_mr(mr, flags, pd, at, length, access)
    }
    shunt_ibv_dereg_mr(mr: *mut ibv_mr) -> c_int { memory::dereg_mr(mr) }
    shunt_ibv_create_cq(
        context: *mut ibv_context, cqe: c_int, of: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int
    ) -> *mut ibv_cq {
        queue::create(context, cqe, of, channel, vector)
    }
    shunt_ibv_destroy_cq(cq: *mut ibv_cq) -> c_int { queue::destroy(cq) }
    shunt_ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq { shared::create(pd, attr) }
    shunt_ibv_destroy_srq(srq: *mut ibv_srq) -> c_int { shared::destroy(srq) }
    shunt_ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp { qp::create_qp(pd, attr) }
    shunt_ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int { qp::modify_qp(qp, attr, mask) }
    shunt_ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int {
        qp::query_qp(qp, attr, mask, init)
    }
    shunt_ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int {
        events::get(context, event)
    }
    shunt_ibv_destroy_qp(qp: *mut ibv_qp) -> c_int { qp::destroy_qp(qp) }
}
