//! What outlives an agent: objects of its NICs, memory, links, and numbers that are never used twice. All else it knew
//! is gone with it. Rules 17 and 18.

use super::destroy_queue::DestroyQueue;
use super::nic_dispatch::Nics;
use super::pair::Pair;
use super::rails::Address;
use super::reader::Cursor;
use super::reporter::Reporter;
use super::worker::Crew;
use crate::connect::oob::Oob;
use crate::nanos::Nanos;
use crate::nic::half::HalfPath;
use crate::nic::queue::{At, RingSpan};
use crate::pe::connect::first_psn;
use crate::pe::{AgentResources, PathSlot, Pe};
use std::sync::{Arc, Mutex, PoisonError};

/// One pair, as its next agent finds it.
pub(super) struct PairCheckpoint {
    /// The highest incarnation that was ever begun.
    pub incarnation: u32,
    /// Rails that its slot is given to.
    pub local_rail: u32,
    /// See `local_rail`.
    pub remote_rail: u32,
    /// Memory of its rings.
    pub rings: RingSpan,
    /// This half, while there is one.
    pub half: Option<Arc<HalfPath>>,
    /// PSN that the next incarnation starts at.
    pub next_psn: u32,
    /// What the operator wants, see [`Pair::orders`].
    pub orders: u32,
}

impl PairCheckpoint {
    /// A pair as bring-up leaves it: made, or to be made by the agents.
    fn made_at_start(slot: PathSlot, first_psn: u32) -> Self {
        Self {
            incarnation: slot.half.as_ref().map_or(0, HalfPath::incarnation),
            local_rail: slot.local_rail,
            remote_rail: slot.remote_rail,
            rings: slot.rings,
            half: slot.half.map(Arc::new),
            next_psn: first_psn,
            orders: 0,
        }
    }

    /// A pair whose agent is gone.
    pub(super) fn left(pair: Pair) -> Self {
        Self {
            incarnation: pair.incarnation,
            local_rail: pair.local_rail,
            remote_rail: pair.remote_rail,
            rings: pair.rings,
            half: pair.half,
            next_psn: pair.next_psn,
            orders: pair.orders,
        }
    }
}

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
    pub destroys: DestroyQueue<Arc<HalfPath>>,
    /// By pair: rails on which an older half was never proven silent, a bit each.
    pub unfenced: Vec<u32>,
    /// What was told, and to whom.
    pub reporter: Reporter,
    /// Switch records handed out.
    pub records_seen: Cursor,
    /// Agents so far.
    pub lives: u32,
}

impl Checkpoint {
    /// For the first agent of a PE.
    fn first(pe: &Pe, resources: AgentResources, crew: &dyn Crew) -> Self {
        let root = *pe.root();
        let base = pe.control().address;
        let (mut pairs, mut spares) = (Vec::new(), Vec::new());
        for channel in resources.channels {
            let own = channel.peer == root.my_pe;
            spares.push((!own).then(|| pe.plan().spare_queue(base, channel.peer, channel.index)));
            let psn = |slot| first_psn(root.my_pe, channel.peer, channel.index, slot);
            let mut slots = channel.slots.into_iter().zip(0..);
            let mut next =
                || slots.next().map(|(slot, number)| PairCheckpoint::made_at_start(slot, psn(number)));
            pairs.extend((0..root.slots).map(|_| next()));
        }
        Self {
            unfenced: vec![0; pairs.len()],
            pairs,
            spares,
            oob: resources.oob,
            addresses: Vec::new(),
            port_words: Vec::new(),
            nics: Nics::spawn(crew, pe.rails(), pe.world()),
            destroys: DestroyQueue::default(),
            reporter: Reporter::new(root.my_pe, root.pe_count),
            records_seen: Cursor::default(),
            lives: 0,
        }
    }
}

/// What a PE holds while no agent has it.
enum Slot {
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
    pub(super) fn take(&self, pe: &Pe, crew: &dyn Crew) -> Option<Checkpoint> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(match held {
            Slot::Fresh(resources) => Checkpoint::first(pe, resources, crew),
            Slot::Left(checkpoint) => *checkpoint,
        })
    }
}
