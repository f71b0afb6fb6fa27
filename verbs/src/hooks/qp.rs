//! Queue pairs: which of them are protected.

use super::batch;
use crate::agent;
use crate::completions::Member;
use crate::objects::At;
use crate::pair_state::{Connection, SHARES, STOPPED};
use crate::queue_pair::QueuePair;
use crate::real;
use crate::registry;
use crate::settings::{Mode, settings};
use crate::status::{self, PairReport};
use crate::voice;
use core::ffi::c_int;
use shunt_mlx5_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_CAP, IBV_QP_DEST_QPN, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_RDMA_WRITE,
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_QP_EX_WITH_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM,
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_SQ_PSN,
    IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC,
    ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_srq,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// True if a new queue pair on this shared receive queue would take buffers that others were dealt. Says so by errno.
fn is_taken_back(srq: *mut ibv_srq) -> bool {
    let taken_back = registry::shared(srq).is_some_and(|shared| shared.is_taken_back());
    if taken_back {
        // SAFETY: the calling thread's own.
        unsafe { *libc::__errno_location() = libc::EAGAIN };
    }
    taken_back
}

/// What a queue pair was made with.
struct Made {
    pd: *mut ibv_pd,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    kind: u32,
    cap: ibv_qp_cap,
    all_signaled: bool,
    /// Operations of `ibv_wr_*` that it was made with.
    operations: u64,
    /// It was made with attributes that are not carried over.
    special: bool,
}

/// `ibv_create_qp`.
///
/// # Safety
/// As its manual says.
pub unsafe fn create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the caller's attributes.
    if unsafe { is_taken_back((*attr).srq) } {
        return std::ptr::null_mut();
    }
    // SAFETY: forwarded to the caller.
    let qp = unsafe { real::ibv_create_qp(pd, attr) };
    if !qp.is_null() {
        // SAFETY: the caller's attributes, with what was made of them.
        let attr = unsafe { &*attr };
        let made = Made {
            pd,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            kind: attr.qp_type,
            cap: attr.cap,
            all_signaled: attr.sq_sig_all != 0,
            operations: 0,
            special: false,
        };
        // SAFETY: just made.
        return unsafe { noted(qp, &made) };
    }
    qp
}

/// `create_qp_ex` of a context.
///
/// # Safety
/// As the manual of `ibv_create_qp_ex` says.
pub unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let known = registry::context(context);
    let Some(create) = known.and_then(|known| known.ex.create_qp_ex) else { return std::ptr::null_mut() };
    // SAFETY: the caller's attributes.
    if unsafe { is_taken_back((*attr).srq) } {
        return std::ptr::null_mut();
    }
    // SAFETY: forwarded to the caller.
    let qp = unsafe { create(context, attr) };
    if !qp.is_null() {
        // SAFETY: the caller's attributes, with what was made of them.
        let attr = unsafe { &*attr };
        let carried = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        let with_operations = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
        let made = Made {
            pd: attr.pd,
            send_cq: attr.send_cq,
            recv_cq: attr.recv_cq,
            srq: attr.srq,
            kind: attr.qp_type,
            cap: attr.cap,
            all_signaled: attr.sq_sig_all != 0,
            operations: if with_operations { attr.send_ops_flags } else { 0 },
            special: attr.comp_mask & !carried != 0,
        };
        // SAFETY: just made.
        return unsafe { noted(qp, &made) };
    }
    qp
}

/// Operations that the journal knows.
const OPERATIONS: u32 = IBV_QP_EX_WITH_RDMA_WRITE
    | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
    | IBV_QP_EX_WITH_SEND
    | IBV_QP_EX_WITH_SEND_WITH_IMM
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;

/// True if one that cannot be protected is refused.
fn must_be_protected(made: &Made) -> bool {
    made.kind == IBV_QPT_RC && settings().mode == Mode::On && agent::required::is_asked()
}

