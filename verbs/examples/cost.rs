//! How many instructions a request costs in this library: `cost (with | without) N` posts N WRITEs one by one and
//! polls their completions, with a provider that does nothing, through this library or past it. Two runs under
//! callgrind, with N and with 2 N, and their difference by N, say what one costs:
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/cost with 1000
//! ```

use shunt_mlx5_sys as sys;
use shunt_verbs::hooks::data;
use shunt_verbs::objects::{At, CompletionQueue, Context, Domain, Extended};
use shunt_verbs::queue_pair::QueuePair;
use shunt_verbs::registry;
use std::cell::Cell;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Arc, OnceLock, RwLock};

/// Number of the queue pair.
const QPN: u32 = 0x40;

thread_local! {
    /// What the provider was given and has not completed.
    static POSTED: Cell<Option<u64>> = const { Cell::new(None) };
}

unsafe extern "C" fn post(
    _: *mut sys::ibv_qp,
    wr: *mut sys::ibv_send_wr,
    _: *mut *mut sys::ibv_send_wr,
) -> i32 {
    // SAFETY: the caller's request.
    POSTED.set(Some(unsafe { (*wr).wr_id }));
    0
}

unsafe extern "C" fn poll(_: *mut sys::ibv_cq, _: i32, to: *mut sys::ibv_wc) -> i32 {
    let Some(wr_id) = POSTED.take() else { return 0 };
    let opcode = sys::IBV_WC_RDMA_WRITE;
    // SAFETY: room for one, by the caller.
    unsafe { *to = sys::ibv_wc { wr_id, opcode, qp_num: QPN, ..Default::default() } };
    1
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (through, count) = match &words[..] {
        [how, count] if how == "with" || how == "without" => (how == "with", count.parse::<u64>().ok()),
        _ => (false, None),
    };
    let Some(count) = count else {
        eprintln!("cost: expected (with | without) N, got {words:?}");
        std::process::exit(2);
    };
    let ops = sys::ibv_context_ops { post_send: Some(post), poll_cq: Some(poll), ..Default::default() };
    let context = At(without_provenance_mut(0x1000));
    let (device, ex, channel) = ("none".to_owned(), Extended::default(), OnceLock::new());
    let known = Arc::new(Context { raw: context, device, ops, ex, channel });
    let (regions, changes) = (RwLock::default(), Default::default());
    let pd = At(without_provenance_mut(0x2000));
    let domain = Arc::new(Domain { raw: pd, context: known.clone(), regions, changes });
    // SAFETY: plain words and addresses, of which zero is one.
    let (mut qp, mut cq): (sys::ibv_qp, sys::ibv_cq) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    let (qp, cq) = (&raw mut qp, &raw mut cq);
    let queue = Arc::new(CompletionQueue::new(At(cq), known, false));
    let cap = sys::ibv_qp_cap { max_send_wr: 128, max_send_sge: 1, ..Default::default() };
    let queues = (queue.clone(), queue.clone());
    let pair = Arc::new(QueuePair::new(1, (At(qp), QPN), domain, queues, cap, false));
    queue.enter().members.insert(QPN, pair.clone());
    registry::with_mut(|objects| {
        objects.queues.insert(cq.addr(), queue);
        objects.pairs.insert(qp.addr(), pair);
    });
    let (post, poll) =
        if through { (data::post_send as _, data::poll_cq as _) } else { (post as Post, poll as Poll) };
    for wr_id in 0..count {
        run(qp, cq, wr_id, post, poll);
    }
}

type Post = unsafe extern "C" fn(*mut sys::ibv_qp, *mut sys::ibv_send_wr, *mut *mut sys::ibv_send_wr) -> i32;
type Poll = unsafe extern "C" fn(*mut sys::ibv_cq, i32, *mut sys::ibv_wc) -> i32;

/// Posts one and polls it.
fn run(qp: *mut sys::ibv_qp, cq: *mut sys::ibv_cq, wr_id: u64, post: Post, poll: Poll) {
    let mut sge = sys::ibv_sge { addr: 0x3000, length: 64, lkey: 1 };
    let mut wr = sys::ibv_send_wr {
        wr_id,
        sg_list: &raw mut sge,
        num_sge: 1,
        opcode: sys::IBV_WR_RDMA_WRITE,
        send_flags: sys::IBV_SEND_SIGNALED,
        ..Default::default()
    };
    let (mut bad, mut wc) = (null_mut(), sys::ibv_wc::default());
    // SAFETY: the objects live until the program ends, and no provider looks at them.
    let done = unsafe { (post(qp, &raw mut wr, &raw mut bad), poll(cq, 1, &raw mut wc)) };
    assert!(done == (0, 1) && wc.wr_id == wr_id, "a request is posted and completes");
}
