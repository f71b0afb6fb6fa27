//! Calls of the engine: what is refused before anything is posted, and who is told what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{
    Engine, FLAG_DONE, FLAG_FAILED, FLAG_RUNNING, OnDone, Paged, Policy, Read, Write,
};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::{Mr, MrDesc, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::sim::faults::{Fault, Kind};
use shunt_transfer_engine::sim::{Config, Sim, SimDomain, key};
use shunt_transfer_engine::transfer::Cancel;
use shunt_transfer_engine::watch::Goes;

const MEMORY: u64 = 1 << 20;
const OTHER: PeerId = PeerId(1);

struct Two {
    sim: Sim,
    engines: Vec<Engine<SimDomain>>,
    source: Mr,
    target: MrDesc,
}

fn two(rails: u32) -> Two {
    two_where(rails, false, Vec::new())
}

fn two_where(rails: u32, unordered: bool, faults: Vec<Fault>) -> Two {
    let config = Config {
        seed: 1,
        nodes: 2,
        rails,
        memory: MEMORY as usize,
        depth: 8,
        unordered,
        late: false,
        no_truth: 0,
        unproven: 0,
        faults,
    };
    let (sim, domains) = Sim::new(config);
    let engines = domains.into_iter().map(|domain| Engine::new(domain, Policy::of_rails(rails))).collect();
    let region = |node| {
        let keys: Vec<_> = (0..rails).map(|rail| key(node, rail)).collect();
        Mr::new(0, MEMORY, &keys).expect("a region")
    };
    Two { sim, engines, source: region(0), target: region(1).describe(Rights::Write) }
}

impl Two {
    fn write(&self, len: u64, at: u64) -> Write<'_> {
        Write { peer: OTHER, len, imm: Some(7), from: (&self.source, 0), to: (&self.target, at) }
    }

    fn run(&mut self) {
        loop {
            let now = self.sim.now();
            while self.engines.iter_mut().fold(false, |busy, engine| engine.step(now) | busy) {}
            match self.sim.next_time() {
                Nanos::MAX => return,
                next => self.sim.advance(next),
            }
        }
    }
}

fn flag() -> (Arc<AtomicU8>, OnDone) {
    let flag = Arc::new(AtomicU8::new(FLAG_RUNNING));
    (flag.clone(), OnDone::Flag(flag))
}

#[test]
fn what_leaves_a_region_or_has_no_right_is_refused_and_nothing_is_posted() {
    let mut two = two(2);
    let (source, target) = (two.source.clone(), two.target.clone());
    let local = source.describe(Rights::Local);
    let few = Mr::new(0, MEMORY, &[key(0, 0)]).expect("a region");
    let (now, engine) = (Nanos::ZERO, &mut two.engines[0]);
    let base = Write { peer: OTHER, len: 16, imm: None, from: (&source, 0), to: (&target, 0) };
    let refused = |engine: &mut Engine<SimDomain>, write: Write<'_>| {
        engine.submit_write(now, &write, OnDone::None).expect_err("refused")
    };
    let out = |error| matches!(error, TransferError::OutOfRegion { .. });
    assert!(out(refused(engine, Write { to: (&target, MEMORY - 15), ..base })));
    assert!(out(refused(engine, Write { from: (&source, MEMORY - 15), ..base })));
    assert!(out(refused(engine, Write { len: u64::MAX, ..base })));
    let (what, want, met) = ("target", "writes", "local use");
    assert_eq!(refused(engine, Write { to: (&local, 0), ..base }), TransferError::Rights { what, want, met });
    let unread = |engine: &mut Engine<SimDomain>, len, from: &MrDesc, to| {
        let read = Read { peer: OTHER, len, from: (from, 0), to: (&source, to) };
        engine.submit_read(now, &read, OnDone::None).expect_err("refused")
    };
    let error = unread(engine, 8, &target, 0);
    assert_eq!(
        error.to_string(),
        "source: expected a region that was described for reads of peers, got one of writes"
    );
    let readable = source.describe(Rights::Read);
    assert!(out(unread(engine, MEMORY + 1, &readable, 0)) && out(unread(engine, 8, &readable, MEMORY - 7)));
    assert!(matches!(unread(engine, 0, &readable, 0), TransferError::Refused { .. }));
    let error = refused(engine, Write { from: (&few, 0), ..base });
    assert!(matches!(error, TransferError::Refused { .. }), "a key for one of two rails: {error}");
    let pages = |indices: &[u32]| Pages { indices: indices.to_vec(), stride: 64, offset: 0 };
    for (from, to) in
        [(pages(&[]), pages(&[])), (pages(&[0]), pages(&[1, 2])), (pages(&[0]), pages(&[1 << 14]))]
    {
        let paged =
            Paged { peer: OTHER, page_len: 64, imm: None, from: (&source, &from), to: (&target, &to) };
        assert!(engine.submit_paged(now, &paged, OnDone::None).is_err(), "{from:?} to {to:?}");
    }
    two.run();
    assert_eq!(two.sim.counts().executed, 0);
}

