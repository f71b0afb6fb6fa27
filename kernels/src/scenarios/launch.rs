//! What is launched, and where.

use crate::Call;

/// Bytes of each PE's heap that scenarios use and look at.
pub const HEAP_BYTES: usize = 96 << 10;
/// PEs of each scenario.
pub const PES: u32 = 3;
/// Channels to each peer that scenarios use.
pub const CHANNELS: u32 = 4;

/// Threads that act as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// One thread of a block.
    Thread,
    /// One warp of a block.
    Warp,
    /// All threads of a block.
    Block,
}

impl Group {
    /// How the entry points' names end.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Warp => "warp",
            Self::Block => "block",
        }
    }

    /// Warps that have outcomes in a low-latency phase of MoE, of a block of so many threads.
    pub const fn warps(self, threads: u32) -> u32 {
        match self {
            Self::Thread | Self::Warp => 1,
            Self::Block => threads.div_ceil(32),
        }
    }

    /// Threads that act as one, where a block has two warps.
    pub const fn threads(self) -> u32 {
        match self {
            Self::Thread => 1,
            Self::Warp => 32,
            Self::Block => 64,
        }
    }
}

/// A kernel, launched on one PE.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Its name.
    pub kernel: &'static str,
    /// Where it runs.
    pub pe: u32,
    /// Blocks.
    pub blocks: u32,
    /// Who acts in each block.
    pub group: Group,
    /// What it is told.
    pub call: Call,
}

impl Launch {
    /// The entry point's name.
    pub fn entry(&self) -> String {
        format!("shunt_kernel_{}_{}", self.kernel, self.group.suffix())
    }
}

/// Launches in steps: those of a step run at the same time, and all have ended before the next step begins.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is about.
    pub name: String,
    /// Its steps.
    pub steps: Vec<Vec<Launch>>,
    /// The kind of fault that every launch of the last step must end with; 0: none.
    pub status: u32,
}
