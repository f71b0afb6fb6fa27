//! A lane's queue pair as the recovery engine sees it.

use super::queue::{Queue, Request};
use shunt_device::platform::host::World;
use shunt_layout::mlx5::cqe::Syndrome;
use shunt_mlx5::descriptor::HalfCard;
use shunt_mlx5::error::NicError;
use shunt_mlx5::nic::qp::{MASK_24, QpTruth, QpTuning, RemoteEnd};
use shunt_mlx5::rail::Rail;
use shunt_recovery::endpoint::{Endpoint, Half, Maker, Prober};
use shunt_recovery::nic_job::Work;
use std::sync::{Arc, Mutex, PoisonError};

/// A queue pair that was made for a path: by key and incarnation, for those who post on it and receive from it.
#[derive(Clone)]
pub(super) struct Made {
    pub key: usize,
    pub peer: u32,
    pub incarnation: u32,
    pub queue: Arc<Queue>,
}

/// All of them that may still have completions.
pub(super) type AllMade = Arc<Mutex<Vec<Made>>>;

struct LaneEndpoint {
    queue: Arc<Queue>,
    rail: Arc<Rail>,
    world: Arc<dyn World>,
    incarnation: u32,
    psn: u32,
}

impl Endpoint for LaneEndpoint {
    fn rail(&self) -> u32 {
        self.rail.index
    }

    fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Each has memory of its own.
    fn variant(&self) -> u32 {
        self.incarnation & 1
    }

    fn psn(&self) -> u32 {
        self.psn
    }

    fn card(&self) -> HalfCard {
        let qpn = self.queue.qp.number();
        HalfCard { qpn, psn: self.psn, incarnation: self.incarnation, ece: 0, rail: self.rail.card() }
    }

    fn init(&self) -> Result<(), NicError> {
        self.queue.qp.init(self.rail.address().pkey_index)?;
        self.queue.post_receives(&*self.world);
        Ok(())
    }

    fn connect(&self, remote: &HalfCard) -> Result<(), NicError> {
        let route = self.rail.route(&self.card(), remote)?;
        let tuning = self.rail.fit(&QpTuning::default());
        self.queue.qp.connect(RemoteEnd { qpn: remote.qpn, psn: remote.psn }, self.psn, &route, &tuning)
    }

    fn to_error(&self) -> Result<(), NicError> {
        self.queue.qp.to_error()
    }

    fn query(&self) -> Result<QpTruth, NicError> {
        self.queue.qp.query()
    }

    fn destroy(&self) -> Result<(), NicError> {
        self.queue.qp.destroy(self.queue.cqn())?;
        self.queue.destroyed();
        Ok(())
    }

    fn query_and_destroy(&self) -> Result<Option<u32>, NicError> {
        let truth = self.queue.qp.query_if_there(self.queue.cqn())?;
        self.destroy()?;
        Ok(truth.map(|truth| truth.next_send_psn))
    }

    unsafe fn prober(&self) -> Box<dyn Prober> {
        Box::new(Probes { queue: self.queue.clone(), nic: self.rail.name.clone() })
    }
}

struct Probes {
    queue: Arc<Queue>,
    nic: String,
}

impl Prober for Probes {
    fn post(&mut self, world: &dyn World) {
        // It brings no bytes: nothing is written before it is posted.
        let _ = self.queue.post(world, [Request::NOTHING]);
    }

    fn poll(&mut self, world: &dyn World) -> Option<Result<(), NicError>> {
        let (nic, qpn) = (self.nic.clone(), self.queue.qp.number());
        let (index, result) = self.queue.poll_sent(world)?;
        let failed = |why: Syndrome| NicError::Completion { nic, qpn, index, syndrome: why.0, vendor: 0 };
        Some(result.map_err(failed))
    }

    fn has_room(&self) -> bool {
        self.queue.has_room(1)
    }

    fn next_index(&self) -> u64 {
        self.queue.next()
    }
}

/// Brings into memory what a NIC has accepted.
pub(super) struct Flush;

impl Work for Flush {
    fn run(&self, rail: &Rail) -> Result<(), NicError> {
        rail.flush()
    }
}

/// Makes the queue pairs of one path.
pub(super) struct LaneMaker {
    pub key: usize,
    pub peer: u32,
    pub made: AllMade,
    pub world: Arc<dyn World>,
}

impl Maker for LaneMaker {
    fn make(&self, rail: &Arc<Rail>, (incarnation, _): (u32, u32), psn: u32) -> Result<Half, NicError> {
        let queue = Arc::new(Queue::make(rail)?);
        let made = Made { key: self.key, peer: self.peer, incarnation, queue: queue.clone() };
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
        let (rail, world) = (rail.clone(), self.world.clone());
        Ok(Arc::new(LaneEndpoint { queue, rail, world, incarnation, psn: psn & MASK_24 }))
    }
}