#[test]
fn a_bare_immediate_is_counted_and_a_write_has_as_many_as_both_ends_compute() {
    let mut two = two(3);
    for (len, expected) in [(0, 1), (1 << 16, 1), (200 << 10, 3)] {
        assert_eq!(Policy::of_rails(3).writes_of(len), expected);
        let (flag, done) = flag();
        let (write, now) = (Write { ..two.write(len, 0) }, two.sim.now());
        let (source, target) = (two.source.clone(), two.target.clone());
        let write = Write { from: (&source, 0), to: (&target, 0), ..write };
        two.engines[0].submit_write(now, &write, done).expect("a write");
        let reached = Arc::new(AtomicU64::new(0));
        let told = reached.clone();
        let call = Box::new(move |result: Result<(), _>| {
            told.fetch_add(1 + 100 * u64::from(result.is_err()), Ordering::Relaxed);
        });
        two.engines[1].expect((PeerId(0), 7), expected.into(), Nanos::MAX, call).expect("an expectation");
        two.run();
        assert_eq!((flag.load(Ordering::Acquire), reached.load(Ordering::Relaxed)), (FLAG_DONE, 1));
        assert_eq!(two.engines[1].counter(PeerId(0), 7), 0, "no immediate too many");
    }
}

#[test]
fn a_callback_that_panics_harms_no_other_transfer() {
    let mut two = two(1);
    let (source, target, now) = (two.source.clone(), two.target.clone(), two.sim.now());
    let write = Write { peer: OTHER, len: 64, imm: None, from: (&source, 0), to: (&target, 0) };
    let (flag, done) = flag();
    let panics = OnDone::Call(Box::new(|_| std::panic::resume_unwind(Box::new("as it was told to"))));
    two.engines[0].submit_write(now, &write, panics).expect("a write");
    two.engines[0].submit_write(now, &write, done).expect("a write");
    two.run();
    assert_eq!((flag.load(Ordering::Acquire), two.engines[0].callback_panics()), (FLAG_DONE, 1));
}

/// Regression: the end of one that was cancelled was told to who began the next one before a step.
#[test]
fn each_end_is_told_to_who_began_it() {
    let mut two = two(1);
    let (source, target, now) = (two.source.clone(), two.target.clone(), two.sim.now());
    let write = Write { peer: OTHER, len: 64, imm: None, from: (&source, 0), to: (&target, 0) };
    let ((first, cancelled), (second, whole)) = (flag(), flag());
    let id = two.engines[0].submit_write(now, &write, cancelled).expect("a write");
    assert!(two.engines[0].cancel(now, id, Cancel::Now));
    let next = two.engines[0].submit_write(now, &write, whole).expect("a write");
    assert_ne!(id, next);
    two.run();
    assert_eq!([first, second].map(|flag| flag.load(Ordering::Acquire)), [FLAG_FAILED, FLAG_DONE]);
}

