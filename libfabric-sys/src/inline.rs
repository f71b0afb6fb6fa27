//! The functions that libfabric's headers define themselves: calls through the tables of the provider.
//!
//! Same names and contracts as in C. A provider that lacks an operation answers `-FI_ENOSYS`.

use crate::generated::types::*;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::{null, null_mut};

/// `FI_VERSION` of fabric.h.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// `FI_ADDR_UNSPEC` of fabric.h: any sender.
pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;

/// Calls through a table that the object points to: `function(object: type, table, first; arguments) = operation`.
macro_rules! through {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($object:ident: *mut $type:ty, $table:ident, $first:expr $(; $($arg:ident: $of:ty),*)?)
            -> $result:ty = $op:ident;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The object is open, and the arguments are what the manual asks for.
            #[inline]
            pub unsafe fn $name($object: *mut $type $(, $($arg: $of),*)?) -> $result {
                // SAFETY: the object is open, by the caller, so that it and the table it points to can be read.
                unsafe {
                    let table = (*$object).$table;
                    match if table.is_null() { None } else { (*table).$op } {
                        Some(op) => op($first $(, $($arg),*)?),
                        None => -(FI_ENOSYS as $result),
                    }
                }
            }
        )*
    };
}

through! {
    /// Closes an object. Those it was made of are closed after it.
    fn fi_close(fid: *mut fid, ops, fid) -> c_int = close;
    /// Binds an object to another one.
    fn fi_bind(fid: *mut fid, ops, fid; other: *mut fid, flags: u64) -> c_int = bind;
    /// A command to an object.
    fn fi_control(fid: *mut fid, ops, fid; command: c_int, arg: *mut c_void) -> c_int = control;
    /// Opens a domain.
    fn fi_domain(fabric: *mut fid_fabric, ops, fabric;
        info: *mut fi_info, domain: *mut *mut fid_domain, context: *mut c_void) -> c_int = domain;
    /// Opens a completion queue.
    fn fi_cq_open(domain: *mut fid_domain, ops, domain;
        attr: *mut fi_cq_attr, cq: *mut *mut fid_cq, context: *mut c_void) -> c_int = cq_open;
    /// Opens an address vector.
    fn fi_av_open(domain: *mut fid_domain, ops, domain;
        attr: *mut fi_av_attr, av: *mut *mut fid_av, context: *mut c_void) -> c_int = av_open;
    /// Opens an endpoint.
    fn fi_endpoint(domain: *mut fid_domain, ops, domain;
        info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void) -> c_int = endpoint;
    /// Registers memory.
    fn fi_mr_regattr(domain: *mut fid_domain, mr, &raw mut (*domain).fid;
        attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr) -> c_int = regattr;
    /// Puts addresses into an address vector.
    fn fi_av_insert(av: *mut fid_av, ops, av;
        addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void) -> c_int
            = insert;
    /// Reads completions.
    fn fi_cq_read(cq: *mut fid_cq, ops, cq; buf: *mut c_void, count: usize) -> isize = read;
    /// Reads why an operation failed.
    fn fi_cq_readerr(cq: *mut fid_cq, ops, cq; buf: *mut fi_cq_err_entry, flags: u64) -> isize = readerr;
    /// Posts a receive.
    fn fi_recv(ep: *mut fid_ep, msg, ep;
        buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t, context: *mut c_void) -> isize = recv;
    /// Posts a SEND.
    fn fi_send(ep: *mut fid_ep, msg, ep;
        buf: *const c_void, len: usize, desc: *mut c_void, dest_addr: fi_addr_t, context: *mut c_void) -> isize
            = send;
    /// Posts a SEND with flags.
    fn fi_sendmsg(ep: *mut fid_ep, msg, ep; message: *const fi_msg, flags: u64) -> isize = sendmsg;
    /// Posts a WRITE with flags.
    fn fi_writemsg(ep: *mut fid_ep, rma, ep; message: *const fi_msg_rma, flags: u64) -> isize = writemsg;
    /// Posts a READ with flags.
    fn fi_readmsg(ep: *mut fid_ep, rma, ep; message: *const fi_msg_rma, flags: u64) -> isize = readmsg;
    /// The endpoint's own address.
    fn fi_getname(ep: *mut fid_ep, cm, &raw mut (*ep).fid; addr: *mut c_void, len: *mut usize) -> c_int = getname;
    /// Cancels an operation by its context.
    fn fi_cancel(ep: *mut fid_ep, ops, &raw mut (*ep).fid; context: *mut c_void) -> isize = cancel;
}

/// Enables an endpoint.
///
/// # Safety
/// The endpoint is open, and bound to its queues.
pub unsafe fn fi_enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: an open endpoint begins with its descriptor; the command takes no argument.
    unsafe { fi_control(&raw mut (*ep).fid, FI_ENABLE as c_int, null_mut()) }
}

/// The text of a provider's own error number; null where the provider has none.
///
/// # Safety
/// The queue is open; `err_data` is what its last error entry gave; `buf` has `len` bytes, or is null and `len` 0.
pub unsafe fn fi_cq_strerror(
    cq: *mut fid_cq,
    prov_errno: c_int,
    err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: the queue is open, by the caller, so that it and its table can be read.
    unsafe {
        match (*(*cq).ops).strerror {
            Some(op) => op(cq, prov_errno, err_data, buf, len),
            None => null(),
        }
    }
}
