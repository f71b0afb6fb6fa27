//! Posting and polling.

use crate::objects::{CompletionQueue, Completions, Goes};
use crate::queue_pair::{QueuePair, State};
use crate::registry;
use crate::request::{Data, Kind, Piece, Receive, Request};
use crate::settings::{Mode, settings};
use crate::status::COUNTS;
use core::ffi::c_int;
use shunt_mlx5_sys::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_context_ops, ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge,
    ibv_wc,
};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// The provider's functions behind a queue pair or completion queue.
fn provider(context: *mut shunt_mlx5_sys::ibv_context) -> Option<ibv_context_ops> {
    registry::context(context).map(|known| known.ops)
}

/// A request of the program; none if it is of a kind that is not carried elsewhere.
unsafe fn read(wr: &ibv_send_wr, all_signaled: bool) -> Option<Request> {
    // SAFETY: the opcode says which of the two it is, and both are plain words.
    let immediate = unsafe { wr.__bindgen_anon_1.imm_data };
    let kind = match wr.opcode {
        IBV_WR_SEND => Kind::Send(None),
        IBV_WR_SEND_WITH_IMM => Kind::Send(Some(immediate)),
        IBV_WR_RDMA_WRITE => Kind::Write(None),
        IBV_WR_RDMA_WRITE_WITH_IMM => Kind::Write(Some(immediate)),
        IBV_WR_RDMA_READ => Kind::Read,
        // SAFETY: for these opcodes it is this one.
        IBV_WR_ATOMIC_FETCH_AND_ADD => Kind::FetchAdd(unsafe { wr.wr.atomic.compare_add }),
        // SAFETY: as above.
        IBV_WR_ATOMIC_CMP_AND_SWP => unsafe {
            Kind::CompareSwap(wr.wr.atomic.compare_add, wr.wr.atomic.swap)
        },
        _ => return None,
    };
    let has = |flag: u32| wr.send_flags & flag != 0;
    // SAFETY: the caller's list, of this many.
    let pieces = unsafe { pieces(wr.sg_list, wr.num_sge) };
    let data = if has(IBV_SEND_INLINE) {
        let mut bytes = Vec::new();
        for piece in &pieces {
            let from: *const u8 = std::ptr::with_exposed_provenance(piece.address as usize);
            // SAFETY: inline data is the caller's memory, of this length.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(from, piece.length as usize) });
        }
        Data::Inline(bytes)
    } else {
        Data::Pieces(pieces)
    };
    // SAFETY: for these opcodes it is this one; for SENDs it is not looked at.
    let (remote, rkey) = unsafe {
        match kind.is_atomic() {
            true => (wr.wr.atomic.remote_addr, wr.wr.atomic.rkey),
            false => (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey),
        }
    };
    let signaled = all_signaled || has(IBV_SEND_SIGNALED);
    let (fence, solicited) = (has(IBV_SEND_FENCE), has(IBV_SEND_SOLICITED));
    Some(Request { wr_id: wr.wr_id, kind, signaled, fence, solicited, remote, rkey, data })
}

/// Buffers of a request.
pub(super) unsafe fn pieces(list: *const ibv_sge, count: c_int) -> Vec<Piece> {
    let count = usize::try_from(count).unwrap_or_default();
    if count == 0 || list.is_null() {
        return Vec::new();
    }
    // SAFETY: a list of this many, by the caller.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    list.iter().map(|sge| Piece { address: sge.addr, length: sge.length, lkey: sge.lkey }).collect()
}

/// Posts the first of a list through the provider.
unsafe fn post_first(pair: &QueuePair, qp: *mut ibv_qp, wr: &ibv_send_wr) -> c_int {
    let Some(post) = pair.context.ops.post_send else { return libc::EOPNOTSUPP };
    let mut one = ibv_send_wr { next: null_mut(), ..*wr };
    let mut bad = null_mut();
    // SAFETY: the queue pair is alive, and the request is the caller's.
    unsafe { post(qp, &raw mut one, &raw mut bad) }
}

