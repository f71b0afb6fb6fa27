//! Posting and polling.

use crate::completions::{CompletionQueue, Completions, Goes};
use crate::pair_state::State;
use crate::queue_pair::QueuePair;
use crate::record::{Beside, Record, is_plain};
use crate::registry;
use crate::request::Piece;
use crate::settings::{Mode, settings};
use crate::status::COUNTS;
use crate::work_request;
use core::ffi::c_int;
use shunt_mlx5_sys::{ibv_context_ops, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc};
use std::sync::atomic::Ordering;

/// The provider's functions behind a queue pair or completion queue.
fn provider(context: *mut shunt_mlx5_sys::ibv_context) -> Option<ibv_context_ops> {
    registry::context(context).map(|known| known.ops)
}

/// Buffers of a request.
pub(super) unsafe fn pieces<'a>(list: *const ibv_sge, count: c_int) -> &'a [Piece] {
    let count = usize::try_from(count).unwrap_or_default();
    if count == 0 || list.is_null() {
        return &[];
    }
    // SAFETY: a list of this many, by the caller, laid out as ours.
    unsafe { std::slice::from_raw_parts(list.cast(), count) }
}

/// Keeps what a record has no room for.
unsafe fn keep(beside: &mut Beside, record: &Record, wr: &ibv_send_wr) {
    // SAFETY: the caller's list, of this many.
    let pieces = unsafe { pieces(wr.sg_list, wr.num_sge) };
    beside.pieces.clear();
    beside.bytes.clear();
    if !record.is_inline() {
        return beside.pieces.extend_from_slice(pieces);
    }
    for piece in pieces {
        let from: *const u8 = std::ptr::with_exposed_provenance(piece.address as usize);
        // SAFETY: inline data is the caller's memory, of this length.
        beside.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(from, piece.length as usize) });
    }
}

/// Where requests went.
pub(super) enum Posted {
    /// They were taken.
    Taken,
    /// One was not, with this errno.
    Refused(c_int),
}

/// Keeps a request that no queue pair is there for, or one that stands in.
pub(super) fn post_elsewhere(
    pair: &QueuePair,
    state: &mut State,
    record: Record,
    fill: impl FnOnce(&mut Beside),
) -> Posted {
    if !record.is_known() {
        return Posted::Refused(libc::EOPNOTSUPP);
    }
    if state.sends.len() >= pair.cap.max_send_wr as usize {
        return Posted::Refused(libc::ENOMEM);
    }
    state.sends.push(record, fill);
    pair.push_out(state);
    Posted::Taken
}

/// Why a queue pair is not protected that posts what is not known here.
pub(super) const NOT_CARRIED: &str = "it posts operations that are not carried over";

/// `post_send` of a context.
///
/// # Safety
/// As the manual of `ibv_post_send` says.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair is alive until this returns, and the rest is forwarded to the caller.
    match unsafe { registry::near_pair(qp) } {
        // SAFETY: as above.
        Some(pair) => unsafe { post_list(pair, qp, list, bad) },
        // SAFETY: as above.
        None => unsafe { post_far(qp, list, bad) },
    }
}

/// One that has no place, or is not protected.
#[cold]
unsafe fn post_far(qp: *mut ibv_qp, list: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    if let Some(pair) = registry::pair(qp) {
        // SAFETY: forwarded to the caller.
        return unsafe { post_list(&pair, qp, list, bad) };
    }
    if settings().mode == Mode::Observe {
        COUNTS.posts.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the queue pair is alive, by the caller.
    let ops = provider(unsafe { (*qp).context });
    // SAFETY: forwarded to the caller.
    ops.and_then(|ops| ops.post_send).map_or(libc::EOPNOTSUPP, |post| unsafe { post(qp, list, bad) })
}

#[inline(always)]
unsafe fn post_list(
    pair: &QueuePair,
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let Some(mut state) = pair.straight_sends() else {
        // SAFETY: forwarded to the caller.
        return unsafe { post_moved(pair, qp, list, bad) };
    };
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the caller's list.
        let wr = unsafe { &*at };
        if !is_plain(wr.num_sge, wr.opcode, wr.send_flags) || !state.sends.has_room() {
            state.sends.take_back();
            drop(state);
            // SAFETY: forwarded to the caller.
            return unsafe { post_slowly(pair, qp, list, bad) };
        }
        // SAFETY: as above.
        unsafe { work_request::record(wr, state.sends.push_plain()) };
        at = wr.next;
    }
    // SAFETY: forwarded to the caller.
    unsafe { give(pair, &mut state, qp, list, bad) }
}

