//! What one end of a path can say of its own half.

/// What one side can say of its own half, once fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SideTruth {
    /// In ERR, flushed, read twice alike: this many messages of the other side were executed, modulo 2^24.
    Exact {
        /// `rmsn`.
        executed: u32,
        /// The PSN this side expects next: the other side knows which are possible.
        next_rcv_psn: u32,
    },
    /// In ERR and flushed, but this NIC's count is not to be trusted (start-up proof, or a failed cross-check).
    Fenced,
    /// In ERR, but its NIC does not flush: what it accepted before may still be on its way into memory.
    Unflushed,
    /// In ERR and flushed, but the agent that saw it go is gone: what was executed is not known any more (rule 18).
    Unknown,
    /// The NIC does not answer commands: nothing is proved.
    Dead,
    /// As [`SideTruth::Dead`], but this side's owner sent nothing through this half and never will: nothing comes to
    /// the other one. Told of a half, never known of one's own.
    Unused,
}

impl SideTruth {
    /// True if the half's NIC answered commands for it.
    pub const fn is_of_the_nic(self) -> bool {
        matches!(self, Self::Exact { .. } | Self::Fenced | Self::Unflushed)
    }
}
