//! All NICs of a job, the link between them, and the plan of faults.

use crate::capture::{Capture, CaptureReport};
use crate::network::Network;
use crate::srd::{Srd, SrdConfig};
use crate::uplink_gateway::UplinkGateway;
use shunt_soft_fault::{FaultKind, FaultReport, Plan, Planned, RailAt, Step};
use shunt_soft_hca::DoorbellLook;
use shunt_soft_hca::nic::SoftNic;
use shunt_soft_hca::step_context::WordWatch;
use shunt_soft_srd as srd;
use shunt_soft_wire::packet::Packet;
use shunt_soft_wire::remote_nics::RemoteNics;
use shunt_soft_wire::uplink::{Uplink, UplinkCounters, UplinkError};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;

/// Rounds of one step at the same instant; what is left then is reported as due at once.
const ROUNDS: u32 = 64;

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

/// All NICs of a job and the link between them.
pub struct Fabric {
    network: Network,
    plan: Plan,
    /// The way to other processes.
    gateway: Option<UplinkGateway>,
}

impl Fabric {
    /// A fabric without NICs.
    pub fn new(config: FabricConfig) -> Self {
        let network = Network::new(config.link_ns, config.seed);
        Self { network, plan: Plan::default(), gateway: None }
    }

    /// Adds a NIC.
    ///
    /// # Panics
    /// If another NIC has the same GID, or on InfiniBand the same LID: two NICs with one address are a
    /// mistake of the caller that would look like loss. If an uplink is attached: it would not know the NIC.
    pub fn add(&mut self, nic: SoftNic, at: RailAt) -> NicId {
        let name = &nic.config().name;
        assert!(self.gateway.is_none(), "{name}: NICs are added before an uplink is attached");
        NicId(self.network.add(nic, at))
    }

    /// A NIC.
    ///
    /// # Panics
    /// If the number is not from this fabric.
    pub fn nic(&mut self, id: NicId) -> &mut SoftNic {
        self.network.scheduler.touch(id.0);
        &mut self.network.nics[id.0 as usize]
    }

    /// Puts a soft EFA behind the port of a NIC: all that arrives there is its. Without its own `mac`, packet size and
    /// rate: those are the NIC's.
    pub fn put_srd(&mut self, id: NicId, config: SrdConfig) {
        let nic = &self.network.nics[id.0 as usize];
        let srd = Srd::new(nic, config);
        self.network.srd.resize_with(self.network.nics.len(), || None);
        self.network.srd[id.0 as usize] = Some(Box::new(srd));
    }

    /// The soft EFA behind the port of a NIC, if there is one.
    pub fn srd(&mut self, id: NicId) -> Option<&mut srd::device::Device> {
        self.network.scheduler.touch(id.0);
        self.network.srd.get_mut(id.0 as usize)?.as_mut().map(|srd| srd.device())
    }

    /// The NIC of a rail.
    pub fn find(&self, at: RailAt) -> Option<NicId> {
        self.network.find(at).map(NicId)
    }

    /// The rail of a NIC.
    pub fn place(&self, id: NicId) -> Option<RailAt> {
        self.network.place(id.0)
    }

    /// All NICs, in the order they were added.
    pub fn nics(&self) -> impl Iterator<Item = NicId> + use<> {
        (0..self.network.nics.len() as u32).map(NicId)
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
        self.round_with(now, DoorbellLook::Everywhere)
    }

    /// The same, with this look for doorbells.
    pub(crate) fn round_with(&mut self, now: u64, look: DoorbellLook) -> bool {
        self.network.cx.now = now;
        let mut any = self.run_plan();
        any |= self.network.arrive(&mut self.gateway);
        for at in 0..self.network.nics.len() {
            any |= self.network.work(at, look, &mut self.gateway);
        }
        any |= self.network.run_gateway(&mut self.gateway);
        if let Some(capture) = &mut self.network.capture {
            capture.flush();
        }
        any
    }

    /// As [`Fabric::step`], without a look at NICs that have nothing due. `rung`: those whose doorbells may have been
    /// written since the last step.
    pub fn step_sparse(&mut self, now: u64, rung: &[NicId]) -> bool {
        let scheduler = &mut self.network.scheduler;
        scheduler.start(self.network.nics.len());
        rung.iter().for_each(|nic| scheduler.ring(nic.0));
        let mut any = false;
        for _ in 0..ROUNDS {
            if !self.sparse_round(now) {
                break;
            }
            any = true;
        }
        any
    }