/// Takes note of a queue pair that was just made. Null if it cannot be protected and must be: then it is gone.
unsafe fn noted(qp: *mut ibv_qp, made: &Made) -> *mut ibv_qp {
    // SAFETY: just made, by the caller.
    let Err((device, why)) = (unsafe { note(qp, made) }) else { return qp };
    if !must_be_protected(made) {
        return qp;
    }
    // SAFETY: just made, and given to nobody; errno is the calling thread's own.
    unsafe {
        agent::required::say_refused(&device, (*qp).qp_num, why);
        destroy_qp(qp);
        *libc::__errno_location() = libc::EOPNOTSUPP;
    }
    std::ptr::null_mut()
}

/// A queue pair that was just made: protected if it can be; else its device, and why not.
unsafe fn note(qp: *mut ibv_qp, made: &Made) -> Result<(), (String, &'static str)> {
    // SAFETY: just made, by the caller.
    let qpn = unsafe { (*qp).qp_num };
    let id = next_id();
    // SAFETY: as above.
    let context = registry::context(unsafe { (*qp).context });
    let device = context.map(|context| context.device.clone()).unwrap_or_default();
    let no = |why: &str| {
        let (state, on, why) = ("unprotected".into(), device.clone(), why.into());
        status::tell(id, PairReport { qpn, device: device.clone(), state, on, why, ..PairReport::default() });
    };
    let found = registry::with(|objects| {
        let domain = objects.domains.get(&made.pd.addr()).cloned()?;
        let shared = objects.shared.get(&made.srq.addr()).cloned();
        Some((domain, (objects.queue(made.send_cq)?, objects.queue(made.recv_cq)?, shared)))
    });
    let why = match &found {
        _ if settings().mode != Mode::On => "SHUNT_VERBS is observe",
        _ if made.kind != IBV_QPT_RC => "it is no reliable connection",
        Some((_, (.., None))) if !made.srq.is_null() => "its shared receive queue was made in another way",
        _ if made.special => "it was made with attributes that are not carried over",
        _ if made.operations & !u64::from(OPERATIONS) != 0 => {
            "it was made for operations that are not carried over"
        }
        None => "its completion queue or its domain was made in another way",
        Some(_) => "",
    };
    let Some((domain, queues)) = found.filter(|_| why.is_empty()) else {
        // One that is refused is gone at once, and keeps no buffer.
        if let Some(shared) = registry::shared(made.srq).filter(|_| !must_be_protected(made)) {
            shared.estrange(None);
        }
        if made.kind == IBV_QPT_RC {
            // SAFETY: just made, by the caller.
            registry::with_mut(|objects| objects.put_stranger(qp, unsafe { (*qp).context }));
        }
        no(why);
        return Err((device, why));
    };
    let pair = Arc::new(QueuePair::new(id, (At(qp), qpn), domain, queues, made.cap, made.all_signaled));
    if let Some(shared) = &pair.shared {
        let taker = Arc::downgrade(&pair);
        shared.join(taker, pair.id);
    }
    // SAFETY: just made, with these operations.
    unsafe { put(qp, pair, made.operations != 0) };
    Ok(())
}

/// The number of one that is made, or made again.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// One that may be protected is known from now on.
///
/// # Safety
/// It is alive, nobody uses it yet, and `ibv_wr_*` are for it if it is extended.
unsafe fn put(qp: *mut ibv_qp, pair: Arc<QueuePair>, extended: bool) {
    if extended {
        pair.extended.store(true, Ordering::Release);
        // SAFETY: forwarded to the caller.
        unsafe { batch::take(qp) };
    }
    for queue in [&pair.send_cq, &pair.recv_cq] {
        queue.enter_first().join(pair.qpn, pair.clone());
        queue.check_member(&*pair);
    }
    agent::made(&pair);
    registry::with_mut(|objects| objects.put_pair(qp, pair));
}

