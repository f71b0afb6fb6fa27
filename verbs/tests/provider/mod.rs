//! A provider that does nothing: what is posted completes when it is polled. A queue pair and a completion queue of it,
//! protected by this library.

use shunt_mlx5_sys as sys;
use shunt_verbs::completions::CompletionQueue;
use shunt_verbs::hooks::{data, poll as polling};
use shunt_verbs::objects::{At, Context, Domain, Extended};
use shunt_verbs::queue_pair::QueuePair;
use shunt_verbs::registry;
use std::cell::Cell;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Arc, OnceLock, RwLock};

/// Number of the queue pair.
const QPN: u32 = 0x40;
/// Requests that it holds.
const DEPTH: u32 = 128;
/// Requests of a list, at most.
const LIST: usize = 16;

thread_local! {
    /// Numbers of the oldest request that the provider was given and has not completed, and of the next.
    static POSTED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

unsafe extern "C" fn post(
    _: *mut sys::ibv_qp,
    mut wr: *mut sys::ibv_send_wr,
    _: *mut *mut sys::ibv_send_wr,
) -> i32 {
    let (first, mut next) = POSTED.get();
    while !wr.is_null() {
        next += 1;
        // SAFETY: the caller's list.
        wr = unsafe { (*wr).next };
    }
    POSTED.set((first, next));
    0
}

unsafe extern "C" fn poll(_: *mut sys::ibv_cq, most: i32, to: *mut sys::ibv_wc) -> i32 {
    let (first, next) = POSTED.get();
    let count = (next - first).min(most as u64);
    for at in 0..count {
        let (wr_id, opcode) = (first + at, sys::IBV_WC_RDMA_WRITE);
        // SAFETY: room for so many, by the caller.
        unsafe { *to.add(at as usize) = sys::ibv_wc { wr_id, opcode, qp_num: QPN, ..Default::default() } };
    }
    POSTED.set((first + count, next));
    count as i32
}

type Post = unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32;
type Poll = unsafe extern "C" fn(*mut sys::ibv_cq, i32, *mut sys::ibv_wc) -> i32;

/// The program's end of it.
pub struct Program {
    qp: *mut sys::ibv_qp,
    cq: *mut sys::ibv_cq,
    post: Post,
    poll: Poll,
    next: u64,
}

impl Program {
    /// Its calls come to this library, or go to the provider.
    pub fn new(through: bool) -> Self {
        let ops = sys::ibv_context_ops { post_send: Some(post), poll_cq: Some(poll), ..Default::default() };
        let context = At(without_provenance_mut(0x1000));
        let (device, ex, channel) = ("none".to_owned(), Extended::default(), OnceLock::new());
        let known = Arc::new(Context { raw: context, device, ops, ex, channel });
        let (regions, changes) = (RwLock::default(), Default::default());
        let pd = At(without_provenance_mut(0x2000));
        let domain = Arc::new(Domain { raw: pd, context: known.clone(), regions, changes });
        // SAFETY: plain words and addresses, of which zero is one.
        let (qp, cq): (sys::ibv_qp, sys::ibv_cq) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let (qp, cq) = (Box::into_raw(Box::new(qp)), Box::into_raw(Box::new(cq)));
        let queue = Arc::new(CompletionQueue::new(At(cq), known, false));
        let cap = sys::ibv_qp_cap { max_send_wr: DEPTH, max_send_sge: 1, ..Default::default() };
        let queues = (queue.clone(), queue.clone(), None);
        let pair = Arc::new(QueuePair::new(1, (At(qp), QPN), domain, queues, cap, false));
        queue.enter().join(QPN, pair.clone());
        registry::with_mut(|objects| {
            objects.put_queue(cq, queue);
            objects.put_pair(qp, pair);
        });
        let (post, poll) = if through {
            (data::post_send as _, polling::poll_cq as _)
        } else {
            (post as Post, poll as Poll)
        };
        Self { qp, cq, post, poll, next: POSTED.get().1 }
    }

    /// Posts a list of so many WRITEs, and polls them by one call.
    pub fn run(&mut self, list: usize) {
        let mut sge = sys::ibv_sge { addr: 0x3000, length: 64, lkey: 1 };
        let mut wrs = [sys::ibv_send_wr { num_sge: 1, ..Default::default() }; LIST];
        let mut next = null_mut();
        for (at, wr) in wrs[..list].iter_mut().enumerate().rev() {
            wr.wr_id = self.next + at as u64;
            wr.sg_list = &raw mut sge;
            wr.opcode = sys::IBV_WR_RDMA_WRITE;
            wr.send_flags = sys::IBV_SEND_SIGNALED;
            wr.next = next;
            next = wr;
        }
        let (mut bad, mut wcs) = (null_mut(), [sys::ibv_wc::default(); LIST]);
        // SAFETY: the objects live until the process ends, and no provider looks at them.
        let done = unsafe {
            ((self.post)(self.qp, next, &raw mut bad), (self.poll)(self.cq, LIST as i32, wcs.as_mut_ptr()))
        };
        let expected = self.next..self.next + list as u64;
        assert!(done == (0, list as i32) && expected.eq(wcs[..list].iter().map(|wc| wc.wr_id)), "{done:?}");
        self.next += list as u64;
    }
}
