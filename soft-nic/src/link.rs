//! The links between NICs: packets on their way, and what faults of ports do to them.

use shunt_soft_fault::{FaultKind, Faults};
use shunt_soft_hca::nic::SoftNic;
use shunt_soft_wire::packet::{Body, Packet, Part};
use std::collections::VecDeque;

/// How late a reordered packet is.
const REORDER_NS: u64 = 10_000;

/// Packets on their way to one NIC, by arrival.
pub(crate) type Link = VecDeque<(u64, Packet)>;

/// How a packet fares on its way.
pub(crate) struct Passage {
    /// When it comes out at the other side.
    pub(crate) at: u64,
    /// It comes out twice.
    pub(crate) twice: bool,
}

/// All links of a fabric, by the NIC they lead to, and the dice of their faults.
pub(crate) struct Links {
    links: Vec<Link>,
    random: u64,
}

impl Links {
    /// No links yet.
    pub(crate) fn new(seed: u64) -> Self {
        Self { links: Vec::new(), random: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// A link to one more NIC.
    pub(crate) fn add(&mut self) {
        self.links.push(Link::new());
    }

    /// Puts a packet on the link to where it goes.
    #[inline]
    pub(crate) fn push(&mut self, arrival: u64, packet: Packet) {
        push(&mut self.links[packet.to as usize], arrival, packet);
    }

    /// Puts a packet on the link as it came through its passage.
    pub(crate) fn push_passed(&mut self, passage: &Passage, packet: Packet) {
        if passage.twice {
            self.push(passage.at, packet.clone());
        }
        self.push(passage.at, packet);
    }

    /// The next packet that has arrived at a NIC by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, to: usize, now: u64) -> Option<Packet> {
        let link = &mut self.links[to];
        if link.front()?.0 > now {
            return None;
        }
        link.pop_front().map(|(_, packet)| packet)
    }

    /// When the next packet arrives at a NIC.
    pub(crate) fn next_due(&self, to: usize) -> Option<u64> {
        self.links[to].front().map(|(arrival, _)| *arrival)
    }

    /// A number from 0 to 1, the next of the seed's (splitmix64).
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// What a port with these faults does to whatever passes it, in either direction. False if the packet is lost.
    pub(crate) fn pass(&mut self, faults: &mut Faults, passage: &mut Passage) -> bool {
        // Drawn whether or not they are needed: a fault that ends must not change what those after it draw.
        let (lost, doubled) = (self.chance(), self.chance());
        if !faults.any() {
            return true;
        }
        let drop =
            |kind: &FaultKind| matches!(kind, FaultKind::Drop { probability, .. } if lost < *probability);
        if faults.strikes(drop) {
            return false;
        }
        let double =
            |kind: &FaultKind| matches!(kind, FaultKind::Dup { probability, .. } if doubled < *probability);
        passage.twice |= faults.strikes(double);
        let delay = |kind: &FaultKind| match kind {
            FaultKind::Delay { by_ns, .. } => Some(*by_ns),
            _ => None,
        };
        passage.at += faults.strike(delay).unwrap_or(0);
        passage.at = passage.at.max(faults.held_until().unwrap_or(0));
        faults.passed += 1;
        let passed = faults.passed;
        let late = |kind: &FaultKind| match kind {
            FaultKind::Reorder { every, .. } => passed.is_multiple_of(*every as u64),
            _ => false,
        };
        passage.at += REORDER_NS * faults.strikes(late) as u64;
        true
    }
}

/// True if the sender's port lets nothing out: there is no link, or a black hole.
pub(crate) fn lost_on_departure(sender: &mut SoftNic) -> bool {
    match sender.down_by() {
        Some(id) => {
            sender.faults_mut().hit(id);
            true
        }
        None if !sender.has_link() => true,
        None => sender.faults_mut().strikes(|kind| matches!(kind, FaultKind::BlackholeTx { .. })),
    }
}

/// Adds a packet behind those that arrive no later.
pub(crate) fn push(link: &mut Link, arrival: u64, packet: Packet) {
    if link.back().is_none_or(|(last, _)| *last <= arrival) {
        return link.push_back((arrival, packet));
    }
    let at = link.partition_point(|(other, _)| *other <= arrival);
    link.insert(at, (arrival, packet));
}

/// True if a fault of the receiving NIC swallows an arriving packet.
pub(crate) fn lost_on_arrival(nic: &mut SoftNic, packet: &Packet) -> bool {
    if nic.faults_mut().strikes(|kind| matches!(kind, FaultKind::NicGone { .. })) {
        return true;
    }
    if packet.from == packet.to {
        return false;
    }
    if let Some(id) = nic.down_by() {
        nic.faults_mut().hit(id);
        return true;
    }
    if !nic.has_link() {
        return true;
    }
    let response = packet.is_response();
    let atomic = matches!(packet.body, Body::AtomicAck { .. });
    let faults = nic.faults_mut();
    faults.strikes(|kind| match kind {
        FaultKind::BlackholeRx { .. } => true,
        FaultKind::DropAcks { .. } => response,
        FaultKind::LostAtomicResponse { .. } => atomic,
        _ => false,
    }) || cut_off(faults, packet)
}

/// `partial-write`: the next multi-packet write loses its tail, and its queue pair everything after.
fn cut_off(faults: &mut Faults, packet: &Packet) -> bool {
    let starts = matches!(packet.body, Body::Write { part: Part::First, .. });
    let wanted = |kind: &FaultKind| match kind {
        FaultKind::PartialWrite { packets } => Some(*packets),
        _ => None,
    };
    if faults.cut.is_none() && starts {
        faults.cut = faults.find(wanted).map(|(_, packets)| (packet.qpn, packets));
    }
    match &mut faults.cut {
        Some((qpn, left)) if *qpn == packet.qpn && !packet.is_response() => {
            if *left > 0 {
                *left -= 1;
                return false;
            }
            faults.strikes(|kind| matches!(kind, FaultKind::PartialWrite { .. }));
            true
        }
        _ => false,
    }
}
