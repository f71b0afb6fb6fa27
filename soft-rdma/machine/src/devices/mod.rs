//! The soft NICs of this process in one fabric, the thread that steps them, and the events they have.

mod events;
mod nic;

pub use events::{EventSink, SubscriptionId};
pub(crate) use nic::{COMMAND_TIMEOUT, Interface};
pub use nic::{GidEntry, GidKind, Nic};

use crate::kind::Kind;
use events::{Bell, Sinks};
use shunt_layout::mlx5::eqe;
use shunt_soft_nic::{
    Clock, Engine, Fabric, FabricConfig, NicConfig, RailAt, SharedFabric, SoftNic, SrdConfig,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the dispatcher sleeps at most. It is woken for every event; this is for those that became visible while
/// a NIC was gone.
const NAP: Duration = Duration::from_millis(100);

/// By how many nanoseconds the paths of a soft EFA differ.
const PATHS_NS: u64 = 20_000;

/// A soft EFA of this process: behind those of earlier ones with its address.
fn srd() -> SrdConfig {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    SrdConfig { seed: 0, spread_ns: PATHS_NS, epoch: since_1970.as_nanos() as u64 }
}

/// The soft NICs of this process, and the fabric they stand in.
pub struct Devices {
    slot: u32,
    nics: Vec<Nic>,
    clock: Clock,
    bell: Arc<Bell>,
    closed: AtomicBool,
    /// Steps the fabric. It is never stopped: a program may ring doorbells until its last instruction.
    _engine: Engine,
    fabric: SharedFabric,
}

impl Devices {
    /// Makes the NICs and the engine that steps them. `equip` gives the fabric what it has besides, before its first
    /// step; its error is the only one. `timeout`: how long a firmware command is waited for.
    pub(crate) fn start<E>(
        slot: u32,
        kind: Kind,
        nics: Vec<(NicConfig, Interface)>,
        timeout: Duration,
        equip: impl FnOnce(&mut Fabric, Clock) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut fabric = Fabric::new(FabricConfig::default());
        let (bell, clock) = (Arc::new(Bell::default()), Clock::new());
        let mut parts = Vec::new();
        for (rail, (config, interface)) in (0..).zip(nics) {
            let name = config.name.clone();
            let mut nic = SoftNic::new(config);
            let rung = bell.clone();
            nic.set_waker(Arc::new(move || rung.ring()));
            let id = fabric.add(nic, RailAt { pe: slot, rail });
            if kind == Kind::Efa {
                fabric.put_srd(id, srd());
            }
            parts.push((name, interface, id));
        }
        equip(&mut fabric, clock)?;
        let engine = Engine::spawn_beside_pollers(fabric, clock);
        let fabric = engine.fabric();
        let nic = |(index, (name, interface, id))| Nic {
            name,
            index,
            kind,
            interface,
            id,
            fabric: fabric.clone(),
            clock,
            bell: bell.clone(),
            sinks: Sinks::default(),
            timeout,
            unanswered: Mutex::default(),
            gone_since: Mutex::default(),
            process: std::process::id(),
        };
        let nics = (0..).zip(parts).map(nic).collect();
        Ok(Self { slot, nics, clock, bell, closed: AtomicBool::new(false), _engine: engine, fabric })
    }

    /// The NICs, by index.
    pub fn nics(&self) -> &[Nic] {
        &self.nics
    }

    /// The number no other live process of the fabric has.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Nanoseconds of the clock that faults are planned by.
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Runs `f` on the fabric.
    pub(crate) fn with_fabric<R>(&self, f: impl FnOnce(&mut Fabric) -> R) -> R {
        self.fabric.with(f)
    }

    /// Hands events to those who subscribed, until [`Self::close`]. Calls `port_changed` before the event of a port.
    pub(crate) fn dispatch(&self, port_changed: impl Fn()) {
        while !self.closed() {
            let since = self.bell.count();
            for nic in &self.nics {
                while let Some(eqe) = nic.next_event() {
                    if eqe::EVENT_TYPE.get(&eqe) as u8 == eqe::event::PORT_CHANGE {
                        port_changed();
                    }
                    nic.deliver(&eqe);
                }
            }
            self.bell.wait(since, Instant::now() + NAP);
        }
    }

    /// Leaves the fabric. The NICs answer as before, but packets of other processes reach them no more. False if it
    /// was done before.
    pub(crate) fn close(&self) -> bool {
        if self.closed.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.bell.ring();
        self.with_fabric(Fabric::detach);
        true
    }

    /// True after [`Self::close`].
    pub(crate) fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}
