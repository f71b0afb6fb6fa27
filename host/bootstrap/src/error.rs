//! What can go wrong in an exchange.

use thiserror::Error;

/// What went wrong while all PEs exchanged their cards.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BootstrapError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {detail}")]
    Random {
        /// The system's word.
        detail: String,
    },
    /// Some ranks did not arrive.
    #[error("all-gather {round} waited {:.1} s; rank(s) {missing:?} of {size} did not arrive", *waited_ns as f64 / 1e9)]
    Missing {
        /// Number of the all-gather.
        round: u64,
        /// Ranks that did not arrive.
        missing: Vec<u32>,
        /// Ranks in the group.
        size: u32,
        /// How long the caller waited.
        waited_ns: u64,
    },
    /// A rank left before it gave its part, or rank 0, through whom all parts go.
    #[error("all-gather {round} lost rank {rank}: {reason}")]
    Lost {
        /// Number of the all-gather.
        round: u64,
        /// Rank.
        rank: u32,
        /// How it left.
        reason: String,
    },
    /// This process has left the job.
    #[error("all-gather {round} ended: this process has left the job")]
    Closed {
        /// Number of the all-gather.
        round: u64,
    },
    /// Too many bytes.
    #[error("all-gather {round}: expected at most {want} bytes, got {met}")]
    TooLong {
        /// Number of the all-gather.
        round: u64,
        /// Bytes given.
        met: usize,
        /// Bytes at most.
        want: usize,
    },
    /// Too few rows for an exchange, or too many.
    #[error("exchange: expected {size} rows, one for each rank, got {met}")]
    Rows {
        /// Rows given.
        met: usize,
        /// Ranks in the group.
        size: u32,
    },
    /// A rank arrived twice.
    #[error("rank {rank} arrived twice in all-gather {round}; each rank belongs to one caller")]
    Twice {
        /// Number of the all-gather.
        round: u64,
        /// Rank.
        rank: u32,
    },
}
