//! What outlives an agent: objects of its NICs, memory, links, and numbers that are never used twice. All else it knew
//! is gone with it. Rules 17 and 18.

use super::destroy_queue::DestroyQueue;
use super::endpoint::Half;
use super::half::ChannelEndpoint;
use super::links::address::Address;
use super::links::arrival::Arrival;
use super::nic_dispatch::Nics;
use super::path::PathStart;
use super::reader::Cursor;
use super::reporter::Reporter;
use super::status_page::StatusBoard;
use crate::connect::oob::Oob;
use crate::error::DevxError;
use crate::nanos::Nanos;
use crate::nic::half::HalfPath;
use crate::nic::qp::QpTuning;
use crate::nic::queue::{At, RingSpan};
use crate::pe::resources::{AgentResources, PathSlot};
use crate::slots::RailPair;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// One path, as its next agent finds it.
pub(super) struct PairCheckpoint {
    /// What its machine begins with.
    pub start: PathStart<Half>,
    /// Memory of its rings.
    pub rings: RingSpan,
}

impl PairCheckpoint {
    /// A path as bring-up leaves it: made, or to be made by the agents.
    pub(super) fn made_at_start(slot: PathSlot, first_psn: u32, tuning: QpTuning) -> Self {
        let rails = RailPair { local: slot.local_rail, remote: slot.remote_rail };
        let incarnation = slot.half.as_ref().map_or(0, HalfPath::incarnation);
        let half = slot.half.map(|half| ChannelEndpoint::found(half, tuning));
        let start = PathStart { incarnation, rails, half, next_psn: first_psn, orders: 0 };
        Self { start, rings: slot.rings }
    }
}

/// What was read of the events of a rail's NIC.
pub(super) type NicEvent = (u32, Result<Option<[u8; 64]>, DevxError>);

/// Everything that outlives an agent.
pub(super) struct Checkpoint {
    /// By row and slot.
    pub pairs: Vec<Option<PairCheckpoint>>,
    /// By row: the send queue that is no path's.
    pub spares: Vec<Option<At>>,
    /// The end of the agents' own link.
    pub oob: Box<dyn Oob>,
    /// Where the peers' datagrams are taken; none: as at start.
    pub addresses: Vec<Address>,
    /// When the peers said what they last said of their ports.
    pub port_words: Vec<Vec<Nanos>>,
    /// Workers of the NICs.
    pub nics: Nics,
    /// Halves that are not known to be gone.
    pub destroys: DestroyQueue<Half>,
    /// By pair: rails on which an older half was never proven silent, a bit each.
    pub unfenced: Vec<u32>,
    /// What was told, and to whom.
    pub reporter: Reporter,
    /// Switch records handed out.
    pub records_seen: Cursor,
    /// What others look at, if anybody asked for it.
    pub board: Option<Box<StatusBoard>>,
    /// Events that were read and not looked at.
    pub events: VecDeque<NicEvent>,
    /// Messages that were read and not looked at.
    pub arrivals: VecDeque<Arrival>,
    /// Agents so far.
    pub lives: u32,
}

/// What a PE holds while no agent has it.
pub(super) enum Slot {
    /// As bring-up made it.
    Fresh(AgentResources),
    /// As an agent that is gone left it.
    Left(Box<Checkpoint>),
}

/// Where a PE keeps its checkpoint. It is empty while an agent runs.
#[derive(Clone)]
pub(crate) struct CheckpointCell(Arc<Mutex<Option<Slot>>>);

impl CheckpointCell {
    pub(crate) fn new(resources: AgentResources) -> Self {
        Self(Arc::new(Mutex::new(Some(Slot::Fresh(resources)))))
    }

    pub(super) fn put(&self, checkpoint: Checkpoint) {
        // One assignment under this lock: a panic leaves no half state.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Slot::Left(Box::new(checkpoint)));
    }

    /// As bring-up made it, once, for somebody who is no agent.
    pub(crate) fn take_bring_up(&self) -> Option<AgentResources> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take() {
            Some(Slot::Fresh(resources)) => Some(resources),
            other => {
                *held = other;
                None
            }
        }
    }

    /// For the next agent; none while one lives.
    pub(super) fn take(&self) -> Option<Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
