//! What an engine is made of, and what it is told beside.

use super::destroy_queue::DestroyQueue;
use super::endpoint::Half;
use super::links::Links;
use super::nic_dispatch::Nics;
use super::path::Timing;
use super::port_table::PortTable;
use crate::nanos::Nanos;
use shunt_device::platform::host::World;
use shunt_mlx5::rail::Rail;
use std::sync::Arc;

/// What an engine is made of.
pub struct Parts {
    /// The clock.
    pub world: Arc<dyn World>,
    /// Rails of this process.
    pub rails: Vec<Arc<Rail>>,
    /// What is known of ports.
    pub ports: PortTable,
    /// The links to other engines.
    pub links: Links,
    /// The workers of its NICs.
    pub nics: Nics,
    /// Endpoints that are not known to be gone.
    pub destroys: DestroyQueue<Half>,
    /// How patient machines are.
    pub timing: Timing,
    /// How long a NIC may owe an answer.
    pub nic_patience: Nanos,
    /// Ends, this one among them.
    pub peers: usize,
}

/// What an owner knows of a path's neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// The owner has another path that is ready: one that is to be left can be.
    pub standby: bool,
    /// A path whose probes are not answered is to make room for another pair of rails.
    pub gives_way: bool,
}
