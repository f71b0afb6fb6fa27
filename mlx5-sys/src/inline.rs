//! The functions that `infiniband/verbs.h` and `mlx5dv.h` define themselves: calls through tables of the provider.
//!
//! Same names and contracts as in C. Those that fall back to an exported function are methods of [`Verbs`] or [`Mlx5`].

use crate::generated::functions::{Mlx5, Verbs};
use crate::generated::types::*;
use core::ffi::{c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};
use core::ptr::null_mut;

/// The extended context that lies around `context`; null where the library has none.
///
/// # Safety
/// `context` is an open context.
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the context is open, by the caller; the library sets this mark on contexts inside a `verbs_context`.
    unsafe {
        if (*context).abi_compat as usize != usize::MAX {
            return null_mut();
        }
        context.byte_sub(offset_of!(verbs_context, context)).cast()
    }
}

/// A function of the extended context, if the provider's table is long enough and has it.
macro_rules! extended {
    ($context:expr, $op:ident) => {{
        let outer = verbs_get_ctx($context);
        let reach = size_of::<verbs_context>() - offset_of!(verbs_context, $op);
        if outer.is_null() || ((*outer).sz as usize) < reach { None } else { (*outer).$op }
    }};
}

fn not_supported<T>() -> *mut T {
    // SAFETY: the address of this thread's own errno.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    null_mut()
}

/// Functions whose pointer lies in the object itself. The provider sets all that the object was made with.
macro_rules! through {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($object:ident: *mut $type:ty $(, $arg:ident: $of:ty)*) $(-> $result:ty)? = $field:ident;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The object is alive, was made with this operation, and the arguments are what the manual asks for.
            #[inline]
            pub unsafe fn $name($object: *mut $type $(, $arg: $of)*) $(-> $result)? {
                // SAFETY: the object is alive and has the operation, by the caller.
                unsafe { (*$object).$field.unwrap_unchecked()($object $(, $arg)*) }
            }
        )*
    };
}

through! {
    /// Starts a batch of requests.
    fn ibv_wr_start(qp: *mut ibv_qp_ex) = wr_start;
    /// Posts the batch.
    fn ibv_wr_complete(qp: *mut ibv_qp_ex) -> c_int = wr_complete;
    /// Forgets the batch.
    fn ibv_wr_abort(qp: *mut ibv_qp_ex) = wr_abort;
    /// RDMA WRITE.
    fn ibv_wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote: u64) = wr_rdma_write;
    /// RDMA WRITE with immediate data, big-endian.
    fn ibv_wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote: u64, imm: __be32) = wr_rdma_write_imm;
    /// RDMA READ.
    fn ibv_wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote: u64) = wr_rdma_read;
    /// SEND.
    fn ibv_wr_send(qp: *mut ibv_qp_ex) = wr_send;
    /// SEND with immediate data, big-endian.
    fn ibv_wr_send_imm(qp: *mut ibv_qp_ex, imm: __be32) = wr_send_imm;
    /// SEND with invalidate.
    fn ibv_wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) = wr_send_inv;
    /// Local invalidate.
    fn ibv_wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) = wr_local_inv;
    /// Compare and swap of 8 bytes.
    fn ibv_wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, remote: u64, compare: u64, swap: u64)
        = wr_atomic_cmp_swp;
    /// Fetch and add of 8 bytes.
    fn ibv_wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote: u64, add: u64) = wr_atomic_fetch_add;
    /// One local buffer of the request.
    fn ibv_wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, address: u64, length: u32) = wr_set_sge;
    /// Local buffers of the request.
    fn ibv_wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) = wr_set_sge_list;
    /// Data that travels in the request.
    fn ibv_wr_set_inline_data(qp: *mut ibv_qp_ex, data: *mut c_void, length: usize) = wr_set_inline_data;
    /// Data of several places that travels in the request.
    fn ibv_wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf)
        = wr_set_inline_data_list;
    /// Address of a UD request.
    fn ibv_wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) = wr_set_ud_addr;
    /// Starts to read completions; ENOENT if there is none.
    fn ibv_start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int = start_poll;
    /// Goes to the next completion; ENOENT if there is none.
    fn ibv_next_poll(cq: *mut ibv_cq_ex) -> c_int = next_poll;
    /// Ends what `ibv_start_poll` began.
    fn ibv_end_poll(cq: *mut ibv_cq_ex) = end_poll;
    /// Opcode of this completion.
    fn ibv_wc_read_opcode(cq: *mut ibv_cq_ex) -> ibv_wc_opcode = read_opcode;
    /// Vendor error of this completion.
    fn ibv_wc_read_vendor_err(cq: *mut ibv_cq_ex) -> u32 = read_vendor_err;
    /// Bytes of this completion.
    fn ibv_wc_read_byte_len(cq: *mut ibv_cq_ex) -> u32 = read_byte_len;
    /// Immediate data of this completion, big-endian.
    fn ibv_wc_read_imm_data(cq: *mut ibv_cq_ex) -> __be32 = read_imm_data;
    /// QP of this completion.
    fn ibv_wc_read_qp_num(cq: *mut ibv_cq_ex) -> u32 = read_qp_num;
    /// Flags of this completion.
    fn ibv_wc_read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint = read_wc_flags;
    /// The NIC's clock at this completion.
    fn ibv_wc_read_completion_ts(cq: *mut ibv_cq_ex) -> u64 = read_completion_ts;
    /// A raw WQE, as it is to lie in the queue.
    fn mlx5dv_wr_raw_wqe(qp: *mut mlx5dv_qp_ex, wqe: *const c_void) = wr_raw_wqe;
}