/// Posts a list in which one is not plain, or for which there is no room.
#[cold]
unsafe fn post_slowly(
    pair: &QueuePair,
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let Some(mut state) = pair.straight_sends() else {
        // SAFETY: forwarded to the caller.
        return unsafe { post_moved(pair, qp, list, bad) };
    };
    pair.make_room(&mut state);
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the caller's list.
        let wr = unsafe { &*at };
        let mut record = Record::default();
        // SAFETY: as above.
        unsafe { work_request::record(wr, &mut record) };
        if !record.is_known() {
            state.sends.take_back();
            state.pass(NOT_CARRIED);
            drop(state);
            // SAFETY: forwarded to the caller.
            return unsafe { post_moved(pair, qp, list, bad) };
        }
        // SAFETY: as above.
        state.sends.push(record, |beside| unsafe { keep(beside, &record, wr) });
        at = wr.next;
    }
    // SAFETY: forwarded to the caller.
    unsafe { give(pair, &mut state, qp, list, bad) }
}

/// Posts a list that the journal has on the program's own queue pair.
#[inline(always)]
unsafe fn give(
    pair: &QueuePair,
    state: &mut State,
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the queue pair is alive, and the list is the caller's.
    let errno = unsafe { (pair.post_send)(qp, list, bad) };
    if errno != 0 {
        // SAFETY: as above; the provider has said where it stopped.
        unsafe { refused(state, list, *bad) };
        return errno;
    }
    state.sends.all_given();
    0
}

/// The provider took what comes before this one.
#[cold]
unsafe fn refused(state: &mut State, list: *mut ibv_send_wr, stopped: *mut ibv_send_wr) {
    let mut at = list;
    while !at.is_null() && at != stopped {
        state.sends.given(1);
        // SAFETY: an element of the caller's list.
        at = unsafe { (*at).next };
    }
    state.sends.take_back();
}

/// Posts while requests do not go straight to the program's own queue pair.
#[cold]
unsafe fn post_moved(
    pair: &QueuePair,
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let mut state = pair.state();
    if state.passing.is_some() {
        drop(state);
        // SAFETY: forwarded to the caller.
        return unsafe { (pair.post_send)(qp, list, bad) };
    }
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the caller's list.
        let wr = unsafe { &*at };
        let mut record = Record::default();
        // SAFETY: as above.
        unsafe { work_request::record(wr, &mut record) };
        // SAFETY: as above.
        let fill = |beside: &mut Beside| unsafe { keep(beside, &record, wr) };
        if let Posted::Refused(errno) = post_elsewhere(pair, &mut state, record, fill) {
            // SAFETY: the caller's place for it.
            unsafe { *bad = at };
            return errno;
        }
        at = wr.next;
    }
    0
}

/// `post_recv` of a context.
///
/// # Safety
/// As the manual of `ibv_post_recv` says.
pub unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the queue pair is alive until this returns, and the rest is forwarded to the caller.
    match unsafe { registry::near_pair(qp) } {
        // SAFETY: as above.
        Some(pair) => unsafe { post_receives(pair, qp, list, bad) },
        // SAFETY: as above.
        None => unsafe { receive_far(qp, list, bad) },
    }
}

/// By a queue pair that has no place, or is not protected.
#[cold]
unsafe fn receive_far(qp: *mut ibv_qp, list: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
    if let Some(pair) = registry::pair(qp) {
        // SAFETY: forwarded to the caller.
        return unsafe { post_receives(&pair, qp, list, bad) };
    }
    // SAFETY: the queue pair is alive, by the caller.
    let ops = provider(unsafe { (*qp).context });
    // SAFETY: forwarded to the caller.
    ops.and_then(|ops| ops.post_recv).map_or(libc::EOPNOTSUPP, |post| unsafe { post(qp, list, bad) })
}

#[inline]
unsafe fn post_receives(
    pair: &QueuePair,
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let Some(mut state) = pair.straight_receives() else {
        // SAFETY: forwarded to the caller.
        return unsafe { receive_moved(pair, qp, list, bad) };
    };
    let mut at = list;
    let mut count = 0;
    while !at.is_null() {
        // SAFETY: an element of the caller's list, with as many buffers as it says.
        let (wr, pieces) = unsafe { (&*at, pieces((*at).sg_list, (*at).num_sge)) };
        if !state.receives.has_room() {
            pair.make_room(&mut state);
        }
        state.receives.push(wr.wr_id, pieces);
        count += 1;
        at = wr.next;
    }
    // SAFETY: the queue pair is alive, and the list is the caller's.
    let errno = unsafe { (pair.post_recv)(qp, list, bad) };
    if errno == 0 {
        state.receives.given(count);
        return 0;
    }
    let mut at = list;
    // SAFETY: the provider has said where it stopped; elements of the caller's list.
    unsafe {
        while !at.is_null() && at != *bad {
            state.receives.given(1);
            at = (*at).next;
        }
    }
    state.receives.take_back();
    errno
}

/// Posts receives while they do not go straight to the program's own queue pair.
#[cold]
unsafe fn receive_moved(
    pair: &QueuePair,
    qp: *mut ibv_qp,
    list: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut state = pair.state();
    if state.passing.is_some() {
        drop(state);
        // SAFETY: forwarded to the caller.
        return unsafe { (pair.post_recv)(qp, list, bad) };
    }
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the caller's list, with as many buffers as it says.
        let (wr, pieces) = unsafe { (&*at, pieces((*at).sg_list, (*at).num_sge)) };
        if state.receives.len() >= pair.cap.max_recv_wr as usize {
            // SAFETY: the caller's place for it.
            unsafe { *bad = at };
            return libc::ENOMEM;
        }
        state.receives.push(wr.wr_id, pieces);
        pair.push_out(&mut state);
        at = wr.next;
    }
    0
}

