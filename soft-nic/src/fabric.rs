//! All NICs of a job, the link between them, and the plan of faults.

use crate::cx::{Cx, Route, WordWatch};
use crate::fault::{FaultKind, FaultReport, Plan, Planned, Step};
use crate::nic::SoftNic;
use crate::packet::{Body, Packet, Part};
use crate::qp::NO_ROUTE;
use std::collections::VecDeque;
use std::fmt;

/// From a NIC to itself, without the port.
const LOOPBACK_NS: u64 = 500;
/// How late a reordered packet is.
const REORDER_NS: u64 = 10_000;
/// Rounds of one step at the same instant; what is left then is reported as due at once.
const ROUNDS: u32 = 64;
/// Packets delivered to one NIC in a round.
const ARRIVALS: u32 = 512;

/// What a fabric is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// Latency from port to port.
    pub link_ns: u64,
    /// Seed of everything random: only faults with a probability are.
    pub seed: u64,
}

impl Default for FabricConfig {
    fn default() -> Self {
        Self { link_ns: 2_000, seed: 0 }
    }
}

/// A NIC's number in its fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NicId(pub u32);

/// Which rail of which PE; written `pe.rail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RailAt {
    /// The PE.
    pub pe: u32,
    /// Its rail.
    pub rail: u32,
}

impl fmt::Display for RailAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pe, self.rail)
    }
}

/// Packets on their way to one NIC, by arrival.
type Link = VecDeque<(u64, Packet)>;

/// All NICs of a job and the link between them.
pub struct Fabric {
    config: FabricConfig,
    nics: Vec<SoftNic>,
    places: Vec<RailAt>,
    links: Vec<Link>,
    plan: Plan,
    cx: Cx,
    random: u64,
}

impl Fabric {
    /// A fabric without NICs.
    pub fn new(config: FabricConfig) -> Self {
        let cx = Cx { epoch: 1, ..Cx::default() };
        let random = config.seed ^ 0x9e37_79b9_7f4a_7c15;
        let (nics, places, links) = (Vec::new(), Vec::new(), Vec::new());
        Self { config, nics, places, links, plan: Plan::default(), cx, random }
    }

    /// Adds a NIC.
    ///
    /// # Panics
    /// If another NIC has the same GID, or on InfiniBand the same LID: two NICs with one address are a
    /// mistake of the caller that would look like loss.
    pub fn add(&mut self, mut nic: SoftNic, at: RailAt) -> NicId {
        let number = self.nics.len() as u32;
        nic.number = number;
        self.nics.push(nic);
        self.places.push(at);
        self.links.push(VecDeque::new());
        let routes = self.cx.routes.len();
        self.reroute();
        let added = self.cx.routes.len() - routes;
        let expected =
            if self.nics[number as usize].config.link_layer == crate::LinkLayer::InfiniBand { 2 } else { 1 };
        assert_eq!(
            added, expected,
            "{}: another NIC has this GID or LID",
            self.nics[number as usize].config.name
        );
        NicId(number)
    }

    /// Fills the routes from the NICs' addresses.
    fn reroute(&mut self) {
        self.cx.routes.clear();
        self.cx.epoch += 1;
        for nic in &self.nics {
            let mac = nic.config.mac.iter().fold(0, |mac, byte| mac << 8 | *byte as u64);
            let infiniband = nic.config.link_layer == crate::LinkLayer::InfiniBand;
            let route = Route { nic: nic.number, mac: (!infiniband).then_some(mac) };
            self.cx.routes.insert(u128::from_be_bytes(nic.config.gid), route);
            if infiniband {
                self.cx.routes.insert(nic.config.lid as u128, route);
            }
        }
    }

    /// A NIC.
    ///
    /// # Panics
    /// If the number is not from this fabric.
    pub fn nic(&mut self, id: NicId) -> &mut SoftNic {
        &mut self.nics[id.0 as usize]
    }

    /// The NIC of a rail.
    pub fn find(&self, at: RailAt) -> Option<NicId> {
        self.places.iter().position(|place| *place == at).map(|n| NicId(n as u32))
    }

    /// The rail of a NIC.
    pub fn place(&self, id: NicId) -> Option<RailAt> {
        self.places.get(id.0 as usize).copied()
    }

    /// All NICs, in the order they were added.
    pub fn nics(&self) -> impl Iterator<Item = NicId> + use<> {
        (0..self.nics.len() as u32).map(NicId)
    }

    /// Polls doorbells and runs everything due at `now`. True if anything happened.
    pub fn step(&mut self, now: u64) -> bool {
        let mut any = false;
        for _ in 0..ROUNDS {
            if !self.round(now) {
                break;
            }
            any = true;
        }
        any
    }

