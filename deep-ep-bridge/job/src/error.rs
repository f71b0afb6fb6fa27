//! Why there is no job.

use shunt::machine::NoMachine;
use shunt_host::connect::tcp::JoinError;
use shunt_host::error::BootstrapError;

/// Why there is no job.
#[derive(Debug, thiserror::Error)]
pub enum NoJob {
    /// The ranks did not come up.
    #[error("the ranks did not come up: {0}")]
    Ranks(#[from] shunt::Error),
    /// What carries the packets is not there.
    #[error("NICs: {0}")]
    Machine(#[from] NoMachine),
    /// Queues cannot lie where they were asked for.
    #[error(transparent)]
    Queues(#[from] shunt::queues::NoQueues),
    /// The other processes were not reached.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The other processes did not answer.
    #[error(transparent)]
    Exchange(#[from] BootstrapError),
    /// The soft NICs of the other processes cannot be reached.
    #[error("soft fabric {name}: {why}")]
    Fabric {
        /// Its name.
        name: String,
        /// The system's word.
        why: String,
    },
    /// Ranks were started with options that do not go together.
    #[error("rank {rank}: expected what rank 0 has ({ours}), got {theirs}; give all ranks the same")]
    Disagree {
        /// Who differs.
        rank: u32,
        /// What it has.
        theirs: String,
        /// What rank 0 has.
        ours: String,
    },
    /// Ranks of a node do not reach each other's memory.
    #[error("ranks of a node: {0}")]
    Node(String),
}
