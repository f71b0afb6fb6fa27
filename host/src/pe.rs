//! One PE: open its rails, register its heap, connect it to all peers, upload its device state.

mod config;
pub(crate) mod connect;
mod reach;
pub(crate) mod resources;

pub use config::{Bringup, PROVE_NS, PeConfig};
pub use resources::{AgentResources, ChannelResources, PathSlot};

use crate::agent::checkpoint::CheckpointCell;
use crate::agent::links::envelope::{Seal, qkey};
use crate::config::FetchMode;
use crate::connect::bootstrap::{Bootstrap, DRAW_BYTES};
use crate::connect::card::{KeyRows, PeCard, RailCard};
use crate::connect::oob::Oob;
use crate::devx::Devx;
use crate::error::{GpuError, NicError, StartError};
use crate::gpu::{GpuMemory, OwnedSpan, Placement, Region, Span};
use crate::keys::{KeyTable, Reached, chunks};
use crate::nic::order::{self, Stance};
use crate::plan::{Bases, Plan, Shape, Side};
use crate::rail::{Rail, stance};
use crate::ranks::Ranks;
use crate::upload::{Contents, device_state, upload};
use shunt_device::platform::host::World;
use shunt_layout::state::{Channel, DeviceState, HeapTail, OrderPolicy, Policy, ReadyWord, SLOTS_MAX};
use std::mem::offset_of;
use std::sync::{Arc, Mutex, PoisonError};

/// What is known of a PE, this one among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// First address of its heap.
    pub heap_base: u64,
    /// Its rails, by rank.
    pub rails: Vec<RailCard>,
    /// QPNs of their datagram queue pairs; 0 where there is none.
    pub datagrams: Vec<u32>,
    /// Key its datagram queue pairs want to see.
    pub qkey: u32,
}

impl From<PeCard> for PeerInfo {
    fn from(card: PeCard) -> Self {
        let qkey = qkey(&card.draw);
        Self { heap_base: card.heap_base, rails: card.rails, datagrams: card.datagrams, qkey }
    }
}

/// A PE that is up. Fields are dropped in order: paths, then rails, then memory.
pub struct Pe {
    agent: CheckpointCell,
    ranks: Arc<Ranks>,
    rails: Vec<Arc<Rail>>,
    config: PeConfig,
    peers: Vec<PeerInfo>,
    seal: Seal,
    reached: Mutex<Reached>,
    plan: Plan,
    root: DeviceState,
    world: Arc<dyn World>,
    heap: Arc<OwnedSpan>,
    control: Control,
}

/// Control memory: in the host's memory, and what kernels and NICs alone touch in the device's, if it lies there.
struct Control {
    host: Arc<OwnedSpan>,
    device: Option<Arc<OwnedSpan>>,
}

impl Control {
    fn alloc(gpu: &Arc<dyn GpuMemory>, plan: &Plan) -> Result<Self, GpuError> {
        let device = plan.kernels.is_some();
        let device =
            device.then(|| OwnedSpan::alloc(gpu, plan.device_bytes, Placement::Queues)).transpose()?;
        Ok(Self { host: OwnedSpan::alloc(gpu, plan.bytes, Placement::Control)?, device })
    }

    fn bases(&self) -> Bases {
        let device = self.device.as_ref().map_or(0, |device| device.span().address);
        Bases { host: self.host.span().address, device }
    }

    fn register(&self, rail: &mut Rail, plan: &Plan) -> Result<(), NicError> {
        // Where host calls have no channel, no NIC reaches anything there.
        if !plan.host.indices.is_empty() {
            rail.register_control(Region::Host, &self.host, plan.host.scratch.clone())?;
        }
        if let (Some(device), Some(side)) = (&self.device, &plan.kernels) {
            rail.register_control(Region::Device, device, side.scratch.clone())?;
        }
        Ok(())
    }
}

/// Everything between opening and upload.
struct Opened {
    config: PeConfig,
    tail: HeapTail,
    me: u32,
    size: u32,
    rails: Vec<Rail>,
    draw: [u8; DRAW_BYTES],
    heap: Arc<OwnedSpan>,
    world: Arc<dyn World>,
}