/// True if the program connects it now, and that is refused: it can be seen that it would not be protected.
unsafe fn is_refused(pair: &QueuePair, attr: *const ibv_qp_attr, mask: c_int) -> bool {
    let wanted = IBV_QP_STATE | IBV_QP_AV;
    // SAFETY: the caller's attributes.
    let attr = unsafe { &*attr };
    let connects = mask as u32 & wanted == wanted && attr.qp_state == IBV_QPS_RTR;
    if !connects || !agent::required::is_asked() {
        return false;
    }
    let strangers = || pair.shared.as_ref().filter(|shared| shared.has_strangers()).map(|_| SHARES);
    let known = pair.state().passing.or_else(strangers).map(str::to_owned);
    let why = known.or_else(|| agent::refusal(attr.ah_attr.is_global != 0));
    if let Some(why) = &why {
        agent::required::say_refused(&pair.context.device, pair.qpn, why);
    }
    why.is_some()
}

/// `ibv_modify_qp`.
///
/// # Safety
/// As its manual says.
pub unsafe fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    let Some(pair) = registry::pair(qp) else {
        // SAFETY: forwarded to the caller.
        return unsafe { real::ibv_modify_qp(qp, attr, mask) };
    };
    // SAFETY: forwarded to the caller.
    if unsafe { is_refused(&pair, attr, mask) } {
        return libc::EHOSTUNREACH;
    }
    // SAFETY: the caller's attributes.
    let resets = mask as u32 & IBV_QP_STATE != 0 && unsafe { (*attr).qp_state } == IBV_QPS_RESET;
    // Some programs begin each connection so: then there is nothing to forget.
    if resets && pair.state().has_past() {
        // SAFETY: forwarded to the caller.
        return unsafe { begin_again(&pair, qp, attr, mask) };
    }
    // SAFETY: forwarded to the caller.
    if unsafe { sends_elsewhere(&pair, qp, attr, mask) } {
        return 0;
    }
    // SAFETY: forwarded to the caller.
    let errno = unsafe { batch::modify(&pair, qp, attr, mask) };
    if errno != 0 {
        return errno;
    }
    // SAFETY: the caller's attributes.
    let attr = unsafe { &*attr };
    let mask = mask as u32;
    let mut state = pair.state();
    gather(&mut state.connection, attr, mask);
    if mask & IBV_QP_STATE != 0 {
        match attr.qp_state {
            // A program that only receives stops here.
            IBV_QPS_RTR => {
                state.connection.receives = true;
                if state.passing.is_none() {
                    drop(state);
                    agent::connected(&pair);
                }
            }
            IBV_QPS_RTS => state.connection.sends = true,
            IBV_QPS_ERR => {
                let was_connected = state.connection.receives;
                state.own_stopped = true;
                state.stop(STOPPED);
                drop(state);
                if was_connected {
                    pair.stir();
                }
            }
            _ => {}
        }
    }
    errno
}

