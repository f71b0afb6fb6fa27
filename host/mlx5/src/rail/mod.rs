//! A rail: one NIC port of this PE with everything that is made once on it.

mod fetch;
mod heap;
mod options;
mod order;

pub use crate::nic::heap_keys::HeapShape;
pub use fetch::{FetchError, FetchPatience};
pub use options::RailOptions;
pub use order::{remarks, stance};

use crate::descriptor::{HalfCard, RailCard};
use crate::devx::{Devx, Neighbour};
use crate::error::NicError;
use crate::memory::{OwnedSpan, Region, Span};
use crate::nic::caps::{Caps, Link, PortAddress, port_up};
use crate::nic::datagram::{DatagramSource, Datagrams};
use crate::nic::ece;
use crate::nic::heap_keys::RegisteredHeap;
use crate::nic::loopback::{FetchPair, Pair, PairShape, PairSource, PairUse, PrivateMemory};
use crate::nic::mkey::{Access, Mkey};
use crate::nic::pd::Pd;
use crate::nic::qp::{MASK_24, QpTuning, Route};
use crate::nic::queue::{QueueSource, Reach, Request};
use crate::nic::rmsn_selftest::{self, TruthProof};
use crate::nic::rmsn_selftest_atomics::{LOST_TIMEOUTS, Stage};
use crate::nic::umem::Umem;
use crate::yield_lock::WorldLock;
use shunt_device::platform::host::World;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::OrderPolicy;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The pair that flushes run on; recreated after a failure.
#[derive(Default)]
struct FlushPair {
    pair: Option<Pair>,
    incarnation: u32,
}

/// A region of control memory, registered, and the key of its scratch.
struct Registered {
    region: Region,
    scratch: Mkey,
    umem: Umem,
}

/// One rail. Fields are dropped in order: queues, keys, umems, protection domain.
pub struct Rail {
    flush: WorldLock<FlushPair>,
    fetch: WorldLock<FetchPair>,
    datagrams: Mutex<Option<Datagrams>>,
    /// By GID: what the driver resolved once.
    macs: Mutex<HashMap<[u8; 16], [u8; 6]>>,
    heap: Option<RegisteredHeap>,
    control: Vec<Registered>,
    private: PrivateMemory,
    pd: Pd,
    eqn: u32,
    world: Arc<dyn World>,
    address: Mutex<PortAddress>,
    /// The NIC.
    pub devx: Arc<dyn Devx>,
    /// Rank at this PE; 0 is the primary.
    pub index: u32,
    /// Name of the NIC.
    pub name: String,
    /// Capabilities.
    pub caps: Caps,
    /// How it was opened.
    pub options: RailOptions,
    /// In which order writes may land: strict until it was settled.
    pub order: OrderPolicy,
    /// Why that is weaker than the strictest though nobody asked for it.
    pub order_detail: Option<String>,
    /// The start-up proof: whether this NIC's count is truth. Not before it was proved.
    pub truth_holds: bool,
    /// What the proof saw.
    pub truth_detail: String,
    /// Why there is no datagram queue pair; empty if there is one.
    pub datagram_detail: String,
}

impl Rail {
    /// Opens a NIC: capabilities, address, protection domain, memory of its own.
    pub fn open(
        devx: Arc<dyn Devx>,
        index: u32,
        options: RailOptions,
        world: Arc<dyn World>,
    ) -> Result<Self, NicError> {
        let caps = Caps::query(&*devx)?;
        let options = RailOptions { gid_index: options.gid_index.or(devx.gid_index()), ..options };
        options.check_level(caps.link, &devx.name())?;
        let address = caps.address(&*devx, options.gid_index)?;
        let eqn = devx.query_eqn()?;
        let pd = Pd::alloc(&devx)?;
        let private = PrivateMemory::open(&devx, &pd)?;
        Ok(Self {
            flush: WorldLock::new(FlushPair::default()),
            fetch: WorldLock::new(FetchPair::default()),
            datagrams: Mutex::new(None),
            macs: Mutex::new(HashMap::new()),
            heap: None,
            control: Vec::new(),
            private,
            pd,
            eqn,
            world,
            name: devx.name(),
            devx,
            index,
            caps,
            address: Mutex::new(address),
            options,
            order: OrderPolicy::Strict,
            order_detail: None,
            truth_holds: false,
            truth_detail: "not proved yet".into(),
            datagram_detail: String::new(),
        })
    }