/// Where a request went.
pub(super) enum Posted {
    /// It was taken.
    Taken,
    /// It was not, with this errno.
    Refused(c_int),
}

/// Posts one request, by what the journal has of it; `own` posts it on the program's own queue pair.
pub(super) fn post(
    pair: &QueuePair,
    state: &mut State,
    request: Request,
    own: impl FnOnce() -> c_int,
) -> Posted {
    if state.send_on.is_own() && !state.closed {
        state.sends.push(request);
        let errno = own();
        if errno != 0 {
            state.sends.unpush();
            return Posted::Refused(errno);
        }
        state.sends.given();
        return Posted::Taken;
    }
    if state.sends.len() >= pair.cap.max_send_wr as usize {
        return Posted::Refused(libc::ENOMEM);
    }
    state.sends.push(request);
    pair.push_out(state);
    Posted::Taken
}

/// `post_send` of a context.
///
/// # Safety
/// As the manual of `ibv_post_send` says.
pub unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    list: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let through = |list| {
        // SAFETY: the queue pair is alive, by the caller.
        let ops = provider(unsafe { (*qp).context });
        // SAFETY: forwarded to the caller.
        ops.and_then(|ops| ops.post_send).map_or(libc::EOPNOTSUPP, |post| unsafe { post(qp, list, bad) })
    };
    if settings().mode == Mode::Observe {
        COUNTS.posts.fetch_add(1, Ordering::Relaxed);
    }
    let Some(pair) = registry::pair(qp) else { return through(list) };
    let mut state = pair.state();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the caller's list.
        let wr = unsafe { &*at };
        if state.passing.is_some() {
            drop(state);
            return through(at);
        }
        // SAFETY: as above.
        let posted = match unsafe { read(wr, pair.all_signaled) } {
            // SAFETY: as above.
            Some(request) => post(&pair, &mut state, request, || unsafe { post_first(&pair, qp, wr) }),
            None if state.is_at_home() => {
                state.pass("it posts operations that are not carried over");
                continue;
            }
            None => Posted::Refused(libc::EOPNOTSUPP),
        };
        if let Posted::Refused(errno) = posted {
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
    // SAFETY: the queue pair is alive, by the caller.
    let Some(through) = provider(unsafe { (*qp).context }).and_then(|ops| ops.post_recv) else {
        return libc::EOPNOTSUPP;
    };
    let Some(pair) = registry::pair(qp) else {
        // SAFETY: forwarded to the caller.
        return unsafe { through(qp, list, bad) };
    };
    let mut state = pair.state();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an element of the caller's list, with as many buffers as it says.
        let (wr, pieces) = unsafe { (&*at, pieces((*at).sg_list, (*at).num_sge)) };
        if state.passing.is_some() {
            drop(state);
            // SAFETY: forwarded to the caller.
            return unsafe { through(qp, at, bad) };
        }
        let errno = post_receive(&pair, &mut state, Receive { wr_id: wr.wr_id, pieces }, || {
            let mut one = ibv_recv_wr { next: null_mut(), ..*wr };
            let mut first = null_mut();
            // SAFETY: as the caller vouches.
            unsafe { through(qp, &raw mut one, &raw mut first) }
        });
        if errno != 0 {
            // SAFETY: the caller's place for it.
            unsafe { *bad = at };
            return errno;
        }
        at = wr.next;
    }
    0
}

fn post_receive(pair: &QueuePair, state: &mut State, receive: Receive, own: impl FnOnce() -> c_int) -> c_int {
    if state.recv_on.is_own() {
        state.receives.push(receive);
        let errno = own();
        if errno == 0 {
            state.receives.given();
        } else {
            state.receives.unpush();
        }
        return errno;
    }
    if state.receives.len() >= pair.cap.max_recv_wr as usize {
        return libc::ENOMEM;
    }
    state.receives.push(receive);
    pair.push_out(state);
    0
}

