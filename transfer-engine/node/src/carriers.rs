//! What carries the packets of the ends of this process: NICs, or rails of libfabric.

use crate::error::NoNode;
use crate::simulated::OpenSim;
use shunt::OpenNics;
use shunt::device::platform::host::World;
use shunt::host::clock::RealClock;
use shunt::soft_nic::{FaultKind, RailAt};
use shunt_transfer_fabric::fabric::{Rail, Wanted, domains};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The provider of libfabric whose domains are NICs.
const NICS: &str = "efa";

/// What carries them.
pub enum Carriers {
    /// NICs: soft ones, or RDMA devices.
    Nics(OpenNics),
    /// Rails of libfabric.
    Fabric(OpenFabric),
    /// Rails of a simulated network.
    Sim(OpenSim),
}

impl Carriers {
    /// Their clock.
    pub fn clock(&self) -> Arc<dyn World> {
        match self {
            Self::Nics(nics) => nics.clock(),
            Self::Fabric(fabric) => fabric.clock.clone(),
            Self::Sim(sim) => sim.clock(),
        }
    }

    /// Whether software moves the packets: it has times of its own.
    pub fn are_soft(&self) -> bool {
        match self {
            Self::Nics(nics) => nics.are_soft(),
            Self::Fabric(fabric) => fabric.provider != NICS,
            Self::Sim(_) => true,
        }
    }

    /// What they are, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Nics(nics) => nics.describe(),
            Self::Fabric(fabric) => format!("rails of libfabric, provider {}", fabric.provider),
            Self::Sim(_) => "rails of a simulated network".to_owned(),
        }
    }

    /// What times are that were measured on them, in one phrase.
    pub fn time_label(&self) -> &'static str {
        match self {
            Self::Nics(nics) => nics.time_label(),
            Self::Fabric(fabric) => fabric.time_label(),
            Self::Sim(_) => "simulated network, wall time",
        }
    }

    /// Rails of an end; 0 if it does not live here.
    pub fn count(&self, end: u32) -> usize {
        match self {
            Self::Nics(nics) => nics.count(end),
            Self::Fabric(fabric) => fabric.count(end),
            Self::Sim(sim) => sim.count(end),
        }
    }

    /// Makes a rail fail now. Answers with the number of the fault in [`Carriers::hits`].
    ///
    /// # Errors
    /// There is no such rail here, or it does not fail like this.
    pub fn inject(&self, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        self.inject_in(0, at, kind)
    }

    /// The same, so many nanoseconds from now.
    ///
    /// # Errors
    /// As above.
    pub fn inject_in(&self, from_now_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        match self {
            Self::Nics(nics) => nics.inject_in(from_now_ns, at, kind),
            Self::Fabric(fabric) => fabric.inject_in(from_now_ns, at, kind),
            Self::Sim(sim) => sim.inject_in(from_now_ns, at, kind),
        }
    }

    /// Pieces of all ends that were executed after a younger one of their lane: a simulated network tells.
    pub fn reordered(&self) -> u64 {
        match self {
            Self::Nics(_) | Self::Fabric(_) => 0,
            Self::Sim(sim) => sim.reordered(),
        }
    }

    /// How often each fault has struck, in the order of injection.
    ///
    /// # Errors
    /// Who counts does not answer.
    pub fn hits(&self) -> Result<Vec<u64>, String> {
        match self {
            Self::Nics(nics) => nics.hits(),
            Self::Fabric(fabric) => Ok(fabric.faults.hits()),
            Self::Sim(sim) => Ok(sim.hits()),
        }
    }
}

/// Rails of a provider of libfabric. Each end opens its own.
pub struct OpenFabric {
    provider: String,
    /// The ends that live in this process.
    ends: Range<u32>,
    rails: u32,
    addresses: Vec<String>,
    clock: Arc<RealClock>,
    faults: Arc<Faults>,
}

impl OpenFabric {
    /// So many rails of a provider for each of these ends of this process, each at an address of this machine in turn,
    /// where there are some.
    pub(crate) fn new(provider: &str, ends: Range<u32>, rails: u32, addresses: &[String]) -> Self {
        let (provider, addresses) = (provider.to_owned(), addresses.to_vec());
        Self { provider, ends, rails, addresses, clock: Arc::new(RealClock::new()), faults: Arc::default() }
    }

    /// Rails of an end; 0 if it does not live here.
    fn count(&self, end: u32) -> usize {
        if self.ends.contains(&end) { self.rails as usize } else { 0 }
    }

    fn inject_in(&self, from_now_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        if at.rail as usize >= self.count(at.pe) {
            return Err(format!("there is no rail {at} in this process"));
        }
        self.faults.plan(self.clock.now_ns() + from_now_ns, at, kind)
    }

