//! One PE that is up, and everything it holds. Calls of the C interface are calls of this.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`start`] | how a PE comes up and leaves |
//! | [`peers`] | the channels of host calls, waits on them, looks after them |
//! | [`symmetric`] | the symmetric heap as the program has it |
//! | [`kernels`], [`kernel_map`] | what this PE does for its kernels; what they need in the heap, pure |
//! | [`meetings`], [`team_calls`], [`collect`] | teams and their meetings; barrier and split; collective calls |
//! | [`nics`], [`control`] | NICs; what PEs tell each other beside the data path |
//! | [`source`], [`ports`] | where NICs come from; who shares ports, and what a job is short of, pure |
//! | [`map`] | where everything lies in the symmetric heap; pure |
//! | [`heap_memory`], [`access`], [`memory`] | where the heap lies; how the host reaches it, and its control area |
//! | [`transfer`], [`staging`], [`stream`] | puts and gets; memory outside the heap; calls on a stream as kernels |
//! | [`atomics`], [`order`], [`waits`] | atomics and signals; quiet and the like; words that are waited for |
//! | [`losses`] | which PEs that are lost end a wait; pure |
//! | [`describe`], [`leftovers`] | faults in words; what a job leaves on the machine |

mod access;
mod atomics;
mod collect;
pub mod control;
mod describe;
mod heap_memory;
pub mod kernel_map;
mod kernels;
mod leftovers;
mod locks;
mod losses;
pub mod map;
mod meetings;
mod memory;
pub mod nics;
pub mod node_heaps;
mod order;
mod peers;
mod ports;
pub mod source;
mod staging;
pub mod start;
mod stream;
mod symmetric;
mod team_calls;
pub mod transfer;
mod waits;

pub use atomics::Change;
pub use collect::Reduction;
pub use kernels::KernelSide;
pub use meetings::Meetings;
pub use peers::Peers;
pub use symmetric::Symmetric;
pub use waits::{Compare, Watch, Width};

use crate::env::Settings;
use crate::failure::Failure;
use access::{Access, Running};
use control::Control;
use leftovers::Leftovers;
use locks::lock;
use map::HeapMap;
use nics::Nics;
use node_heaps::NodeHeaps;
use staging::Stage;
use std::sync::{Arc, Mutex};

/// A PE that is up.
pub struct Session {
    /// Joined first: it holds the agent.
    agent: Mutex<Option<shunt::AgentThread>>,
    settings: Settings,
    map: HeapMap,
    /// The heap's first address.
    base: u64,
    /// How host code reaches the heap and the program's memory.
    access: Arc<dyn Access>,
    heap: Symmetric,
    /// Of the others of this node, where it is shared.
    node: NodeHeaps,
    kernels: KernelSide,
    teams: Meetings,
    stage: Mutex<Stage>,
    control: Arc<Control>,
    /// Behind all that reaches the PE's state by it.
    peers: Arc<Peers>,
    nics: Nics,
    /// Behind the NICs, which use it.
    _fabric: Leftovers,
}

impl Session {
    /// This PE.
    pub fn me(&self) -> u32 {
        self.peers.me()
    }

    /// PEs of the job.
    pub fn pes(&self) -> u32 {
        self.peers.count()
    }

    /// What the job was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The symmetric heap.
    pub fn heap(&self) -> &Symmetric {
        &self.heap
    }

    /// The heaps of other PEs that are mapped here.
    pub fn node(&self) -> &NodeHeaps {
        &self.node
    }

    /// The program's kernels.
    pub fn kernels(&self) -> &KernelSide {
        &self.kernels
    }

    /// A call of the program's begins; it ends when the answer is dropped.
    pub fn running(&self) -> Running<'_> {
        Running::new(&*self.access)
    }

    /// Copies between memories that host code reaches by [`Access`].
    ///
    /// # Safety
    /// As [`Access::copy`].
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Failure> {
        // SAFETY: forwarded to the caller.
        Ok(unsafe { self.access.copy(to, from, bytes) }?)
    }

    /// Teams, and how they meet.
    pub fn teams(&self) -> &Meetings {
        &self.teams
    }

    /// The channels of host calls.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// What PEs tell each other beside the data path.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The NICs of this PE.
    pub fn nics(&self) -> &Nics {
        &self.nics
    }

    /// Whether an address lies in what the program has of the heap.
    fn is_symmetric(&self, at: u64, bytes: u64) -> bool {
        self.heap.offset(at, bytes).is_ok()
    }

    /// Where something of a PE's heap is mapped here, this PE's own as well; none where a NIC has to reach it.
    fn mapped(&self, pe: u32, offset: u64) -> Option<u64> {
        let base = if pe == self.me() { Some(self.base) } else { self.node.base(pe) };
        base.map(|base| base + offset)
    }

    fn put_staged(&self, dst: u64, source: u64, bytes: u64, pe: u32) -> Result<(), Failure> {
        lock(&self.stage).put(dst, source, bytes, pe)
    }

    fn get_staged(&self, target: u64, src: u64, bytes: u64, pe: u32) -> Result<(), Failure> {
        lock(&self.stage).get(target, src, bytes, pe)
    }

    fn get_elements(
        &self,
        elements: &mut dyn Iterator<Item = (u64, u64)>,
        bytes: u64,
        pe: u32,
    ) -> Result<(), Failure> {
        lock(&self.stage).get_elements(elements, bytes, pe)
    }
}
