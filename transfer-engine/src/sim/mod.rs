//! A domain in virtual time that does what a network may do, by seed.
//!
//! Nodes have one connection to each other over each rail, and each connection carries both directions. On a connection
//! pieces are executed in order; between connections there is none. Packets, acknowledgements and completions take
//! any time, are lost with their rail, or are held back and come late. Once a loss has happened on a direction nothing
//! behind it is executed, as on an RC queue pair. A connection that is closed is fenced at both ends, one after the
//! other, and opened again as another one.
//!
//! A write may be executed some time before it is in memory ([`Config::late`]). What comes behind it on its connection
//! waits for it: READs, the receiver's completions, the end of a fence.
//!
//! A network without an order is the other kind: every piece takes its own time, a loss is one piece's, and a fence
//! tells what receivers have counted, as of SRD.

mod act;
mod config;
pub mod faults;
mod lane;
mod late;
mod memory;
mod net;
mod node;
pub mod oracle;
mod rng;
pub mod silence;

pub use config::{Config, Counts, key};
pub use rng::Rng;

use crate::domain::{Batch, Domain, Event};
use crate::error::TransferError;
use crate::ids::{LaneId, PeerId};
use crate::region::Mr;
use faults::Fault;
use net::Net;
use shunt_mlx5::memory::OwnedSpan;
use shunt_recovery::nanos::Nanos;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The network, and all memory.
#[derive(Clone)]
pub struct Sim(Arc<Mutex<Net>>);

impl Sim {
    /// A network whose connections are open, and the domain of each node.
    pub fn new(config: Config) -> (Self, Vec<SimDomain>) {
        let (count, net) = (config.nodes, Net::new(config));
        let sim = Self(Arc::new(Mutex::new(net)));
        let domains = (0..count).map(|node| SimDomain { node, sim: sim.clone() }).collect();
        (sim, domains)
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Virtual time.
    pub fn now(&self) -> Nanos {
        self.net().now()
    }

    /// When something happens next; never, if nothing does.
    pub fn next_time(&self) -> Nanos {
        self.net().next_time()
    }

    /// Lets time pass until then, and does what is due.
    pub fn advance(&self, to: Nanos) {
        self.net().advance(to);
    }

    /// What lies in a node's memory.
    pub fn read(&self, node: u32, at: u64, len: u64) -> Vec<u8> {
        self.net().memory(node).fetch(at, len).expect("memory of this node")
    }

    /// Writes into a node's memory, as its program does.
    pub fn write(&self, node: u32, at: u64, bytes: &[u8]) {
        assert!(self.net().memory(node).place(at, bytes), "memory of this node");
    }

    /// Something more goes wrong; its number in [`Sim::hit`].
    pub fn inject(&self, fault: Fault) -> usize {
        self.net().inject(fault)
    }

    /// Whether each fault has changed something.
    pub fn hit(&self) -> Vec<bool> {
        self.net().hit().to_vec()
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.net().counts()
    }
}

/// The rails of a node.
pub struct SimDomain {
    node: u32,
    sim: Sim,
}

impl SimDomain {
    /// The network.
    pub const fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Registers memory on every rail.
    ///
    /// # Errors
    /// As [`Mr::new`].
    pub fn register(&self, memory: &Arc<OwnedSpan>) -> Result<Mr, TransferError> {
        let (mut net, span) = (self.sim.net(), memory.span());
        let keys: Vec<_> = (0..net.rails()).map(|rail| key(self.node, rail)).collect();
        let region = Mr::new(span.address, span.bytes, &keys)?;
        net.memory(self.node).register(memory);
        Ok(region)
    }

    /// Whether the end of a peer was dropped.
    pub fn has_ended(&self, peer: PeerId) -> bool {
        self.sim.net().has_ended(peer.0)
    }

    /// Takes a registration back. After the last of its memory nothing reaches that any more.
    pub fn deregister(&self, region: &Mr) {
        self.sim.net().memory(self.node).deregister(region.base());
    }
}

impl Drop for SimDomain {
    fn drop(&mut self) {
        self.sim.net().end(self.node);
    }
}

impl Domain for SimDomain {
    fn post(&mut self, _now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        self.sim.net().post(self.node, lane, batch);
    }

    fn close(&mut self, _now: Nanos, lane: LaneId) {
        self.sim.net().close(lane);
    }

    fn leave(&mut self, _now: Nanos, peer: PeerId) {
        self.sim.net().leave(self.node, peer.0);
    }

    fn reached(&mut self, peer: PeerId, imm: u32) {
        self.sim.net().reached(self.node, peer.0, imm);
    }

    fn poll(&mut self, _now: Nanos, events: &mut Vec<Event>) {
        events.append(self.sim.net().events(self.node));
    }
}