    /// The rails of an end.
    ///
    /// # Errors
    /// There are not as many, libfabric is missing, or the provider refuses.
    pub(crate) fn open(&self, end: u32, rails: u32) -> Result<Vec<Rail>, NoNode> {
        if rails == 0 || rails > self.rails {
            let most = self.rails;
            return Err(NoNode::Refused(format!("rails of end {end}: expected 1 to {most}, got {rails}")));
        }
        // A provider of NICs has a domain for each port; one of the system has others for the same wires.
        let domains = if self.provider == NICS { domains(&self.provider)? } else { Vec::new() };
        let domain = |rail: u32| domains.get(rail as usize % domains.len().max(1)).map(String::as_str);
        let address = |rail: u32| self.addresses.get(rail as usize).map(String::as_str);
        let wanted = |rail| Wanted { provider: &self.provider, domain: domain(rail), address: address(rail) };
        (0..rails).map(|rail| Ok(Rail::open(&wanted(rail))?)).collect()
    }

    pub(crate) fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    fn time_label(&self) -> &'static str {
        match self.provider.split(';').next() {
            Some("tcp") => "libfabric tcp, wall time",
            Some("shm") => "libfabric shm, wall time",
            Some("udp") => "libfabric udp, wall time",
            Some("efa") => "libfabric efa, wall time",
            _ => "libfabric, wall time",
        }
    }
}

/// A rail that is to be closed or opened again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    number: usize,
    at_ns: u64,
    rail: RailAt,
    /// It is opened again.
    pub up: bool,
}

impl Change {
    /// Which rail of its end.
    pub const fn rail(&self) -> u32 {
        self.rail.rail
    }
}

#[derive(Debug, Default)]
struct Plan {
    changes: Vec<Change>,
    hits: Vec<u64>,
}

/// Faults of rails of libfabric: all lanes of a rail are closed, and none is opened before it is up.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Plan>);

impl Faults {
    fn plan(&self, at_ns: u64, rail: RailAt, kind: FaultKind) -> Result<usize, String> {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = plan.hits.len();
        let (up, again) = match kind {
            FaultKind::Up => (true, None),
            FaultKind::Down { for_ns } => (false, for_ns),
            kind => {
                return Err(format!("rail {rail} of libfabric: expected down, down=TIME or up, got {kind}"));
            }
        };
        plan.hits.push(0);
        plan.changes.push(Change { number, at_ns, rail, up });
        let again = again.map(|for_ns| Change { number, at_ns: at_ns + for_ns, rail, up: true });
        plan.changes.extend(again);
        Ok(number)
    }

    fn hits(&self) -> Vec<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).hits.clone()
    }

    /// Changes of an end that are due, the oldest first.
    pub fn take_due(&self, end: u32, now_ns: u64) -> Vec<Change> {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.changes.is_empty() {
            return Vec::new();
        }
        let is_due = |change: &mut Change| change.rail.pe == end && change.at_ns <= now_ns;
        let mut due: Vec<_> = plan.changes.extract_if(.., is_due).collect();
        due.sort_by_key(|change| change.at_ns);
        due
    }

    /// A change has struck.
    pub fn struck(&self, change: Change) {
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plan.hits[change.number] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: RailAt = RailAt { pe: 1, rail: 0 };

    #[test]
    fn a_rail_that_is_down_for_a_while_comes_back_by_itself() {
        let faults = Faults::default();
        let down = FaultKind::Down { for_ns: Some(10) };
        assert_eq!((faults.plan(5, AT, down), faults.plan(7, AT, FaultKind::Up)), (Ok(0), Ok(1)));
        assert!(faults.take_due(0, 100).is_empty(), "of another end");
        assert!(faults.take_due(1, 4).is_empty(), "not yet");
        let due: Vec<_> = faults.take_due(1, 15).iter().map(|change| (change.number, change.up)).collect();
        assert_eq!(due, [(0, false), (1, true), (0, true)]);
        assert!(faults.take_due(1, 100).is_empty(), "each once");
    }

    #[test]
    fn rails_of_ends_of_other_processes_are_not_here() {
        let here = Carriers::Fabric(OpenFabric::new("tcp", 1..3, 2, &[]));
        assert_eq!([0, 1, 2, 3].map(|end| here.count(end)), [0, 2, 2, 0]);
        let down = FaultKind::Down { for_ns: None };
        let fails = |pe, rail| here.inject(RailAt { pe, rail }, down);
        assert_eq!([fails(1, 1), fails(2, 0)], [Ok(0), Ok(1)]);
        for (pe, rail) in [(0, 0), (3, 1), (1, 2)] {
            let text = format!("there is no rail {pe}.{rail} in this process");
            assert_eq!(fails(pe, rail), Err(text));
        }
        assert_eq!(here.hits(), Ok(vec![0, 0]), "what is refused is not counted");
    }

    #[test]
    fn a_rail_fails_in_no_other_way() {
        let faults = Faults::default();
        let why = faults.plan(0, AT, FaultKind::GidChange).expect_err("no NIC");
        assert!(why.contains("expected down, down=TIME or up"), "{why}");
        assert!(faults.hits().is_empty());
    }
}
