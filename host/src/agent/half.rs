//! Endpoints that device code posts on: made through DEVX, on rings in the control memory of a PE.

use super::endpoint::{Endpoint, Half, Maker, Prober};
use crate::connect::card::HalfCard;
use crate::error::NicError;
use crate::nic::half::HalfPath;
use crate::nic::qp::{QpTruth, QpTuning};
use crate::nic::queue::{Producer, Request, RingSpan};
use crate::rail::Rail;
use shunt_device::platform::host::World;
use shunt_layout::state::PathRow;
use std::sync::Arc;

/// One end of a path of a channel.
pub(super) struct ChannelEndpoint {
    half: HalfPath,
    tuning: QpTuning,
}

impl ChannelEndpoint {
    /// Of a half that bring-up made.
    pub(super) fn found(half: HalfPath, tuning: QpTuning) -> Half {
        Arc::new(Self { half, tuning })
    }
}

impl Endpoint for ChannelEndpoint {
    fn rail(&self) -> u32 {
        self.half.rail().index
    }

    fn incarnation(&self) -> u32 {
        self.half.incarnation()
    }

    fn variant(&self) -> u32 {
        self.half.variant()
    }

    fn psn(&self) -> u32 {
        self.half.psn()
    }

    fn card(&self) -> HalfCard {
        self.half.card()
    }

    fn init(&self) -> Result<(), NicError> {
        self.half.init()
    }

    fn connect(&self, remote: &HalfCard) -> Result<(), NicError> {
        self.half.connect(remote, &self.tuning)
    }

    fn to_error(&self) -> Result<(), NicError> {
        self.half.to_error()
    }

    fn query(&self) -> Result<QpTruth, NicError> {
        self.half.query()
    }

    fn destroy(&self) -> Result<(), NicError> {
        self.half.destroy()
    }

    fn query_and_destroy(&self) -> Result<Option<u32>, NicError> {
        self.half.query_and_destroy()
    }

    unsafe fn prober(&self) -> Box<dyn Prober> {
        // SAFETY: forwarded to the caller.
        Box::new(ChannelProber(unsafe { self.half.producer() }))
    }

    fn row(&self, remote: &HalfCard) -> Option<PathRow> {
        Some(self.half.path_row(remote))
    }
}

struct ChannelProber(Producer);

impl Prober for ChannelProber {
    fn post(&mut self, world: &dyn World) {
        self.0.post(world, Request::WriteNothing);
    }

    fn poll(&mut self, world: &dyn World) -> Option<Result<(), NicError>> {
        self.0.poll(world).map(|result| result.map(|_| ()))
    }

    fn has_room(&self) -> bool {
        self.0.has_room()
    }

    fn next_index(&self) -> u64 {
        self.0.next_index()
    }
}

/// What the endpoints of one path are made from.
pub(super) struct ChannelMaker {
    /// Memory.
    pub rings: RingSpan,
    /// log2 of the ring depth.
    pub log_depth: u32,
    /// Timers and retries.
    pub tuning: QpTuning,
}

impl Maker for ChannelMaker {
    fn make(&self, rail: &Arc<Rail>, number: (u32, u32), psn: u32) -> Result<Half, NicError> {
        let half = HalfPath::make(rail, &self.rings, self.log_depth, number, psn)?;
        Ok(ChannelEndpoint::found(half, self.tuning))
    }
}
