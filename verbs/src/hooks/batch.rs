//! `ibv_wr_*`: requests are put together here and posted at the end, one by one.

use super::data;
use crate::batch::Batch;
use crate::pair_state::State;
use crate::queue_pair::QueuePair;
use crate::real;
use crate::registry;
use crate::work_request;
use core::ffi::{c_int, c_void};
use shunt_mlx5_sys::{
    IBV_QP_STATE, IBV_QPS_ERR, IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    ibv_data_buf, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_sge,
};
use shunt_verbs_journal::record::{Beside, Record};
use shunt_verbs_journal::request::{Kind, Piece};
use std::ptr::null_mut;
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

/// Moves a queue pair of the program to ERR. The program may look at the state in its object before each post, as UCX
/// does, and is not to know: what it sees there stays. Between both writes of it lie a few instructions.
///
/// # Safety
/// It is alive.
pub unsafe fn fence(pair: &QueuePair, qp: *mut ibv_qp) -> c_int {
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    // SAFETY: alive, by the caller; the attributes are ours, and the state is a word that `modify` writes.
    unsafe {
        let state = &raw mut (*qp).state;
        let seen = state.read_volatile();
        let errno = modify(pair, qp, &raw mut attr, IBV_QP_STATE as c_int);
        state.write_volatile(seen);
        errno
    }
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

/// Does something with the queue pair, if it is protected.
unsafe fn with<R>(qp: *mut ibv_qp_ex, act: impl FnOnce(&QueuePair) -> R) -> Option<R> {
    // SAFETY: the program has it until this returns, by the caller.
    match unsafe { registry::near_pair(qp.cast(), Some, || None) } {
        Some(pair) => Some(act(pair)),
        None => registry::pair(qp.cast()).map(|pair| act(&pair)),
    }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: forwarded to the caller.
    unsafe { with(qp, QueuePair::begin_batch) };
}

/// Flags that a request of a batch may have.
const FLAGS: u32 = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;

/// Adds a request to the batch.
unsafe fn add_request(qp: *mut ibv_qp_ex, kind: Kind, rkey: u32, remote: u64) {
    // SAFETY: alive, by the caller, who has written both.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let act = |pair: &QueuePair| {
        let mut record = Record::new(wr_id, kind, (remote, rkey));
        record.words.flags = flags & FLAGS;
        pair.batch.lock().add(record);
    };
    // SAFETY: forwarded to the caller.
    unsafe { with(qp, act) };
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
unsafe fn carry(qp: *mut ibv_qp_ex, say: impl FnOnce(&mut Record, &mut Beside)) {
    let act = |pair: &QueuePair| {
        if let Some((record, beside)) = pair.batch.lock().newest() {
            say(record, beside);
        }
    };
    // SAFETY: forwarded to the caller.
    unsafe { with(qp, act) };
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, address: u64, length: u32) {
    let first = Piece { address, length, lkey };
    // SAFETY: forwarded to the caller.
    unsafe { carry(qp, |record, _| (record.first, record.words.count) = (first, 1)) }
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: a list of this many, by the caller.
    let pieces = unsafe { data::pieces(list, count as c_int) };
    let say = |record: &mut Record, beside: &mut Beside| {
        record.words.count = pieces.len() as i32;
        record.first = pieces.first().copied().unwrap_or_default();
        beside.pieces.clear();
        beside.pieces.extend_from_slice(pieces);
    };
    // SAFETY: forwarded to the caller.
    unsafe { carry(qp, say) }
}

/// A copy of what is to travel in a request.
unsafe fn copy(to: &mut Vec<u8>, from: *const c_void, length: usize) {
    if length > 0 {
        // SAFETY: the caller's memory, of this length.
        to.extend_from_slice(unsafe { std::slice::from_raw_parts(from.cast(), length) });
    }
}

/// The newest request of the batch carries inline data, which `copy` adds.
unsafe fn carry_inline(qp: *mut ibv_qp_ex, copy: impl FnOnce(&mut Vec<u8>)) {
    let say = |record: &mut Record, beside: &mut Beside| {
        record.words.flags |= IBV_SEND_INLINE;
        record.words.count = 1;
        beside.bytes.clear();
        copy(&mut beside.bytes);
    };
    // SAFETY: forwarded to the caller.
    unsafe { carry(qp, say) }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, from: *mut c_void, length: usize) {
    // SAFETY: forwarded to the caller.
    unsafe { carry_inline(qp, |bytes| copy(bytes, from, length)) }
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    let add = |bytes: &mut Vec<u8>| {
        for at in 0..count {
            // SAFETY: a list of this many, by the caller, each of its length.
            unsafe {
                let one = &*list.add(at);
                copy(bytes, one.addr, one.length);
            }
        }
    };
    // SAFETY: forwarded to the caller.
    unsafe { carry_inline(qp, add) }
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    let act = |pair: &QueuePair| {
        pair.batch.lock().clear();
        pair.end_batch();
    };
    // SAFETY: forwarded to the caller.
    unsafe { with(qp, act) };
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    let act = |pair: &QueuePair| {
        let mut batch = pair.batch.lock();
        // SAFETY: the queue pair is alive, by the caller.
        let errno = unsafe { post(pair, qp.cast(), &batch) };
        batch.clear();
        drop(batch);
        pair.end_batch();
        errno
    };
    // SAFETY: forwarded to the caller.
    unsafe { with(qp, act) }.unwrap_or(libc::EINVAL)
}

/// Why none of a batch can be posted, or 0. Who is told of an error by `ibv_wr_complete` posts all of it again.
fn refusal(pair: &QueuePair, state: &mut State, batch: &Batch) -> c_int {
    let fits = |(record, beside): &(Record, Beside)| match record.is_inline() {
        true => beside.bytes.len() <= pair.cap.max_inline_data as usize,
        false => record.words.count.max(0) as u32 <= pair.cap.max_send_sge,
    };
    if !batch.all().iter().all(|one| one.0.is_known() && fits(one)) {
        return libc::EINVAL;
    }
    let room = |state: &State| pair.cap.max_send_wr as usize >= state.sends.len() + batch.all().len();
    if !room(state) {
        pair.make_room(state);
    }
    if room(state) { 0 } else { libc::ENOMEM }
}

/// Posts a batch, one by one: all of it or none.
unsafe fn post(pair: &QueuePair, qp: *mut ibv_qp, batch: &Batch) -> c_int {
    if let Some(mut state) = pair.straight_sends() {
        let errno = refusal(pair, &mut state, batch);
        if errno != 0 {
            return errno;
        }
        for (record, beside) in batch.all() {
            if state.sends.is_full() {
                pair.make_room(&mut state);
            }
            state.sends.push(*record, |kept| kept.clone_from(beside));
            // SAFETY: forwarded to the caller.
            let errno = unsafe { post_own(pair, qp, record, beside) };
            if errno != 0 {
                state.sends.take_back();
                return errno;
            }
            state.sends.given(1);
        }
        return 0;
    }
    let mut state = pair.state();
    let passing = state.passing.is_some();
    let errno = if passing { 0 } else { refusal(pair, &mut state, batch) };
    if errno != 0 {
        return errno;
    }
    let post = |(record, beside): &(Record, Beside)| match passing {
        // SAFETY: forwarded to the caller.
        true => unsafe { post_own(pair, qp, record, beside) },
        false => data::post_elsewhere(pair, &mut state, *record, |kept| kept.clone_from(beside)),
    };
    batch.all().iter().map(post).find(|errno| *errno != 0).unwrap_or(0)
}

/// Posts a request on the program's own queue pair.
unsafe fn post_own(pair: &QueuePair, qp: *mut ibv_qp, record: &Record, beside: &Beside) -> c_int {
    let of = |piece: &Piece| ibv_sge { addr: piece.address, length: piece.length, lkey: piece.lkey };
    let mut one = [if record.is_inline() {
        let addr = beside.bytes.as_ptr().expose_provenance() as u64;
        ibv_sge { addr, length: beside.bytes.len() as u32, lkey: 0 }
    } else {
        of(&record.first)
    }];
    let mut several: Vec<ibv_sge> = Vec::new();
    let pieces = if record.words.count == 1 {
        &mut one[..]
    } else {
        several.extend(beside.pieces[..record.words.count.max(0) as usize].iter().map(of));
        &mut several[..]
    };
    let mut wr = work_request::of(record, pieces);
    let mut bad = null_mut();
    // SAFETY: the queue pair is alive, by the caller; the request and its copy of inline data live until this returns.
    unsafe { (pair.post_send)(qp, &raw mut wr, &raw mut bad) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle_pair::pair_with;
    use shunt_mlx5_sys::ibv_qp_cap;

    fn batch(count: u64, pieces: i32, inline: usize) -> Batch {
        let mut batch = Batch::default();
        for wr_id in 0..count {
            let mut record = Record::new(wr_id, Kind::Send(None), (0, 0));
            record.words.count = pieces;
            record.words.flags = if inline > 0 { IBV_SEND_INLINE } else { 0 };
            batch.add(record);
            batch.newest().expect("just added").1.bytes.resize(inline, 0);
        }
        batch
    }

    /// Of requests for which there was no room the first were posted: a program that was told of an error posted them
    /// again.
    #[test]
    fn a_batch_that_does_not_fit_is_refused_as_a_whole() {
        let cap =
            ibv_qp_cap { max_send_wr: 4, max_send_sge: 2, max_inline_data: 16, ..ibv_qp_cap::default() };
        let pair = pair_with(cap);
        let refused = |batch: &Batch| refusal(&pair, &mut pair.state(), batch);
        assert_eq!(refused(&batch(4, 2, 0)), 0);
        assert_eq!(refused(&batch(5, 1, 0)), libc::ENOMEM);
        assert_eq!(refused(&batch(1, 3, 0)), libc::EINVAL);
        assert_eq!(refused(&batch(1, 1, 16)), 0);
        assert_eq!(refused(&batch(1, 1, 17)), libc::EINVAL);
        pair.state().sends.push(Record::new(9, Kind::Send(None), (0, 0)), |_| ());
        assert_eq!((refused(&batch(3, 1, 0)), refused(&batch(4, 1, 0))), (0, libc::ENOMEM));
    }
}
