//! One PE of this process, from its NICs to its agent's thread.

use crate::agent_thread::{AgentThread, NoAgent, Turn};
use crate::member::Member;
use crate::nics::{Nics, NoNic};
use shunt_device::platform::host::{Host, World};
use shunt_device::{Channel, Deadline, Device, HeapOffset};
use shunt_host::agent::words::{Place, StateWords};
use shunt_host::config::EnvConfig;
use shunt_host::error::{ConfigError, GpuError, StartError};
use shunt_host::events::Sink;
use shunt_host::gpu::{GpuMemory, HeapMemory};
use shunt_host::pe::{Pe, PeConfig};
use shunt_host::silence::Silence;
use shunt_layout::state::{PathRow, PathState};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why a PE did not come up.
#[derive(Debug, Error)]
pub enum Error {
    /// A variable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A NIC.
    #[error(transparent)]
    Nic(#[from] NoNic),
    /// A step of bring-up.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its agent.
    #[error(transparent)]
    Agent(#[from] NoAgent),
    /// A thread to bring it up on.
    #[error("no thread: {0}")]
    Thread(std::io::Error),
}

/// Settings, and which of them somebody chose: what nobody chose depends on the NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// All settings.
    pub env: EnvConfig,
    /// Longest silence of a path, if it was set.
    pub suspect_ns: Option<u64>,
    /// Shortest, if it was set.
    pub suspect_floor_ns: Option<u64>,
    /// How long every path to a peer stays dead before it is lost, if it was set.
    pub give_up_ns: Option<u64>,
}

impl Settings {
    /// What the variables that `lookup` knows ask for.
    ///
    /// # Errors
    /// A value that is refused.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = EnvConfig::from_lookup(lookup)?;
        Ok(Self {
            env,
            suspect_ns: lookup("SHUNT_SUSPECT").map(|_| env.suspect_ns),
            suspect_floor_ns: lookup("SHUNT_SUSPECT_FLOOR").map(|_| env.suspect_floor_ns),
            give_up_ns: lookup("SHUNT_GIVE_UP").map(|_| env.give_up_ns),
        })
    }

    /// What the process's environment asks for.
    ///
    /// # Errors
    /// A value that is refused.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_lookup(&|name| std::env::var(name).ok())
    }

    /// A PE's configuration, for a heap of this size on NICs that are usually silent for so long.
    pub fn pe_config(&self, heap_bytes: u64, usual: Silence) -> PeConfig {
        let mut config = PeConfig::new(&self.env, heap_bytes);
        let silence = usual.with(self.suspect_ns, self.suspect_floor_ns);
        (config.policy.suspect_ns, config.policy.suspect_floor_ns) = (silence.suspect_ns, silence.floor_ns);
        config
    }
}

type Adjust = Box<dyn FnOnce(&mut PeConfig) + Send>;

/// What a PE is made of.
pub struct Builder {
    nics: Arc<dyn Nics>,
    member: Member,
    settings: Settings,
    sinks: Vec<Box<dyn Sink>>,
    heap_bytes: u64,
    memory: Option<Arc<dyn GpuMemory>>,
    clock: Option<Arc<dyn World>>,
    adjust: Option<Adjust>,
}

impl Builder {
    /// Somebody who is told of every event of this PE, besides the log: what is weaker on its NICs, paths that fail,
    /// are fenced, come back. Called by the agent's thread: must not wait.
    #[must_use]
    pub fn sink(mut self, sink: Box<dyn Sink>) -> Self {
        self.sinks.push(sink);
        self
    }

    /// Settings other than the defaults, say [`Settings::from_env`].
    #[must_use]
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Whether failures switch paths; true by default.
    #[must_use]
    pub fn fault_tolerance(mut self, on: bool) -> Self {
        self.settings.env.fault_tolerance = on;
        self
    }

    /// Bytes of the symmetric heap, the same on all PEs; 1 MiB by default.
    #[must_use]
    pub fn heap_bytes(self, heap_bytes: u64) -> Self {
        Self { heap_bytes, ..self }
    }

