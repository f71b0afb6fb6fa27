//! Why there is no node, and why a call failed.

use shunt::NoNic;
use shunt::host::connect::tcp::JoinError;
use shunt::host::error::{BootstrapError, GpuError, NicError};
use shunt::host::job::JobError;
use shunt::machine::NoMachine;
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_fabric::error::FabricError;
use thiserror::Error;

/// Why there is no node.
#[derive(Debug, Error)]
pub enum NoNode {
    /// What was asked for does not go together.
    #[error("{0}")]
    Refused(String),
    /// What carries the packets.
    #[error(transparent)]
    Machine(#[from] NoMachine),
    /// A NIC that cannot be opened.
    #[error(transparent)]
    Nic(#[from] NoNic),
    /// A NIC that refuses a command.
    #[error(transparent)]
    Command(#[from] NicError),
    /// libfabric, or a provider of it.
    #[error(transparent)]
    Libfabric(#[from] FabricError),
    /// The environment names no job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The others were not reached.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The exchange with the others.
    #[error(transparent)]
    Exchange(#[from] BootstrapError),
    /// Soft NICs of the processes of this machine.
    #[error("fabric {name}: {why}")]
    Fabric {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Another end of the job has more rails, or fewer. All ends find it at once, before a lane is made.
    #[error("lanes to end {end}: expected {want} rails as at end {me}, got {met}; give every end as many")]
    Rails {
        /// The other end.
        end: u32,
        /// This one.
        me: u32,
        /// Rails of this end.
        want: usize,
        /// Rails of the other.
        met: usize,
    },
    /// Another end of the job has ended before lanes to it were open.
    #[error("lanes to end {end}: expected {want}, got an end that has left: its own error says why")]
    Gone {
        /// The other end.
        end: u32,
        /// Lanes that were to open.
        want: u32,
    },
    /// A lane that did not open.
    #[error("lanes to end {end}: expected {want} within {seconds} s, got {met}")]
    Lanes {
        /// The other end.
        end: u32,
        /// Lanes that were to open.
        want: u32,
        /// How long it was waited.
        seconds: u64,
        /// Lanes that did.
        met: usize,
    },
}

/// Why a call failed.
#[derive(Debug, Error)]
pub enum CallError {
    /// The engine refused it. Nothing was posted.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// Memory that cannot be registered.
    #[error(transparent)]
    Memory(#[from] GpuError),
    /// A provider of libfabric that does not take it.
    #[error(transparent)]
    Libfabric(#[from] FabricError),
    /// A NIC that does not take it.
    #[error(transparent)]
    Nic(#[from] NicError),
    /// The exchange with the others.
    #[error(transparent)]
    Exchange(#[from] BootstrapError),
    /// A node that was to be connected.
    #[error("{at}: expected a node that answers, got none: {why}")]
    NotConnected {
        /// Where.
        at: String,
        /// What became of it.
        why: String,
    },
    /// The engine's thread has ended.
    #[error("the engine is closed")]
    Closed,
}