    /// Registers a region of the control memory, once; `scratch` is the part of it that READs of device code land in.
    pub fn register_control(
        &mut self,
        region: Region,
        memory: &Arc<OwnedSpan>,
        scratch: Range<u64>,
    ) -> Result<(), NicError> {
        let umem = Umem::register(&self.devx, memory)?;
        let scratch = Mkey::create(&self.devx, self.pd.id(), &umem, scratch, Access::Local)?;
        self.control.push(Registered { region, scratch, umem });
        Ok(())
    }

    fn registered(&self, region: Region) -> Option<&Registered> {
        self.control.iter().find(|control| control.region == region)
    }

    /// Key of the scratch of a region, as a number; 0 before it was registered.
    pub fn scratch_key(&self, region: Region) -> u32 {
        self.registered(region).map_or(0, |control| control.scratch.key())
    }

    /// How the host reaches rings of a region.
    pub(crate) fn reach(&self, region: Region) -> Reach {
        match self.registered(region) {
            Some(control) if region == Region::Device => {
                Reach::Copies(control.umem.memory().memory().clone())
            }
            _ => Reach::Pointers,
        }
    }

    /// Address of the port, as last queried.
    pub fn address(&self) -> PortAddress {
        *self.address.lock().expect("no panic under this lock")
    }

    /// Asks the NIC for its port's address again: a GID may have changed or moved while the port was down.
    pub fn refresh_address(&self) -> Result<PortAddress, NicError> {
        let address = self.caps.address_again(&*self.devx, &self.address(), self.options.gid_index)?;
        *self.address.lock().expect("no panic under this lock") = address;
        Ok(address)
    }

    /// How a peer addresses this rail.
    pub fn card(&self) -> RailCard {
        let address = self.address();
        let mut name = [0; 16];
        let bytes = self.name.as_bytes();
        let length = bytes.len().min(name.len());
        name[..length].copy_from_slice(&bytes[..length]);
        RailCard {
            index: self.index,
            link: self.caps.link,
            mtu: address.mtu,
            lid: address.lid,
            mac: address.mac,
            gid: address.gid,
            name,
        }
    }

    /// The MAC that packets to a peer's rail go to.
    pub fn mac_towards(&self, remote: &RailCard) -> Result<[u8; 6], NicError> {
        if self.caps.link != Link::Ethernet {
            return Ok(remote.mac);
        }
        let neighbour = Neighbour {
            gid: remote.gid,
            gid_index: self.address().gid_index,
            traffic_class: self.options.traffic_class,
        };
        let mac = self.devx.resolve_mac(self.pd.id(), &neighbour)?.unwrap_or(remote.mac);
        self.macs.lock().expect("no panic under this lock").insert(remote.gid, mac);
        Ok(mac)
    }

    /// The same without asking anybody: what was resolved when a path was connected, else the neighbour's own, which
    /// is right on one subnet.
    pub fn known_mac(&self, remote: &RailCard) -> [u8; 6] {
        let macs = self.macs.lock().expect("no panic under this lock");
        macs.get(&remote.gid).copied().unwrap_or(remote.mac)
    }

    /// Makes the rail's datagram queue pair, which lets in what carries `qkey`, in place of the one there was. Answers
    /// with its number.
    pub fn open_datagrams(&self, qkey: u32) -> Result<u32, NicError> {
        let source = DatagramSource {
            devx: &self.devx,
            world: &*self.world,
            pd: &self.pd,
            eqn: self.eqn,
            mtu: self.address().mtu,
            pkey_index: self.address().pkey_index,
            ts_format: self.caps.ts_format,
            qkey,
        };
        let made = Datagrams::open(&source)?;
        let qpn = made.qpn();
        let old = self.datagrams().replace(made);
        // Not under the lock: its NIC is commanded, and the agent never waits for that.
        drop(old);
        Ok(qpn)
    }

    /// Makes the datagram queue pair; without one the agents do without this rail.
    pub fn settle_datagrams(&mut self, qkey: u32) {
        if let Err(error) = self.open_datagrams(qkey) {
            self.datagram_detail = format!("the agents cannot talk over rail {}: {error}", self.index);
        }
    }

    /// Number of the datagram queue pair; 0 if there is none.
    pub fn datagram_qpn(&self) -> u32 {
        self.datagrams().as_ref().map_or(0, Datagrams::qpn)
    }

    /// The rail's datagram queue pair, if it has one. The agent alone uses it, and never waits while it holds it.
    pub fn datagrams(&self) -> MutexGuard<'_, Option<Datagrams>> {
        // An agent that panicked here left whole words at most; the next one goes on.
        self.datagrams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the port is up, by the firmware's word.
    pub fn port_up(&self) -> Result<bool, NicError> {
        port_up(&*self.devx)
    }

