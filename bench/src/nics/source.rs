//! Where a run's NICs come from: found once, before anybody is kept waiting, and started for each phase of a run.

use super::soft::SoftNics;
use super::{Medium, Nics};
use crate::job::{Job, JobError};
use crate::options::{NicKind, Options};

/// Why there are no NICs for a run.
#[derive(Debug, thiserror::Error)]
pub enum NoNics {
    /// The other processes' cannot be reached.
    #[error(transparent)]
    Job(#[from] JobError),
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
            Self::Fault(_) => 2,
            Self::Job(_) | Self::Open(_) => 1,
        }
    }
}

/// What carries the packets of a run.
#[derive(Debug)]
pub enum Source {
    /// Soft NICs of this process.
    Soft,
}

impl Source {
    /// Looks for what the command line asks for. Starts nothing.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(options: &Options) -> Result<Self, NoNics> {
        match options.nic {
            NicKind::Soft | NicKind::Mlx5 => Ok(Self::Soft),
        }
    }

    /// Whether PEs of this process have ports in common.
    pub fn shared(&self) -> bool {
        false
    }

    /// What a rail is, behind the number of rails.
    pub fn describe(&self, options: &Options) -> String {
        format!("at {} Gb/s", self.rail_gbps(options))
    }

    /// What figures are labelled with.
    pub fn medium(&self) -> Medium {
        match self {
            Self::Soft => Medium::Soft,
        }
    }

    /// What a rail carries, in Gb/s: of the slowest.
    pub fn rail_gbps(&self, options: &Options) -> f64 {
        match self {
            Self::Soft => options.soft_gbps(),
        }
    }

    /// NICs for the PEs that live here, for one phase.
    ///
    /// # Errors
    /// They cannot be had, or the others cannot be reached.
    pub fn start(&self, options: &Options, job: &dyn Job) -> Result<Box<dyn Nics>, NoNics> {
        match self {
            Self::Soft => Ok(Box::new(SoftNics::start(options, job)?)),
        }
    }
}
