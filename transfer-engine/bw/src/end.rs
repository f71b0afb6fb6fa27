//! One end: its engine and its memory, until it sends or receives.

use crate::options::Options;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::verdict::{Part, Struck};
use anyhow::{Context, Result, bail};
use shunt::device::platform::host::World;
use shunt::host::agent::worker::Threads;
use shunt::host::gpu::{GpuMemory, HeapMemory, OwnedSpan, Placement};
use shunt::host::nanos::Nanos;
use shunt::soft_nic::RailAt;
use shunt::{Member, Nics as _, SoftNics};
use shunt_transfer_engine::engine::{Engine, Policy};
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::rc::{
    Parts, Patience, RcDomain, address, address_from_bytes, address_to_bytes, open_rails,
};
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use std::sync::Arc;
use std::time::Duration;

/// Transfers that have memory of their own.
pub const SLOTS: usize = 16;
/// The receiver says that it is there; that a slot may be written again; that it is done.
pub const READY: u32 = 0x1000_0000;
/// See [`READY`]: with the slot added.
pub const CREDIT: u32 = 0x2000_0000;
/// The sender says how often it used each slot.
pub const FINISH: u32 = 0x3000_0000;
/// See [`READY`].
pub const DONE: u32 = 0x4000_0000;
/// Behind the slots: how often each was used.
pub const TURNS_BYTES: u64 = 8 * SLOTS as u64;
/// Nothing that an end waits for takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The receiver waits so long for what it misses.
pub const MISSING: Nanos = Nanos::secs(10);
/// An end goes on for so long after the last word, so that the other one can end in peace.
const LINGER: Nanos = Nanos::millis(300);

/// An end that is connected.
pub struct End {
    /// Its engine.
    pub engine: Engine<RcDomain>,
    /// The other end.
    pub peer: PeerId,
    /// Its memory.
    pub memory: Arc<OwnedSpan>,
    /// The same, registered.
    pub region: Mr,
    /// The other's.
    pub target: MrDesc,
    world: Arc<dyn World>,
}

impl End {
    /// The time.
    pub fn now(&self) -> Nanos {
        Nanos::new(self.world.now_ns())
    }

    /// One step; sleeps a little if there was nothing to do.
    pub fn step(&mut self) {
        let now = self.now();
        if !self.engine.step(now) {
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Steps until so, or says what did not come.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let until = self.now() + Nanos::new(PATIENCE.as_nanos() as u64);
        while !is_so(self)? {
            self.step();
            if self.now() > until {
                let (lanes, counts) = (self.engine.rails_to(self.peer), self.engine.counts());
                let seconds = PATIENCE.as_secs();
                bail!(
                    "{what}: expected within {seconds} s, it did not come; open lanes {lanes:?}, {counts:?}"
                );
            }
        }
        Ok(())
    }

    /// Goes on for a while, for the other end's sake.
    pub fn linger(&mut self) {
        let until = self.now() + LINGER;
        while self.now() < until {
            self.step();
        }
    }
}

/// Connects, runs its side, and answers with what both ends saw.
pub fn run(options: &Options, member: Member, nics: &SoftNics) -> Result<Vec<Part>> {
    let Member { pe, bootstrap, oob } = member;
    let world = nics.clock();
    let draws = bootstrap.all_gather(&bootstrap.draw()?)?;
    let draw = draws[0].as_slice().try_into().context("rank 0's draw")?;
    let rails = open_rails(nics.open(pe)?, &world, &draw)?;
    let addresses = bootstrap.all_gather(&address_to_bytes(&address(&rails, &draw)))?;
    let peers = addresses.iter().map(|bytes| Ok(address_from_bytes(bytes)?)).collect::<Result<_>>()?;
    let parts = Parts { me: pe, world: world.clone(), rails, peers, oob, draw, patience: Patience::SOFT };
    let mut domain = RcDomain::new(parts, &Threads);
    let heap: Arc<dyn GpuMemory> = Arc::new(HeapMemory::new());
    let bytes = options.transfer_bytes() * SLOTS as u64 + TURNS_BYTES;
    let memory = OwnedSpan::alloc(&heap, bytes.next_multiple_of(4096), Placement::Heap)?;
    let region = domain.register(&memory, Rights::Write)?;
    let regions = bootstrap.all_gather(&region.describe(Rights::Write).to_bytes())?;
    let target = MrDesc::from_bytes(&regions[1 - pe as usize])?;
    let policy = Policy { give_up: Nanos::secs(10), ..Policy::of_rails(options.rails) };
    let (engine, peer) = (Engine::new(domain, policy), PeerId(1 - pe));
    let mut end = End { engine, peer, memory, region, target, world };
    let all = options.rails as usize;
    end.until("lanes to the other end", |end| Ok(end.engine.rails_to(peer).len() == all))?;
    let mut faults = Vec::new();
    let now = end.now();
    for injection in options.inject.iter().filter(|injection| injection.pe == pe) {
        let kind = options.kind(injection).map_err(anyhow::Error::msg)?;
        let at = RailAt { pe, rail: injection.rail.unwrap_or_default() };
        faults.push((injection.to_string(), nics.plan(now.get() + injection.at_ns, at, kind)));
    }
    let opened = end.engine.counts().opened;
    let mut part = match pe {
        0 => Sender::new(options, &mut end).run()?,
        _ => Receiver::new(options, &mut end).run()?,
    };
    end.linger();
    for remark in end.engine.domain.take_remarks() {
        eprintln!("transfer_bw: end {pe}: {remark}");
    }
    let (counts, hits) = (end.engine.counts(), nics.hits());
    (part.failovers, part.returns) = (counts.closed, counts.opened - opened);
    part.pieces_again = counts.again;
    let struck = |(fault, at): (String, usize)| Struck { fault, hits: hits.get(at).copied().unwrap_or(0) };
    part.faults = faults.into_iter().map(struck).collect();
    let all = bootstrap.all_gather(&serde_json::to_vec(&part)?)?;
    all.iter().map(|bytes| serde_json::from_slice(bytes).context("what the other end saw")).collect()
}
