//! Memory, registered on every rail by the thread that asks for it: many pages, or a NIC that is silent, take long.

use super::rails::RailKey;
use crate::region::{Mr, Rights};
use shunt_mlx5::error::NicError;
use shunt_mlx5::memory::OwnedSpan;
use shunt_mlx5::nic::mkey::Access;
use shunt_mlx5::rail::Rail;
use std::sync::Arc;

/// Registers memory on the rails of a domain.
pub struct Registrar(Vec<Arc<Rail>>);

/// A region that no domain keeps yet. Dropped, it is taken back.
pub struct Registered {
    region: Mr,
    keys: Vec<RailKey>,
    /// Dropped after the keys, which stand in their protection domains.
    _rails: Vec<Arc<Rail>>,
}

impl Registrar {
    pub(super) fn new(rails: Vec<Arc<Rail>>) -> Self {
        Self(rails)
    }

    /// Registers memory on every rail, for [`RcDomain::keep`](super::RcDomain::keep).
    ///
    /// # Errors
    /// As the first NIC answers that refuses.
    pub fn register(self, memory: &Arc<OwnedSpan>, rights: Rights) -> Result<Registered, NicError> {
        let access = if rights == Rights::Local { Access::Local } else { Access::Remote };
        let register = |rail: &Arc<Rail>| RailKey::register(rail, memory, access);
        let keys = self.0.iter().map(register).collect::<Result<Vec<_>, _>>()?;
        let (span, numbers) = (memory.span(), keys.iter().map(RailKey::key_be).collect::<Vec<_>>());
        let region = Mr::new(span.address, span.bytes, &numbers).map_err(|error| NicError::Unfit {
            nic: self.0.first().map_or_else(String::new, |rail| rail.name.clone()),
            what: "a region",
            met: error.to_string(),
            want: "memory and rails that transfers can use",
            cure: "register 1 byte or more on 1 to 64 rails",
        })?;
        Ok(Registered { region, keys, _rails: self.0 })
    }
}

impl Registered {
    pub(super) fn into_parts(self) -> (Mr, Vec<RailKey>) {
        (self.region, self.keys)
    }
}
