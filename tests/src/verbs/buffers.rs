//! Buffers of a queue that all connections of a process take from.
//!
//! Each is posted under a number that is used once, and no more of them than the run needs, if it wants so: one that is
//! lost leaves a message without a buffer.

use std::collections::HashMap;
use std::ptr::null_mut;

use shunt_mlx5_sys as sys;
use shunt_verbs::hooks::shared;

use super::connection::{Connection, TAKEN};
use super::requests::{PLACE, RECEIVES};
use crate::oracle::load;

/// The queue, and what is posted there.
pub(super) struct Buffers {
    srq: *mut sys::ibv_srq,
    lkey: u32,
    /// Where no receive is posted.
    free: Vec<u64>,
    /// Where receives are, by their numbers.
    posted: HashMap<u64, u64>,
    next: u64,
    /// So many are posted in all.
    most: u64,
    pub wrong: Vec<String>,
}

impl Buffers {
    /// The queue of so many connections.
    pub(super) fn make(pd: *mut sys::ibv_pd, pairs: u32) -> Self {
        let attr = sys::ibv_srq_attr { max_wr: RECEIVES as u32 * pairs, max_sge: 1, srq_limit: 0 };
        let mut init = sys::ibv_srq_init_attr { attr, ..Default::default() };
        // SAFETY: the domain is alive, the attributes are ours.
        let srq = unsafe { shared::create(pd, &raw mut init) };
        assert!(!srq.is_null(), "a shared receive queue on a soft NIC");
        let (free, posted, wrong) = (Vec::new(), HashMap::new(), Vec::new());
        Self { srq, lkey: 0, free, posted, next: 0, most: 0, wrong }
    }

    /// The queue.
    pub(super) fn queue(&self) -> *mut sys::ibv_srq {
        self.srq
    }

    /// Buffers of a connection are posted there, the first of them now.
    pub(super) fn add(&mut self, lkey: u32, of: &Connection) {
        self.lkey = lkey;
        self.free.extend(of.buffers());
        // One for a message that comes before the rest is known.
        self.most = 1;
        self.post();
    }

    /// So many are posted in all.
    pub(super) fn supply(&mut self, most: u64) {
        self.most = most;
        self.post();
    }

    /// Posts what may be posted.
    pub(super) fn post(&mut self) {
        while self.next < self.most
            && let Some(at) = self.free.pop()
        {
            let mut sge = sys::ibv_sge { addr: at, length: PLACE as u32, lkey: self.lkey };
            let (wr_id, num_sge) = (self.next, 1);
            let mut wr = sys::ibv_recv_wr { wr_id, sg_list: &raw mut sge, num_sge, ..Default::default() };
            let mut bad = null_mut();
            // SAFETY: the queue is this program's and alive; the buffer is in its region.
            let errno = unsafe { shared::post(self.srq, &raw mut wr, &raw mut bad) };
            if errno != 0 {
                self.wrong.push(format!("shared buffer {wr_id} was refused: {errno}"));
            }
            self.posted.insert(wr_id, at);
            self.next += 1;
        }
    }

    /// A completion: where the buffer is into which a message came, if one did.
    pub(super) fn take(&mut self, wc: &sys::ibv_wc) -> Option<u64> {
        if wc.opcode & sys::IBV_WC_RECV == 0 || wc.status != sys::IBV_WC_SUCCESS {
            return None;
        }
        let Some(at) = self.posted.remove(&wc.wr_id) else {
            self.wrong.push(format!("a message came into shared buffer {}, which is not posted", wc.wr_id));
            return None;
        };
        self.free.push(at);
        Some(at)
    }

    /// Nothing has come into a buffer that is not posted.
    pub(super) fn judge(&mut self) {
        let spoilt = self.free.iter().filter(|at| ![0, TAKEN].contains(&load(**at))).count();
        if spoilt > 0 {
            self.wrong.push(format!("{spoilt} shared buffers were written after their message came"));
        }
    }
}
