//! Rails of a simulated network, for ends of one process. It moves bytes between their memories as real time passes.

use crate::error::NoNode;
use shunt::device::platform::host::World;
use shunt::host::clock::RealClock;
use shunt::host::nanos::Nanos;
use shunt::soft_nic::{FaultKind, RailAt};
use shunt_transfer_engine::domain::{Batch, Domain, Event};
use shunt_transfer_engine::ids::{LaneId, PeerId};
use shunt_transfer_engine::sim::faults::{Fault, Kind};
use shunt_transfer_engine::sim::{Config, Sim, SimDomain};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most pieces under way on a lane.
const DEPTH: u32 = 32;

/// Networks for the ends of this process, one after the other: the first end that connects again begins the next.
pub struct OpenSim {
    ends: u32,
    rails: u32,
    reorders: bool,
    clock: Arc<RealClock>,
    network: Mutex<Network>,
}

#[derive(Default)]
struct Network {
    sim: Option<Sim>,
    /// By end: its rails, until it takes them.
    left: Vec<Option<SimDomain>>,
}

impl OpenSim {
    /// Networks between so many ends with so many rails each; `reorders`: every piece takes its own time.
    pub(crate) fn new(ends: u32, rails: u32, reorders: bool) -> Self {
        Self { ends, rails, reorders, clock: Arc::new(RealClock::new()), network: Mutex::default() }
    }

    pub(crate) fn clock(&self) -> Arc<RealClock> {
        self.clock.clone()
    }

    /// Rails of an end; 0 if it does not live here.
    pub(crate) fn count(&self, end: u32) -> usize {
        if end < self.ends { self.rails as usize } else { 0 }
    }

    pub(crate) const fn ends(&self) -> u32 {
        self.ends
    }

    /// As many rails of an end as of all others.
    ///
    /// # Errors
    /// There are not as many, there is no such end, or it has taken its rails of this network.
    pub(crate) fn open(&self, end: u32, rails: u32) -> Result<OverSim, NoNode> {
        let refused = |what: String| Err(NoNode::Refused(what));
        if rails == 0 || rails > self.rails {
            return refused(format!("rails of end {end}: expected 1 to {}, got {rails}", self.rails));
        }
        let mut network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        if network.left.iter().all(Option::is_none) {
            let (sim, domains) = Sim::new(Config {
                seed: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64),
                nodes: self.ends,
                rails,
                memory: 0,
                depth: DEPTH,
                unordered: self.reorders,
                late: false,
                no_truth: 0,
                unproven: 0,
                faults: Vec::new(),
            });
            sim.advance(Nanos::new(self.clock.now_ns()));
            *network = Network { sim: Some(sim), left: domains.into_iter().map(Some).collect() };
        }
        match network.left.get_mut(end as usize).and_then(Option::take) {
            Some(domain) => Ok(OverSim(domain)),
            None => refused(format!(
                "end {end} of a simulated network: expected one that is not connected, got another"
            )),
        }
    }

    /// Plans a fault of the network that was opened last; its number.
    ///
    /// # Errors
    /// There is no such rail, or it does not fail like this.
    pub(crate) fn inject_in(&self, from_now_ns: u64, at: RailAt, kind: FaultKind) -> Result<usize, String> {
        if at.rail as usize >= self.count(at.pe) {
            return Err(format!("there is no rail {at} in this process"));
        }
        let (kind, lasts) = match kind {
            FaultKind::Down { for_ns } => (Kind::Down, for_ns),
            FaultKind::Up => (Kind::Up, Some(0)),
            FaultKind::DropAcks { for_ns } => (Kind::LoseAcks, for_ns),
            FaultKind::Hold { for_ns } => (Kind::Hold, Some(for_ns)),
            kind => {
                return Err(format!(
                    "rail {at} of a simulated network: expected down, up, drop-acks or hold, got {kind}"
                ));
            }
        };
        let from = self.clock.now_ns() + from_now_ns;
        let fault = Fault { from, lasts: lasts.unwrap_or(u64::MAX - from), node: at.pe, rail: at.rail, kind };
        let network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        let sim = network.sim.as_ref().ok_or("a simulated network: expected one with ends, got none yet")?;
        Ok(sim.inject(fault))
    }

    /// Whether each fault of the network that was opened last has struck: 1 or 0.
    pub(crate) fn hits(&self) -> Vec<u64> {
        let network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        network.sim.as_ref().map_or_else(Vec::new, |sim| sim.hit().into_iter().map(u64::from).collect())
    }

    /// Pieces of the network that was opened last that were executed after a younger one of their lane.
    pub(crate) fn reordered(&self) -> u64 {
        let network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        network.sim.as_ref().map_or(0, |sim| sim.counts().reordered)
    }
}

/// The rails of an end. Time passes in the network when one of its ends is polled.
pub struct OverSim(pub(crate) SimDomain);

impl Domain for OverSim {
    fn post(&mut self, now: Nanos, lane: LaneId, batch: &Batch<'_>) {
        self.0.post(now, lane, batch);
    }

    fn close(&mut self, now: Nanos, lane: LaneId) {
        self.0.close(now, lane);
    }

    fn leave(&mut self, now: Nanos, peer: PeerId) {
        self.0.leave(now, peer);
    }

    fn reached(&mut self, peer: PeerId, imm: u32) {
        self.0.reached(peer, imm);
    }

    fn poll(&mut self, now: Nanos, events: &mut Vec<Event>) {
        self.0.sim().advance(now);
        self.0.poll(now, events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T>(opened: Result<T, NoNode>) -> String {
        match opened {
            Ok(_) => panic!("expected a refusal"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_end_takes_its_rails_once_before_the_next_network() {
        let open = OpenSim::new(2, 4, true);
        assert_eq!([0, 1, 2].map(|end| open.count(end)), [4, 4, 0]);
        let first = open.open(0, 2).expect("rails");
        assert!(refused(open.open(0, 2)).contains("expected one that is not connected"));
        assert!(refused(open.open(1, 5)).contains("expected 1 to 4, got 5"));
        assert!(refused(open.open(2, 2)).contains("end 2"));
        open.open(1, 2).expect("rails");
        let next = open.open(1, 2).expect("rails of the next network");
        let [mut of_first, mut of_next] = [(); 2].map(|()| Vec::new());
        let (mut first, mut next) = (first, next);
        first.poll(Nanos::ZERO, &mut of_first);
        next.poll(Nanos::ZERO, &mut of_next);
        assert_eq!((of_first.len(), of_next.len()), (2, 2), "two lanes each");
    }

    #[test]
    fn a_fault_is_one_that_the_network_knows_and_strikes_the_last_one() {
        let open = OpenSim::new(2, 2, false);
        let at = RailAt { pe: 0, rail: 1 };
        let down = FaultKind::Down { for_ns: None };
        assert!(open.inject_in(0, at, down).expect_err("no network").contains("got none yet"));
        assert!(open.hits().is_empty());
        let _ends = [0, 1].map(|end| open.open(end, 2).expect("rails"));
        assert_eq!(open.inject_in(0, at, down), Ok(0));
        assert_eq!(open.inject_in(5, at, FaultKind::Up), Ok(1));
        assert_eq!(open.hits(), [0, 0]);
        let text = open.inject_in(0, at, FaultKind::GidChange).expect_err("no NIC");
        assert!(text.contains("expected down, up, drop-acks or hold"), "{text}");
        let text = open.inject_in(0, RailAt { pe: 2, rail: 0 }, down).expect_err("no end");
        assert!(text.contains("there is no rail 2.0"), "{text}");
    }
}
