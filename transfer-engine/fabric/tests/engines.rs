//! Two engines in one process, over lanes that are closed under load: every page, every immediate, every message.

use crate::rig::{TCP, memory, rail, read, until, write};
use shunt_bootstrap::oob::OobNet;
use shunt_device::platform::host::World;
use shunt_mlx5::clock::RealClock;
use shunt_mlx5::memory::OwnedSpan;
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{Engine, FLAG_DONE, FLAG_RUNNING, OnDone, Paged, Policy, Read, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::{Mr, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_fabric::fabric::Wanted;
use shunt_transfer_fabric::{FabricAddress, FabricDomain, Parts, Patience};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

const BYTES: u64 = 2 << 20;
const PAGE: u64 = 8 << 10;
const PAGES: u32 = (BYTES / PAGE) as u32;
const PATIENCE: Patience = Patience { suspect: Nanos::millis(300), ..Patience::DEFAULT };
const SECOND: Wanted<'_> = Wanted { address: Some("127.0.0.2"), ..TCP };

struct Two {
    engines: [Engine<FabricDomain>; 2],
    memories: [Arc<OwnedSpan>; 2],
    regions: [Mr; 2],
    clock: Arc<RealClock>,
}

/// An end's peer.
const fn other(end: usize) -> PeerId {
    PeerId(1 - end as u32)
}

fn two(wanted: &[Wanted<'_>]) -> Option<Two> {
    let clock = Arc::new(RealClock::new());
    let net = OobNet::new(2, 30_000, clock.clone());
    let rails = wanted.iter().map(rail).collect::<Option<Vec<_>>>()?;
    let peers = vec![FabricAddress::new(&rails); 2];
    let memories = [memory(BYTES), memory(BYTES)];
    let mut regions = Vec::new();
    let engines = [0, 1].map(|me: usize| {
        let rails = wanted.iter().filter_map(rail).collect();
        let oob = Box::new(net.end(me as u32));
        let parts = Parts { me: me as u32, rails, peers: peers.clone(), oob, patience: PATIENCE };
        let mut domain = FabricDomain::new(parts);
        regions.push(domain.register(&memories[me], Rights::ReadWrite).expect("a region"));
        Engine::new(domain, Policy { give_up: Nanos::secs(10), ..Policy::of_rails(wanted.len() as u32) })
    });
    let regions = regions.try_into().ok()?;
    Some(Two { engines, memories, regions, clock })
}

impl Two {
    fn now(&self) -> Nanos {
        Nanos::new(self.clock.now_ns())
    }

    fn step(&mut self) {
        let now = self.now();
        for engine in &mut self.engines {
            engine.step(now);
            let remarks = engine.domain.take_remarks();
            assert!(remarks.is_empty(), "{remarks:?}");
        }
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        until(what, || {
            self.step();
            holds(self)
        });
    }

    fn until_rails(&mut self, count: usize) {
        self.until("lanes", |two| {
            two.engines.iter().enumerate().all(|(end, engine)| engine.rails_to(other(end)).len() == count)
        });
    }

    /// Writes all pages, backwards, with an immediate each.
    fn paged(&mut self, imm: u32) -> Arc<AtomicU8> {
        let (done, on_done) = flag();
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
        done
    }

    /// Expects immediates of a round; what is set once they are there.
    fn expect(&mut self, imm: u32, count: u64) -> Arc<AtomicU8> {
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
    fn check(&self, round: u32) {
        for page in 0..PAGES {
            let bytes = read(&self.memories[1], u64::from(PAGES - 1 - page) * PAGE, PAGE as usize);
            assert_eq!(bytes, content(round, page), "page {page} of round {round}");
        }
    }

    fn fill(&self, round: u32) {
        for page in 0..PAGES {
            write(&self.memories[0], u64::from(page) * PAGE, &content(round, page));
        }
    }
}

fn content(round: u32, page: u32) -> Vec<u8> {
    let word = (round << 16 | page).to_le_bytes();
    word.iter().copied().cycle().take(PAGE as usize).collect()
}

fn flag() -> (Arc<AtomicU8>, OnDone) {
    let flag = Arc::new(AtomicU8::new(FLAG_RUNNING));
    (flag.clone(), OnDone::Flag(flag))
}

fn is_done(flag: &AtomicU8) -> bool {
    let value = flag.load(Ordering::Acquire);
    assert!(value == FLAG_RUNNING || value == FLAG_DONE, "a transfer failed");
    value == FLAG_DONE
}

#[test]
fn writes_reads_pages_and_messages_go_over_two_rails() {
    let Some(mut two) = two(&[TCP, SECOND]) else { return };
    two.until_rails(2);
    two.fill(1);
    let (reached, done) = (two.expect(1, PAGES.into()), two.paged(1));
    let now = two.now();
    let (sent, on_sent) = flag();
    two.engines[1].submit_send(now, PeerId(0), &[5; 3000], on_sent).expect("posted");
    two.until("pages", |_| reached.load(Ordering::Acquire) == 1 && is_done(&done) && is_done(&sent));
    two.check(1);
    assert_eq!(two.engines[0].take_message(), Some((PeerId(1), vec![5; 3000])));
    // The other way, and a bare immediate.
    let (from, to) = (two.regions[1].describe(Rights::ReadWrite), two.regions[0].clone());
    let (half, (done, on_done)) = (BYTES / 2, flag());
    let (peer, now) = (PeerId(1), two.now());
    two.engines[0]
        .submit_read(now, &Read { peer, len: half, from: (&from, half), to: (&to, 0) }, on_done)
        .expect("posted");
    two.until("a read", |_| is_done(&done));
    assert_eq!(read(&two.memories[0], 0, half as usize), read(&two.memories[1], half, half as usize));
    let (reached, (done, on_done)) = (two.expect(9, 1), flag());
    let bare = Write { peer, len: 0, imm: Some(9), from: (&to, 0), to: (&from, 0) };
    two.engines[0].submit_write(now, &bare, on_done).expect("posted");
    two.until("an immediate", |_| reached.load(Ordering::Acquire) == 1 && is_done(&done));
    assert_eq!(two.engines[1].counter(PeerId(0), 1), 0);
}

/// Rounds of pages and messages, while a rail of an end goes down and comes back: how many pieces went again.
fn rounds_under_faults(two: &mut Two, rounds: u32, fault: &mut dyn FnMut(&mut Two, u32, u32)) -> u64 {
    for round in 0..rounds {
        two.fill(round);
        let (reached, done) = (two.expect(round, PAGES.into()), two.paged(round));
        let (now, (sent, on_sent)) = (two.now(), flag());
        two.engines[0].submit_send(now, PeerId(1), &round.to_le_bytes(), on_sent).expect("posted");
        let turns = AtomicU32::new(0);
        two.until("a round", |two| {
            fault(two, round, turns.fetch_add(1, Ordering::Relaxed));
            reached.load(Ordering::Acquire) == 1 && is_done(&done) && is_done(&sent)
        });
        two.check(round);
        two.until("a message", |two| {
            let message = two.engines[1].take_message();
            message.inspect(|(_, bytes)| assert_eq!(bytes, &round.to_le_bytes())).is_some()
        });
    }
    // What is doubled comes late.
    let end = two.now() + Nanos::millis(200);
    while two.now() < end {
        two.step();
    }
    for round in 0..rounds {
        assert_eq!(
            two.engines[1].counter(PeerId(0), round),
            0,
            "immediates of round {round} that are too many"
        );
    }
    two.engines[0].counts().again
}

#[test]
fn a_rail_that_goes_down_under_load_costs_no_page_and_doubles_no_immediate() {
    const TRIES: usize = 5;
    for end in 0..2 {
        let hit = (0..TRIES).any(|_| {
            let Some(mut two) = two(&[TCP, SECOND]) else { return true };
            two.until_rails(2);
            let mut down = |two: &mut Two, round: u32, turn: u32| {
                let (now, rail) = (two.now(), round % 2);
                let domain = &mut two.engines[end].domain;
                match turn {
                    4 => assert!(domain.set_rail(now, rail, false)),
                    40 => assert!(domain.set_rail(now, rail, true)),
                    _ => {}
                }
            };
            let again = rounds_under_faults(&mut two, 20, &mut down);
            let now = two.now();
            for rail in 0..2 {
                two.engines[end].domain.set_rail(now, rail, true);
            }
            two.until_rails(2);
            println!("end {end}: {:?}", two.engines[0].counts());
            again > 0
        });
        assert!(hit, "no piece was under way on a rail that went down");
    }
}