/// True for a move to RTS of one that was moved elsewhere before: what stands in for it sends already.
unsafe fn sends_elsewhere(pair: &QueuePair, qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> bool {
    // SAFETY: the caller's attributes.
    let attr = unsafe { &*attr };
    let mask = mask as u32;
    let mut state = pair.state();
    let elsewhere = !state.is_at_home() && !state.lost && state.connection.receives;
    let begins = mask & IBV_QP_STATE != 0 && attr.qp_state == IBV_QPS_RTS && !state.connection.sends;
    if elsewhere && begins {
        gather(&mut state.connection, attr, mask);
        state.connection.sends = true;
        // SAFETY: the caller's object, as a provider writes it.
        unsafe { (*qp).state = IBV_QPS_RTS };
    }
    elsewhere && begins
}

/// RESET of one that has a past. Its NIC forgets that, and so does this library, as if the queue pair were destroyed
/// and made again with the same number. Refused where it would take buffers that others were dealt, as a new one is.
unsafe fn begin_again(pair: &Arc<QueuePair>, qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    let queues = (pair.send_cq.clone(), pair.recv_cq.clone(), pair.shared.clone());
    let at = (At(qp), pair.qpn);
    let again = QueuePair::new(next_id(), at, pair.domain.clone(), queues, pair.cap, pair.all_signaled);
    let again = Arc::new(again);
    let renew = |from: &Arc<QueuePair>, to: &Arc<QueuePair>| {
        let taker = Arc::downgrade(to);
        from.shared.as_ref().is_none_or(|shared| shared.renew(from.id, taker, to.id))
    };
    if !renew(pair, &again) {
        voice::say(&format!(
            "{} QP {:#x} cannot be moved to RESET: buffers of its shared receive queue were dealt to queue pairs on \
             other NICs; make another shared receive queue",
            pair.context.device, pair.qpn
        ));
        return libc::EAGAIN;
    }
    // The agent names it no more meanwhile: a fence would undo the move.
    pair.raw.write().unwrap_or_else(PoisonError::into_inner).take();
    // SAFETY: forwarded to the caller.
    let errno = unsafe { batch::modify(pair, qp, attr, mask) };
    if errno != 0 {
        *pair.raw.write().unwrap_or_else(PoisonError::into_inner) = Some(At(qp));
        renew(&again, pair);
        return errno;
    }
    registry::with_mut(|objects| objects.take_pair(qp));
    part(pair);
    forget(pair);
    // SAFETY: alive, by the caller, whose other threads post nothing now.
    unsafe { put(qp, again, pair.extended.load(Ordering::Acquire)) };
    0
}

/// Destroys what this library made for a queue pair, and names that no more. What its NIC still completes is not the
/// program's until [`forget`].
fn part(pair: &Arc<QueuePair>) {
    pair.raw.write().unwrap_or_else(PoisonError::into_inner).take();
    let spares = std::mem::take(&mut *pair.spares.lock().unwrap_or_else(PoisonError::into_inner));
    spares.iter().for_each(|spare| spare.destroy());
    let bell = pair.bell.lock().unwrap_or_else(PoisonError::into_inner).take();
    bell.into_iter().for_each(|bell| bell.destroy(&pair.recv_cq));
    agent::gone(pair);
}

/// Its NIC has let go of it: nothing of it completes any more, and what waits is not told.
fn forget(pair: &QueuePair) {
    for queue in [&pair.send_cq, &pair.recv_cq] {
        queue.enter_first().leave(pair.qpn, pair.tally());
    }
    if let Some(shared) = &pair.shared {
        let dealt = pair.state().receives.take_all();
        shared.forget(pair.id, dealt);
    }
}

/// Keeps what the attributes say.
fn gather(to: &mut Connection, attr: &ibv_qp_attr, mask: u32) {
    let has = |bit: u32| mask & bit != 0;
    macro_rules! keep {
        ($($bit:ident: $field:ident,)*) => { $(if has($bit) { to.attr.$field = attr.$field; })* };
    }
    keep! {
        IBV_QP_ACCESS_FLAGS: qp_access_flags,
        IBV_QP_AV: ah_attr,
        IBV_QP_PATH_MTU: path_mtu,
        IBV_QP_DEST_QPN: dest_qp_num,
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer,
        IBV_QP_SQ_PSN: sq_psn,
        IBV_QP_TIMEOUT: timeout,
        IBV_QP_RETRY_CNT: retry_cnt,
        IBV_QP_RNR_RETRY: rnr_retry,
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic,
        IBV_QP_PORT: port_num,
        IBV_QP_CAP: cap,
    }
}

/// `ibv_query_qp`: one that runs elsewhere is as connected as it was.
///
/// # Safety
/// As its manual says.
pub unsafe fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: forwarded to the caller.
    let errno = unsafe { real::ibv_query_qp(qp, attr, mask, init) };
    if let Some(pair) = registry::pair(qp).filter(|_| errno == 0) {
        let state = pair.state();
        if !state.is_at_home() && !state.lost {
            let at = if state.connection.sends { IBV_QPS_RTS } else { IBV_QPS_RTR };
            // SAFETY: the caller's attributes and object, which were just written.
            unsafe {
                (*attr).qp_state = at;
                (*attr).cur_qp_state = at;
                (*qp).state = at;
            }
        }
    }
    errno
}

/// `ibv_destroy_qp`.
///
/// # Safety
/// As its manual says.
pub unsafe fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    let pair = registry::with_mut(|objects| objects.take_pair(qp));
    pair.iter().for_each(part);
    // SAFETY: forwarded to the caller.
    let errno = unsafe { real::ibv_destroy_qp(qp) };
    pair.iter().for_each(|pair| forget(pair));
    errno
}