    /// Memory that the device reaches; the host's by default.
    #[must_use]
    pub fn memory(self, memory: Arc<dyn GpuMemory>) -> Self {
        Self { memory: Some(memory), ..self }
    }

    /// A clock of this PE's own; that of its NICs by default.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn World>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Changes the configuration that follows from settings and NICs.
    #[must_use]
    pub fn adjust(self, adjust: impl FnOnce(&mut PeConfig) + Send + 'static) -> Self {
        Self { adjust: Some(Box::new(adjust)), ..self }
    }

    /// Brings the PE up without an agent, for a program that runs it by itself. Waits for the others.
    ///
    /// # Errors
    /// As [`enum@Error`] says.
    pub fn connect(self) -> Result<Pe, Error> {
        let mut config = self.settings.pe_config(self.heap_bytes, self.nics.silence());
        if let Some(adjust) = self.adjust {
            adjust(&mut config);
        }
        let rails = self.nics.open(self.member.pe)?;
        let memory = self.memory.unwrap_or_else(|| Arc::new(HeapMemory::new()));
        let clock = self.clock.unwrap_or_else(|| self.nics.clock());
        let Member { bootstrap, oob, .. } = self.member;
        Ok(Pe::start(config, rails, memory, &*bootstrap, oob, clock)?)
    }

    /// Brings the PE up and starts its agent. Returns when the first paths of all PEs are connected: each of them calls
    /// this, the PEs of one process on threads of their own ([`start_together`]).
    ///
    /// # Errors
    /// As [`enum@Error`] says.
    pub fn start(mut self) -> Result<Runtime, Error> {
        let (nics, sinks) = (self.nics.clone(), std::mem::take(&mut self.sinks));
        Runtime::of(self.connect()?, nics, sinks)
    }
}

/// Brings up PEs of this process, each on a thread of its own.
///
/// # Errors
/// That of the first PE that did not come up.
pub fn start_together(pes: impl IntoIterator<Item = Builder>) -> Result<Vec<Runtime>, Error> {
    std::thread::scope(|scope| {
        let spawn = |pe: Builder| std::thread::Builder::new().spawn_scoped(scope, move || pe.start());
        let threads: Vec<_> = pes.into_iter().map(spawn).collect();
        let end = |thread: std::io::Result<std::thread::ScopedJoinHandle<'_, Result<Runtime, Error>>>| {
            thread.map_err(Error::Thread)?.join().expect("bring-up does not panic")
        };
        let ended: Vec<_> = threads.into_iter().map(end).collect();
        ended.into_iter().collect()
    })
}

/// A PE that is up, and its agent. Dropping it stops the agent, then the PE.
#[must_use = "dropping it stops the PE"]
pub struct Runtime {
    agent: AgentThread,
    words: StateWords,
    pe: Arc<Pe>,
    /// Dropped last: the PE's objects are on them.
    _nics: Arc<dyn Nics>,
}

impl Runtime {
    /// A PE on these NICs. It finds the others by `member`. Failures switch paths unless
    /// [`Builder::fault_tolerance`] or [`Builder::settings`] say otherwise.
    pub fn builder(nics: Arc<dyn Nics>, member: Member) -> Builder {
        Builder {
            nics,
            member,
            settings: Settings::default(),
            sinks: Vec::new(),
            heap_bytes: 1 << 20,
            memory: None,
            clock: None,
            adjust: None,
        }
    }

    fn of(pe: Pe, nics: Arc<dyn Nics>, sinks: Vec<Box<dyn Sink>>) -> Result<Self, Error> {
        let pe = Arc::new(pe);
        // SAFETY: the state is mapped while `pe` lives; `words` is dropped before it (order of the fields).
        let words = unsafe { StateWords::new(pe.host_state(), pe.world().clone()) }.map_err(NoAgent::from)?;
        let agent = AgentThread::spawn(pe.clone(), sinks, || Turn::Step)?;
        Ok(Self { agent, words, pe, _nics: nics })
    }

    /// The PE.
    pub fn pe(&self) -> &Arc<Pe> {
        &self.pe
    }

    /// This PE's number.
    pub fn rank(&self) -> u32 {
        self.pe.root().my_pe
    }

