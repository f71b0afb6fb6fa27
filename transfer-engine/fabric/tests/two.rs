//! Two engines in one process, and what is asked of them.

use crate::rig::{TCP, memory, rail, read, until, write};
use shunt_bootstrap::oob::OobNet;
use shunt_device::platform::host::World;
use shunt_mlx5::clock::RealClock;
use shunt_mlx5::memory::OwnedSpan;
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{Engine, FLAG_DONE, FLAG_RUNNING, OnDone, Paged, Policy};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::{Mr, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_fabric::fabric::Wanted;
use shunt_transfer_fabric::{FabricAddress, FabricDomain, Parts, Patience};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

pub const BYTES: u64 = 2 << 20;
pub const PAGE: u64 = 8 << 10;
pub const PAGES: u32 = (BYTES / PAGE) as u32;
const PATIENCE: Patience = Patience { suspect: Nanos::millis(300), ..Patience::DEFAULT };
pub const SECOND: Wanted<'_> = Wanted { address: Some("127.0.0.2"), ..TCP };

/// Two engines, each the only peer of the other.
pub struct Two {
    pub engines: [Engine<FabricDomain>; 2],
    pub memories: [Arc<OwnedSpan>; 2],
    pub regions: [Mr; 2],
    pub clock: Arc<RealClock>,
}

/// An end's peer.
pub const fn other(end: usize) -> PeerId {
    PeerId(1 - end as u32)
}

/// Engines with these rails.
pub fn two(wanted: &[Wanted<'_>]) -> Option<Two> {
    two_behind(wanted, None)
}

/// The same; end 1 closes no endpoint before the gate is open.
pub fn two_behind(wanted: &[Wanted<'_>], gate: Option<&Arc<AtomicBool>>) -> Option<Two> {
    two_that_wait(wanted, gate, PATIENCE.close)
}

/// The same; an endpoint that is not closed within `close` is set aside.
pub fn two_that_wait(wanted: &[Wanted<'_>], gate: Option<&Arc<AtomicBool>>, close: Nanos) -> Option<Two> {
    let clock = Arc::new(RealClock::new());
    let net = OobNet::new(2, 30_000, clock.clone());
    let rails = wanted.iter().map(rail).collect::<Option<Vec<_>>>()?;
    let peers = vec![FabricAddress::new(&rails); 2];
    let memories = [memory(BYTES), memory(BYTES)];
    let mut regions = Vec::new();
    let engines = [0, 1].map(|me: usize| {
        let rails: Vec<_> = wanted.iter().filter_map(rail).collect();
        let behind = gate.filter(|_| me == 1);
        rails.iter().for_each(|rail| behind.into_iter().for_each(|gate| rail.close_behind(gate.clone())));
        let oob = Box::new(net.end(me as u32));
        let parts = Parts {
            me: me as u32,
            rails,
            peers: peers.clone(),
            oob,
            patience: Patience { close, ..PATIENCE },
        };
        let mut domain = FabricDomain::new(parts);
        regions.push(domain.register(&memories[me], Rights::ReadWrite).expect("a region"));
        Engine::new(domain, Policy { give_up: Nanos::secs(10), ..Policy::of_rails(wanted.len() as u32) })
    });
    let regions = regions.try_into().ok()?;
    Some(Two { engines, memories, regions, clock })
}

impl Two {
    pub fn now(&self) -> Nanos {
        Nanos::new(self.clock.now_ns())
    }

    pub fn step(&mut self) {
        let now = self.now();
        for engine in &mut self.engines {
            engine.step(now);
            let remarks = engine.domain.take_remarks();
            assert!(remarks.is_empty(), "{remarks:?}");
        }
    }

    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        until(what, || {
            self.step();
            holds(self)
        });
    }

    /// The same with one end that is stepped.
    pub fn until_of(&mut self, end: usize, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        until(what, || {
            let now = self.now();
            self.engines[end].step(now);
            holds(self)
        });
    }

    /// Takes end 1's region back. The other end is not stepped: it need not answer.
    pub fn take_back(&mut self) {
        let region = self.regions[1].clone();
        self.engines[1].domain.deregister(&region);
        self.until_of(1, "a region taken back", |two| {
            two.engines[1].domain.deregistered(&region).expect("no endpoint is set aside")
        });
    }

    pub fn until_rails(&mut self, count: usize) {
        self.until("lanes", |two| {
            two.engines.iter().enumerate().all(|(end, engine)| engine.rails_to(other(end)).len() == count)
        });
    }

    /// Writes all pages, backwards, with an immediate each.
    pub fn paged(&mut self, imm: u32) -> Arc<AtomicU8> {
        let (done, on_done) = flag();
        self.paged_with(imm, on_done);
        done
    }

    /// The same; who is told of the end.
    pub fn paged_with(&mut self, imm: u32, on_done: OnDone) {
        let pages = |indices| Pages { indices, stride: PAGE, offset: 0 };
        let (from, to) = (pages((0..PAGES).collect()), pages((0..PAGES).rev().collect()));
        let target = self.regions[1].describe(Rights::ReadWrite);
        let now = self.now();
        let paged = Paged {
            peer: PeerId(1),
            page_len: PAGE,
            imm: Some(imm),
            from: (&self.regions[0], &from),
            to: (&target, &to),
        };
        self.engines[0].submit_paged(now, &paged, on_done).expect("posted");
    }

    /// Expects immediates of a round; what is set once they are there.
    pub fn expect(&mut self, imm: u32, count: u64) -> Arc<AtomicU8> {
        let reached = Arc::new(AtomicU8::new(0));
        let met = reached.clone();
        let call = move |result: Result<(), TransferError>| {
            result.expect("in time");
            met.store(1, Ordering::Release);
        };
        self.engines[1].expect((PeerId(0), imm), count, Nanos::MAX, Box::new(call)).expect("one of it");
        reached
    }

    /// Every page of a round is at its place.
    pub fn check(&self, round: u32) {
        for page in 0..PAGES {
            let bytes = read(&self.memories[1], u64::from(PAGES - 1 - page) * PAGE, PAGE as usize);
            assert_eq!(bytes, content(round, page), "page {page} of round {round}");
        }
    }

    pub fn fill(&self, round: u32) {
        for page in 0..PAGES {
            write(&self.memories[0], u64::from(page) * PAGE, &content(round, page));
        }
    }
}

/// What a page of a round is.
pub fn content(round: u32, page: u32) -> Vec<u8> {
    let word = (round << 16 | page).to_le_bytes();
    word.iter().copied().cycle().take(PAGE as usize).collect()
}

pub fn flag() -> (Arc<AtomicU8>, OnDone) {
    let flag = Arc::new(AtomicU8::new(FLAG_RUNNING));
    (flag.clone(), OnDone::Flag(flag))
}

pub fn is_done(flag: &AtomicU8) -> bool {
    let value = flag.load(Ordering::Acquire);
    assert!(value == FLAG_RUNNING || value == FLAG_DONE, "a transfer failed");
    value == FLAG_DONE
}
