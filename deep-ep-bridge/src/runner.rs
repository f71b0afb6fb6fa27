//! What runs the kernels of a buffer.

use crate::agreement::Agreement;
use crate::fault::PathName;
use shunt_device::platform::host::{Host, World};
use shunt_device::{Device, Fault, Solo};
use shunt_host::agent::words::{Place, StateWords};
use shunt_host::pe::Pe;
use shunt_kernels::Outcome;
use shunt_kernels::moe::{MoeCall, Part, Stage};
use std::sync::Arc;

/// Runs kernels on one rank.
pub trait Runner {
    /// This rank.
    fn rank(&self) -> u32;
    /// Ranks of the job.
    fn ranks(&self) -> u32;
    /// Bytes of the heap.
    fn heap_bytes(&self) -> u64;
    /// Address of a heap offset, for the caller.
    fn address(&self, at: u64) -> u64;
    /// The address at which kernels here reach a heap offset of `rank`, which is the same for good; none where it is
    /// not mapped here. A rank that shares no node with this one has none.
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        let _ = (rank, at);
        None
    }
    /// Runs a phase in all its blocks, to its end: an outcome that is a fault, if one of them met it.
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome;
    /// The path that a fault's channel was on.
    fn path(&self, fault: &Fault) -> Option<PathName>;
    /// What agrees with the other ranks on who is left out; none where nothing does.
    fn agreement(&self) -> Option<Agreement> {
        None
    }
}

/// All parts of a phase, one after the other: none waits for another one. The value is the sum of all.
pub fn in_turn(call: &MoeCall, mut part: impl FnMut(Part) -> Outcome) -> Outcome {
    let of = call.blocks.max(1);
    blocks_in_turn(of, |number| part(Part { number, of }))
}

/// The same for so many blocks.
pub fn blocks_in_turn(blocks: u32, mut block: impl FnMut(u32) -> Outcome) -> Outcome {
    let mut all = Outcome::ok(0);
    for number in 0..blocks.max(1) {
        let outcome = block(number);
        if outcome.as_fault().is_some() {
            return outcome;
        }
        all.value += outcome.value;
    }
    all
}

/// The calling thread, as a kernel of one lane, on a PE of this process.
pub struct Native {
    words: StateWords,
    world: Arc<dyn World>,
    /// Dropped last: everything above points into it.
    pe: Arc<Pe>,
}

impl Native {
    /// Kernels on `pe`, by the clock `world`.
    ///
    /// # Panics
    /// Never: host and kernels are one build.
    pub fn new(pe: Arc<Pe>, world: Arc<dyn World>) -> Self {
        // SAFETY: the state and its tables are mapped while `pe` lives, which this holds and drops last.
        let words = unsafe { StateWords::new(pe.host_state(), world.clone()) }.expect("one build");
        Self { words, world, pe }
    }

    /// Device code on this PE.
    pub fn device(&self) -> Device<'_, Host<'_>> {
        // SAFETY: uploaded by `Pe::start`, mapped while `self.pe` lives, and nobody writes the root.
        unsafe { Device::attach(self.pe.state(), Host::new(&*self.world)) }.expect("one build")
    }
}

impl Runner for Native {
    fn rank(&self) -> u32 {
        self.words.root().my_pe
    }
    fn ranks(&self) -> u32 {
        self.words.root().pe_count
    }
    fn heap_bytes(&self) -> u64 {
        self.pe.heap().bytes
    }
    fn address(&self, at: u64) -> u64 {
        self.pe.heap().address + at
    }
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome {
        in_turn(call, |part| stage.run(self.device(), Solo, part, call))
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        if fault.peer == self.rank() {
            return None;
        }
        let place = Place { peer: fault.peer, channel: fault.channel, slot: fault.slot };
        Some(PathName::of(&self.words.read_row(place), fault.at.0))
    }
    fn agreement(&self) -> Option<Agreement> {
        Some(Agreement::of(&self.pe))
    }
}