    /// One bounded piece of a step, for a caller that shares the fabric with others.
    pub fn round(&mut self, now: u64) -> bool {
        self.cx.now = now;
        let mut any = self.run_plan();
        for at in 0..self.nics.len() {
            let nic = &mut self.nics[at];
            any |= nic.run_placement(&mut self.cx);
            if nic.is_gone() {
                any |= self.deliver(at); // Only to drop them.
                continue;
            }
            any |= nic.run_commands(now);
            any |= nic.events.announce(now);
            any |= nic.poll_doorbells(&mut self.cx);
            any |= nic.run_recheck(&mut self.cx);
            any |= self.deliver(at);
            let nic = &mut self.nics[at];
            any |= nic.run_timers(&mut self.cx);
            any |= nic.run_late_cqes(&mut self.cx);
            any |= nic.transmit(&mut self.cx);
            self.carry(at);
        }
        any
    }

    /// The earliest instant at which [`Self::step`] would do something, doorbells aside. At or before the
    /// last step's instant: there is work left, step again at once.
    pub fn next_due(&self) -> Option<u64> {
        let now = self.cx.now;
        let nics = self.nics.iter().filter_map(|nic| nic.next_due(now));
        let links = self.links.iter().filter_map(|link| link.front().map(|(arrival, _)| *arrival));
        nics.chain(links).chain(self.plan.next_due()).min()
    }

    /// Schedules a fault. An instant that is past means now.
    ///
    /// # Panics
    /// If the fabric has no such rail: a fault that strikes nothing would be a test that tests nothing.
    pub fn plan(&mut self, at_ns: u64, at: RailAt, kind: FaultKind) {
        assert!(self.find(at).is_some(), "no rail {at} to inject `{kind}` at");
        self.plan.add(Planned { at_ns: at_ns.max(self.cx.now), at, kind });
    }

    /// Every planned fault and how often it struck.
    pub fn faults(&self) -> Vec<FaultReport> {
        let report = |(id, planned): (usize, &Planned)| FaultReport {
            at_ns: planned.at_ns,
            at: planned.at,
            kind: planned.kind,
            hits: self.nics.iter().map(|nic| nic.faults.hits(id)).sum(),
        };
        self.plan.entries().iter().enumerate().map(report).collect()
    }

    /// Watches a word: every 8-byte placement on exactly this address, by any NIC.
    pub fn watch_word(&mut self, address: u64) {
        self.cx.watch.entry(address).or_default();
    }

    /// What was placed on a watched word; nothing if it is not watched.
    pub fn watched(&self, address: u64) -> WordWatch {
        self.cx.watch.get(&address).copied().unwrap_or_default()
    }

    /// Puts a packet on a link as if `from` had sent it now: ghosts and garbage, for tests. False if there is
    /// no NIC of that number at one of its ends.
    pub fn forge(&mut self, packet: Packet) -> bool {
        let known = |nic: u32| (nic as usize) < self.nics.len();
        if !known(packet.from) || !known(packet.to) {
            return false;
        }
        let arrival = self.cx.now + self.config.link_ns;
        push(&mut self.links[packet.to as usize], arrival, packet);
        true
    }

    /// Lets rate limits catch up by this much, for a caller that steps coarsely in real time (the engine
    /// does). Zero, the default, paces exactly and is right for virtual time.
    pub fn set_catch_up(&mut self, nanoseconds: u64) {
        self.cx.catch_up_ns = nanoseconds;
    }

    fn run_plan(&mut self) -> bool {
        let now = self.cx.now;
        let mut any = false;
        while let Some((id, planned, step)) = self.plan.pop(now) {
            any = true;
            let Some(NicId(at)) = self.find(planned.at) else { continue };
            let nic = &mut self.nics[at as usize];
            match (step, planned.kind) {
                (Step::Start, FaultKind::Up) => {
                    if nic.link_up(now) {
                        nic.faults.hit(id);
                    }
                }
                (Step::Start, FaultKind::GidChange) => {
                    // The last byte but one of an IPv4-mapped GID: the port moved to another subnet.
                    nic.config.gid[14] ^= 0x80;
                    nic.faults.hit(id);
                    nic.faults.start(id, planned.kind);
                    self.reroute();
                }
                (Step::Start, FaultKind::Down { .. }) | (Step::FlapDown, _) => {
                    if nic.link_down(now, id) {
                        nic.faults.hit(id);
                    }
                }
                (Step::End, FaultKind::Down { .. }) | (Step::FlapUp, _) => {
                    // Only its own: a `down` planned meanwhile stays.
                    if nic.port.down_by == Some(id) && nic.link_up(now) {
                        nic.faults.hit(id);
                    }
                }
                (Step::Start, FaultKind::Flap { .. }) => {}
                (Step::Start, kind) => {
                    if matches!(kind, FaultKind::NicGone { .. }) {
                        nic.faults.hit(id);
                    }
                    nic.faults.start(id, kind);
                }
                (Step::End, _) => nic.faults.end(id),
            }
        }
        any
    }

