//! An end from its NICs to its verdict.

use crate::end::{End, SLOTS, TURNS_BYTES};
use crate::options::Options;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::verdict::{Part, Struck};
use anyhow::{Context, Result};
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
use shunt_transfer_engine::region::{MrDesc, Rights};
use std::sync::Arc;

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
    let region = domain.register(&memory, Rights::ReadWrite)?;
    let regions = bootstrap.all_gather(&region.describe(Rights::ReadWrite).to_bytes())?;
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
