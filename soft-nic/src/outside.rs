//! NICs of other processes: their numbers, and what crosses the border between two fabrics.
//!
//! Each end of a link acts for itself. What the sender's port does to a packet happens before it becomes a frame,
//! what the receiver's port does after it stopped being one; the uplink's own latency stands in for
//! [`link_ns`](crate::FabricConfig::link_ns).

use crate::fabric::Fabric;
use crate::link::{self, Link, Passage};
use crate::packet::{ELSEWHERE, Packet};
use crate::qp::NO_ROUTE;
use crate::uplink::{AddressId, Uplink, UplinkCounters, UplinkError};
use crate::window::Window;
use crate::wire::{self, Addresses};
use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;

/// The first number of a NIC outside.
const FIRST: u32 = 1 << 31;
/// NICs outside at most. More is a mistake that must not eat the memory.
const MOST: usize = 1 << 20;

/// A NIC of another process, or nobody's address.
#[derive(Clone, Copy, Debug)]
struct Foreign {
    /// What is under way to it, if the uplink loses what is too much.
    window: Option<Window>,
    address: u128,
    mac: u64,
    id: Option<AddressId>,
    full: bool,
}

/// NICs of other processes, by number.
#[derive(Default)]
pub(crate) struct Outside {
    attached: bool,
    /// Packets that may be under way to one NIC, if the uplink says so.
    window: Option<u32>,
    /// A window opened: those who were refused may try again.
    pub(crate) opened: bool,
    list: Vec<Foreign>,
    numbers: HashMap<(u128, u64), u32>,
    /// Addresses that were ours: nobody has them now.
    left: HashSet<u128>,
}

impl Outside {
    /// The number of a NIC of another process; [`NO_ROUTE`] where there is no way to any.
    pub(crate) fn number(&mut self, address: u128, mac: u64) -> u32 {
        if !self.attached || self.left.contains(&address) {
            return NO_ROUTE;
        }
        if let Some(known) = self.numbers.get(&(address, mac)) {
            return *known;
        }
        if self.list.len() >= MOST {
            return NO_ROUTE;
        }
        let number = FIRST + self.list.len() as u32;
        let window = self.window.map(Window::new);
        self.list.push(Foreign { window, address, mac, id: None, full: false });
        self.numbers.insert((address, mac), number);
        number
    }

    /// True for the number of a NIC of another process.
    #[inline]
    pub(crate) fn holds(number: u32) -> bool {
        (FIRST..ELSEWHERE).contains(&number)
    }

    /// True if there are windows.
    #[inline]
    pub(crate) fn is_windowed(&self) -> bool {
        self.window.is_some()
    }

    /// The window of a NIC outside, if it has one.
    pub(crate) fn window(&mut self, number: u32) -> Option<&mut Window> {
        let at = Self::holds(number).then(|| (number - FIRST) as usize)?;
        self.list.get_mut(at)?.window.as_mut()
    }

    /// True while nothing more should be sent to a NIC, whatever its number.
    #[inline]
    pub(crate) fn is_full(&self, number: u32) -> bool {
        Self::holds(number) && self.list.get((number - FIRST) as usize).is_some_and(|foreign| foreign.full)
    }

    /// An address that is no longer ours.
    pub(crate) fn leave(&mut self, address: u128) {
        self.left.insert(address);
    }

    /// An address that is ours (again).
    pub(crate) fn enter(&mut self, address: u128) {
        self.left.remove(&address);
    }
}

/// An uplink and what stands before it.
pub(crate) struct Border {
    uplink: Box<dyn Uplink>,
    /// Packets that a fault holds back, by when they leave.
    late: Link,
    /// The uplink's turns when its answers were last asked for.
    turns: u64,
    undecodable: u64,
    misaddressed: u64,
}

impl Fabric {
    /// Joins this fabric to others: addresses that none of its NICs has lead to the uplink from now on, and frames
    /// for its NICs come from there. Add the NICs before, and attach before [`Engine::spawn`](crate::Engine::spawn).
    pub fn attach(&mut self, mut uplink: Box<dyn Uplink>) -> Result<(), UplinkError> {
        for (address, route) in &self.cx.routes {
            uplink.own(*address, route.mac.unwrap_or(0))?;
            let (config, fits) = (&self.nics[route.nic as usize].config, uplink.mtu(*address));
            if config.mtu > fits {
                let (nic, mtu) = (config.name.clone(), config.mtu);
                return Err(UplinkError::PathMtu { nic, address: *address, mtu, fits });
            }
        }
        self.cx.outside = Outside { attached: true, window: uplink.window(), ..Outside::default() };
        self.cx.epoch += 1;
        let turns = uplink.turns();
        self.border = Some(Border { uplink, late: Link::new(), turns, undecodable: 0, misaddressed: 0 });
        Ok(())
    }

    /// Leaves the others: what is sent to them goes nowhere from now on, and their frames find nobody.
    pub fn detach(&mut self) {
        self.border = None;
        self.cx.outside = Outside::default();
        self.cx.epoch += 1;
    }

    /// What crossed the uplink; zeros without one.
    pub fn uplink_counters(&self) -> UplinkCounters {
        self.border.as_ref().map_or_else(UplinkCounters::default, |border| UplinkCounters {
            undecodable: border.undecodable,
            misaddressed: border.misaddressed,
            ..border.uplink.counters()
        })
    }