    /// Hands arrived packets to a NIC. True if there were any.
    fn deliver(&mut self, at: usize) -> bool {
        let mut any = false;
        for _ in 0..ARRIVALS {
            if self.links[at].front().is_none_or(|(arrival, _)| *arrival > self.cx.now) {
                break;
            }
            let Some((_, packet)) = self.links[at].pop_front() else { break };
            any = true;
            let nic = &mut self.nics[at];
            if (nic.faults.any() || nic.port.down_by.is_some()) && lost_on_arrival(nic, &packet) {
                nic.drop_packet(packet, &mut self.cx);
            } else {
                nic.receive(packet, &mut self.cx);
            }
        }
        any
    }

    /// Carries the packets a NIC sent to where they go.
    fn carry(&mut self, at: usize) {
        let mut outbox = std::mem::take(&mut self.nics[at].outbox);
        for packet in outbox.drain(..) {
            let to = packet.to;
            if to == NO_ROUTE {
                let nic = &mut self.nics[at];
                nic.counters.unroutable += 1;
                if let Some((id, ())) = self.moved_port() {
                    self.nics[id.0 as usize].faults.strikes(|kind| matches!(kind, FaultKind::GidChange));
                }
                self.nics[at].drop_packet(packet, &mut self.cx);
                continue;
            }
            if to as usize == at {
                push(&mut self.links[at], self.cx.now + LOOPBACK_NS, packet);
                continue;
            }
            let faulty = |nic: &SoftNic| nic.faults.any() || nic.port.down_by.is_some();
            if faulty(&self.nics[at]) || faulty(&self.nics[to as usize]) {
                self.carry_through_faults(at, packet);
            } else {
                push(&mut self.links[to as usize], self.cx.now + self.config.link_ns, packet);
            }
        }
        self.nics[at].outbox = outbox;
    }

    /// The NIC whose address changed, if any did.
    fn moved_port(&self) -> Option<(NicId, ())> {
        let moved = |nic: &&SoftNic| nic.faults.has(|kind| matches!(kind, FaultKind::GidChange));
        self.nics.iter().find(moved).map(|nic| (NicId(nic.number), ()))
    }

    /// A number from 0 to 1, the next of the seed's (splitmix64).
    fn chance(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn carry_through_faults(&mut self, from: usize, packet: Packet) {
        let sender = &mut self.nics[from];
        if let Some(id) = sender.port.down_by {
            sender.faults.hit(id);
            return sender.drop_packet(packet, &mut self.cx);
        }
        if sender.faults.strikes(|kind| matches!(kind, FaultKind::BlackholeTx { .. })) {
            return sender.drop_packet(packet, &mut self.cx);
        }
        let to = packet.to as usize;
        let mut arrival = self.cx.now + self.config.link_ns;
        let mut twice = false;
        for port in [from, to] {
            let (lost, doubled) = (self.chance(), self.chance());
            let nic = &mut self.nics[port];
            if !nic.faults.any() {
                continue;
            }
            if nic
                .faults
                .strikes(|kind| matches!(kind, FaultKind::Drop { probability, .. } if lost < *probability))
            {
                return nic.drop_packet(packet, &mut self.cx);
            }
            twice |= nic
                .faults
                .strikes(|kind| matches!(kind, FaultKind::Dup { probability, .. } if doubled < *probability));
            let delay = |kind: &FaultKind| match kind {
                FaultKind::Delay { by_ns, .. } => Some(*by_ns),
                _ => None,
            };
            arrival += nic.faults.strike(delay).unwrap_or(0);
            nic.faults.passed += 1;
            let passed = nic.faults.passed;
            let late = |kind: &FaultKind| match kind {
                FaultKind::Reorder { every, .. } => passed.is_multiple_of(*every as u64),
                _ => false,
            };
            arrival += REORDER_NS * nic.faults.strikes(late) as u64;
        }
        if twice {
            push(&mut self.links[to], arrival, packet.clone());
        }
        push(&mut self.links[to], arrival, packet);
    }
}

/// Adds a packet behind those that arrive no later.
fn push(link: &mut Link, arrival: u64, packet: Packet) {
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
