//! The NICs of one process, and what carries packets between them.

use crate::capture::Capture;
use crate::link::{self, Links, Passage};
use crate::scheduler::Scheduler;
use crate::srd::Srd;
use crate::uplink_gateway::{Arrived, UplinkGateway};
use shunt_soft_fault::{FaultKind, RailAt};
use shunt_soft_hca::DoorbellLook;
use shunt_soft_hca::config::LinkLayer;
use shunt_soft_hca::nic::SoftNic;
use shunt_soft_hca::step_context::{Route, StepContext};
use shunt_soft_wire::frame;
use shunt_soft_wire::packet::{NO_ROUTE, Packet};
use shunt_soft_wire::remote_nics::RemoteNics;
use std::collections::BTreeSet;

/// From a NIC to itself, without the port.
const LOOPBACK_NS: u64 = 500;
/// Packets delivered to one NIC in a round.
const ARRIVALS: u32 = 512;

/// NICs and links. What leaves the process goes through a gateway that the caller lends.
pub(crate) struct Network {
    link_ns: u64,
    pub(crate) nics: Vec<SoftNic>,
    places: Vec<RailAt>,
    /// Soft EFAs behind the ports of NICs, by NIC; empty where there is none.
    pub(crate) srd: Vec<Option<Box<Srd>>>,
    /// Pairs of PEs between which nothing passes.
    apart: BTreeSet<(u32, u32)>,
    pub(crate) links: Links,
    pub(crate) cx: StepContext,
    /// Where frames are written down.
    pub(crate) capture: Option<Box<Capture>>,
    /// Who has something due, where steps are sparse.
    pub(crate) scheduler: Scheduler,
}

impl Network {
    /// No NICs.
    pub(crate) fn new(link_ns: u64, seed: u64) -> Self {
        Self {
            link_ns,
            nics: Vec::new(),
            places: Vec::new(),
            srd: Vec::new(),
            apart: BTreeSet::new(),
            links: Links::new(seed),
            cx: StepContext { epoch: 1, ..StepContext::default() },
            capture: None,
            scheduler: Scheduler::default(),
        }
    }

    /// Adds a NIC, and returns its number.
    ///
    /// # Panics
    /// If another NIC has one of its addresses.
    pub(crate) fn add(&mut self, mut nic: SoftNic, at: RailAt) -> u32 {
        let number = self.nics.len() as u32;
        let infiniband = nic.config().link_layer == LinkLayer::InfiniBand;
        let name = nic.config().name.clone();
        nic.set_number(number);
        self.nics.push(nic);
        self.places.push(at);
        self.links.add();
        let routes = self.cx.routes.len();
        self.reroute();
        let added = self.cx.routes.len() - routes;
        assert_eq!(added, if infiniband { 2 } else { 1 }, "{name}: another NIC has this GID or LID");
        number
    }

    /// Fills the routes from the NICs' addresses.
    pub(crate) fn reroute(&mut self) {
        self.cx.routes.clear();
        self.cx.epoch += 1;
        for (number, nic) in self.nics.iter().enumerate() {
            let config = nic.config();
            let infiniband = config.link_layer == LinkLayer::InfiniBand;
            let route = Route { nic: number as u32, mac: (!infiniband).then(|| config.mac_number()) };
            self.cx.routes.insert(u128::from_be_bytes(config.gid), route);
            if infiniband {
                self.cx.routes.insert(config.lid as u128, route);
            }
        }
    }

    /// The NIC of a rail.
    pub(crate) fn find(&self, at: RailAt) -> Option<u32> {
        self.places.iter().position(|place| *place == at).map(|n| n as u32)
    }

    /// The rail of a NIC.
    pub(crate) fn place(&self, nic: u32) -> Option<RailAt> {
        self.places.get(nic as usize).copied()
    }

    /// From now on nothing passes between two PEs; what is on its way arrives.
    pub(crate) fn part(&mut self, a: u32, b: u32) {
        self.apart.extend([(a, b), (b, a)]);
    }

    fn are_apart(&self, from: usize, to: usize) -> bool {
        !self.apart.is_empty() && self.apart.contains(&(self.places[from].pe, self.places[to].pe))
    }

    /// When a NIC has something to do, doorbells aside.
    pub(crate) fn next_due(&self, at: usize) -> Option<u64> {
        let srd = self.srd.get(at).and_then(|srd| srd.as_ref()?.next_due());
        let nic = self.nics[at].next_due(self.cx.now);
        nic.into_iter().chain(self.links.next_due(at)).chain(srd).min()
    }

