//! `ibv_wr_*`: requests are put together here and posted at the end, one by one.

use super::data::{self, Posted};
use crate::queue_pair::{QueuePair, State};
use crate::real;
use crate::registry;
use crate::request::{Data, Kind, Piece, Request};
use crate::work_request;
use core::ffi::{c_int, c_void};
use shunt_mlx5_sys::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, ibv_data_buf, ibv_qp,
    ibv_qp_attr, ibv_qp_ex, ibv_send_wr, ibv_sge,
};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Moves a queue pair of the program. libmlx5 writes some of its functions again then: they are taken over once more.
///
/// # Safety
/// It is alive.
pub unsafe fn modify(pair: &QueuePair, qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    if !pair.extended.load(Ordering::Acquire) {
        // SAFETY: forwarded to the caller.
        return unsafe { real::ibv_modify_qp(qp, attr, mask) };
    }
    pair.begin_batch();
    // SAFETY: alive, by the caller, and no batch is under way.
    let errno = unsafe {
        let errno = real::ibv_modify_qp(qp, attr, mask);
        take(qp);
        errno
    };
    pair.end_batch();
    errno
}

/// Takes over the functions of a queue pair that was made for SEND, WRITE and READ.
///
/// # Safety
/// It was made with such operations, and nobody uses them now.
pub(super) unsafe fn take(qp: *mut ibv_qp) {
    // SAFETY: by the caller; the functions lie in the object for the provider to write, which has.
    unsafe {
        let ex = real::ibv_qp_to_qp_ex(qp);
        if ex.is_null() {
            return;
        }
        (*ex).wr_start = Some(start);
        (*ex).wr_complete = Some(complete);
        (*ex).wr_abort = Some(abort);
        (*ex).wr_send = Some(send);
        (*ex).wr_send_imm = Some(send_imm);
        (*ex).wr_rdma_write = Some(write);
        (*ex).wr_rdma_write_imm = Some(write_imm);
        (*ex).wr_rdma_read = Some(read);
        (*ex).wr_atomic_fetch_add = Some(fetch_add);
        (*ex).wr_atomic_cmp_swp = Some(compare_swap);
        (*ex).wr_set_sge = Some(set_sge);
        (*ex).wr_set_sge_list = Some(set_sge_list);
        (*ex).wr_set_inline_data = Some(set_inline_data);
        (*ex).wr_set_inline_data_list = Some(set_inline_data_list);
    }
}

fn pair(qp: *mut ibv_qp_ex) -> Option<Arc<QueuePair>> {
    registry::pair(qp.cast())
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    let Some(pair) = pair(qp) else { return };
    pair.begin_batch();
}

/// Adds a request to the batch.
unsafe fn add_request(qp: *mut ibv_qp_ex, kind: Kind, rkey: u32, remote: u64) {
    let Some(pair) = pair(qp) else { return };
    // SAFETY: alive, by the caller, who has written both.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let has = |flag: u32| flags & flag != 0;
    let signaled = pair.all_signaled || has(IBV_SEND_SIGNALED);
    let (fence, solicited) = (has(IBV_SEND_FENCE), has(IBV_SEND_SOLICITED));
    let data = Data::Pieces(Vec::new());
    pair.state().batch.push(Request { wr_id, kind, signaled, fence, solicited, remote, rkey, data });
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: forwarded to the caller.
    unsafe { add_request(qp, Kind::Send(None), 0, 0) }
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, immediate: u32) {
    // SAFETY: forwarded to the caller.
    unsafe { add_request(qp, Kind::Send(Some(immediate)), 0, 0) }
}

unsafe extern "C" fn write(qp: *mut ibv_qp_ex, rkey: u32, remote: u64) {
    // SAFETY: forwarded to the caller.
    unsafe { add_request(qp, Kind::Write(None), rkey, remote) }
}

unsafe extern "C" fn write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote: u64, immediate: u32) {
    // SAFETY: forwarded to the caller.
    unsafe { add_request(qp, Kind::Write(Some(immediate)), rkey, remote) }
}

unsafe extern "C" fn read(qp: *mut ibv_qp_ex, rkey: u32, remote: u64) {
    // SAFETY: forwarded to the caller.
    unsafe { add_request(qp, Kind::Read, rkey, remote) }
}