/// The first piece after a step goes at once, on a lane whose end may have come since: the other end had it fenced.
#[test]
fn what_goes_at_once_on_a_lane_that_has_ended_is_sent_again() {
    let cases = [false, true].into_iter().flat_map(|order| (0..40).map(move |at| (order, 20 * at)));
    for (unordered, late_us) in cases {
        let down = Fault { from: 0, lasts: 300_000, node: 1, rail: 0, kind: Kind::Down };
        let mut two = two_where(1, unordered, vec![down]);
        let (own, source) = (Mr::new(0, MEMORY, &[key(1, 0)]).expect("a region"), two.source.clone());
        let (there, target) = (source.describe(Rights::Write), two.target.clone());
        two.sim.write(0, 0, &[5; 64]);
        let ((theirs, done), (ours, late)) = (flag(), flag());
        two.engines[0].step(two.sim.now());
        two.engines[1].step(two.sim.now());
        let write = Write { peer: PeerId(0), len: 64, imm: None, from: (&own, 512), to: (&there, 512) };
        two.engines[1].submit_write(two.sim.now(), &write, done).expect("a write");
        while two.sim.counts().fences == 0 {
            assert!(two.sim.next_time() < Nanos::MAX, "the write is lost, and its lane is fenced");
            two.sim.advance(two.sim.next_time());
            two.engines[1].step(two.sim.now());
        }
        two.sim.advance(two.sim.now() + Nanos::micros(late_us));
        let write = Write { peer: OTHER, len: 64, imm: Some(7), from: (&source, 0), to: (&target, 0) };
        two.engines[0].submit_write(two.sim.now(), &write, late).expect("a write");
        two.run();
        let told = [theirs, ours].map(|flag| flag.load(Ordering::Acquire));
        let came = (two.engines[1].counter(PeerId(0), 7), two.sim.read(1, 0, 64) == [5; 64]);
        assert_eq!(
            (told, came),
            ([FLAG_DONE; 2], (1, true)),
            "{unordered}, {late_us} us after the fence began"
        );
    }
}

#[test]
fn what_is_cancelled_before_it_is_posted_ends_at_once_with_a_proof() {
    let mut two = two(1);
    let (source, target, now) = (two.source.clone(), two.target.clone(), two.sim.now());
    let write = Write { peer: OTHER, len: 64, imm: None, from: (&source, 0), to: (&target, 0) };
    let (flag, done) = flag();
    let id = two.engines[0].submit_write(now, &write, done).expect("a write");
    assert!(two.engines[0].cancel(now, id, Cancel::Unposted));
    assert!(!two.engines[0].cancel(now, id, Cancel::Now), "it has ended");
    two.run();
    assert_eq!((flag.load(Ordering::Acquire), two.sim.counts().executed), (FLAG_FAILED, 0));
}

#[test]
fn a_read_brings_the_bytes_and_the_peer_is_told_nothing() {
    let mut two = two(3);
    let now = two.sim.now();
    let bytes: Vec<u8> = (0..200 << 10).map(|at| (at % 251) as u8).collect();
    two.sim.write(1, 4096, &bytes);
    let keys = [key(1, 0), key(1, 1), key(1, 2)];
    let readable = Mr::new(0, MEMORY, &keys).expect("a region").describe(Rights::Read);
    let source = two.source.clone();
    let (flag, done) = flag();
    let read = Read { peer: OTHER, len: bytes.len() as u64, from: (&readable, 4096), to: (&source, 64) };
    two.engines[0].submit_read(now, &read, done).expect("a read");
    two.run();
    assert_eq!(flag.load(Ordering::Acquire), FLAG_DONE);
    assert!(two.sim.read(0, 64, bytes.len() as u64) == bytes);
    assert_eq!((two.sim.counts().executed, two.engines[1].counter(PeerId(0), 0)), (3, 0));
}

/// A thread stands for the kernel: it writes memory, then the word. What the word promises is there when it is told, in
/// order, and the last value is not lost.
#[test]
fn a_word_that_a_thread_writes_is_told_in_order_with_what_was_written_before_it() {
    const STEPS: u64 = 200_000;
    let mut two = two(1);
    let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (read, data, write) = (words.clone(), words.clone(), words.clone());
    let told = Arc::new(AtomicU64::new(0));
    let last = told.clone();
    let each = move |old: u64, new: u64| {
        assert!(old < new && data[0].load(Ordering::Relaxed) >= new, "{old}, {new}");
        last.store(new, Ordering::Relaxed);
        if new == STEPS { Goes::Off } else { Goes::On }
    };
    let id = two.engines[0].watch(Box::new(move || read[1].load(Ordering::Relaxed)), Box::new(each));
    let writer = std::thread::spawn(move || {
        for step in 1..=STEPS {
            write[0].store(step, Ordering::Relaxed);
            write[1].store(step, Ordering::Release);
        }
    });
    while !writer.is_finished() {
        two.engines[0].step(Nanos::ZERO);
    }
    two.engines[0].step(Nanos::ZERO);
    assert_eq!((told.load(Ordering::Relaxed), two.engines[0].callback_panics()), (STEPS, 0));
    assert!(!two.engines[0].unwatch(id), "it has ended");
}
