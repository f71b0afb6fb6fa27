//! Posting.

use crate::objects::At;
use crate::pair_state::{Held, State};
use crate::queue_pair::QueuePair;
use crate::registry;
use crate::settings::{Mode, settings};
use crate::status::COUNTS;
use crate::work_request;
use core::ffi::c_int;
use shunt_mlx5_sys::{ibv_context_ops, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge};
use shunt_verbs_journal::record::{Beside, Record, Slot};
use shunt_verbs_journal::request::Piece;
use shunt_verbs_journal::send_queue::SendQueue;
use shunt_verbs_near::gate::Inside;
use shunt_verbs_near::row::Cursor;
use std::sync::atomic::Ordering;

/// The provider's functions behind a queue pair or completion queue.
pub(super) fn provider(context: *mut shunt_mlx5_sys::ibv_context) -> Option<ibv_context_ops> {
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

/// Keeps a request that no queue pair is there for, or one that stands in. Its errno if it is not taken, or 0.
pub(super) fn post_elsewhere(
    pair: &QueuePair,
    state: &mut State,
    record: Record,
    fill: impl FnOnce(&mut Beside),
) -> c_int {
    if !record.is_known() {
        return libc::EOPNOTSUPP;
    }
    if state.sends.len() >= pair.cap.max_send_wr as usize {
        return libc::ENOMEM;
    }
    state.sends.push(record, fill);
    pair.push_out(state);
    0
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
    // SAFETY: forwarded to the caller.
    let here = |pair: &QueuePair| unsafe { post_list(qp, list, bad, pair) };
    // SAFETY: the queue pair is alive until this returns, and the rest is forwarded to the caller.
    unsafe { registry::near_pair(qp, here, || post_far(qp, list, bad)) }
}

/// One that has no place, or is not protected.
#[cold]
unsafe fn post_far(qp: *mut ibv_qp, list: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    if let Some(pair) = registry::pair(qp) {
        // SAFETY: forwarded to the caller.
        return unsafe { post_list(qp, list, bad, &pair) };
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
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    pair: &QueuePair,
) -> c_int {
    let Some(mut state) = pair.try_state() else {
        // SAFETY: forwarded to the caller.
        return unsafe { post_several(qp, list, bad, pair, None) };
    };
    // SAFETY: the caller's list.
    if !unsafe { fill_lone(&mut state.sends, list) } {
        // SAFETY: forwarded to the caller.
        return unsafe { post_several(qp, list, bad, pair, Some(state)) };
    }
    // SAFETY: forwarded to the caller.
    unsafe { give(qp, list, bad, pair, state) }
}

/// It is like the newest, of which [`SendQueue::usual`] says this.
#[inline(always)]
fn is_usual(wr: &ibv_send_wr, usual: u64) -> bool {
    wr.num_sge == 1 && work_request::word(wr) == usual
}

/// Writes down a request by itself, as most are, if it is like the newest and there is room.
#[inline(always)]
unsafe fn fill_lone(sends: &mut SendQueue, list: *mut ibv_send_wr) -> bool {
    // SAFETY: the first element of the caller's list, if there is one.
    let Some(wr) = (unsafe { list.as_ref() }) else { return false };
    let is_usual = wr.next.is_null() && is_usual(wr, sends.usual());
    // SAFETY: one buffer, and what is usual is no atomic.
    is_usual && sends.put(|to| unsafe { work_request::slot(wr, to) })
}

/// Posts a list of several requests, or one that is not like the newest, or while somebody else is with the queue pair.
/// Cold, so that the compiler lays out all for one request.
#[cold]
#[inline(never)]
unsafe fn post_several(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    pair: &QueuePair,
    state: Option<Inside<'_, State>>,
) -> c_int {
    let mut state = state.unwrap_or_else(|| pair.wait_state());
    if state.sends.is_full() && state.goes_straight() {
        state.sends.all_given();
        pair.make_room(&mut state);
    }
    // SAFETY: the caller's list.
    let (cursor, rest) = unsafe { fill(&mut state.sends, list) };
    if !rest.is_null() {
        // SAFETY: forwarded to the caller.
        return unsafe { post_other(qp, list, bad, pair, state) };
    }
    cursor.keep();
    // SAFETY: forwarded to the caller.
    unsafe { give(qp, list, bad, pair, state) }
}

/// Writes down those of a list that are like the newest, as long as there is room: where that ends.
#[inline(always)]
unsafe fn fill(sends: &mut SendQueue, list: *mut ibv_send_wr) -> (Cursor<'_, Slot>, *mut ibv_send_wr) {
    let usual = sends.usual();
    let mut cursor = sends.cursor();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the caller's list.
        let wr = unsafe { &*at };
        // SAFETY: one buffer, and what is usual is no atomic.
        if !is_usual(wr, usual) || !cursor.put(|to| unsafe { work_request::slot(wr, to) }) {
            break;
        }
        at = wr.next;
    }
    (cursor, at)
}

/// Posts a list in which one is not like the one before, or for which there is no room, or that goes elsewhere.
#[inline(never)]
unsafe fn post_other(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    pair: &QueuePair,
    mut state: Inside<'_, State>,
) -> c_int {
    if !state.goes_straight() {
        drop(state);
        // SAFETY: forwarded to the caller.
        return unsafe { post_moved(qp, list, bad, pair) };
    }
    state.caught_up();
    let mut at = list;
    loop {
        if state.sends.is_full() {
            pair.make_room(&mut state);
        }
        // SAFETY: the caller's list.
        let (cursor, rest) = unsafe { fill(&mut state.sends, at) };
        cursor.keep();
        if rest.is_null() {
            break;
        }
        // SAFETY: an element of the caller's list.
        let wr = unsafe { &*rest };
        at = wr.next;
        let mut record = Record::default();
        // SAFETY: as above.
        unsafe { work_request::record(wr, &mut record) };
        if !record.is_known() {
            state.sends.take_back();
            state.pass(NOT_CARRIED);
            drop(Held(state));
            pair.stir();
            // SAFETY: forwarded to the caller.
            return unsafe { post_moved(qp, list, bad, pair) };
        }
        // SAFETY: as above.
        state.sends.push(record, |beside| unsafe { keep(beside, &record, wr) });
    }
    // SAFETY: forwarded to the caller.
    unsafe { give(qp, list, bad, pair, state) }
}

/// Posts a list that the journal has on the program's own queue pair.
#[inline(always)]
unsafe fn give(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    pair: &QueuePair,
    mut state: Inside<'_, State>,
) -> c_int {
    // Kept here, and not across the call: only one that is refused needs them.
    state.asked = (At(list), At(bad));
    // SAFETY: the queue pair is alive, and the list is the caller's.
    let errno = unsafe { (pair.post_send)(qp, list, bad) };
    if errno != 0 {
        // SAFETY: as above; the provider has said where it stopped.
        return unsafe { refused(state, errno) };
    }
    errno
}

/// The provider took what comes before the one that it names.
#[cold]
#[inline(never)]
unsafe fn refused(mut state: Inside<'_, State>, errno: c_int) -> c_int {
    let (At(mut at), At(bad)) = state.asked;
    // SAFETY: the program's place for it, which the provider has written.
    let stopped = unsafe { *bad };
    let (mut all, mut taken) = (0, None);
    while !at.is_null() {
        if at == stopped {
            taken.get_or_insert(all);
        }
        all += 1;
        // SAFETY: an element of the caller's list.
        at = unsafe { (*at).next };
    }
    state.sends.not_taken(all - taken.unwrap_or(all));
    // Hidden from the compiler, which would keep it in a register of the caller's: five instructions for each post.
    core::hint::black_box(errno)
}

/// Posts while requests do not go straight to the program's own queue pair.
#[cold]
unsafe fn post_moved(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    pair: &QueuePair,
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
        let errno = post_elsewhere(pair, &mut state, record, fill);
        if errno != 0 {
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
    // SAFETY: forwarded to the caller.
    let here = |pair: &QueuePair| unsafe { post_receives(pair, qp, list, bad) };
    // SAFETY: the queue pair is alive until this returns, and the rest is forwarded to the caller.
    unsafe { registry::near_pair(qp, here, || receive_far(qp, list, bad)) }
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
            state.caught_up();
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