    /// PEs of the job.
    pub fn pes(&self) -> u32 {
        self.pe.root().pe_count
    }

    /// Device code on this PE, as a thread of the host runs it.
    pub fn device(&self) -> Device<'_, Host<'_>> {
        // SAFETY: `Pe::start` uploaded the state; it is mapped while `self.pe` lives, and nobody writes its root.
        let device = unsafe { Device::attach(self.pe.state(), Host::new(&**self.pe.world())) };
        device.expect("`of` found the state of this version")
    }

    /// The channel `index` to `peer`. An index beyond the channels there are (`channels_per_pe` of the configuration, 2
    /// by default) stands for one of them.
    ///
    /// # Panics
    /// There is no such peer.
    pub fn channel(&self, peer: u32, index: u32) -> Channel<'_, Host<'_>> {
        self.device().channel(peer, index)
    }

    /// The instant so far from now, on this PE's clock.
    pub fn deadline(&self, from_now: Duration) -> Deadline {
        Deadline::after(self.pe.world().now_ns(), from_now.as_nanos() as u64)
    }

    /// Writes into this PE's own heap.
    ///
    /// # Errors
    /// Bytes outside it.
    pub fn write(&self, at: HeapOffset, bytes: &[u8]) -> Result<(), GpuError> {
        self.pe.memory().write(self.place(at, bytes.len())?, bytes)
    }

    /// Reads from this PE's own heap.
    ///
    /// # Errors
    /// Bytes outside it.
    pub fn read(&self, at: HeapOffset, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.pe.memory().read(self.place(at, bytes.len())?, bytes)
    }

    fn place(&self, at: HeapOffset, bytes: usize) -> Result<u64, GpuError> {
        let (heap, bytes) = (self.pe.heap(), bytes as u64);
        let inside = at.0 <= heap.bytes && bytes <= heap.bytes - at.0;
        let address = heap.address.wrapping_add(at.0);
        if inside { Ok(address) } else { Err(GpuError::OutOfBounds { address, bytes }) }
    }

    /// What is known of a path.
    pub fn path(&self, place: Place) -> PathRow {
        self.words.read_row(place)
    }

    /// Switches of all channels: because of a fault, and back.
    pub fn switches(&self) -> (u64, u64) {
        let rows = 0..self.pes() * self.words.root().channels_per_pe;
        let each = rows.map(|row| self.words.generations(row));
        each.fold((0, 0), |(failovers, back), (more, more_back)| (failovers + more, back + more_back))
    }

    /// Entries that kernels of this PE have posted to a peer so far, over all channels.
    pub fn posted(&self, peer: u32) -> u64 {
        let channels = self.words.root().channels_per_pe;
        (peer * channels..(peer + 1) * channels).map(|row| self.pe.published(row)).sum()
    }

    /// True once every channel outlives a path: it has a backup, and all paths that it has are ready. Never without
    /// [`Builder::fault_tolerance`], nor on one rail.
    pub fn is_armed(&self) -> bool {
        let root = self.words.root();
        let peers = (0..root.pe_count).filter(|peer| *peer != root.my_pe);
        let mut channels =
            peers.flat_map(|peer| (0..root.channels_per_pe).map(move |channel| (peer, channel)));
        channels.all(|(peer, channel)| {
            let state = |slot| self.words.path_state(Place { peer, channel, slot });
            let there = (0..root.slots).map(state).filter(|state| *state != PathState::Absent);
            let (ready, all) = there.fold((0, 0), |(ready, all), state| {
                (ready + usize::from(state == PathState::Ready), all + 1)
            });
            ready >= 2 && ready == all
        })
    }

    /// Waits until it [is armed](Self::is_armed); false if it was not in time.
    pub fn wait_armed(&self, patience: Duration) -> bool {
        let until = self.deadline(patience).at_ns;
        loop {
            if self.is_armed() {
                return true;
            }
            if self.pe.world().now_ns() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks its agent to end and does not wait. Of several PEs, ask all before the first is dropped: an agent that is
    /// there alone looks for the others.
    pub fn ask_to_stop(&self) {
        self.agent.ask_to_stop();
    }
}
