//! What outlives an agent: objects of its NICs, memory, links, and numbers that are never used twice. All else it knew
//! is gone with it. Rules 17 and 18.

use super::Agent;
use super::graves::Grave;
use super::jobs::Post;
use super::news::News;
use super::pair::Pair;
use super::rails::Address;
use super::reader::Cursor;
use super::worker::Crew;
use crate::connect::oob::Oob;
use crate::nic::half::HalfPath;
use crate::nic::queue::{At, RingSpan};
use crate::pe::connect::first_psn;
use crate::pe::{AgentResources, PathSlot, Pe};
use std::sync::{Arc, Mutex, PoisonError};

/// One pair, as its next agent finds it.
pub(super) struct Holding {
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

impl Holding {
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
    fn left(pair: Pair) -> Self {
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
pub(super) struct Kept {
    /// By row and slot.
    pub pairs: Vec<Option<Holding>>,
    /// By row: the send queue that is no path's.
    pub spares: Vec<Option<At>>,
    /// The end of the agents' own link.
    pub oob: Box<dyn Oob>,
    /// Where the peers' datagrams are taken; none: as at start.
    pub addresses: Vec<Address>,
    /// When the peers said what they last said of their ports.
    pub port_words: Vec<Vec<u64>>,
    /// Workers of the NICs.
    pub posts: Vec<Post>,
    /// Halves that are not known to be gone.
    pub graves: Vec<Grave>,
    /// By pair: rails on which an older half was never proven silent, a bit each.
    pub haunted: Vec<u32>,
    /// Jobs given so far: their numbers are not used again.
    pub jobs: u64,
    /// What was told, and to whom.
    pub news: News,
    /// Switch records handed out.
    pub records_seen: Cursor,
    /// Agents so far.
    pub lives: u32,
}

impl Kept {
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
            let mut next = || slots.next().map(|(slot, number)| Holding::made_at_start(slot, psn(number)));
            pairs.extend((0..root.slots).map(|_| next()));
        }
        Self {
            haunted: vec![0; pairs.len()],
            pairs,
            spares,
            oob: resources.oob,
            addresses: Vec::new(),
            port_words: Vec::new(),
            posts: pe.rails().iter().map(|rail| Post::fill(crew, rail, pe.world())).collect(),
            graves: Vec::new(),
            jobs: 0,
            news: News::new(root.my_pe, root.pe_count),
            records_seen: Cursor::default(),
            lives: 0,
        }
    }
}

/// What a PE holds while no agent has it.
enum Held {
    /// As bring-up made it.
    Fresh(AgentResources),
    /// As an agent that is gone left it.
    Left(Box<Kept>),
}

/// Where it lies: empty while an agent lives.
#[derive(Clone)]
pub(crate) struct Estate(Arc<Mutex<Option<Held>>>);

impl Estate {
    pub(crate) fn new(resources: AgentResources) -> Self {
        Self(Arc::new(Mutex::new(Some(Held::Fresh(resources)))))
    }

    fn put(&self, kept: Kept) {
        // One assignment under this lock: a panic leaves no half state.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Held::Left(Box::new(kept)));
    }

    /// As bring-up made it, once, for somebody who is no agent.
    pub(crate) fn take_fresh(&self) -> Option<AgentResources> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take() {
            Some(Held::Fresh(resources)) => Some(resources),
            other => {
                *held = other;
                None
            }
        }
    }

    /// For the next agent; none while one lives.
    pub(super) fn take(&self, pe: &Pe, crew: &dyn Crew) -> Option<Kept> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(match held {
            Held::Fresh(resources) => Kept::first(pe, resources, crew),
            Held::Left(kept) => *kept,
        })
    }
}

impl Agent {
    /// The agent dies here, as a panic or a fault has it: it tells nobody, and all it knew is lost. What lies in memory
    /// and in NICs stays; `Agent::new` gives it to the next agent of the PE.
    pub fn abandon(mut self) {
        self.ended = true;
        let (oob, addresses) = self.links.give_up();
        let haunted = self.all_haunted();
        let kept = Kept {
            pairs: self.pairs.drain(..).map(|pair| pair.map(Holding::left)).collect(),
            spares: std::mem::take(&mut self.spares),
            oob,
            addresses,
            port_words: self.ports.words(),
            posts: std::mem::take(&mut self.posts),
            graves: std::mem::take(&mut self.graves),
            haunted,
            jobs: self.jobs,
            news: std::mem::replace(&mut self.news, News::new(self.words.root().my_pe, 0)),
            records_seen: self.records_seen,
            lives: self.lives,
        };
        self.estate.put(kept);
    }
}
