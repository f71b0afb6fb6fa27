//! The link between NICs: what carries packets, and what faults do to them on the way.

use crate::fabric::Fabric;
use crate::fault::FaultKind;
use crate::nic::SoftNic;
use crate::outside::Outside;
use crate::packet::{Body, Packet, Part};
use crate::qp::NO_ROUTE;
use std::collections::VecDeque;

/// From a NIC to itself, without the port.
const LOOPBACK_NS: u64 = 500;
/// How late a reordered packet is.
const REORDER_NS: u64 = 10_000;
/// Packets delivered to one NIC in a round.
const ARRIVALS: u32 = 512;

/// Packets on their way to one NIC, by arrival.
pub(crate) type Link = VecDeque<(u64, Packet)>;

/// How a packet fares on its way.
pub(crate) struct Passage {
    /// When it comes out at the other side.
    pub(crate) at: u64,
    /// It comes out twice.
    pub(crate) twice: bool,
}

impl Fabric {
    /// Hands arrived packets to a NIC. True if there were any.
    pub(crate) fn deliver(&mut self, at: usize) -> bool {
        let mut any = false;
        for _ in 0..ARRIVALS {
            if self.links[at].front().is_none_or(|(arrival, _)| *arrival > self.cx.now) {
                break;
            }
            let Some((_, packet)) = self.links[at].pop_front() else { break };
            any = true;
            let nic = &mut self.nics[at];
            if nic.killed || nic.is_faulty() && lost_on_arrival(nic, &packet) {
                nic.drop_packet(packet, &mut self.cx);
            } else {
                nic.receive(packet, &mut self.cx);
            }
        }
        any
    }

    /// Carries the packets a NIC sent to where they go.
    pub(crate) fn carry(&mut self, at: usize) {
        let mut outbox = std::mem::take(&mut self.nics[at].outbox);
        for packet in outbox.drain(..) {
            let to = packet.to;
            if to == NO_ROUTE {
                let nic = &mut self.nics[at];
                nic.counters.unroutable += 1;
                self.missed();
                self.nics[at].drop_packet(packet, &mut self.cx);
                continue;
            }
            if to as usize == at {
                push(&mut self.links[at], self.cx.now + LOOPBACK_NS, packet);
                continue;
            }
            if Outside::holds(to) {
                self.carry_outside(at, packet);
            } else if self.are_apart(at, to as usize) {
                self.nics[at].drop_packet(packet, &mut self.cx);
            } else if self.nics[at].is_faulty() || self.nics[to as usize].is_faulty() {
                self.carry_through_faults(at, packet);
            } else {
                if self.capture.is_some() {
                    self.capture_inside(&packet);
                }
                self.agenda.touch(to);
                push(&mut self.links[to as usize], self.cx.now + self.config.link_ns, packet);
            }
        }
        self.nics[at].outbox = outbox;
    }

    /// A packet had nowhere to go: a `gid-change` may be why.
    pub(crate) fn missed(&mut self) {
        let moved = |kind: &FaultKind| matches!(kind, FaultKind::GidChange);
        if let Some(nic) = self.nics.iter_mut().find(|nic| nic.faults.has(moved)) {
            nic.faults.strikes(moved);
        }
    }

    /// A number from 0 to 1, the next of the seed's (splitmix64).
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Carries a packet through the faults of the ports it passes. Each port acts alone: the sender's on what leaves,
    /// then both on what passes, so that two processes can do it each for its own.
    fn carry_through_faults(&mut self, from: usize, packet: Packet) {
        let Some(packet) = self.leave(from, packet) else { return };
        if self.capture.is_some() {
            self.capture_inside(&packet);
        }
        let to = packet.to as usize;
        let mut passage = Passage { at: self.cx.now + self.config.link_ns, twice: false };
        for port in [from, to] {
            if !self.pass(port, &mut passage) {
                return self.nics[port].drop_packet(packet, &mut self.cx);
            }
        }
        self.agenda.touch(to as u32);
        if passage.twice {
            push(&mut self.links[to], passage.at, packet.clone());
        }
        push(&mut self.links[to], passage.at, packet);
    }

