//! One PE that is up, and everything it holds. Calls of the C interface are calls of this.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`start`] | how a PE comes up and leaves |
//! | [`nics`], [`control`] | NICs; what PEs tell each other beside the data path |
//! | [`source`], [`ports`] | where NICs come from; who shares ports, and what a job is short of, pure |
//! | [`map`] | where everything lies in the symmetric heap; pure |
//! | [`transfer`], [`stage`], [`memory`] | puts and gets; memory outside the heap; copies here |
//! | [`atomics`], [`order`], [`waits`] | atomics and signals; quiet and the like; waits for words |
//! | [`meet`], [`collect`] | meetings of a team, and collective calls made of them |
//! | [`kernel_map`], [`kernels`] | what device functions need in the heap; pure. What this PE does for its kernels |
//! | [`describe`] | faults in words |

mod atomics;
mod collect;
pub mod control;
mod describe;
pub mod kernel_map;
mod kernels;
pub mod map;
mod meet;
mod memory;
pub mod nics;
mod order;
mod ports;
pub mod source;
mod stage;
pub mod start;
pub mod transfer;
mod waits;

pub use atomics::Change;
pub use collect::Reduction;
pub use waits::{Compare, Watch, Width};

use crate::env::Settings;
use crate::failure::Failure;
use crate::heap::SymmetricHeap;
use crate::kernels::Kernels;
use crate::registry::Registry;
use crate::teams::Teams;
use control::Control;
use map::HeapMap;
use nics::Nics;
use shunt_device::platform::host::{Host, World};
use shunt_device::{Channel, Deadline, Device, Fault, FaultKind};
use shunt_host::agent::words::StateWords;
use shunt_host::connect::tcp::TcpBootstrap;
use shunt_host::pe::Pe;
use stage::Stage;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The channel of host calls at each peer: one, so that what is posted first arrives first.
const HOST_CHANNEL: u32 = 0;

/// A PE that is up.
pub struct Session {
    /// Joined first: it holds the agent.
    agent: Mutex<Option<shunt::AgentThread>>,
    settings: Settings,
    words: StateWords,
    map: HeapMap,
    base: u64,
    heap: Mutex<SymmetricHeap>,
    registry: Mutex<Registry>,
    teams: Mutex<Teams>,
    stage: Mutex<Stage>,
    /// Channels of kernels to each peer that have a handle: the first is the default one.
    taken: Mutex<u32>,
    kernels: Kernels,
    rounds: Mutex<waits::Rounds>,
    control: Arc<Control>,
    exchange: TcpBootstrap,
    /// Dropped last of what device code reaches: everything above points into it.
    pe: Arc<Pe>,
    nics: Nics,
    /// Behind the NICs, which use it.
    _fabric: start::Leftovers,
}

/// A lock that no panic leaves in a wrong state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// This PE.
    pub fn me(&self) -> u32 {
        self.words.root().my_pe
    }

    /// PEs of the job.
    pub fn pes(&self) -> u32 {
        self.words.root().pe_count
    }

    /// What the job was started with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The symmetric heap's books.
    pub fn heap(&self) -> MutexGuard<'_, SymmetricHeap> {
        lock(&self.heap)
    }

    /// Registered buffers.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        lock(&self.registry)
    }

    /// Teams.
    pub fn teams(&self) -> MutexGuard<'_, Teams> {
        lock(&self.teams)
    }

    /// What PEs tell each other beside the data path.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The NICs of this PE.
    pub fn nics(&self) -> &Nics {
        &self.nics
    }

    /// So many channels of kernels to each peer that nobody else uses, by their numbers among those.
    ///
    /// # Errors
    /// There are fewer.
    pub fn take_channels(&self, count: i32) -> Result<std::ops::Range<u32>, Failure> {
        let there = self.kernel_channels();
        let mut taken = lock(&self.taken);
        let end = u32::try_from(count).ok().filter(|count| *count > 0).and_then(|n| taken.checked_add(n));
        let Some(end) = end.filter(|end| *end <= there) else {
            return Err(Failure::QueuePairs { met: count, left: there - *taken });
        };
        Ok(std::mem::replace(&mut *taken, end)..end)
    }

    /// Addresses that the program has of the symmetric heap.
    pub fn addresses(&self) -> std::ops::Range<u64> {
        self.base..self.base + self.map.user
    }

    pub(crate) fn words(&self) -> &StateWords {
        &self.words
    }

    fn world(&self) -> &dyn World {
        &**self.nics.world()
    }

    fn now_ns(&self) -> u64 {
        self.world().now_ns()
    }

    fn device(&self) -> Device<'_, Host<'_>> {
        // SAFETY: uploaded by `Pe::start`, mapped while `self.pe` lives, and nobody writes the root.
        let device = unsafe { Device::attach(self.pe.state(), Host::new(self.world())) };
        device.expect("checked when the session began")
    }

    fn channel(&self, pe: u32) -> Channel<'_, Host<'_>> {
        self.device().channel(pe, HOST_CHANNEL)
    }

    /// Generations that this PE's channels opened because of a fault, and by a switch-back.
    pub fn generations(&self) -> (u64, u64) {
        let root = self.words.root();
        let add = |(a, b): (u64, u64), row| {
            let (failovers, back) = self.words.generations(row);
            (a + failovers, b + back)
        };
        (0..root.pe_count * root.channels_per_pe).fold((0, 0), add)
    }

    /// Channels of this PE that are on their first path.
    pub fn on_primaries(&self) -> u32 {
        let peers = (0..self.pes()).filter(|pe| *pe != self.me());
        peers.filter(|pe| self.words.active_slot(*pe, HOST_CHANNEL) == 0).count() as u32
    }

    /// A PE that there is.
    pub(crate) fn check_pe(&self, pe: i32) -> Result<u32, Failure> {
        let met = u32::try_from(pe).ok().filter(|pe| *pe < self.pes());
        met.ok_or(Failure::NoPe { met: pe, pes: self.pes() })
    }

    /// The heap offset of an address of the program's.
    pub(crate) fn offset(&self, at: u64, bytes: u64) -> Result<u64, Failure> {
        let end = self.base + self.map.user;
        let inside = at >= self.base && at <= end && bytes <= end - at;
        let outside = Failure::NotSymmetric { at, bytes, start: self.base, end };
        if inside { Ok(at - self.base) } else { Err(outside) }
    }

    /// Whether an address lies in what the program has of the heap.
    fn is_symmetric(&self, at: u64, bytes: u64) -> bool {
        self.offset(at, bytes).is_ok()
    }

    /// One slice of a wait: long enough that silent paths are found out in it.
    fn slice_ns(&self) -> u64 {
        (2 * self.pe.config().policy.suspect_ns).max(100_000_000)
    }

    /// Calls `attempt` with deadlines a slice apart until it answers otherwise than "not yet", or the call's time is
    /// over.
    fn patiently<T>(
        &self,
        what: impl Fn() -> String,
        mut attempt: impl FnMut(Deadline) -> Result<T, Fault>,
    ) -> Result<T, Failure> {
        let since = self.now_ns();
        let end = since.saturating_add(self.settings.call_deadline_ns);
        loop {
            let now = self.now_ns();
            match attempt(Deadline::after(now, self.slice_ns().min(end.saturating_sub(now)))) {
                Ok(answer) => return Ok(answer),
                Err(fault) if fault.kind != FaultKind::Overdue => return Err(self.channel_failure(&fault)),
                Err(_) if self.now_ns() >= end => return Err(self.overdue(what(), self.now_ns() - since)),
                Err(_) => self.world().relax(),
            }
        }
    }
}