impl Pe {
    /// Brings the PE up. Returns when all paths of all PEs are connected, but for backups that the agents make later.
    pub fn start(
        config: PeConfig,
        rails: Vec<Arc<dyn Devx>>,
        gpu: Arc<dyn GpuMemory>,
        bootstrap: &dyn Bootstrap,
        oob: Box<dyn Oob>,
        world: Arc<dyn World>,
    ) -> Result<Pe, StartError> {
        let exact = config.fetches_exactly(config.split.is_some() || gpu.host_reaches_heap())?;
        let tail = config.tail(bootstrap.size(), exact);
        config.check(rails.len(), bootstrap.size(), tail.end)?;
        let mut opened = Opened::open(config, tail, rails, &gpu, bootstrap, world)?;
        let cards = opened.exchange_cards(bootstrap)?;
        let ordering = opened.agree_on_order(&cards)?;
        let uncounted = cards.iter().any(|card| card.uncounted != 0);
        let plain_atomics = cards.iter().any(|card| card.plain_atomics != 0);
        let shape = opened.shape(&cards);
        let plan = shape.plan();
        let control = Control::alloc(&gpu, &plan)?;
        opened.rails.iter_mut().try_for_each(|rail| control.register(rail, &plan))?;
        let Opened { me, heap, world, rails, .. } = opened;
        let rails: Vec<Arc<Rail>> = rails.into_iter().map(Arc::new).collect();
        let bases = control.bases();
        let mut channels = connect::layout(&plan, bases, &cards);
        connect::create(&config, &rails, me, &mut channels)?;
        connect::exchange_halves(&config, &plan, &cards, bootstrap, &mut channels)?;
        connect::connect(&config, &mut channels)?;
        // Nobody sends before everybody listens.
        bootstrap.all_gather(&[])?;

        let rows: Vec<KeyRows> = cards.iter().map(KeyRows::from).collect();
        let keys = connect::keys(&config, &shape, &rows, ordering)?;
        let paths = connect::path_rows(&plan, &channels, world.now_ns());
        let seal = Seal::new(cards.iter().map(|card| &card.draw));
        let peers: Vec<PeerInfo> = cards.into_iter().map(PeerInfo::from).collect();
        let peer_heap: Vec<u64> = peers.iter().map(|peer| peer.heap_base).collect();
        let rails_of: Vec<u32> = peers.iter().map(|peer| peer.rails.len() as u32).collect();
        let scratch_keys = |region| rails.iter().map(|rail| rail.scratch_key(region)).collect::<Vec<_>>();
        let contents = Contents {
            heap: heap.span(),
            heap_bytes: config.heap_bytes,
            own_heap: match config.split {
                _ if gpu.host_reaches_heap() || !gpu.has_queues() => 0,
                Some(split) => split.device.min(config.heap_bytes),
                None => config.heap_bytes,
            },
            tail,
            plain_atomics,
            host_channels: config.host_channels.unwrap_or(0),
            fetch_exact: exact && (config.fetch == FetchMode::Exact || uncounted),
            peer_heap: &peer_heap,
            rails_of: &rails_of,
            log2_chunk: config.log2_chunk,
            keys: &keys,
            scratch_keys: &scratch_keys(Region::Host),
            device_scratch_keys: &scratch_keys(Region::Device),
            paths: &paths,
            policy: Policy { fault_tolerance: config.ft as u32, ordering: ordering as u32, ..config.policy },
            step_records: config.step_records,
        };
        upload(&*gpu, &plan, bases, &contents)?;
        let root = device_state(&plan, bases, plan.of_kernels(), &contents);
        let agent = CheckpointCell::new(AgentResources { channels, oob });
        let ranks = Arc::new(Ranks::new(root.pe_count));
        let reached = Mutex::new(Reached { keys, chunks: 0 });
        Ok(Pe { agent, ranks, rails, config, peers, seal, reached, plan, root, world, heap, control })
    }