    /// What only the sender's port does to a packet: nothing is left of it if there is no link or a black hole.
    pub(crate) fn leave(&mut self, from: usize, packet: Packet) -> Option<Packet> {
        let sender = &mut self.nics[from];
        let lost = match sender.port.down_by {
            Some(id) => {
                sender.faults.hit(id);
                true
            }
            None if !sender.has_link() => true,
            None => sender.faults.strikes(|kind| matches!(kind, FaultKind::BlackholeTx { .. })),
        };
        if lost {
            sender.drop_packet(packet, &mut self.cx);
            return None;
        }
        Some(packet)
    }

    /// What a port does to whatever passes it, in either direction. False if the packet is lost.
    pub(crate) fn pass(&mut self, port: usize, passage: &mut Passage) -> bool {
        // Drawn whether or not they are needed: a fault that ends must not change what those after it draw.
        let (lost, doubled) = (self.chance(), self.chance());
        let nic = &mut self.nics[port];
        if !nic.faults.any() {
            return true;
        }
        let drop =
            |kind: &FaultKind| matches!(kind, FaultKind::Drop { probability, .. } if lost < *probability);
        if nic.faults.strikes(drop) {
            return false;
        }
        let double =
            |kind: &FaultKind| matches!(kind, FaultKind::Dup { probability, .. } if doubled < *probability);
        passage.twice |= nic.faults.strikes(double);
        let delay = |kind: &FaultKind| match kind {
            FaultKind::Delay { by_ns, .. } => Some(*by_ns),
            _ => None,
        };
        passage.at += nic.faults.strike(delay).unwrap_or(0);
        passage.at = passage.at.max(nic.faults.held_until().unwrap_or(0));
        nic.faults.passed += 1;
        let passed = nic.faults.passed;
        let late = |kind: &FaultKind| match kind {
            FaultKind::Reorder { every, .. } => passed.is_multiple_of(*every as u64),
            _ => false,
        };
        passage.at += REORDER_NS * nic.faults.strikes(late) as u64;
        true
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
fn lost_on_arrival(nic: &mut SoftNic, packet: &Packet) -> bool {
    if nic.faults.strikes(|kind| matches!(kind, FaultKind::NicGone { .. })) {
        return true;
    }
    if packet.from == nic.number {
        return false;
    }
    if let Some(id) = nic.port.down_by {
        nic.faults.hit(id);
        return true;
    }
    if !nic.has_link() {
        return true;
    }
    let response = packet.is_response();
    let atomic = matches!(packet.body, Body::AtomicAck { .. });
    nic.faults.strikes(|kind| match kind {
        FaultKind::BlackholeRx { .. } => true,
        FaultKind::DropAcks { .. } => response,
        FaultKind::LostAtomicResponse { .. } => atomic,
        _ => false,
    }) || cut_off(nic, packet)
}

/// `partial-write`: the next multi-packet write loses its tail, and its queue pair everything after.
fn cut_off(nic: &mut SoftNic, packet: &Packet) -> bool {
    let starts = matches!(packet.body, Body::Write { part: Part::First, .. });
    let wanted = |kind: &FaultKind| match kind {
        FaultKind::PartialWrite { packets } => Some(*packets),
        _ => None,
    };
    if nic.faults.cut.is_none() && starts {
        nic.faults.cut = nic.faults.find(wanted).map(|(_, packets)| (packet.qpn, packets));
    }
    match &mut nic.faults.cut {
        Some((qpn, left)) if *qpn == packet.qpn && !packet.is_response() => {
            if *left > 0 {
                *left -= 1;
                return false;
            }
            nic.faults.strikes(|kind| matches!(kind, FaultKind::PartialWrite { .. }));
            true
        }
        _ => false,
    }
}
