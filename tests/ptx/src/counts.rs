//! What was executed: the label of these figures is "PTX machine".

use crate::code::{Operation, Scope, Space};

/// Whose memory a word of a PE's state lies in: channels, rings, completions, tables. Heaps and what kernels are given
/// are neither's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Memory {
    /// The host's.
    Host,
    /// The GPU's.
    Gpu,
}

/// Accesses to one memory, each once for all lanes that are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Loads: their thread waits for each.
    pub loads: u64,
    /// Read-modify-writes: likewise.
    pub atomics: u64,
    /// Stores: posted.
    pub stores: u64,
    /// Pieces of 32 bytes that these touched.
    pub sectors: u64,
}

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
    /// Accesses to words of states in memory of the host.
    pub host: Accesses,
    /// The same in memory of the GPU.
    pub gpu: Accesses,
    /// Sectors of the instruction that is being issued, and in which memory they lie, if in that of a state.
    touched: Vec<(u64, Option<Memory>)>,
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

    pub(crate) fn touch(&mut self, at: u64, memory: Option<Memory>) {
        self.touched.push((at / 32, memory));
    }

    pub(crate) fn end_of_issue(&mut self, operation: &Operation) {
        self.touched.sort_unstable();
        self.touched.dedup();
        // Those of read-modify-writes are not among the sectors of all, as ever.
        let counted = !matches!(operation, Operation::Atomic { .. });
        self.sectors += if counted { self.touched.len() as u64 } else { 0 };
        for (memory, of) in [(Memory::Host, &mut self.host), (Memory::Gpu, &mut self.gpu)] {
            let sectors = self.touched.iter().filter(|(_, touched)| *touched == Some(memory)).count() as u64;
            of.sectors += sectors;
            let once = u64::from(sectors > 0);
            match operation {
                Operation::Load { .. } => of.loads += once,
                Operation::Store { .. } => of.stores += once,
                Operation::Atomic { .. } => of.atomics += once,
                _ => {}
            }
        }
        self.touched.clear();
    }

    pub(crate) fn fence(&mut self, scope: Scope) {
        match scope {
            Scope::System => self.fences_system += 1,
            _ => self.fences_gpu += 1,
        }
    }

    /// Each field by a rule of two.
    fn with(&mut self, other: &Self, rule: fn(u64, u64) -> u64) {
        let (host, gpu) = ((&mut self.host, other.host), (&mut self.gpu, other.gpu));
        for (own, theirs) in [host, gpu] {
            own.loads = rule(own.loads, theirs.loads);
            own.atomics = rule(own.atomics, theirs.atomics);
            own.stores = rule(own.stores, theirs.stores);
            own.sectors = rule(own.sectors, theirs.sectors);
        }
        let fields: [(&mut u64, u64); 10] = [
            (&mut self.instructions, other.instructions),
            (&mut self.issued, other.issued),
            (&mut self.loads, other.loads),
            (&mut self.stores, other.stores),
            (&mut self.atomics, other.atomics),
            (&mut self.sectors, other.sectors),
            (&mut self.doorbells, other.doorbells),
            (&mut self.fences_gpu, other.fences_gpu),
            (&mut self.fences_system, other.fences_system),
            (&mut self.barriers, other.barriers),
        ];
        fields.into_iter().for_each(|(own, theirs)| *own = rule(*own, theirs));
    }

    /// Adds those of another block.
    pub fn add(&mut self, other: &Self) {
        self.with(other, |own, theirs| own + theirs);
    }

    /// What came since.
    pub fn less(mut self, before: &Self) -> Self {
        self.with(before, |own, theirs| own - theirs);
        self
    }
}