    fn sparse_round(&mut self, now: u64) -> bool {
        self.network.cx.now = now;
        let mut any = self.run_plan();
        let network = &mut self.network;
        for nic in network.scheduler.take_due(now) {
            let gone = network.nics[nic as usize].is_gone();
            let rung = network.scheduler.take_rung(nic, gone);
            let look = if rung { DoorbellLook::Everywhere } else { DoorbellLook::Nowhere };
            any |= network.work(nic as usize, look, &mut self.gateway);
            network.scheduler.touch(nic);
        }
        network.file_touched();
        any
    }

    /// Doorbell pages that a look goes through.
    pub(crate) fn pages(&self) -> u64 {
        self.network.nics.iter().map(|nic| nic.pages() as u64).sum()
    }

    /// The earliest instant at which [`Self::step`] would do something, doorbells aside. At or before the
    /// last step's instant: there is work left, step again at once.
    pub fn next_due(&self) -> Option<u64> {
        let nics = (0..self.network.nics.len()).filter_map(|at| self.network.next_due(at));
        let gateway = self.gateway.as_ref().and_then(UplinkGateway::next_due);
        nics.chain(self.plan.next_due()).chain(gateway).min()
    }

    /// As [`Fabric::next_due`], for a fabric that takes sparse steps.
    pub fn next_due_sparse(&mut self) -> Option<u64> {
        self.network.scheduler.start(self.network.nics.len());
        self.network.file_touched();
        self.network.scheduler.next_due().into_iter().chain(self.plan.next_due()).min()
    }

    /// Schedules a fault. An instant that is past means now.
    ///
    /// # Panics
    /// If the fabric has no such rail: a fault that strikes nothing would be a test that tests nothing.
    pub fn plan(&mut self, at_ns: u64, at: RailAt, kind: FaultKind) {
        assert!(self.find(at).is_some(), "no rail {at} to inject `{kind}` at");
        self.plan.add(Planned { at_ns: at_ns.max(self.network.cx.now), at, kind });
    }

    /// Schedules a fault for when its NIC has sent so many packets, so that it comes while traffic flows, however slow
    /// or quick the machine is.
    ///
    /// # Panics
    /// As [`Self::plan`].
    pub fn plan_after(&mut self, packets: u64, at: RailAt, kind: FaultKind) {
        assert!(self.find(at).is_some(), "no rail {at} to inject `{kind}` at");
        self.plan.add_after(packets, at, kind);
    }

    /// The process that owns a NIC is gone: its queue pairs are destroyed, nothing lands in its memory any more, and
    /// it sends nothing. What it had sent is on its way.
    ///
    /// # Panics
    /// If the fabric has no such rail.
    pub fn kill(&mut self, at: RailAt) {
        let Some(id) = self.find(at) else { panic!("no rail {at} to kill") };
        self.nic(id).kill();
    }

    /// From now on nothing passes between two PEs, either way, on whatever rails; what is on its way arrives.
    pub fn part(&mut self, a: u32, b: u32) {
        self.network.part(a, b);
    }

    /// Every planned fault and how often it struck.
    pub fn faults(&self) -> Vec<FaultReport> {
        let report = |(id, planned): (usize, &Planned)| FaultReport {
            at_ns: planned.at_ns,
            at: planned.at,
            kind: planned.kind,
            hits: self.network.nics.iter().map(|nic| nic.faults().hits(id)).sum(),
        };
        self.plan.entries().iter().enumerate().map(report).collect()
    }

    /// Watches a word: every 8-byte placement on exactly this address, by any NIC.
    pub fn watch_word(&mut self, address: u64) {
        self.network.cx.watch.entry(address).or_default();
    }

    /// What was placed on a watched word; nothing if it is not watched.
    pub fn watched(&self, address: u64) -> WordWatch {
        self.network.cx.watch.get(&address).copied().unwrap_or_default()
    }

    /// Puts a packet on a link as if `from` had sent it now: ghosts and garbage, for tests. False if there is
    /// no NIC of that number at one of its ends.
    pub fn forge(&mut self, packet: Packet) -> bool {
        self.network.forge(packet)
    }

    /// Lets rate limits catch up by this much, for a caller that steps coarsely in real time (the engine
    /// does). Zero, the default, paces exactly and is right for virtual time.
    pub fn set_catch_up(&mut self, nanoseconds: u64) {
        self.network.cx.catch_up_ns = nanoseconds;
    }

