//! Where a run's NICs come from: found once, before anybody is kept waiting, and started for each phase of a run.

use super::error::NoNics;
use super::mlx5::Mlx5;
use super::soft::SoftNics;
use super::{Medium, Nics};
use crate::job::Job;
use crate::options::{NicKind, Options};

/// What carries the packets of a run.
#[derive(Debug)]
pub enum Source {
    /// Soft NICs of this process.
    Soft,
    /// Devices of libibverbs.
    Mlx5(Box<Mlx5>),
}

impl Source {
    /// Looks for what the command line asks for. Starts nothing.
    ///
    /// # Errors
    /// It is not there.
    pub fn find(options: &Options) -> Result<Self, NoNics> {
        match options.nic {
            NicKind::Soft => Ok(Self::Soft),
            NicKind::Mlx5 => Ok(Self::Mlx5(Box::new(Mlx5::find(options)?))),
        }
    }

    /// Whether PEs of this process have ports in common.
    pub fn shared(&self) -> bool {
        match self {
            Self::Soft => false,
            Self::Mlx5(mlx5) => mlx5.shared(),
        }
    }

    /// What a rail is, behind the number of rails.
    pub fn describe(&self, options: &Options) -> String {
        match self {
            Self::Soft => format!("at {} Gb/s", self.rail_gbps(options)),
            Self::Mlx5(mlx5) => format!("through libibverbs, {}", mlx5.medium().name()),
        }
    }

    /// What figures are labelled with.
    pub fn medium(&self) -> Medium {
        match self {
            Self::Soft => Medium::Soft,
            Self::Mlx5(mlx5) => mlx5.medium(),
        }
    }

    /// What a rail carries, in Gb/s: of the slowest.
    pub fn rail_gbps(&self, options: &Options) -> f64 {
        match self {
            Self::Soft => options.soft_gbps(),
            Self::Mlx5(mlx5) => mlx5.rail_gbps(),
        }
    }

    /// NICs for the PEs that live here, for one phase.
    ///
    /// # Errors
    /// They cannot be had, or the others cannot be reached.
    pub fn start(&self, options: &Options, job: &dyn Job) -> Result<Box<dyn Nics>, NoNics> {
        Ok(match self {
            Self::Soft => Box::new(SoftNics::start(options, job)?),
            Self::Mlx5(mlx5) => Box::new(mlx5.start(options, job)?),
        })
    }
}