/// `poll_cq` of a context.
///
/// # Safety
/// As the manual of `ibv_poll_cq` says.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> c_int {
    // SAFETY: the queue is alive until this returns, by the caller, who has room for this many.
    match unsafe { registry::near_queue(cq) } {
        // SAFETY: as above.
        Some(known) => unsafe { poll(known, most, to) },
        // SAFETY: as above.
        None => unsafe { poll_far(cq, most, to) },
    }
}

/// Polls one that has no place, or is not protected.
#[cold]
unsafe fn poll_far(cq: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> c_int {
    if let Some(known) = registry::queue(cq) {
        // SAFETY: forwarded to the caller.
        return unsafe { poll(&known, most, to) };
    }
    if settings().mode == Mode::Observe {
        COUNTS.polls.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the queue is alive, by the caller.
    let ops = provider(unsafe { (*cq).context });
    // SAFETY: forwarded to the caller.
    ops.and_then(|ops| ops.poll_cq).map_or(-libc::EOPNOTSUPP, |poll| unsafe { poll(cq, most, to) })
}

#[inline(always)]
unsafe fn poll(cq: &CompletionQueue, most: c_int, to: *mut ibv_wc) -> c_int {
    let Some(inside) = cq.enter_straight() else {
        // SAFETY: forwarded to the caller.
        return unsafe { poll_moved(cq, most, to) };
    };
    // SAFETY: the queue is alive while the program polls it; there is room for this many.
    let count = unsafe { (cq.poll)(cq.raw.0, most, to) };
    if count <= 0 {
        return count;
    }
    // SAFETY: the provider has written so many, and they are plain words.
    let wcs = unsafe { std::slice::from_raw_parts_mut(to, count as usize) };
    let good = inside.count(wcs);
    if good == wcs.len() { count } else { good as c_int + sift(&inside, &mut wcs[good..]) as c_int }
}

/// Keeps those that the program gets, in front: how many.
#[cold]
fn sift(inside: &Completions, wcs: &mut [ibv_wc]) -> usize {
    let mut got = 0;
    for at in 0..wcs.len() {
        if inside.absorb(&wcs[at]) == Goes::On {
            wcs[got] = wcs[at];
            got += 1;
        }
    }
    got
}

/// Polls while not all completions come from the program's own queue.
#[cold]
unsafe fn poll_moved(cq: &CompletionQueue, most: c_int, to: *mut ibv_wc) -> c_int {
    let Ok(most) = usize::try_from(most) else { return -libc::EINVAL };
    if most == 0 {
        return 0;
    }
    // SAFETY: the caller has room for this many, and they are plain words.
    let to = unsafe { std::slice::from_raw_parts_mut(to, most) };
    let mut inside = cq.enter();
    let mut got = take_ready(&mut inside, to);
    if got < to.len() {
        let rest = &mut to[got..];
        // SAFETY: the queue is alive while the program polls it; there is room for this many.
        let count = unsafe { (cq.poll)(cq.raw.0, rest.len() as c_int, rest.as_mut_ptr()) };
        let Ok(count) = usize::try_from(count) else {
            // What was taken before is not lost: the provider fails again at the next call.
            return if got > 0 { got as c_int } else { count };
        };
        got += sift(&inside, &mut rest[..count.min(most)]);
    }
    if cq.has_moved() {
        inside.collect(cq);
        got += take_ready(&mut inside, &mut to[got..]);
    }
    got as c_int
}

fn take_ready(inside: &mut Completions, to: &mut [ibv_wc]) -> usize {
    let count = inside.ready.len().min(to.len());
    to.iter_mut().zip(inside.ready.drain(..count)).for_each(|(to, wc)| *to = wc);
    count
}

/// Takes what has completed elsewhere: whether the queue has more for the program than when this was asked last.
pub fn has_more(cq: &CompletionQueue) -> bool {
    let mut inside = cq.enter_first();
    inside.collect(cq);
    std::mem::take(&mut inside.fresh)
}

/// Takes what the NIC has written for the program's own queue pairs, ahead of the program.
pub fn drain(cq: &CompletionQueue) {
    // What is put in front is taken from there before anything else.
    cq.mark_moved();
    let mut inside = cq.enter_first();
    let mut wcs = [ibv_wc::default(); 16];
    loop {
        // SAFETY: the queue is alive while a queue pair of the program uses it; there is room for this many.
        let count = unsafe { (cq.poll)(cq.raw.0, wcs.len() as c_int, wcs.as_mut_ptr()) };
        let count = usize::try_from(count).unwrap_or_default().min(wcs.len());
        let got = sift(&inside, &mut wcs[..count]);
        inside.fresh |= got > 0;
        inside.ready.extend(&wcs[..got]);
        if count < wcs.len() {
            break;
        }
    }
    inside.collect(cq);
}
