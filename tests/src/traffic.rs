//! What a run's streams consist of.

/// A kernel that waits for a word asks this often whether its channel still lives.
pub const SLICE_NS: u64 = 10_000_000;

/// What a stream's kernels do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Messages of each stream.
    pub messages: u64,
    /// Slots of each stream.
    pub slots: u64,
    /// Bytes of a message.
    pub slot_bytes: u64,
    /// Puts a message is cut into; the last one carries the signal.
    pub puts: u64,
    /// Kind of their signals: 1 an absolute value, 2 adds of a single writer, 3 adds. Credits are kind 1.
    pub signals: u32,
    /// A get with every so many messages; 0: none.
    pub gets: u64,
    /// A fetching atomic with every so many messages; 0: none.
    pub fetches: u64,
    /// Pause of the sender between messages.
    pub pace_ns: u64,
    /// Messages the receiver keeps before it gives their credit back; below `slots`.
    pub credit_lag: u64,
    /// Wait for `quiet` before a source slot is filled again. If not, credit alone allows it (invariant 5).
    pub quiet_before_reuse: bool,
    /// Deadline of each single wait.
    pub wait_ns: u64,
    /// A kernel that waits for a word asks this often whether its channel still lives; four suspect times at least.
    pub slice_ns: u64,
    /// How long after its counterpart gave up a kernel goes on waiting: longer than what is under way takes to arrive.
    pub abandoned_ns: u64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            messages: 200,
            slots: 8,
            slot_bytes: 256,
            puts: 2,
            signals: 1,
            gets: 0,
            fetches: 0,
            pace_ns: 0,
            credit_lag: 2,
            quiet_before_reuse: false,
            wait_ns: 10_000_000_000,
            slice_ns: SLICE_NS,
            abandoned_ns: 500_000_000,
        }
    }
}