    /// The way from a queue pair of this rail to the other end of its connection.
    ///
    /// # Errors
    /// If the two do not fit, or the way cannot be resolved.
    pub fn route(&self, own: &HalfCard, remote: &HalfCard) -> Result<Route, NicError> {
        let mismatch = |detail: String| {
            Err(NicError::Mismatch { nic: self.name.clone(), peer: remote.rail.name_text(), detail })
        };
        if remote.rail.link != self.caps.link {
            return mismatch(format!("it is {:?}, this rail is {:?}", remote.rail.link, self.caps.link));
        }
        if remote.incarnation != own.incarnation {
            return mismatch(format!(
                "its half has incarnation {}, ours has {}; both are recreated together",
                remote.incarnation, own.incarnation
            ));
        }
        let address = self.address();
        // The same at both ends, and different from pair to pair.
        let entropy = own.qpn.wrapping_mul(0x9e37).wrapping_add(remote.qpn.wrapping_mul(0x9e37));
        Ok(Route {
            link: self.caps.link,
            gid: remote.rail.gid,
            mac: self.mac_towards(&remote.rail)?,
            lid: remote.rail.lid,
            gid_index: address.gid_index,
            mtu: remote.rail.mtu.min(address.mtu),
            udp_sport: 0xc000 | (entropy as u16 & 0x3fff),
            pkey_index: address.pkey_index,
            traffic_class: self.options.traffic_class,
            service_level: self.options.service_level,
            global: remote.rail.gid[..8] != address.gid[..8],
            loopback: false,
            ece: ece::common(own.ece, remote.ece),
        })
    }

    /// Number of the protection domain.
    pub fn pd(&self) -> u32 {
        self.pd.id()
    }

    /// Number of the event queue that completions are reported to.
    pub fn eqn(&self) -> u32 {
        self.eqn
    }

    /// The tuning within what the NIC can do.
    pub fn fit(&self, tuning: &QpTuning) -> QpTuning {
        let most = self.caps.log_max_ra_req.min(self.caps.log_max_ra_res);
        let unordered = tuning.unordered || self.order == OrderPolicy::Unordered;
        let force_order = self.caps.order.forced && self.order != OrderPolicy::Unordered;
        QpTuning { log_ra: tuning.log_ra.min(most), unordered, force_order, ..*tuning }
    }