    /// The device state of kernels: valid while the PE lives.
    pub fn state(&self) -> *const DeviceState {
        self.state_of(self.plan.of_kernels())
    }

    /// The device state of host calls and of the agent, all of it in the host's memory: that of kernels, unless theirs
    /// lies in the device's.
    pub fn host_state(&self) -> *const DeviceState {
        self.state_of(&self.plan.host)
    }

    fn state_of(&self, side: &Side) -> *const DeviceState {
        let address = self.bases().of(side.region) + side.state.start;
        std::ptr::with_exposed_provenance(address as usize)
    }

    /// A copy of the root of kernels: every table's address and every count.
    pub fn root(&self) -> &DeviceState {
        &self.root
    }

    /// The symmetric heap of this PE, without the ledger words behind it.
    pub fn heap(&self) -> Span {
        self.heap.span().part(0, self.config.heap_bytes)
    }

    /// Device-visible memory that heap and state lie in.
    pub fn memory(&self) -> &Arc<dyn GpuMemory> {
        self.heap.memory()
    }

    /// Rails, by rank.
    pub fn rails(&self) -> &[Arc<Rail>] {
        &self.rails
    }

    /// What is known of every PE, by rank.
    pub fn peers(&self) -> &[PeerInfo] {
        &self.peers
    }

    /// Keys, as they are now.
    pub fn keys(&self) -> KeyTable {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).keys.clone()
    }

    /// Settings.
    pub fn config(&self) -> &PeConfig {
        &self.config
    }

    /// Entries that were ever posted on a channel, by its row; 0 where the memory refuses the copy.
    pub fn published(&self, row: u32) -> u64 {
        let side = self.plan.side_of(row % self.plan.shape.channels_per_pe);
        let channel = side.channels.start + u64::from(row) * size_of::<Channel>() as u64;
        let at = self.bases().of(side.region) + channel + offset_of!(Channel, ready) as u64;
        let mut word = [0; 8];
        let read = self.memory().read(at, &mut word);
        read.map_or(0, |()| ReadyWord(u64::from_le_bytes(word)).index())
    }

    /// Where everything lies in control memory.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where control memory begins.
    pub fn bases(&self) -> Bases {
        self.control.bases()
    }

    /// What of the control memory the host may touch by copies alone; none where all of it is the host's.
    pub fn device_control(&self) -> Option<Span> {
        self.control.device.as_ref().map(|device| device.span())
    }

    /// Who is left out, as the agents agree; nothing before somebody asks for it.
    pub fn ranks(&self) -> &Arc<Ranks> {
        &self.ranks
    }

    /// The world it lives in.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// What the agents' datagrams are sealed with.
    pub(crate) fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Paths and the agents' channel, for one who looks after them in the agent's place; once.
    pub fn take_agent_resources(&self) -> Option<AgentResources> {
        self.agent.take_bring_up()
    }

    /// What the agent of this PE takes over.
    pub(crate) fn checkpoint(&self) -> &CheckpointCell {
        &self.agent
    }
}

impl Opened {
    /// Opens the rails, registers the heap on each, and lets each prove its truth.
    fn open(
        config: PeConfig,
        tail: HeapTail,
        devices: Vec<Arc<dyn Devx>>,
        gpu: &Arc<dyn GpuMemory>,
        bootstrap: &dyn Bootstrap,
        world: Arc<dyn World>,
    ) -> Result<Self, StartError> {
        let heap = OwnedSpan::alloc_heap(gpu, tail.end, config.split)?;
        let mut slots: Vec<(u32, Arc<dyn Devx>, Option<Rail>)> =
            devices.into_iter().zip(0..).map(|(devx, index)| (index, devx, None)).collect();
        let draw = bootstrap.draw().map_err(StartError::from)?;
        connect::for_each(config.bringup, &mut slots, |(index, devx, opened)| {
            let mut rail = Rail::open(devx.clone(), *index, config.rail, world.clone())?;
            // Which keys the heap has depends on the order.
            rail.settle_order()?;
            rail.register_heap(&heap, config.heap_shape())?;
            rail.settle_truth();
            rail.settle_datagrams(qkey(&draw));
            *opened = Some(rail);
            Ok(())
        })?;
        let rails = slots.into_iter().filter_map(|(_, _, rail)| rail).collect();
        Ok(Self { config, tail, me: bootstrap.rank(), size: bootstrap.size(), rails, draw, heap, world })
    }

