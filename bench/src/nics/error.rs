//! Why a run has no NICs.

use crate::job::JobError;
use shunt::machine::NoMachine;
use shunt::ports::NoPorts;

/// Why there are no NICs for a run.
#[derive(Debug, thiserror::Error)]
pub enum NoNics {
    /// The other processes' cannot be reached.
    #[error(transparent)]
    Job(#[from] JobError),
    /// This machine lacks what was asked for.
    #[error("--nic mlx5: {0}")]
    Machine(#[from] NoMachine),
    /// They do not fail as asked.
    #[error("{0}")]
    Fault(String),
    /// One of this process's cannot be opened.
    #[error("{0}")]
    Open(String),
}

impl NoNics {
    /// 2 where what was typed cannot be honoured here, 3 where no path can be made now, 1 where bring-up failed.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Machine(NoMachine::Ports(NoPorts::TooFew { down: true, .. })) => 3,
            Self::Machine(_) | Self::Fault(_) => 2,
            Self::Job(_) | Self::Open(_) => 1,
        }
    }
}
