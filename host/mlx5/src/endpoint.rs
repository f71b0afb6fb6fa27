//! One half of a path: the QP at this end, its CQ, doorbell and rings.

use crate::descriptor::HalfCard;
use crate::error::NicError;
use crate::nic::qp::{MASK_24, QpTruth, QpTuning, RemoteEnd};
use crate::nic::queue::{Door, Producer, Queue, RingSpan};
use crate::rail::Rail;
use shunt_layout::mlx5::doorbell::SEND_COUNTER_OFFSET;
use shunt_layout::state::{PathIdentity, PathRow};
use std::sync::Arc;

/// One half of a path. Dropping it destroys QP and CQ, if its NIC answers; the one that uses the rings again asks first
/// ([`HalfPath::destroy`]). The rings stay with the control memory.
pub struct HalfPath {
    queue: Queue,
    rings: RingSpan,
    log_depth: u32,
    incarnation: u32,
    variant: u32,
    psn: u32,
    rail: Arc<Rail>,
}

/// The PSN a new incarnation starts at: as far as can be from everything the old one may have in flight.
pub fn revived_psn(old_next_psn: u32) -> u32 {
    old_next_psn.wrapping_add(1 << 23) & MASK_24
}

impl HalfPath {
    /// The half of an incarnation that starts with the path; its QP is in INIT. `psn` is the first one it will send.
    pub fn create(
        rail: &Arc<Rail>,
        rings: &RingSpan,
        log_depth: u32,
        incarnation: u32,
        psn: u32,
    ) -> Result<Self, NicError> {
        let half = Self::make(rail, rings, log_depth, (incarnation, incarnation & 1), psn)?;
        half.init()?;
        Ok(half)
    }

    /// Makes the half of an incarnation in a variant of the rings; its QP is in RST. Who goes on with
    /// [`HalfPath::init`] has a half to put away if that fails.
    pub fn make(
        rail: &Arc<Rail>,
        rings: &RingSpan,
        log_depth: u32,
        (incarnation, variant): (u32, u32),
        psn: u32,
    ) -> Result<Self, NicError> {
        let queue = Queue::make(&rail.queue_source(rings.region)?, rings, log_depth, variant)?;
        let (rings, psn, rail) = (*rings, psn & MASK_24, rail.clone());
        Ok(Self { queue, rings, log_depth, incarnation, variant, psn, rail })
    }

    /// RST2INIT.
    pub fn init(&self) -> Result<(), NicError> {
        self.queue.qp.init(self.rail.address().pkey_index)
    }

    /// What the other end needs.
    pub fn card(&self) -> HalfCard {
        HalfCard {
            qpn: self.queue.qp.number(),
            psn: self.psn,
            incarnation: self.incarnation,
            ece: self.queue.qp.ece(),
            rail: self.rail.card(),
        }
    }

    /// INIT2RTR and RTR2RTS, with the options that both halves have; QUERY_QP shows RTS and in-order placement, or this
    /// fails.
    pub fn connect(&self, remote: &HalfCard, tuning: &QpTuning) -> Result<(), NicError> {
        let route = self.rail.route(&self.card(), remote)?;
        let tuning = self.rail.fit(tuning);
        let end = RemoteEnd { qpn: remote.qpn, psn: remote.psn };
        self.queue.qp.connect(end, self.psn, &route, &tuning)
    }

    /// 2ERR: from here on nothing that arrives changes memory, and everything outstanding is flushed.
    pub fn to_error(&self) -> Result<(), NicError> {
        self.queue.qp.to_error()
    }

    /// QUERY_QP.
    pub fn query(&self) -> Result<QpTruth, NicError> {
        self.queue.qp.query()
    }

    /// Has QP and CQ destroyed: `Ok` once the NIC said so.
    pub fn destroy(&self) -> Result<(), NicError> {
        self.queue.qp.destroy(self.queue.cq.number())
    }

    /// The same for a half that nobody fenced, with the PSN that its requester would have sent next, if the NIC still
    /// knew it.
    pub fn query_and_destroy(&self) -> Result<Option<u32>, NicError> {
        let truth = self.queue.qp.query_if_there(self.queue.cq.number())?;
        self.destroy()?;
        Ok(truth.map(|truth| truth.next_send_psn))
    }

    /// The row device code reads, all but `state`, `base`, `next_index` and times, which start at 0.
    pub fn path_row(&self, remote: &HalfCard) -> PathRow {
        let variant = self.rings.variant(self.variant);
        let local = self.rail.card();
        PathRow {
            send_queue: self.rings.send_queue.address,
            completion_queue: variant.completion_queue.address,
            reserved1: 0,
            doorbell_record: variant.queue_record.address + SEND_COUNTER_OFFSET as u64,
            doorbell_register: self.queue.uar.register(),
            base: 0,
            qpn_shifted: self.queue.qp.number() << 8,
            log_depth: self.log_depth,
            local_rail: self.rail.index,
            remote_rail: remote.rail.index,
            state: 0,
            incarnation: self.incarnation,
            next_index: 0,
            ready_since_ns: 0,
            first_cause: 0,
            reserved: 0,
            pad0: [0; 4],
            identity: PathIdentity {
                local_gid: local.gid,
                remote_gid: remote.rail.gid,
                local_rail_name: local.name,
                remote_rail_name: remote.rail.name,
                local_lid: local.lid,
                remote_lid: remote.rail.lid,
                local_qpn: self.queue.qp.number(),
                remote_qpn: remote.qpn,
                local_rail: self.rail.index,
                remote_rail: remote.rail.index,
                incarnation: self.incarnation,
            },
            pad1: [0; 5],
        }
    }

    /// Posts from the host, for probes: starts at index 0 of this fresh half.
    ///
    /// # Safety
    /// Nobody else posts on this half while the producer lives, and it does not outlive the half.
    pub unsafe fn producer(&self) -> Producer {
        let door = Door { register: self.queue.uar.register(), qpn: self.queue.qp.number() };
        let (name, reach) = (self.rail.name.clone(), self.rail.reach(self.rings.region));
        // SAFETY: the rings are this half's and live as long as its rail; sole use is the caller's promise.
        unsafe { Producer::new(name, &self.rings, self.variant, self.log_depth, door, reach) }
    }

    /// Rings.
    pub fn rings(&self) -> &RingSpan {
        &self.rings
    }

    /// QPN.
    pub fn qpn(&self) -> u32 {
        self.queue.qp.number()
    }

    /// Incarnation.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The variant of the rings that it uses.
    pub fn variant(&self) -> u32 {
        self.variant
    }

    /// First PSN it sends.
    pub fn psn(&self) -> u32 {
        self.psn
    }

    /// Its rail.
    pub fn rail(&self) -> &Arc<Rail> {
        &self.rail
    }
}
