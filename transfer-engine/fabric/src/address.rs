//! Where an end is, as it is sent to others. Pure.

use crate::fabric::Rail;
use serde::{Deserialize, Serialize};
use shunt_transfer_engine::region::RAILS_MAX;

const VERSION: u8 = 2;

/// What another end must know to connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricAddress {
    version: u8,
    process: u32,
    /// Provider of each rail.
    providers: Vec<String>,
}

impl FabricAddress {
    /// Of an end with these rails.
    pub fn new(rails: &[Rail]) -> Self {
        let providers = rails.iter().map(|rail| rail.limits().provider.clone()).collect();
        Self { version: VERSION, process: std::process::id(), providers }
    }

    /// How many paths the two ends have: rails of the same number, as long as their providers are the same. There is
    /// none over shared memory within a process: libfabric then uses the peer's endpoint itself, closed or not.
    pub(crate) fn paths(&self, other: &Self) -> u32 {
        let fits = |a: &str, b: &str| a == b && (a != "shm" || self.process != other.process);
        self.providers.iter().zip(&other.providers).take_while(|(a, b)| fits(a, b)).count() as u32
    }

    /// Its rails.
    pub fn rails(&self) -> usize {
        self.providers.len()
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads one; none if the bytes are not one of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (address, rest) = postcard::take_from_bytes::<Self>(bytes).ok()?;
        let fits = address.version == VERSION && address.providers.len() <= RAILS_MAX && rest.is_empty();
        fits.then_some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_whole_or_not_at_all() {
        let of = |process, providers: &[&str]| {
            let providers = providers.iter().map(|name| (*name).to_owned()).collect();
            FabricAddress { version: VERSION, process, providers }
        };
        let (address, other) = (of(1, &["tcp", "tcp", "shm"]), of(2, &["tcp", "tcp", "efa", "shm"]));
        assert_eq!(address.paths(&other), 2);
        assert_eq!((address.paths(&address), address.paths(&of(2, &["tcp", "tcp", "shm"]))), (2, 3));
        let bytes = address.to_bytes();
        assert_eq!(FabricAddress::from_bytes(&bytes), Some(address));
        (0..bytes.len()).for_each(|cut| assert_eq!(FabricAddress::from_bytes(&bytes[..cut]), None));
        assert_eq!(FabricAddress::from_bytes(&[&bytes[..], &[0]].concat()), None, "too long");
    }
}
