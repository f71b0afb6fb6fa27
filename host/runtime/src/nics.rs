//! Where NICs come from.

use shunt_device::platform::host::World;
use shunt_host::devx::Devx;
use shunt_host::silence::Silence;
use std::sync::Arc;
use thiserror::Error;

/// A NIC that cannot be opened: which, and why not.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct NoNic(pub String);

/// NICs of the PEs of this process.
pub trait Nics: Send + Sync {
    /// The clock that they and their PEs share, and how to wait.
    fn clock(&self) -> Arc<dyn World>;

    /// Opens the rails of a PE, by rank.
    ///
    /// # Errors
    /// The first that cannot be opened.
    fn open(&self, pe: u32) -> Result<Vec<Arc<dyn Devx>>, NoNic>;

    /// How long their paths may be silent, where nothing is set.
    fn silence(&self) -> Silence;
}
