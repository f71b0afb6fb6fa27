//! Transfers that share an immediate, some of them cancelled or refused: each piece counts once, and what is counted is
//! there.

use crate::several::{LATE, Mesh, Told, mesh_where};
use shunt_recovery::nanos::Nanos;
use shunt_transfer_engine::engine::{OnDone, Paged, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::{PeerId, TransferId};
use shunt_transfer_engine::region::{Mr, Rights};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::sim::Rng;
use shunt_transfer_engine::sim::faults::Fault;
use shunt_transfer_engine::transfer::{Cancel, Ended};
use std::ops::RangeInclusive;
use std::sync::Arc;

const SEEDS: u64 = 1_500;
const TO: PeerId = PeerId(1);
const PAGE: u64 = 64;
/// Pages of a transfer at most, and where its memory is.
const PAGES: u64 = 8;
const SLOT: u64 = PAGE * PAGES;
const MARK: u8 = 0xee;

/// One of those that share an immediate.
#[derive(Clone, Copy)]
struct Member {
    pages: u64,
    at: u64,
    is_good: bool,
}

/// What is drawn of a seed, and what comes of it.
struct Case {
    mesh: Mesh,
    rng: Rng,
    /// By immediate: how many pieces carry it.
    wants: Vec<u64>,
    /// Each with its immediate.
    all: Vec<(usize, Member)>,
    ended: Told<(usize, Ended)>,
    reached: Told<(usize, Result<(), TransferError>)>,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5a5a);
        let faults = (0..rng.below(6)).map(|_| Fault::random(&mut rng, 2, 2, 400_000)).collect();
        let mut mesh = mesh_where(seed, faults, if rng.one_in(4) { 4 } else { 0 }, 0);
        let imms = rng.between(1, 4);
        let (mut all, mut wants) = (Vec::new(), vec![0; imms as usize]);
        for number in 0..rng.between(2, 16) {
            let imm = rng.below(imms) as usize;
            let one = Member { pages: rng.between(1, PAGES), at: SLOT * number, is_good: !rng.one_in(8) };
            mesh.sim.write(0, one.at, &[1 + number as u8; SLOT as usize]);
            wants[imm] += one.pages;
            all.push((imm, one));
        }
        let reached = Told::default();
        for (imm, want) in wants.iter().enumerate().filter(|(_, want)| **want > 0) {
            let told = Arc::clone(&reached);
            let done = Box::new(move |result| told.lock().unwrap().push((imm, result)));
            mesh.engines[1].expect((PeerId(0), imm as u32), *want, LATE, done).expect("it is new");
        }
        Self { mesh, rng, wants, all, ended: Told::default(), reached }
    }

    fn submit(&mut self, number: usize) -> TransferId {
        let bad = Mr::new(0, 1 << 16, &[7, 7]).expect("a region").describe(Rights::Write);
        let Self { mesh, all, ended, .. } = self;
        let (imm, Member { pages, at, is_good }) = all[number];
        let told = Arc::clone(ended);
        let done = OnDone::Call(Box::new(move |end| told.lock().unwrap().push((number, end))));
        let (own, good) = (&mesh.regions[0].0, &mesh.regions[1].1);
        let (imm, target) = (Some(imm as u32), if is_good { good } else { &bad });
        let (now, engine) = (mesh.sim.now(), &mut mesh.engines[0]);
        let id = if pages == 1 {
            let write = Write { peer: TO, len: PAGE, imm, from: (own, at), to: (target, at) };
            engine.submit_write(now, &write, done)
        } else {
            let pages = Pages { indices: (0..pages as u32).collect(), stride: PAGE, offset: at };
            let (from, to) = ((own, &pages), (target, &pages));
            engine.submit_paged(now, &Paged { peer: TO, page_len: PAGE, imm, from, to }, done)
        };
        id.expect("it fits")
    }

    /// Begins all of them, and cancels some, some of these twice.
    fn begin(&mut self) {
        let mut ids = Vec::new();
        for number in 0..self.all.len() {
            ids.push(self.submit(number));
            let Self { mesh, rng, .. } = self;
            if rng.one_in(3) {
                let until = mesh.sim.now() + Nanos::new(rng.below(60_000));
                mesh.run(until);
            }
            if rng.one_in(10) {
                let victim = ids[rng.below(ids.len() as u64) as usize];
                let now = mesh.sim.now();
                let drain = Cancel::Drain(now + Nanos::new(rng.below(50_000)));
                let how = [Cancel::Unposted, drain, Cancel::Now][rng.below(3) as usize];
                mesh.engines[0].cancel(now, victim, how);
                if rng.one_in(2) {
                    mesh.engines[0].cancel(now, victim, Cancel::Now);
                }
            }
        }
    }

    /// Runs to the end. Memory is looked at and marked once its immediates were counted: which were.
    fn run_and_mark(&mut self, seed: u64) -> Vec<bool> {
        let Self { mesh, wants, all, reached, .. } = self;
        let (mut marked, mut until) = (vec![false; wants.len()], mesh.sim.now());
        while until < LATE {
            until = until + Nanos::new(if until < Nanos::millis(30) { 20_000 } else { 50_000_000 });
            mesh.run(until);
            for (imm, _) in reached.lock().unwrap().drain(..).filter(|(_, result)| result.is_ok()) {
                marked[imm] = true;
                for (number, (_, one)) in all.iter().enumerate().filter(|(_, (of, _))| *of == imm) {
                    let bytes = mesh.sim.read(1, one.at, PAGE * one.pages);
                    let is_there = one.is_good && bytes.iter().all(|byte| *byte == 1 + number as u8);
                    assert!(is_there, "seed {seed}, immediate {imm}: transfer {number} is not there");
                    mesh.sim.write(1, one.at, &vec![MARK; bytes.len()]);
                }
            }
        }
        marked
    }

    /// How many of each immediate may have come.
    fn may(&self) -> Vec<RangeInclusive<u64>> {
        let mut may = vec![(0, 0); self.wants.len()];
        for (number, end) in &*self.ended.lock().unwrap() {
            let (least, most) = &mut may[self.all[*number].0];
            let written = end.quiesced.as_ref().map_or(0, |proof| proof.written());
            let more = match end.result {
                Err(TransferError::Uncertain { pieces, .. }) => pieces,
                _ => 0,
            };
            (*least, *most) = (*least + written, *most + written + more);
        }
        may.into_iter().map(|(least, most)| least..=most).collect()
    }
}

