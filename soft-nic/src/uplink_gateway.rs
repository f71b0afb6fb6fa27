//! The border between this fabric and others: frames in and out through an uplink.
//!
//! Each end of a link acts for itself. What the sender's port does to a packet happens before it becomes a frame,
//! what the receiver's port does after it stopped being one; the uplink's own latency stands in for
//! [`link_ns`](crate::FabricConfig::link_ns).

use crate::capture::Capture;
use crate::link::{self, Link};
use shunt_soft_wire::frame::{self, Addresses};
use shunt_soft_wire::packet::Packet;
use shunt_soft_wire::remote_nics::RemoteNics;
use shunt_soft_wire::uplink::{Uplink, UplinkCounters};
use std::os::fd::BorrowedFd;

/// What became of a frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// A NIC of this fabric got it.
    Here,
    /// It does not decode.
    Undecodable,
    /// It is for no NIC of this fabric.
    Misaddressed,
}

/// An uplink and what stands before it.
pub(crate) struct UplinkGateway {
    uplink: Box<dyn Uplink>,
    /// Packets that a fault holds back, by when they leave.
    late: Link,
    /// The uplink's turns when its answers were last asked for.
    turns: u64,
    undecodable: u64,
    misaddressed: u64,
}

impl UplinkGateway {
    pub(crate) fn new(uplink: Box<dyn Uplink>) -> Self {
        let turns = uplink.turns();
        Self { uplink, late: Link::new(), turns, undecodable: 0, misaddressed: 0 }
    }

    /// What crossed the uplink.
    pub(crate) fn counters(&self) -> UplinkCounters {
        UplinkCounters {
            undecodable: self.undecodable,
            misaddressed: self.misaddressed,
            ..self.uplink.counters()
        }
    }

    /// Readable when the uplink has something to do.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.uplink.descriptor()
    }

    /// When the next packet that a fault holds back leaves.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.late.front().map(|(leaves, _)| *leaves)
    }

    /// Frames to an address come here from now on.
    pub(crate) fn own(&mut self, address: u128, mac: u64) {
        // Somebody has it: then this port is reached by nobody, as with a doubled address on a wire.
        let _ = self.uplink.own(address, mac);
    }

    /// Gives the frames that came to `admit`. True if there were any.
    pub(crate) fn receive(&mut self, mut admit: impl FnMut(&[u8]) -> Arrived) -> bool {
        let (mut undecodable, mut misaddressed) = (0, 0);
        let any = self.uplink.receive(&mut |frame| match admit(frame) {
            Arrived::Here => {}
            Arrived::Undecodable => undecodable += 1,
            Arrived::Misaddressed => misaddressed += 1,
        });
        self.undecodable += undecodable;
        self.misaddressed += misaddressed;
        any
    }

    /// Tells the own addresses whose interfaces lost their link or have it again.
    pub(crate) fn link_changes(&mut self, mut tell: impl FnMut(u128, bool)) {
        self.uplink.link_changes(&mut tell);
    }

    /// Holds a packet back until it leaves.
    pub(crate) fn hold(&mut self, leaves: u64, packet: Packet) {
        link::push(&mut self.late, leaves, packet);
    }

    /// The next packet that leaves by `now`.
    pub(crate) fn pop_late(&mut self, now: u64) -> Option<Packet> {
        if self.next_due()? > now {
            return None;
        }
        self.late.pop_front().map(|(_, packet)| packet)
    }

    /// Gives a packet of the NIC with `source_mac` to the uplink.
    pub(crate) fn send(
        &mut self,
        packet: &Packet,
        source_mac: u64,
        remote_nics: &mut RemoteNics,
        mut capture: Option<&mut Capture>,
        now: u64,
    ) {
        let uplink = &mut self.uplink;
        let Some((id, remote)) = remote_nics.uplink_address(packet.to, |address| uplink.address(address))
        else {
            return;
        };
        let addresses = Addresses {
            source: packet.source,
            destination: remote.address,
            source_mac,
            destination_mac: remote.mac,
        };
        let outer = uplink.outer();
        uplink.send(id, &mut |buffer| {
            let start = buffer.len();
            frame::encode(packet, &addresses, outer, buffer);
            if let Some(capture) = &mut capture {
                capture.frame(now, &buffer[start..]);
            }
        });
    }

    /// Hands over what is queued, and learns which destinations are full. True if one no longer is.
    pub(crate) fn flush(&mut self, remote_nics: &mut RemoteNics) -> bool {
        self.uplink.flush();
        if self.turns == self.uplink.turns() {
            return false;
        }
        self.turns = self.uplink.turns();
        remote_nics.learn_full(|id| self.uplink.is_full(id))
    }
}
