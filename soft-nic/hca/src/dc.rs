//! Dynamically connected transport (DC), what both ends know: an initiator sends each WQE to the target that it names.
//!
//! How hardware sets up a path is not public. Here the initiator asks the target, which makes a responder for the path
//! and tells its number ([`DcSetup`]). Requests and answers are then those of a reliable connection. An initiator has
//! one path at a time. It asks for the next once all that went over the last was acknowledged. No path is ended: a
//! target keeps the last two of each initiator.

use crate::endpoint::{Endpoint, Remote};
use crate::step_context::StepContext;
use crate::units::Units;
use shunt_layout::mlx5::wqe::AddressVector;
use shunt_soft_wire::packet::{Body, DcSetup, DcStep, Packet};

/// Paths of one initiator that a target keeps: a question that comes late must not end the path after it.
const PATHS_KEPT: usize = 2;

/// Where a WQE of an initiator goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) to: AddressVector,
    pub(crate) key: u64,
}

/// The path of an initiator.
#[derive(Debug, Default)]
enum Path {
    #[default]
    Nowhere,
    /// It waits for the target's answer.
    Asked,
    There(Destination),
}

/// Whether an initiator may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    There,
    /// It may not ask yet, or has asked.
    Wait,
    Now,
}

/// What an initiator keeps.
#[derive(Debug, Default)]
pub(crate) struct Initiator {
    path: Path,
    /// Number of its last path; 0 is none.
    number: u32,
}

impl Initiator {
    /// Whether it may send to `to`, while packets of the path that it has are `under_way` or not.
    pub(crate) fn wants(&mut self, to: &Destination, under_way: bool, now: u64) -> Asked {
        match &self.path {
            Path::There(there) if there == to => return Asked::There,
            Path::Asked => return Asked::Wait,
            _ if under_way => return Asked::Wait,
            _ => {}
        }
        // It begins anywhere: a target may know paths of a process that had these numbers before.
        self.number = if self.number == 0 { now as u32 | 1 } else { self.number.wrapping_add(1) };
        self.path = Path::Asked;
        Asked::Now
    }

    /// Sends the question. The first request has PSN `psn`.
    pub(crate) fn ask(
        &self,
        to: &Destination,
        psn: u32,
        qp: &mut Endpoint,
        units: &mut Units,
        cx: &mut StepContext,
    ) {
        qp.remote = Remote::of(&to.to, units.config.link_layer);
        qp.remote.resolve(cx);
        let mac = units.config.mac_number();
        let (step, number) = (DcStep::Connect, self.number);
        let setup = DcSetup { step, number, qpn: qp.qpn, mtu: qp.mtu, key: to.key, mac };
        qp.emit(units, psn, false, false, Body::Dc(Box::new(setup)));
    }

    /// True while it waits for an answer.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.path, Path::Asked)
    }

    /// True if it waits for the answer about this path.
    pub(crate) fn awaits(&self, number: u32) -> bool {
        self.asks() && number == self.number
    }

    /// The target of the WQE that is sent next has answered.
    pub(crate) fn connected(&mut self, to: Destination) {
        self.path = Path::There(to);
    }

    /// It has no path.
    pub(crate) fn forget(&mut self) {
        self.path = Path::Nowhere;
    }
}

/// A path that a target knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetPath {
    pub(crate) source: u128,
    pub(crate) initiator: u32,
    pub(crate) number: u32,
    /// The queue pair that answers.
    pub(crate) responder: u32,
}

/// What a target keeps.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) key: u64,
    /// Oldest first.
    paths: Vec<TargetPath>,
}

impl Target {
    pub(crate) fn new(key: u64) -> Self {
        Self { key, paths: Vec::new() }
    }

    /// The responder of a path that is known.
    pub(crate) fn responder(&self, source: u128, setup: &DcSetup) -> Option<u32> {
        let known = |path: &&TargetPath| path.is_of(source, setup) && path.number == setup.number;
        self.paths.iter().find(known).map(|path| path.responder)
    }

    /// A path is made: the responder of one that is to go for it.
    pub(crate) fn add(&mut self, path: TargetPath) -> Option<u32> {
        let same = |other: &TargetPath| (other.source, other.initiator) == (path.source, path.initiator);
        let kept = self.paths.iter().filter(|other| same(other)).count();
        let oldest = self.paths.iter().position(same).filter(|_| kept >= PATHS_KEPT);
        let gone = oldest.map(|at| self.paths.remove(at).responder);
        self.paths.push(path);
        gone
    }

    /// All responders.
    pub(crate) fn responders(&self) -> impl Iterator<Item = u32> {
        self.paths.iter().map(|path| path.responder)
    }
}

impl TargetPath {
    fn is_of(&self, source: u128, setup: &DcSetup) -> bool {
        (self.source, self.initiator) == (source, setup.qpn)
    }
}

/// True for an initiator's question.
#[inline]
pub(crate) fn is_connect(packet: &Packet) -> bool {
    matches!(&packet.body, Body::Dc(setup) if setup.step == DcStep::Connect)
}
