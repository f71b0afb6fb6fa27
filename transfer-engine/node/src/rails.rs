//! The rails of an end, whatever carries them, and where another end finds them.

use crate::carriers::Faults;
use crate::error::CallError;
use crate::simulated::OverSim;
use shunt::host::gpu::OwnedSpan;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::domain::{Batch, Domain, Event};
use shunt_transfer_engine::ids::{LaneId, PeerId};
use shunt_transfer_engine::rc::{
    PeerAddress, RcDomain, Registered, Registrar, address_from_bytes, address_to_bytes,
};
use shunt_transfer_engine::region::{Mr, Rights};
use shunt_transfer_fabric::{FabricAddress, FabricDomain};
use std::sync::Arc;

/// Rails of libfabric, and the faults that are planned for them.
pub struct OverFabric {
    domain: FabricDomain,
    faults: Arc<Faults>,
    /// As which end they fail.
    end: u32,
}

/// The rails of an end.
pub enum Rails {
    /// Queue pairs of NICs.
    Rc(Box<RcDomain>),
    /// Endpoints of libfabric.
    Fabric(Box<OverFabric>),
    /// Of a simulated network.
    Sim(Box<OverSim>),
}

impl Rails {
    pub(crate) fn fabric(domain: FabricDomain, faults: Arc<Faults>, end: u32) -> Self {
        Self::Fabric(Box::new(OverFabric { domain, faults, end }))
    }

    /// Begins to connect to an end that was not there before; its number. None if it has rails of another kind.
    pub fn join(&mut self, address: Address, leads: bool) -> Option<PeerId> {
        match (self, address) {
            (Self::Rc(domain), Address::Rc(address)) => Some(domain.join(address, leads)),
            (Self::Fabric(over), Address::Fabric(address)) => Some(over.domain.join(&address, leads)),
            _ => None,
        }
    }

    /// What registers memory on any thread, for [`Rails::keep`]; nothing where [`Rails::register`] does.
    pub fn registrar(&self) -> Option<Registrar> {
        match self {
            Self::Rc(domain) => Some(domain.regions.registrar()),
            Self::Fabric(_) | Self::Sim(_) => None,
        }
    }

    /// Keeps what was registered; nothing where it is not of such rails.
    pub fn keep(&mut self, registered: Registered) -> Option<Mr> {
        match self {
            Self::Rc(domain) => Some(domain.regions.keep(registered)),
            Self::Fabric(_) | Self::Sim(_) => None,
        }
    }

    /// Lets go of a region, whose keys are to be taken back on any thread; nothing where [`Rails::deregister`] does
    /// it, or of one that is not registered.
    pub fn lend(&mut self, region: &Mr) -> Option<Registered> {
        match self {
            Self::Rc(domain) => domain.regions.lend(region),
            Self::Fabric(_) | Self::Sim(_) => None,
        }
    }

    /// Registers memory on every rail.
    ///
    /// # Errors
    /// As the first rail answers that refuses.
    pub fn register(&mut self, memory: &Arc<OwnedSpan>, rights: Rights) -> Result<Mr, CallError> {
        match self {
            Self::Rc(domain) => Ok(domain.regions.register(memory, rights)?),
            Self::Fabric(over) => Ok(over.domain.register(memory, rights)?),
            Self::Sim(over) => Ok(over.0.register(memory)?),
        }
    }

    /// Has every rail take a region's key back. [`Rails::deregistered`] says when that is done.
    ///
    /// # Errors
    /// As the first NIC answers that refuses: there the region may still be written.
    pub fn deregister(&mut self, region: &Mr) -> Result<(), CallError> {
        match self {
            // What was registered was lent.
            Self::Rc(_) => Ok(()),
            Self::Fabric(over) => {
                over.domain.deregister(region);
                Ok(())
            }
            Self::Sim(over) => {
                over.0.deregister(region);
                Ok(())
            }
        }
    }

    /// True once nothing of any peer lands in a region whose keys were taken back. The engine is stepped meanwhile.
    ///
    /// # Errors
    /// A rail cannot prove it: there the region may still be written.
    pub fn deregistered(&mut self, region: &Mr) -> Result<bool, CallError> {
        match self {
            Self::Rc(_) | Self::Sim(_) => Ok(true),
            Self::Fabric(over) => Ok(over.domain.deregistered(region)?),
        }
    }

    /// True once the link to a peer says that it has ended. What came before is told by the next poll.
    pub fn has_left(&self, peer: PeerId) -> bool {
        match self {
            Self::Rc(domain) => domain.has_left(peer),
            Self::Fabric(over) => over.domain.has_left(peer),
            Self::Sim(over) => over.0.has_ended(peer),
        }
    }

    /// What went wrong behind the scenes since the last call: for logs.
    pub fn take_remarks(&mut self) -> Vec<String> {
        match self {
            Self::Rc(domain) => domain.take_remarks(),
            Self::Fabric(over) => over.domain.take_remarks(),
            Self::Sim(_) => Vec::new(),
        }
    }

    fn domain(&mut self) -> &mut dyn Domain {
        match self {
            Self::Rc(domain) => &mut **domain,
            Self::Fabric(over) => &mut over.domain,
            Self::Sim(over) => &mut **over,
        }
    }
}

impl Domain for Rails {
    fn post(&mut self, now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        self.domain().post(now, lane, batch);
    }

    fn close(&mut self, now: Nanos, lane: LaneId) {
        self.domain().close(now, lane);
    }

    fn leave(&mut self, now: Nanos, peer: PeerId) {
        self.domain().leave(now, peer);
    }

    fn reached(&mut self, peer: PeerId, imm: u32) {
        self.domain().reached(peer, imm);
    }

    fn poll(&mut self, now: Nanos, events: &mut Vec<Event>) {
        if let Self::Fabric(over) = self {
            let OverFabric { domain, faults, end } = &mut **over;
            for change in faults.take_due(*end, now.get()) {
                if domain.set_rail(now, change.rail(), change.up) {
                    faults.struck(change);
                }
            }
        }
        self.domain().poll(now, events);
    }
}

/// Where an end is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Its queue pairs are made by agents.
    Rc(PeerAddress),
    /// Its endpoints are libfabric's.
    Fabric(FabricAddress),
}

const RC: u8 = 0;
const FABRIC: u8 = 1;

impl Address {
    /// Its rails.
    pub fn rails(&self) -> usize {
        match self {
            Self::Rc(address) => address.rails.len(),
            Self::Fabric(address) => address.rails(),
        }
    }

    /// As it is sent.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Rc(address) => [&[RC][..], &address_to_bytes(address)].concat(),
            Self::Fabric(address) => [&[FABRIC][..], &address.to_bytes()].concat(),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none, in words.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let unknown = || "an address: expected one of this version, got another".to_owned();
        match bytes.split_first() {
            Some((&RC, rest)) => address_from_bytes(rest).map(Self::Rc).map_err(|error| error.to_string()),
            Some((&FABRIC, rest)) => FabricAddress::from_bytes(rest).map(Self::Fabric).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }
}