    /// Files what the NICs that were touched have due.
    pub(crate) fn file_touched(&mut self) {
        while let Some(nic) = self.scheduler.pop_touched() {
            let due = self.next_due(nic as usize);
            self.scheduler.file(nic, due);
        }
    }

    /// Everything one NIC has due; its doorbells are looked at if it may be `rung`. True if there was anything.
    pub(crate) fn work(
        &mut self,
        at: usize,
        look: DoorbellLook,
        gateway: &mut Option<UplinkGateway>,
    ) -> bool {
        let nic = &mut self.nics[at];
        let mut any = nic.run_placement(&mut self.cx);
        if nic.is_gone() {
            return any | self.deliver(at); // Only to drop them.
        }
        any |= nic.run_host_side(look, &mut self.cx);
        any |= self.deliver(at);
        any |= self.nics[at].run_wire_side(&mut self.cx);
        if let Some(Some(srd)) = self.srd.get_mut(at) {
            any |= srd.run(&mut self.nics[at], &mut self.cx);
        }
        self.carry(at, gateway);
        any
    }

    /// Hands arrived packets to a NIC. True if there were any.
    fn deliver(&mut self, at: usize) -> bool {
        let mut any = false;
        let nic = &mut self.nics[at];
        let mut srd = self.srd.get_mut(at).and_then(|srd| srd.as_mut());
        for _ in 0..ARRIVALS {
            let Some(packet) = self.links.pop(at, self.cx.now) else { break };
            any = true;
            if nic.is_killed() || nic.is_faulty() && link::lost_on_arrival(nic, &packet) {
                nic.drop_packet(packet, &mut self.cx);
            } else if let Some(srd) = &mut srd {
                srd.receive(packet, nic, &mut self.cx);
            } else {
                nic.receive(packet, &mut self.cx);
            }
        }
        any
    }

    /// Carries the packets a NIC sent to where they go.
    fn carry(&mut self, at: usize, gateway: &mut Option<UplinkGateway>) {
        let mut outbox = self.nics[at].take_outbox();
        for packet in outbox.drain(..) {
            let to = packet.to;
            if to == NO_ROUTE {
                self.missed();
                self.nics[at].drop_unroutable(packet, &mut self.cx);
            } else if to as usize == at {
                self.links.push(self.cx.now + LOOPBACK_NS, packet);
            } else if RemoteNics::holds(to) {
                self.carry_outside(at, packet, gateway);
            } else if self.are_apart(at, to as usize) {
                self.nics[at].drop_packet(packet, &mut self.cx);
            } else if self.nics[at].is_faulty() || self.nics[to as usize].is_faulty() {
                self.carry_through_faults(at, packet);
            } else {
                self.write_down(&packet);
                self.scheduler.touch(to);
                self.links.push(self.cx.now + self.link_ns, packet);
            }
        }
        self.nics[at].put_outbox(outbox);
    }

    /// Puts a packet on a link as if its sender had sent it now. False if there is no NIC of that number at one of its
    /// ends.
    pub(crate) fn forge(&mut self, packet: Packet) -> bool {
        let known = |nic: u32| (nic as usize) < self.nics.len();
        if !known(packet.from) || !known(packet.to) {
            return false;
        }
        self.scheduler.touch(packet.to);
        self.links.push(self.cx.now + self.link_ns, packet);
        true
    }

    /// A packet had nowhere to go: a `gid-change` may be why.
    fn missed(&mut self) {
        let moved = |kind: &FaultKind| matches!(kind, FaultKind::GidChange);
        if let Some(nic) = self.nics.iter_mut().find(|nic| nic.faults().has(moved)) {
            nic.faults_mut().strikes(moved);
        }
    }

    /// Carries a packet through the faults of the ports it passes. Each port acts alone: the sender's on what leaves,
    /// then both on what passes, so that two processes can do it each for its own.
    fn carry_through_faults(&mut self, from: usize, packet: Packet) {
        if link::lost_on_departure(&mut self.nics[from]) {
            return self.nics[from].drop_packet(packet, &mut self.cx);
        }
        self.write_down(&packet);
        let to = packet.to as usize;
        let mut passage = Passage { at: self.cx.now + self.link_ns, twice: false };
        for port in [from, to] {
            if !self.links.pass(self.nics[port].faults_mut(), &mut passage) {
                return self.nics[port].drop_packet(packet, &mut self.cx);
            }
        }
        self.scheduler.touch(to as u32);
        self.links.push_passed(&passage, packet);
    }

