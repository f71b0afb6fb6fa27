//! A domain in virtual time that does what a network may do, by seed.
//!
//! Nodes have one connection to each other over each rail, and each connection carries both directions. On a connection
//! pieces are executed in order; between connections there is none. Packets, acknowledgements and completions take
//! any time, are lost with their rail, or are held back and come late. Once a loss has happened on a direction nothing
//! behind it is executed, as on an RC queue pair. A connection that is closed is fenced at both ends, one after the
//! other, and opened again as another one.
//!
//! A network without an order is the other kind: every piece takes its own time, a loss is one piece's, and a fence
//! tells what receivers have counted, as of SRD.

mod config;
pub mod faults;
mod lane;
mod net;
pub mod oracle;
mod rng;
pub mod silence;

pub use config::{Config, Counts, key};
pub use rng::Rng;

use crate::domain::{Batch, Domain, Event};
use crate::ids::{LaneId, PeerId};
use net::Net;
use shunt_recovery::nanos::Nanos;
use std::cell::RefCell;
use std::rc::Rc;

/// The network, and all memory.
#[derive(Clone)]
pub struct Sim(Rc<RefCell<Net>>);

impl Sim {
    /// A network whose connections are open, and the domain of each node.
    pub fn new(config: Config) -> (Self, Vec<SimDomain>) {
        let (count, net) = (config.nodes, Net::new(config));
        let sim = Self(Rc::new(RefCell::new(net)));
        let domains = (0..count).map(|node| SimDomain { node, sim: sim.clone() }).collect();
        (sim, domains)
    }

    /// Virtual time.
    pub fn now(&self) -> Nanos {
        self.0.borrow().now()
    }

    /// When something happens next; never, if nothing does.
    pub fn next_time(&self) -> Nanos {
        self.0.borrow().next_time()
    }

    /// Lets time pass until then, and does what is due.
    pub fn advance(&self, to: Nanos) {
        self.0.borrow_mut().advance(to);
    }

    /// What lies in a node's memory.
    pub fn read(&self, node: u32, at: u64, len: u64) -> Vec<u8> {
        self.0.borrow_mut().memory(node, at, len).to_vec()
    }

    /// Writes into a node's memory, as its program does.
    pub fn write(&self, node: u32, at: u64, bytes: &[u8]) {
        self.0.borrow_mut().memory(node, at, bytes.len() as u64).copy_from_slice(bytes);
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.0.borrow().counts()
    }
}

/// The rails of a node.
pub struct SimDomain {
    node: u32,
    sim: Sim,
}

impl Domain for SimDomain {
    fn post(&mut self, _now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        self.sim.0.borrow_mut().post(self.node, lane, batch);
    }

    fn close(&mut self, _now: Nanos, lane: LaneId) {
        self.sim.0.borrow_mut().close(lane);
    }

    fn leave(&mut self, _now: Nanos, peer: PeerId) {
        self.sim.0.borrow_mut().leave(self.node, peer.0);
    }

    fn reached(&mut self, peer: PeerId, imm: u32) {
        self.sim.0.borrow_mut().reached(self.node, peer.0, imm);
    }

    fn poll(&mut self, _now: Nanos, events: &mut Vec<Event>) {
        events.append(self.sim.0.borrow_mut().events(self.node));
    }
}
