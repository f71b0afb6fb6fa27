//! What was executed: the label of these figures is "PTX machine".

use crate::code::{Operation, Scope, Space};

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions, of each thread.
    pub instructions: u64,
    /// Instructions, once for all lanes that are together.
    pub issued: u64,
    /// Loads of global memory, once for all lanes that are together.
    pub loads: u64,
    /// Stores to global memory, likewise.
    pub stores: u64,
    /// Read-modify-writes, likewise.
    pub atomics: u64,
    /// Pieces of 32 bytes that loads and stores touched.
    pub sectors: u64,
    /// Stores to a device's register.
    pub doorbells: u64,
    /// Fences of a thread, of GPU scope.
    pub fences_gpu: u64,
    /// Fences of a thread, of system scope.
    pub fences_system: u64,
    /// Barriers of a block, once for all.
    pub barriers: u64,
    /// Sectors of the instruction that is being issued.
    touched: Vec<u64>,
}

impl Counts {
    pub(crate) fn issue(&mut self, operation: &Operation) {
        self.issued += 1;
        match operation {
            Operation::Load { space: Space::Global | Space::Constants, .. } => self.loads += 1,
            Operation::Store { space: Space::Global, .. } => self.stores += 1,
            Operation::Store { space: Space::Mmio, .. } => self.doorbells += 1,
            Operation::Atomic { .. } => self.atomics += 1,
            _ => {}
        }
    }

    pub(crate) fn touch(&mut self, at: u64, _: bool) {
        self.touched.push(at / 32);
    }

    pub(crate) fn end_of_issue(&mut self) {
        self.touched.sort_unstable();
        self.touched.dedup();
        self.sectors += self.touched.len() as u64;
        self.touched.clear();
    }

    pub(crate) fn fence(&mut self, scope: Scope, _: bool) {
        match scope {
            Scope::System => self.fences_system += 1,
            _ => self.fences_gpu += 1,
        }
    }

    /// Adds those of another block.
    pub fn add(&mut self, other: &Self) {
        self.instructions += other.instructions;
        self.issued += other.issued;
        self.loads += other.loads;
        self.stores += other.stores;
        self.atomics += other.atomics;
        self.sectors += other.sectors;
        self.doorbells += other.doorbells;
        self.fences_gpu += other.fences_gpu;
        self.fences_system += other.fences_system;
        self.barriers += other.barriers;
    }
}