    /// Joins this fabric to others: addresses that none of its NICs has lead to the uplink from now on, and frames
    /// for its NICs come from there. Add the NICs before, and attach before [`Engine::spawn`](crate::Engine::spawn).
    pub fn attach(&mut self, mut uplink: Box<dyn Uplink>) -> Result<(), UplinkError> {
        for (address, route) in &self.network.cx.routes {
            uplink.own(*address, route.mac.unwrap_or(0))?;
            let (config, fits) = (self.network.nics[route.nic as usize].config(), uplink.mtu(*address));
            if config.mtu > fits {
                let (nic, mtu) = (config.name.clone(), config.mtu);
                return Err(UplinkError::PathMtu { nic, address: *address, mtu, fits });
            }
        }
        self.network.cx.remote_nics = RemoteNics::behind(uplink.window());
        self.network.cx.epoch += 1;
        self.gateway = Some(UplinkGateway::new(uplink));
        Ok(())
    }

    /// Leaves the others: what is sent to them goes nowhere from now on, and their frames find nobody.
    pub fn detach(&mut self) {
        self.gateway = None;
        self.network.cx.remote_nics = RemoteNics::default();
        self.network.cx.epoch += 1;
    }

    /// What crossed the uplink; zeros without one.
    pub fn uplink_counters(&self) -> UplinkCounters {
        self.gateway.as_ref().map_or_else(UplinkCounters::default, UplinkGateway::counters)
    }

    /// Readable when the uplink has something to do.
    pub(crate) fn uplink_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.gateway.as_ref().map(UplinkGateway::descriptor)
    }

    /// Writes down every frame that crosses the uplink from now on, either way, as it is on the wire, and every packet
    /// between two NICs of this fabric as the RoCE v2 frame it would be. What a NIC sends to itself is on no wire.
    ///
    /// `epoch_ns` is the time of day at the fabric's instant zero, in nanoseconds since 1970. The writer is written
    /// to once a round and needs no buffer. An error later on ends the capture, not the fabric: [`Self::captured`]
    /// tells.
    pub fn capture(&mut self, writer: Box<dyn Write + Send>, epoch_ns: u64) -> io::Result<()> {
        self.network.capture = Some(Box::new(Capture::new(writer, epoch_ns)?));
        Ok(())
    }

    /// How the capture goes; nothing if there is none.
    pub fn captured(&self) -> Option<CaptureReport> {
        self.network.capture.as_ref().map(|capture| capture.report())
    }

    fn run_plan(&mut self) -> bool {
        let now = self.network.cx.now;
        let network = &self.network;
        let sent = |at| network.find(at).map_or(0, |nic| network.nics[nic as usize].counters().packets_out());
        self.plan.count(now, sent);
        let mut any = false;
        while let Some((id, planned, step)) = self.plan.pop(now) {
            any = true;
            let Some(NicId(at)) = self.find(planned.at) else { continue };
            self.network.scheduler.touch(at);
            let nic = &mut self.network.nics[at as usize];
            let hit = match (step, planned.kind) {
                (Step::Start, FaultKind::Up) => nic.link_up(now),
                (Step::Start, FaultKind::GidChange) => {
                    self.change_gid(at, id, now);
                    continue;
                }
                (Step::Start, FaultKind::Down { .. }) | (Step::FlapDown, _) => nic.link_down(now, id),
                // Only its own: a `down` planned meanwhile stays.
                (Step::End, FaultKind::Down { .. }) | (Step::FlapUp, _) => {
                    nic.down_by() == Some(id) && nic.link_up(now)
                }
                (Step::Start, FaultKind::Flap { .. }) => false,
                (Step::Start, kind) => {
                    nic.faults_mut().start(id, kind, now);
                    matches!(kind, FaultKind::NicGone { .. })
                }
                (Step::End, _) => {
                    nic.faults_mut().end(id);
                    false
                }
            };
            if hit {
                nic.faults_mut().hit(id);
            }
        }
        any
    }

    /// A NIC's address changes: packets to the old one are lost, the uplink answers for the new one.
    fn change_gid(&mut self, at: u32, fault: usize, now: u64) {
        let nic = &mut self.network.nics[at as usize];
        self.network.cx.remote_nics.leave(u128::from_be_bytes(nic.config().gid));
        nic.change_gid();
        nic.faults_mut().hit(fault);
        nic.faults_mut().start(fault, FaultKind::GidChange, now);
        self.network.reroute();
        if let Some(gateway) = &mut self.gateway {
            let cx = &mut self.network.cx;
            for (address, route) in &cx.routes {
                cx.remote_nics.enter(*address);
                gateway.own(*address, route.mac.unwrap_or(0));
            }
        }
    }
}