    /// Readable when the uplink has something to do.
    pub(crate) fn uplink_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.border.as_ref().map(|border| border.uplink.descriptor())
    }

    /// When the next packet that a fault holds back leaves.
    pub(crate) fn border_due(&self) -> Option<u64> {
        self.border.as_ref()?.late.front().map(|(leaves, _)| *leaves)
    }

    /// The addresses of the NICs changed: the uplink answers for the new ones.
    pub(crate) fn own_addresses(&mut self) {
        if let Some(border) = &mut self.border {
            for (address, route) in &self.cx.routes {
                self.cx.outside.enter(*address);
                // Somebody has it: then this port is reached by nobody, as with a doubled address on a wire.
                let _ = border.uplink.own(*address, route.mac.unwrap_or(0));
            }
        }
    }

    /// Takes frames from the uplink. True if there were any.
    pub(crate) fn arrive(&mut self) -> bool {
        let Some(mut border) = self.border.take() else { return false };
        let (mut undecodable, mut misaddressed) = (0, 0);
        let any = border.uplink.receive(&mut |frame| {
            if let Some(capture) = &mut self.capture {
                capture.frame(self.cx.now, frame);
            }
            match wire::decode_into(frame, &mut self.cx.pool) {
                Ok(frame) => misaddressed += !self.admit(frame) as u64,
                Err(_) => undecodable += 1,
            }
        });
        border.undecodable += undecodable;
        border.misaddressed += misaddressed;
        let mut stirred = false;
        border.uplink.link_changes(&mut |address, link| {
            let Some(route) = self.cx.routes.get(&address) else { return };
            self.nics[route.nic as usize].set_carrier(self.cx.now, link);
            self.agenda.touch(route.nic);
            stirred = true;
        });
        self.border = Some(border);
        any || stirred
    }

    /// Hands a frame to the NIC it is for. False if it is for none.
    fn admit(&mut self, wire::Frame { addresses, mut packet, .. }: wire::Frame) -> bool {
        let route = self.cx.routes.get(&addresses.destination).copied();
        let Some(route) = route.filter(|to| to.mac.is_none_or(|mac| mac == addresses.destination_mac)) else {
            self.missed();
            packet.recycle(&mut self.cx.pool);
            return false;
        };
        packet.to = route.nic;
        let at = route.nic as usize;
        let mut passage = Passage { at: self.cx.now, twice: false };
        if self.nics[at].is_faulty() && !self.pass(at, &mut passage) {
            self.nics[at].drop_packet(packet, &mut self.cx);
            return true;
        }
        if passage.twice {
            link::push(&mut self.links[at], passage.at, packet.clone());
        }
        link::push(&mut self.links[at], passage.at, packet);
        true
    }

    /// Carries a packet to a NIC of another process, through the faults of the port it leaves.
    pub(crate) fn carry_outside(&mut self, from: usize, packet: Packet) {
        if !self.nics[from].is_faulty() {
            return self.send_outside(packet);
        }
        let Some(packet) = self.leave(from, packet) else { return };
        let mut passage = Passage { at: self.cx.now, twice: false };
        if !self.pass(from, &mut passage) {
            return self.nics[from].drop_packet(packet, &mut self.cx);
        }
        for packet in passage.twice.then(|| packet.clone()).into_iter().chain([packet]) {
            if passage.at <= self.cx.now {
                self.send_outside(packet);
            } else if let Some(border) = &mut self.border {
                link::push(&mut border.late, passage.at, packet);
            }
        }
    }

    /// Gives a packet to the uplink.
    fn send_outside(&mut self, packet: Packet) {
        let foreign = self.cx.outside.list.get_mut((packet.to - FIRST) as usize);
        if let (Some(border), Some(foreign)) = (&mut self.border, foreign) {
            let id = *foreign.id.get_or_insert_with(|| border.uplink.address(foreign.address));
            let addresses = Addresses {
                source: packet.source,
                destination: foreign.address,
                source_mac: self.nics[packet.from as usize].mac(),
                destination_mac: foreign.mac,
            };
            let outer = border.uplink.outer();
            border.uplink.send(id, &mut |buffer| {
                let start = buffer.len();
                wire::encode(&packet, &addresses, outer, buffer);
                if let Some(capture) = &mut self.capture {
                    capture.frame(self.cx.now, &buffer[start..]);
                }
            });
        }
        packet.recycle(&mut self.cx.pool);
    }

    /// Sends what is due, and learns which destinations are full. True if a queue pair may go on.
    pub(crate) fn run_border(&mut self) -> bool {
        while self.border_due().is_some_and(|leaves| leaves <= self.cx.now) {
            let Some((_, packet)) = self.border.as_mut().and_then(|border| border.late.pop_front()) else {
                break;
            };
            self.send_outside(packet);
        }
        let let_in = self.run_windows();
        let Some(border) = &mut self.border else { return false };
        border.uplink.flush();
        if border.turns == border.uplink.turns() {
            return let_in;
        }
        border.turns = border.uplink.turns();
        let mut resumed = false;
        for foreign in &mut self.cx.outside.list {
            let full = foreign.id.is_some_and(|id| border.uplink.is_full(id));
            resumed |= foreign.full && !full;
            foreign.full = full;
        }
        if resumed {
            self.nics.iter_mut().for_each(|nic| nic.port.resume());
        }
        resumed | let_in
    }

    /// Gives queue pairs a turn whose windows opened. True if there were any.
    fn run_windows(&mut self) -> bool {
        for charge in self.nics.iter_mut().flat_map(|nic| nic.released.drain(..)) {
            self.cx.outside.release(charge);
        }
        let opened = std::mem::take(&mut self.cx.outside.opened);
        if opened {
            self.nics.iter_mut().for_each(|nic| nic.let_in(&mut self.cx));
        }
        opened
    }
}
