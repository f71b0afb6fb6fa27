//! All NICs of a job, the link between them, and the plan of faults.

use crate::agenda::Agenda;
use crate::capture::Capture;
use crate::cx::{Cx, Route, WordWatch};
use crate::fault::{FaultKind, FaultReport, Plan, Planned, Step};
use crate::link::{self, Link};
use crate::nic::SoftNic;
use crate::outside::Border;
use crate::packet::Packet;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;

/// Rounds of one step at the same instant; what is left then is reported as due at once.
pub(crate) const ROUNDS: u32 = 64;

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

/// All NICs of a job and the link between them.
pub struct Fabric {
    pub(crate) config: FabricConfig,
    pub(crate) nics: Vec<SoftNic>,
    places: Vec<RailAt>,
    /// Pairs of PEs between which nothing passes.
    apart: BTreeSet<(u32, u32)>,
    pub(crate) links: Vec<Link>,
    plan: Plan,
    pub(crate) cx: Cx,
    /// The way to other processes.
    pub(crate) border: Option<Border>,
    /// Where frames are written down.
    pub(crate) capture: Option<Box<Capture>>,
    pub(crate) random: u64,
    /// Who has something due, where steps are sparse.
    pub(crate) agenda: Agenda,
}

impl Fabric {
    /// A fabric without NICs.
    pub fn new(config: FabricConfig) -> Self {
        let cx = Cx { epoch: 1, ..Cx::default() };
        let random = config.seed ^ 0x9e37_79b9_7f4a_7c15;
        let (nics, places, links) = (Vec::new(), Vec::new(), Vec::new());
        let (border, capture) = (None, None);
        let agenda = Agenda::default();
        Self {
            config,
            nics,
            places,
            apart: BTreeSet::new(),
            links,
            plan: Plan::default(),
            cx,
            border,
            capture,
            random,
            agenda,
        }
    }

    /// Adds a NIC.
    ///
    /// # Panics
    /// If another NIC has the same GID, or on InfiniBand the same LID: two NICs with one address are a
    /// mistake of the caller that would look like loss. If an uplink is attached: it would not know the NIC.
    pub fn add(&mut self, mut nic: SoftNic, at: RailAt) -> NicId {
        assert!(self.border.is_none(), "{}: NICs are added before an uplink is attached", nic.config.name);
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
            let infiniband = nic.config.link_layer == crate::LinkLayer::InfiniBand;
            let route = Route { nic: nic.number, mac: (!infiniband).then(|| nic.mac()) };
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
        self.agenda.touch(id.0);
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
        self.round_with(now, true)
    }

    /// The same; doorbells are looked at if they may be `rung`.
    pub(crate) fn round_with(&mut self, now: u64, rung: bool) -> bool {
        self.cx.now = now;
        let mut any = self.run_plan();
        any |= self.arrive();
        for at in 0..self.nics.len() {
            any |= self.work(at, rung);
        }
        any |= self.run_border();
        self.flush_capture();
        any
    }

    /// Doorbell pages that a look goes through.
    pub(crate) fn pages(&self) -> u64 {
        self.nics.iter().map(|nic| nic.uars.len() as u64).sum()
    }

    /// Everything one NIC has due; its doorbells are looked at if it may be `rung`. True if there was anything.
    pub(crate) fn work(&mut self, at: usize, rung: bool) -> bool {
        let now = self.cx.now;
        let nic = &mut self.nics[at];
        let mut any = nic.run_placement(&mut self.cx);
        if nic.is_gone() {
            return any | self.deliver(at); // Only to drop them.
        }
        any |= nic.run_commands(now);
        if nic.events.announce(now) {
            nic.wake();
            any = true;
        }
        if rung || nic.unread {
            any |= nic.poll_doorbells(&mut self.cx);
        }
        any |= nic.run_recheck(&mut self.cx);
        any |= self.deliver(at);
        let nic = &mut self.nics[at];
        any |= nic.run_timers(&mut self.cx);
        any |= nic.run_late_cqes(&mut self.cx);
        any |= nic.transmit(&mut self.cx);
        self.carry(at);
        any
    }

    /// The earliest instant at which [`Self::step`] would do something, doorbells aside. At or before the
    /// last step's instant: there is work left, step again at once.
    pub fn next_due(&self) -> Option<u64> {
        let now = self.cx.now;
        let nics = self.nics.iter().filter_map(|nic| nic.next_due(now));
        let links = self.links.iter().filter_map(|link| link.front().map(|(arrival, _)| *arrival));
        nics.chain(links).chain(self.plan.next_due()).chain(self.border_due()).min()
    }

    /// Schedules a fault. An instant that is past means now.
    ///
    /// # Panics
    /// If the fabric has no such rail: a fault that strikes nothing would be a test that tests nothing.
    pub fn plan(&mut self, at_ns: u64, at: RailAt, kind: FaultKind) {
        assert!(self.find(at).is_some(), "no rail {at} to inject `{kind}` at");
        self.plan.add(Planned { at_ns: at_ns.max(self.cx.now), at, kind });
    }

    /// The process that owns a NIC is gone: its queue pairs are destroyed, nothing lands in its memory any more, and
    /// it sends nothing. What it had sent is on its way.
    ///
    /// # Panics
    /// If the fabric has no such rail.
    pub fn kill(&mut self, at: RailAt) {
        let Some(NicId(number)) = self.find(at) else { panic!("no rail {at} to kill") };
        self.agenda.touch(number);
        self.nics[number as usize].kill();
    }

    /// From now on nothing passes between two PEs, either way, on whatever rails; what is on its way arrives.
    pub fn part(&mut self, a: u32, b: u32) {
        self.apart.extend([(a, b), (b, a)]);
    }

    pub(crate) fn are_apart(&self, from: usize, to: usize) -> bool {
        !self.apart.is_empty() && self.apart.contains(&(self.places[from].pe, self.places[to].pe))
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
        self.agenda.touch(packet.to);
        link::push(&mut self.links[packet.to as usize], arrival, packet);
        true
    }

    /// Lets rate limits catch up by this much, for a caller that steps coarsely in real time (the engine
    /// does). Zero, the default, paces exactly and is right for virtual time.
    pub fn set_catch_up(&mut self, nanoseconds: u64) {
        self.cx.catch_up_ns = nanoseconds;
    }

    /// When the next planned fault is due.
    pub(crate) fn plan_due(&self) -> Option<u64> {
        self.plan.next_due()
    }

    pub(crate) fn run_plan(&mut self) -> bool {
        let now = self.cx.now;
        let mut any = false;
        while let Some((id, planned, step)) = self.plan.pop(now) {
            any = true;
            let Some(NicId(at)) = self.find(planned.at) else { continue };
            self.agenda.touch(at);
            let nic = &mut self.nics[at as usize];
            match (step, planned.kind) {
                (Step::Start, FaultKind::Up) => {
                    if nic.link_up(now) {
                        nic.faults.hit(id);
                    }
                }
                (Step::Start, FaultKind::GidChange) => {
                    // The last byte but one of an IPv4-mapped GID: the port moved to another subnet.
                    self.cx.outside.leave(u128::from_be_bytes(nic.config.gid));
                    nic.config.gid[14] ^= 0x80;
                    nic.faults.hit(id);
                    nic.faults.start(id, planned.kind, now);
                    self.reroute();
                    self.own_addresses();
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
                    nic.faults.start(id, kind, now);
                }
                (Step::End, _) => nic.faults.end(id),
            }
        }
        any
    }
}