/// `poll_cq` of a context.
///
/// # Safety
/// As the manual of `ibv_poll_cq` says.
pub unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> c_int {
    if settings().mode == Mode::Observe {
        COUNTS.polls.fetch_add(1, Ordering::Relaxed);
    }
    let known = registry::with(|objects| objects.queues.get(&cq.addr()).cloned());
    let Some(known) = known else {
        // SAFETY: the queue is alive, by the caller.
        let ops = provider(unsafe { (*cq).context });
        // SAFETY: forwarded to the caller.
        return ops
            .and_then(|ops| ops.poll_cq)
            .map_or(-libc::EOPNOTSUPP, |poll| unsafe { poll(cq, most, to) });
    };
    let Ok(most) = usize::try_from(most) else { return -libc::EINVAL };
    if most == 0 {
        return 0;
    }
    // SAFETY: the caller has room for this many, and they are plain words.
    poll(&known, unsafe { std::slice::from_raw_parts_mut(to, most) })
}

fn poll(cq: &CompletionQueue, to: &mut [ibv_wc]) -> c_int {
    let mut inside = cq.enter();
    let mut got = 0;
    while got < to.len()
        && let Some(wc) = inside.ready.pop_front()
    {
        to[got] = wc;
        got += 1;
    }
    let Some(poll) = cq.context.ops.poll_cq else { return -libc::EOPNOTSUPP };
    if got < to.len() {
        let rest = &mut to[got..];
        // SAFETY: the queue is alive while the program polls it; there is room for this many.
        let count = unsafe { poll(cq.raw.0, rest.len() as c_int, rest.as_mut_ptr()) };
        let Ok(count) = usize::try_from(count) else { return count };
        let first = got;
        for at in first..first + count.min(to.len() - first) {
            let wc = to[at];
            let goes = inside.members.get(&wc.qp_num).map_or(Goes::On, |pair| pair.absorb(&wc));
            if goes == Goes::On {
                to[got] = wc;
                got += 1;
            }
        }
    }
    if cq.moved.load(Ordering::Acquire) > 0 {
        collect(cq, &mut inside);
        while got < to.len()
            && let Some(wc) = inside.ready.pop_front()
        {
            to[got] = wc;
            got += 1;
        }
    }
    got as c_int
}

/// Completions of queue pairs that run elsewhere.
fn collect(cq: &CompletionQueue, inside: &mut Completions) {
    let Completions { ready, members, fresh } = inside;
    let before = ready.len();
    members.values().for_each(|pair| pair.collect(cq, ready));
    *fresh |= ready.len() > before;
}

/// Takes what has completed elsewhere: whether the queue has more for the program than when this was asked last.
pub fn has_more(cq: &CompletionQueue) -> bool {
    let mut inside = cq.enter_first();
    collect(cq, &mut inside);
    std::mem::take(&mut inside.fresh)
}

/// Takes what the NIC has written for the program's own queue pairs, ahead of the program.
pub fn drain(cq: &CompletionQueue) {
    let mut inside = cq.enter_first();
    let Some(poll) = cq.context.ops.poll_cq else { return };
    let mut wcs = [ibv_wc::default(); 16];
    loop {
        // SAFETY: the queue is alive while a queue pair of the program uses it; there is room for this many.
        let count = unsafe { poll(cq.raw.0, wcs.len() as c_int, wcs.as_mut_ptr()) };
        let count = usize::try_from(count).unwrap_or_default().min(wcs.len());
        for wc in &wcs[..count] {
            let goes = inside.members.get(&wc.qp_num).map_or(Goes::On, |pair| pair.absorb(wc));
            if goes == Goes::On {
                inside.ready.push_back(*wc);
                inside.fresh = true;
            }
        }
        if count < wcs.len() {
            break;
        }
    }
    collect(cq, &mut inside);
}
