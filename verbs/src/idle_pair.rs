//! A queue pair on a device that nobody calls, for tests.

use crate::completions::CompletionQueue;
use crate::objects::{At, Context, Domain, Extended};
use crate::queue_pair::QueuePair;
use shunt_mlx5_sys::ibv_qp_cap;
use std::ptr::without_provenance_mut;
use std::sync::{Arc, OnceLock};

/// One without room.
pub fn pair() -> Arc<QueuePair> {
    pair_with(ibv_qp_cap::default())
}

/// One with so much room.
pub fn pair_with(cap: ibv_qp_cap) -> Arc<QueuePair> {
    let (ops, ex, channel) = (Default::default(), Extended::default(), OnceLock::new());
    let raw = At(without_provenance_mut(0x1000));
    let context = Arc::new(Context { raw, device: "none".into(), ops, ex, channel });
    let pd = At(without_provenance_mut(0x2000));
    let domain = Arc::new(Domain::new(pd, context.clone()));
    let cq = Arc::new(CompletionQueue::new(At(without_provenance_mut(0x3000)), context, false));
    let at = (At(without_provenance_mut(0x4000)), 0x40);
    Arc::new(QueuePair::new(7, at, domain, (cq.clone(), cq, None), cap, false))
}