    /// What path queues on this rail are made of, in a region.
    pub(crate) fn queue_source(&self, region: Region) -> Result<QueueSource<'_>, NicError> {
        let control = self.registered(region).ok_or_else(|| NicError::Unfit {
            nic: self.name.clone(),
            what: "control memory",
            met: "not registered".into(),
            want: "registered",
            cure: "call register_control before the first path",
        })?;
        Ok(QueueSource {
            devx: &self.devx,
            memory: &**control.umem.memory().memory(),
            pd: self.pd.id(),
            eqn: self.eqn,
            umem: control.umem.id(),
            ts_format: self.caps.ts_format,
            ece: self.asks_ece(),
        })
    }

    /// Whether queue pairs are asked which options they can have.
    fn asks_ece(&self) -> bool {
        self.caps.ece && self.options.ece
    }

    fn pair(&self, which: PairUse, incarnation: u32, psn: u32) -> Result<Pair, NicError> {
        self.pair_of(PairShape { which, incarnation, psn, answers_to: None }, &QpTuning::default())
    }

    fn pair_of(&self, shape: PairShape, tuning: &QpTuning) -> Result<Pair, NicError> {
        let source = PairSource {
            queues: QueueSource {
                devx: &self.devx,
                memory: self.private.memory(),
                pd: self.pd.id(),
                eqn: self.eqn,
                umem: self.private.umem().id(),
                ts_format: self.caps.ts_format,
                ece: self.asks_ece(),
            },
            private: &self.private,
            caps: &self.caps,
            address: self.address(),
            // Nothing here stands on the order.
            tuning: QpTuning { unordered: true, ..self.fit(tuning) },
            traffic_class: self.options.traffic_class,
            service_level: self.options.service_level,
            nic: &self.name,
        };
        Pair::create(&source, shape)
    }

    /// The placement flush: everything this NIC has executed is visible in memory when it returns.
    ///
    /// A READ of the heap on a loopback pair of this NIC: PCIe reads do not pass earlier posted writes. A heap in two
    /// memories is read in both, because a read of one says nothing of writes that go to the other. Ends by its
    /// deadline. A pair that fails is recreated once, with the address the port has now: a GID may have moved.
    pub fn flush(&self) -> Result<(), NicError> {
        self.flush_within(self.options.flush_ns)
    }

    fn flush_within(&self, patience_ns: u64) -> Result<(), NicError> {
        let mut guard = self.flush.lock(&*self.world);
        let Err(first) = self.flush_once(&mut guard, patience_ns) else { return Ok(()) };
        guard.pair = None;
        if self.refresh_address().is_err() {
            return Err(first);
        }
        let again = self.flush_once(&mut guard, patience_ns);
        if again.is_err() {
            guard.pair = None;
        }
        again
    }

    fn flush_pair<'a>(&self, flush: &'a mut FlushPair) -> Result<&'a mut Pair, NicError> {
        if flush.pair.is_none() {
            flush.incarnation = flush.incarnation.wrapping_add(1);
            flush.pair =
                Some(self.pair(PairUse::Flush, flush.incarnation, (flush.incarnation << 12) & MASK_24)?);
        }
        Ok(flush.pair.as_mut().expect("made above"))
    }

    fn flush_once(&self, flush: &mut FlushPair, patience_ns: u64) -> Result<(), NicError> {
        let world = &*self.world;
        let pair = self.flush_pair(flush)?;
        let read = |remote, bytes: u64, rkey_be| {
            let local = Span { bytes: bytes.min(8), ..self.private.data(0) };
            Request::Read { local, lkey_be: self.private.key_be(), remote, rkey_be }
        };
        match &self.heap {
            Some(heap) => {
                for (remote, rkey_be) in heap.in_each_memory() {
                    pair.producer.post(world, read(remote, 8, rkey_be));
                }
            }
            None => {
                let source = self.private.data(1);
                pair.producer.post(world, read(source.address, source.bytes, self.private.key_be()));
            }
        }
        pair.producer.wait_all(world, patience_ns)
    }

    /// The start-up proof: a known mix on a fresh loopback pair, then 2ERR, QUERY_QP before and after; then the same of
    /// atomics, whose answers are lost and which are under way at 2ERR.
    pub fn prove_truth(&self) -> Result<TruthProof, NicError> {
        let mut pair = self.pair(PairUse::Proof, 0, rmsn_selftest::FIRST_PSN)?;
        let mtu_bytes = 256 << (self.address().mtu - 1);
        let (world, patience_ns) = (&*self.world, self.options.startup_ns);
        let flush = || self.flush_within(patience_ns);
        let proof = rmsn_selftest::run(&mut pair, &self.private, mtu_bytes, world, patience_ns, flush)?;
        let atomics = self.options.proof_atomics;
        if !proof.holds || atomics == 0 || Mutant::AtomicsNotProved.on() {
            return Ok(proof);
        }
        // The requester of the first pair is in ERR: what comes to it is gone.
        let lost_in = pair.requester.qp.number();
        let make = |incarnation, answers_to, tuning: QpTuning| {
            let which = PairUse::Atomics;
            self.pair_of(PairShape { which, incarnation, psn: rmsn_selftest::FIRST_PSN, answers_to }, &tuning)
        };
        let masked = self.caps.atomics.masked;
        let stage = Stage { private: &self.private, world, patience_ns, masked, flush: &flush };
        let mut tries = LOST_TIMEOUTS.into_iter().zip(0..);
        let (lost, next) = loop {
            let Some((ack_timeout, number)) = tries.next() else {
                let detail =
                    "atomics whose answers were lost were not executed before the retries ran out".into();
                return Ok(TruthProof { holds: false, detail });
            };
            let hasty = QpTuning { ack_timeout, retry: 1, ..QpTuning::default() };
            if let Some(lost) = stage.answers_lost(make(number, Some(lost_in), hasty)?)? {
                break (lost, number + 1);
            }
        };
        if !lost.holds {
            return Ok(lost);
        }
        let burst = stage.under_way(make(next, None, QpTuning::default())?, atomics)?;
        let detail = format!("{}; {}; {}", proof.detail, lost.detail, burst.detail);
        Ok(TruthProof { detail: if burst.holds { detail } else { burst.detail }, ..burst })
    }

    /// Proves, and keeps the answer. A proof that cannot run proves nothing.
    pub fn settle_truth(&mut self) {
        match self.prove_truth() {
            Ok(proof) => {
                (self.truth_holds, self.truth_detail) =
                    (proof.holds || Mutant::NoStartProof.on(), proof.detail);
            }
            Err(error) => {
                (self.truth_holds, self.truth_detail) = (false, format!("the proof could not run: {error}"));
            }
        }
    }
}
