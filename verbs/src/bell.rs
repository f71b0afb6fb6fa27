//! Wakes a program that sleeps until a message arrives, where its buffers are shared: nothing that is posted to a
//! shared receive queue is flushed, in ERR or not. So a queue pair of this library's own, which is in ERR as well, has
//! its completions come to the program's completion queue, and a receive of nothing is posted there.

use crate::completions::{CompletionQueue, Goes, Member, Tally};
use crate::objects::At;
use crate::real;
use shunt_mlx5_sys::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPT_RC,
    ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_wc,
};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// A queue pair of a program that sleeps.
pub trait Sleeper: Send + Sync {
    /// What was posted to wake the program is complete.
    fn woke(&self, wc: &ibv_wc);
}

/// What completes there is the bell's, and nobody gets it.
struct Rung {
    sleeper: Weak<dyn Sleeper>,
    tally: Arc<Tally>,
}

impl Member for Rung {
    fn absorb(&self, wc: &ibv_wc) -> (Goes, bool) {
        if let Some(sleeper) = self.sleeper.upgrade() {
            sleeper.woke(wc);
        }
        (Goes::Nowhere, false)
    }

    fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    fn is_counted(&self) -> bool {
        false
    }

    fn collect(&self, _: &CompletionQueue, _: &mut VecDeque<ibv_wc>) {}

    fn give_up(&self) {}
}

/// The queue pair.
pub struct Bell {
    qp: At<ibv_qp>,
    qpn: u32,
    tally: Arc<Tally>,
}

impl Bell {
    /// One for the completion queue in which messages to the sleeper complete. None if the NIC has none to give. Domain
    /// and queue are alive, by the caller.
    pub fn make(
        domain: At<ibv_pd>,
        port_num: u8,
        of: &CompletionQueue,
        sleeper: Weak<dyn Sleeper>,
    ) -> Option<Self> {
        let cq = of.raw.0;
        let cap = ibv_qp_cap {
            max_recv_wr: 1,
            max_recv_sge: 1,
            max_send_wr: 1,
            max_send_sge: 1,
            max_inline_data: 0,
        };
        let (send_cq, recv_cq) = (cq, cq);
        let mut init = ibv_qp_init_attr { send_cq, recv_cq, cap, qp_type: IBV_QPT_RC, ..Default::default() };
        // SAFETY: the domain and the queue are alive, by the caller; the attributes are ours.
        let qp = unsafe { real::ibv_create_qp(domain.0, &raw mut init) };
        if qp.is_null() {
            return None;
        }
        // SAFETY: just made.
        let qpn = unsafe { (*qp).qp_num };
        let bell = Self { qp: At(qp), qpn, tally: Arc::new(Tally::new(qpn)) };
        let rung = Rung { sleeper, tally: bell.tally.clone() };
        of.enter_first().join(bell.qpn, Arc::new(rung));
        let mut init = ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num, ..Default::default() };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        let mut error = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..Default::default() };
        // SAFETY: just made; the attributes are ours.
        let done = unsafe {
            real::ibv_modify_qp(qp, &raw mut init, mask as i32) == 0
                && real::ibv_modify_qp(qp, &raw mut error, IBV_QP_STATE as i32) == 0
        };
        if done {
            return Some(bell);
        }
        bell.destroy(of);
        None
    }

    /// Where a receive is posted that is flushed.
    pub const fn queue_pair(&self) -> At<ibv_qp> {
        self.qp
    }

    /// Destroys it. The completion queue is the one that it was made for.
    pub fn destroy(self, of: &CompletionQueue) {
        // SAFETY: nobody else has it.
        unsafe { real::ibv_destroy_qp(self.qp.0) };
        // Until here what it completes goes nowhere.
        of.enter_first().leave(self.qpn, &self.tally);
    }
}