#[test]
fn transfers_with_one_immediate_count_each_piece_once_whatever_becomes_of_the_others() {
    let (mut refused, mut cancelled, mut replays, mut reached) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let mut case = Case::new(seed);
        case.begin();
        let marked = case.run_and_mark(seed);
        let Case { mesh, wants, all, ended, .. } = &case;
        assert_eq!(ended.lock().unwrap().len(), all.len(), "seed {seed}: each ends once");
        for (imm, may) in case.may().into_iter().enumerate() {
            let taken = if marked[imm] { wants[imm] } else { 0 };
            let came = mesh.engines[1].counter(PeerId(0), imm as u32) + taken;
            assert!(
                may.contains(&came),
                "seed {seed}, immediate {imm}: expected {may:?}, got {came}: {ended:?}"
            );
            reached += u64::from(marked[imm]);
        }
        for (imm, one) in all.iter().filter(|(imm, _)| marked[*imm]) {
            let bytes = mesh.sim.read(1, one.at, PAGE * one.pages);
            assert!(bytes.iter().all(|byte| *byte == MARK), "seed {seed}, immediate {imm}: late");
        }
        replays += mesh.engines[0].counts().replays;
        for (_, end) in &*ended.lock().unwrap() {
            refused += u64::from(matches!(end.result, Err(TransferError::Denied { .. })));
            cancelled += u64::from(matches!(end.result, Err(TransferError::Cancelled { .. })));
        }
    }
    let all = [refused, cancelled, replays, reached];
    assert!(all.iter().all(|count| *count > 0), "refused, cancelled, replays, reached: {all:?}");
}
