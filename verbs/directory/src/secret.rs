//! The secret of what meets at an address, by this process's environment.

use shunt_bootstrap::job;
use shunt_bootstrap::tcp::{RootAddress, Secret};
use std::io;

/// Reads it, or makes it where the address is this machine's alone.
///
/// # Errors
/// None is set and other machines reach the address; two are; what is set is none.
pub fn of(address: &RootAddress) -> io::Result<Secret> {
    let lookup = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let source = job::secret_source(address, &lookup).map_err(io::Error::other)?;
    source.load().map_err(io::Error::other)
}
