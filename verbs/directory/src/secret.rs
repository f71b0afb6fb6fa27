//! The secret of what meets at a store, by this process's environment.

use shunt_bootstrap::job;
use shunt_bootstrap::tcp::{RootAddress, Secret};
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

fn lookup(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn is_there(place: &dyn Display) -> io::Result<()> {
    let found = lookup("SHUNT_SECRET").or_else(|| lookup("SHUNT_SECRET_FILE"));
    let text = || {
        format!(
            "{place}: expected a secret, since other machines reach it, got none; set SHUNT_SECRET or SHUNT_SECRET_FILE"
        )
    };
    found.map(|_| ()).ok_or_else(|| io::Error::other(text()))
}

/// Reads it, or makes it where the address is this machine's alone.
///
/// # Errors
/// None is set and other machines reach the address; two are; what is set is none.
pub fn of(address: &RootAddress) -> io::Result<Secret> {
    if !address.is_loopback() {
        is_there(address)?;
    }
    let source = job::secret_source(address, &lookup).map_err(io::Error::other)?;
    source.load().map_err(io::Error::other)
}

/// Reads it where there is no address.
///
/// # Errors
/// None is set; two are; what is set is none.
pub fn set() -> io::Result<Secret> {
    is_there(&"a store in a folder")?;
    of(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
}