unsafe extern "C" fn fetch_add(qp: *mut ibv_qp_ex, rkey: u32, remote: u64, add: u64) {
    // SAFETY: forwarded to the caller.
    unsafe { add_request(qp, Kind::FetchAdd(add), rkey, remote) }
}

unsafe extern "C" fn compare_swap(qp: *mut ibv_qp_ex, rkey: u32, remote: u64, compare: u64, swap: u64) {
    // SAFETY: forwarded to the caller.
    unsafe { add_request(qp, Kind::CompareSwap(compare, swap), rkey, remote) }
}

/// Says what the newest request of the batch carries.
fn carry(qp: *mut ibv_qp_ex, data: Data) {
    let Some(pair) = pair(qp) else { return };
    if let Some(request) = pair.state().batch.last_mut() {
        request.data = data;
    }
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, address: u64, length: u32) {
    carry(qp, Data::Pieces(vec![Piece { address, length, lkey }]));
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: a list of this many, by the caller.
    carry(qp, Data::Pieces(unsafe { data::pieces(list, count as c_int) }));
}

/// A copy of what is to travel in a request.
unsafe fn copy(to: &mut Vec<u8>, from: *const c_void, length: usize) {
    if length > 0 {
        // SAFETY: the caller's memory, of this length.
        to.extend_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), length) });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, from: *mut c_void, length: usize) {
    let mut bytes = Vec::new();
    // SAFETY: forwarded to the caller.
    unsafe { copy(&mut bytes, from, length) };
    carry(qp, Data::Inline(bytes));
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    let mut bytes = Vec::new();
    for at in 0..count {
        // SAFETY: a list of this many, by the caller, each of its length.
        unsafe {
            let one = &*list.add(at);
            copy(&mut bytes, one.addr, one.length);
        }
    }
    carry(qp, Data::Inline(bytes));
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    let Some(pair) = pair(qp) else { return };
    pair.state().batch.clear();
    pair.end_batch();
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    let Some(pair) = pair(qp) else { return libc::EINVAL };
    let mut state = pair.state();
    let batch = std::mem::take(&mut state.batch);
    let mut errno = 0;
    for request in batch {
        // SAFETY: the queue pair is alive, by the caller.
        errno = unsafe { post(&pair, &mut state, qp.cast(), request) };
        if errno != 0 {
            break;
        }
    }
    drop(state);
    pair.end_batch();
    errno
}

unsafe fn post(pair: &QueuePair, state: &mut State, qp: *mut ibv_qp, request: Request) -> c_int {
    if state.passing.is_some() {
        // SAFETY: forwarded to the caller.
        return unsafe { post_own(pair, qp, &request) };
    }
    let copy = request.clone();
    // SAFETY: forwarded to the caller.
    match data::post(pair, state, request, || unsafe { post_own(pair, qp, &copy) }) {
        Posted::Taken => 0,
        Posted::Refused(errno) => errno,
    }
}

/// Posts a request on the program's own queue pair.
unsafe fn post_own(pair: &QueuePair, qp: *mut ibv_qp, request: &Request) -> c_int {
    let Some(post) = pair.context.ops.post_send else { return libc::EOPNOTSUPP };
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    let mut wr = ibv_send_wr {
        wr_id: request.wr_id,
        send_flags: flag(request.signaled, IBV_SEND_SIGNALED)
            | flag(request.fence, IBV_SEND_FENCE)
            | flag(request.solicited, IBV_SEND_SOLICITED),
        ..ibv_send_wr::default()
    };
    work_request::fill(&mut wr, request.kind, request.remote, request.rkey);
    let mut pieces: Vec<ibv_sge> = match &request.data {
        Data::Pieces(pieces) => {
            let one = |piece: &Piece| ibv_sge { addr: piece.address, length: piece.length, lkey: piece.lkey };
            pieces.iter().map(one).collect()
        }
        Data::Inline(bytes) => {
            wr.send_flags |= IBV_SEND_INLINE;
            let addr = bytes.as_ptr().expose_provenance() as u64;
            vec![ibv_sge { addr, length: bytes.len() as u32, lkey: 0 }]
        }
    };
    wr.sg_list = pieces.as_mut_ptr();
    wr.num_sge = pieces.len() as c_int;
    let mut bad = null_mut();
    // SAFETY: the queue pair is alive, by the caller; the request and its copy of inline data live until this returns.
    unsafe { post(qp, &raw mut wr, &raw mut bad) }
}