/// The extended CQ as a plain one.
#[must_use]
pub fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// Posts send requests. EOPNOTSUPP where the provider has no such function.
///
/// # Safety
/// The QP is alive, the list and `bad` are valid, and so is the memory they name until the requests are complete.
#[inline]
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, list: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the QP is alive, by the caller, and so is its context.
    unsafe { (*(*qp).context).ops.post_send.map_or(libc::EOPNOTSUPP, |post| post(qp, list, bad)) }
}

/// Posts receive requests. EOPNOTSUPP where the provider has no such function.
///
/// # Safety
/// As for [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, list: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the QP is alive, by the caller, and so is its context.
    unsafe { (*(*qp).context).ops.post_recv.map_or(libc::EOPNOTSUPP, |post| post(qp, list, bad)) }
}

/// Posts requests to a shared receive queue. EOPNOTSUPP where the provider has no such function.
///
/// # Safety
/// As for [`ibv_post_send`].
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the SRQ is alive, by the caller, and so is its context.
    unsafe { (*(*srq).context).ops.post_srq_recv.map_or(libc::EOPNOTSUPP, |post| post(srq, list, bad)) }
}

/// Takes completions: their number, or less than 0.
///
/// # Safety
/// The CQ is alive; `completions` holds `most` of them.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, most: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: the CQ is alive, by the caller, and so is its context.
    unsafe { (*(*cq).context).ops.poll_cq.map_or(-libc::EOPNOTSUPP, |poll| poll(cq, most, completions)) }
}

/// Asks for an event of the next completion.
///
/// # Safety
/// The CQ is alive.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the CQ is alive, by the caller, and so is its context.
    unsafe { (*(*cq).context).ops.req_notify_cq.map_or(libc::EOPNOTSUPP, |arm| arm(cq, solicited_only)) }
}

/// Makes a CQ with extended reading; null and EOPNOTSUPP where the provider has none.
///
/// # Safety
/// The context is open and `attr` valid.
pub unsafe fn ibv_create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex {
    // SAFETY: as the caller vouches.
    unsafe { extended!(context, create_cq_ex).map_or_else(not_supported, |create| create(context, attr)) }
}

impl Verbs {
    /// `ibv_create_qp_ex`.
    ///
    /// # Safety
    /// The context is open and `attr` valid.
    pub unsafe fn ibv_create_qp_ex(
        &self,
        context: *mut ibv_context,
        attr: *mut ibv_qp_init_attr_ex,
    ) -> *mut ibv_qp {
        // SAFETY: as the caller vouches. The extended attributes begin with the plain ones.
        unsafe {
            if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
                return self.ibv_create_qp((*attr).pd, attr.cast());
            }
            extended!(context, create_qp_ex).map_or_else(not_supported, |create| create(context, attr))
        }
    }

    /// `ibv_query_port` with all fields: the exported function of that name leaves the newest ones out.
    ///
    /// # Safety
    /// The context is open; `attr` is valid for writing and zeroed.
    pub unsafe fn query_port(&self, context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr) -> c_int {
        // SAFETY: as the caller vouches. The old attributes are the first fields of the new ones.
        unsafe {
            match extended!(context, query_port) {
                Some(query) => query(context, port, attr, size_of::<ibv_port_attr>()),
                None => self.ibv_query_port(context, port, attr.cast()),
            }
        }
    }

    /// `ibv_query_device_ex`.
    ///
    /// # Safety
    /// The context is open; `input` is null or valid; `attr` is valid for writing and zeroed.
    pub unsafe fn ibv_query_device_ex(
        &self,
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
    ) -> c_int {
        // SAFETY: as the caller vouches.
        unsafe {
            if !input.is_null() && (*input).comp_mask != 0 {
                return libc::EINVAL;
            }
            if let Some(query) = extended!(context, query_device_ex) {
                let answer = query(context, input, attr, size_of::<ibv_device_attr_ex>());
                if answer != libc::EOPNOTSUPP && answer != libc::ENOSYS {
                    return answer;
                }
            }
            self.ibv_query_device(context, &raw mut (*attr).orig_attr)
        }
    }

    /// `ibv_query_gid_ex`.
    ///
    /// # Safety
    /// The context is open and `entry` valid for writing.
    pub unsafe fn ibv_query_gid_ex(
        &self,
        context: *mut ibv_context,
        port: u32,
        index: u32,
        entry: *mut ibv_gid_entry,
    ) -> c_int {
        // SAFETY: as the caller vouches.
        unsafe { self._ibv_query_gid_ex(context, port, index, entry, 0, size_of::<ibv_gid_entry>()) }
    }

    /// `ibv_query_gid_table`: the number of entries written, or less than 0.
    ///
    /// # Safety
    /// The context is open and `entries` valid for writing `most` of them.
    pub unsafe fn ibv_query_gid_table(
        &self,
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        most: usize,
    ) -> isize {
        // SAFETY: as the caller vouches.
        unsafe { self._ibv_query_gid_table(context, entries, most, 0, size_of::<ibv_gid_entry>()) as isize }
    }
}

impl Mlx5 {
    /// `mlx5dv_query_port`.
    ///
    /// # Safety
    /// The context is open; `info` is valid for writing and zeroed.
    pub unsafe fn mlx5dv_query_port(
        &self,
        context: *mut ibv_context,
        port: u32,
        info: *mut mlx5_ib_uapi_query_port,
    ) -> c_int {
        // SAFETY: as the caller vouches.
        unsafe { self._mlx5dv_query_port(context, port, info, size_of::<mlx5_ib_uapi_query_port>()) }
    }
}