    fn card(&self) -> PeCard {
        PeCard {
            pe: self.me,
            channels_per_pe: self.config.channels_per_pe,
            backups: self.config.backups,
            log_depth: self.config.log_depth,
            log2_chunk: self.config.log2_chunk,
            ordering: stance(&self.rails).to_raw(),
            fetch: u32::from(self.tail.fetch != 0),
            plain_atomics: u32::from(self.rails.iter().any(|rail| !rail.caps.atomics.masked)),
            uncounted: u32::from(self.rails.iter().any(|rail| !rail.truth_holds)),
            heap_base: self.heap.span().address,
            heap_bytes: self.config.heap_bytes,
            draw: self.draw,
            rails: self.rails.iter().map(Rail::card).collect(),
            datagrams: self.rails.iter().map(Rail::datagram_qpn).collect(),
            rkeys: self.rails.iter().map(Rail::heap_keys).collect(),
            data_rkeys: self.rails.iter().map(Rail::heap_data_keys).collect(),
        }
    }

    /// Everyone's card, by rank; all agree on what must be equal.
    fn exchange_cards(&self, bootstrap: &dyn Bootstrap) -> Result<Vec<PeCard>, StartError> {
        let mine = self.card();
        let mut cards = Vec::new();
        for (bytes, pe) in bootstrap.all_gather(&mine.to_bytes())?.into_iter().zip(0..) {
            let card = PeCard::from_bytes(&bytes).map_err(|error| StartError::Card { pe, error })?;
            let equal = [
                ("rank", card.pe.into(), u64::from(pe)),
                ("number of channels", card.channels_per_pe.into(), mine.channels_per_pe.into()),
                ("number of backups, 0 without fault tolerance,", card.backups.into(), mine.backups.into()),
                ("log2 of the ring depth", card.log_depth.into(), mine.log_depth.into()),
                ("log2 of the chunk size", card.log2_chunk.into(), mine.log2_chunk.into()),
                ("heap size", card.heap_bytes, mine.heap_bytes),
                ("exact fetching (SHUNT_FETCH other than nic)", card.fetch.into(), mine.fetch.into()),
            ];
            for (what, theirs, mine) in equal {
                if theirs != mine {
                    return Err(StartError::Disagree { what, pe, theirs, mine });
                }
            }
            cards.push(card);
        }
        Ok(cards)
    }

    /// The order of all PEs, which every rail takes over.
    fn agree_on_order(&mut self, cards: &[PeCard]) -> Result<OrderPolicy, StartError> {
        let stances: Vec<Stance> = cards.iter().map(|card| Stance::from_raw(card.ordering)).collect();
        let policy = order::agree(&stances).map_err(|pe| StartError::Disagree {
            what: "order of writes (SHUNT_ORDERING)",
            pe: pe as u32,
            theirs: stances[pe].policy as u64,
            mine: stance(&self.rails).policy as u64,
        })?;
        for rail in &mut self.rails {
            rail.adopt_order(policy)?;
        }
        Ok(policy)
    }

    /// Row lengths that fit every PE, so that all of them count slots alike.
    fn shape(&self, cards: &[PeCard]) -> Shape {
        let rails = cards.iter().map(|card| card.rails.len() as u32).max().unwrap_or(1);
        Shape {
            pes: self.size,
            me: self.me,
            channels_per_pe: self.config.channels_per_pe,
            kernels_from: self.config.kernels_from,
            slots: (1 + self.config.backups).min(rails * rails).min(SLOTS_MAX as u32),
            rails,
            chunks: chunks(self.tail.end, self.config.log2_chunk),
            log_depth: self.config.log_depth,
        }
    }
}