    /// Writes down a packet on its way from one NIC to another.
    #[inline]
    fn write_down(&mut self, packet: &Packet) {
        if let Some(capture) = &mut self.capture {
            let [from, to] = [packet.from, packet.to].map(|nic| self.nics[nic as usize].config());
            capture.inside(self.cx.now, packet, from, to);
        }
    }

    /// Carries a packet to a NIC of another process, through the faults of the port it leaves.
    fn carry_outside(&mut self, from: usize, packet: Packet, gateway: &mut Option<UplinkGateway>) {
        if !self.nics[from].is_faulty() {
            return self.send_outside(packet, gateway);
        }
        if link::lost_on_departure(&mut self.nics[from]) {
            return self.nics[from].drop_packet(packet, &mut self.cx);
        }
        let mut passage = Passage { at: self.cx.now, twice: false };
        if !self.links.pass(self.nics[from].faults_mut(), &mut passage) {
            return self.nics[from].drop_packet(packet, &mut self.cx);
        }
        for packet in passage.twice.then(|| packet.clone()).into_iter().chain([packet]) {
            if passage.at <= self.cx.now {
                self.send_outside(packet, gateway);
            } else if let Some(gateway) = gateway {
                gateway.hold(passage.at, packet);
            }
        }
    }

    /// Gives a packet to the gateway.
    fn send_outside(&mut self, packet: Packet, gateway: &mut Option<UplinkGateway>) {
        if let Some(gateway) = gateway {
            let source_mac = self.nics[packet.from as usize].config().mac_number();
            let (cx, capture) = (&mut self.cx, self.capture.as_deref_mut());
            gateway.send(&packet, source_mac, &mut cx.remote_nics, capture, cx.now);
        }
        packet.recycle(&mut self.cx.pool);
    }

    /// Takes frames and changes of links from the gateway. True if there were any.
    pub(crate) fn arrive(&mut self, gateway: &mut Option<UplinkGateway>) -> bool {
        let Some(gateway) = gateway else { return false };
        let mut any = gateway.receive(|frame| {
            if let Some(capture) = &mut self.capture {
                capture.frame(self.cx.now, frame);
            }
            match frame::decode_into(frame, &mut self.cx.pool) {
                Ok(frame) => self.admit(frame),
                Err(_) => Arrived::Undecodable,
            }
        });
        gateway.link_changes(|address, link| {
            let Some(route) = self.cx.routes.get(&address) else { return };
            self.nics[route.nic as usize].set_carrier(self.cx.now, link);
            self.scheduler.touch(route.nic);
            any = true;
        });
        any
    }

    /// Hands a frame to the NIC it is for.
    fn admit(&mut self, frame::Frame { addresses, mut packet, .. }: frame::Frame) -> Arrived {
        let route = self.cx.routes.get(&addresses.destination).copied();
        let Some(route) = route.filter(|to| to.mac.is_none_or(|mac| mac == addresses.destination_mac)) else {
            self.missed();
            packet.recycle(&mut self.cx.pool);
            return Arrived::Misaddressed;
        };
        packet.to = route.nic;
        let nic = &mut self.nics[route.nic as usize];
        let mut passage = Passage { at: self.cx.now, twice: false };
        if nic.is_faulty() && !self.links.pass(nic.faults_mut(), &mut passage) {
            nic.drop_packet(packet, &mut self.cx);
        } else {
            self.links.push_passed(&passage, packet);
        }
        Arrived::Here
    }

    /// Sends what is due through the gateway, and learns which destinations are full. True if a queue pair may go on.
    pub(crate) fn run_gateway(&mut self, gateway: &mut Option<UplinkGateway>) -> bool {
        while let Some(packet) = gateway.as_mut().and_then(|gateway| gateway.pop_late(self.cx.now)) {
            self.send_outside(packet, gateway);
        }
        let let_in = self.run_windows();
        let Some(gateway) = gateway else { return false };
        let resumed = gateway.flush(&mut self.cx.remote_nics);
        if resumed {
            self.nics.iter_mut().for_each(SoftNic::resume);
        }
        resumed | let_in
    }

    /// Gives queue pairs a turn whose windows opened. True if there were any.
    fn run_windows(&mut self) -> bool {
        for charge in self.nics.iter_mut().flat_map(SoftNic::take_released) {
            self.cx.remote_nics.release(charge);
        }
        let opened = self.cx.remote_nics.take_opened();
        if opened {
            self.nics.iter_mut().for_each(|nic| nic.let_in(&mut self.cx));
        }
        opened
    }
}
