//! Memory, registered on every rail by the thread that asks for it: many pages, or a NIC that is silent, take long.

use super::rails::RailKey;
use crate::region::{Mr, Rights};
use shunt_mlx5::error::NicError;
use shunt_mlx5::memory::OwnedSpan;
use shunt_mlx5::nic::mkey::Access;
use shunt_mlx5::rail::Rail;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long NICs have to let go of memory when a domain ends, and the pause between two tries.
const LETS_GO: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(10);

/// Memory that is registered on the rails of a domain: until it is lent and taken back, or while this lives.
pub struct Regions {
    keys: BTreeMap<Arc<[u32]>, Vec<RailKey>>,
    /// Dropped last.
    rails: Vec<Arc<Rail>>,
}

impl Regions {
    pub(super) const fn new(rails: Vec<Arc<Rail>>) -> Self {
        Self { keys: BTreeMap::new(), rails }
    }

    /// What registers memory, on any thread.
    pub fn registrar(&self) -> Registrar {
        Registrar(self.rails.clone())
    }

    /// Registers memory on every rail, on this thread, and keeps it.
    ///
    /// # Errors
    /// As the first NIC answers that refuses.
    pub fn register(&mut self, memory: &Arc<OwnedSpan>, rights: Rights) -> Result<Mr, NicError> {
        let registered = self.registrar().register(memory, rights)?;
        Ok(self.keep(registered))
    }

    /// Keeps what was registered.
    pub fn keep(&mut self, registered: Registered) -> Mr {
        let Registered { region, keys, .. } = registered;
        self.keys.insert(region.keys().clone(), keys);
        region
    }

    /// Lets go of a region, whose keys any thread may take back; nothing of one that is not registered.
    pub fn lend(&mut self, region: &Mr) -> Option<Registered> {
        let keys = self.keys.remove(region.keys())?;
        Some(Registered { region: region.clone(), keys, _rails: self.rails.clone() })
    }
}

impl Drop for Regions {
    /// A NIC that does not answer just now is asked again for a while: memory that it did not let go of stays
    /// allocated.
    fn drop(&mut self) {
        let until = Instant::now() + LETS_GO;
        let refused = |keys: &mut Vec<RailKey>| keys.iter_mut().any(|key| key.take_back().is_err());
        while self.keys.values_mut().any(refused) && Instant::now() < until {
            std::thread::sleep(AGAIN);
        }
    }
}

/// Registers memory on the rails of a domain.
pub struct Registrar(Vec<Arc<Rail>>);

/// A region that no domain keeps, not yet or no more. Dropped, it is taken back.
pub struct Registered {
    region: Mr,
    keys: Vec<RailKey>,
    /// Dropped after the keys, which stand in their protection domains.
    _rails: Vec<Arc<Rail>>,
}

impl Registrar {
    /// Registers memory on every rail, for [`Regions::keep`].
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
    /// Has every NIC take its key back: also those behind one that refuses. Once that is done nothing of any peer
    /// lands in the region or reads it, whether the peer answers or not; what still comes is refused, and ends at its
    /// sender with [`Denied`](crate::error::TransferError::Denied). It may be asked again.
    ///
    /// # Errors
    /// As the first NIC answers that refuses: there the region may still be written.
    pub fn take_back(&mut self) -> Result<(), NicError> {
        let all: Vec<_> = self.keys.iter_mut().map(RailKey::take_back).collect();
        all.into_iter().collect()
    }
}
