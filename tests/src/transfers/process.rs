//! A process: its engine, what it writes, and what it expects of the other.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use shunt_device::platform::host::World;
use shunt_host::nanos::Nanos;
use shunt_soft_nic::SharedFabric;
use shunt_transfer_engine::engine::{Engine, OnDone, Paged, Policy, Write};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::{PeerId, TransferId};
use shunt_transfer_engine::rc::{Patience, RcDomain};
use shunt_transfer_engine::region::{Mr, MrDesc};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::transfer::{Cancel, Ended};

use super::ground::{Opened, PROCESSES, Seat};
use super::spec::{Board, Told, TransferSpec};
use crate::oracle::{load, store};
use crate::sim::SimWorld;

/// Bytes of a transfer, and of a page.
const SLOT: u64 = 16 << 10;
const PAGE: u64 = 2 << 10;
/// Least bytes of a piece of a single write.
const PIECE_MIN: u64 = 4 << 10;
/// Transfers under way at most.
const WINDOW: usize = 4;
/// A run that takes longer, in virtual time, has come to a stop.
const PATIENCE: Nanos = Nanos::millis(400);
/// What stands where a source may be used again, a target was read, and a target was taken back.
const REUSED: u64 = u64::MAX;
const READ: u64 = u64::MAX - 1;
const REVOKED: u64 = u64::MAX - 2;

/// What a word of a transfer is.
const fn shape(from: u32, transfer: usize, word: u64) -> u64 {
    ((from as u64 + 1) << 48 | (transfer as u64) << 24 | word) ^ 0x5ec0
}

fn fill(at: u64, of: impl Fn(u64) -> u64) {
    (0..SLOT / 8).for_each(|word| store(at + 8 * word, of(word)));
}

/// The callbacks' side.
#[derive(Default)]
struct Heard {
    ended: Vec<(usize, Ended)>,
    reached: Vec<(usize, Result<(), TransferError>)>,
}

/// A process that has started.
pub(super) struct Process {
    me: u32,
    other: u32,
    sim: Arc<SimWorld>,
    world: Arc<dyn World>,
    spec: TransferSpec,
    engine: Engine<RcDomain>,
    board: Rc<Board>,
    heard: Arc<Mutex<Heard>>,
    source: Mr,
    target: MrDesc,
    /// Where this region and the other's begin.
    base: u64,
    there: u64,
    policy: Policy,
    next: usize,
    ended: usize,
    reached: usize,
    cancels: Vec<(Nanos, usize, TransferId)>,
    told: Told,
    fabric: SharedFabric,
    began: bool,
}

impl Process {
    /// Opens what it needs, and connects to the other.
    pub(super) fn start(seat: Seat, board: Rc<Board>, spec: &TransferSpec) -> Self {
        let (me, sim, world, fabric) = (seat.me, seat.sim.clone(), seat.world.clone(), seat.fabric.clone());
        let mut patience = Patience::SOFT;
        patience.suspect = Nanos::millis(6);
        patience.timing.lifetime = Nanos::millis(5);
        let Opened { domain, region, target, base, there } =
            seat.open(2 * SLOT * spec.transfers as u64, patience);
        (0..spec.transfers).for_each(|number| {
            fill(base + number as u64 * SLOT, |word| shape(me, number, word));
        });
        let policy = Policy { piece_min: PIECE_MIN, ..Policy::of_rails(spec.rails) };
        Self {
            me,
            other: PROCESSES - 1 - me,
            sim,
            world,
            spec: spec.clone(),
            engine: Engine::new(domain, policy),
            board,
            heard: Arc::default(),
            source: region,
            target,
            base,
            there,
            policy,
            next: 0,
            ended: 0,
            reached: 0,
            cancels: Vec::new(),
            told: Told::default(),
            fabric,
            began: false,
        }
    }

    /// Sources lie in front, targets behind them.
    fn target_at(&self, number: usize) -> u64 {
        SLOT * (self.spec.transfers + number) as u64
    }

    fn is_cancelled(&self, number: usize) -> bool {
        self.spec.cancels > 0 && number % self.spec.cancels == self.spec.cancels - 1
    }

    fn is_paged(number: usize) -> bool {
        number.is_multiple_of(2)
    }

    fn pieces(&self, number: usize) -> u64 {
        if Self::is_paged(number) { SLOT / PAGE } else { self.policy.writes_of(SLOT).into() }
    }

    /// Writes and cancels, until all has ended at both ends and every lane is open again.
    pub(super) fn run(mut self) -> Told {
        let lanes = self.spec.rails as usize;
        (0..self.spec.transfers / 2).for_each(|number| self.expect(number));
        loop {
            let now = Nanos::new(self.world.now_ns());
            self.engine.step(now);
            self.take_heard();
            self.cancel(now);
            // They begin once every lane is open, so that a fault of any of them meets it.
            self.began = self.began || self.engine.rails_to(PeerId(self.other)).len() == lanes;
            if self.began {
                self.submit(now);
            }
            let expected = (0..self.spec.transfers).filter(|number| !self.is_cancelled(*number)).count();
            let done = self.ended == self.spec.transfers && self.reached == expected;
            let whole = self.engine.rails_to(PeerId(self.other)).len() == lanes;
            self.board.done.borrow_mut()[self.me as usize] = done && whole;
            if now > PATIENCE {
                let (ended, reached) = (self.ended, self.reached);
                let lanes = self.engine.rails_to(PeerId(self.other)).len();
                self.told.wrong.push(format!(
                    "process {}: expected an end within {} ms, got {ended} of {} transfers, {reached} of {expected} \
                     expectations, {lanes} lanes",
                    self.me,
                    PATIENCE.get() / 1_000_000,
                    self.next
                ));
                break;
            }
            if self.board.done.borrow().iter().all(|done| *done) {
                break;
            }
            self.sim.sleep(4_000 + self.sim.draw(8_000));
        }
        // What is late by less than a lifetime comes now.
        for _ in 0..500 {
            self.engine.step(Nanos::new(self.world.now_ns()));
            self.take_heard();
            self.sim.sleep(20_000);
        }
        self.judge();
        self.told.lanes = self.engine.counts();
        self.told.wrong.extend(self.engine.domain.take_remarks());
        self.told
    }

    fn submit(&mut self, now: Nanos) {
        if self.next == self.spec.transfers || self.next - self.ended >= WINDOW {
            return;
        }
        if self.me == 0 && self.next == 0 {
            let began_ns = self.sim.now();
            let plan = |fabric: &mut shunt_soft_nic::Fabric| {
                let faults = self.spec.faults.iter();
                faults.for_each(|(at, place, kind)| fabric.plan(began_ns + at, *place, *kind));
            };
            self.fabric.with(plan);
        }
        let number = self.next;
        self.next += 1;
        let heard = self.heard.clone();
        let done = OnDone::Call(Box::new(move |ended| {
            heard.lock().expect("one thread").ended.push((number, ended));
        }));
        let (peer, imm) = (PeerId(self.other), Some(number as u32));
        let (from, to) = (number as u64 * SLOT, self.target_at(number));
        let id = if Self::is_paged(number) {
            let pages =
                |offset| Pages { indices: (0..(SLOT / PAGE) as u32).rev().collect(), stride: PAGE, offset };
            let (from, to) = (pages(from), pages(to));
            let (from, to) = ((&self.source, &from), (&self.target, &to));
            self.engine.submit_paged(now, &Paged { peer, page_len: PAGE, imm, from, to }, done)
        } else {
            let (from, to) = ((&self.source, from), (&self.target, to));
            self.engine.submit_write(now, &Write { peer, len: SLOT, imm, from, to }, done)
        };
        match id {
            Ok(id) if self.is_cancelled(number) => {
                let after = Nanos::new(now.get() + self.sim.draw(60_000));
                self.cancels.push((after, number, id));
            }
            Ok(_) => {}
            Err(error) => self.told.wrong.push(format!("process {}: {number}: {error}", self.me)),
        }
        // The second half is expected late: immediates may come first.
        if number >= self.spec.transfers / 2 {
            self.expect(number);
        }
    }

    fn expect(&mut self, number: usize) {
        if self.is_cancelled(number) {
            return;
        }
        let (heard, until) = (self.heard.clone(), Nanos::new(self.world.now_ns()) + Nanos::secs(10));
        let call = Box::new(move |result| {
            heard.lock().expect("one thread").reached.push((number, result));
        });
        let of = (PeerId(self.other), number as u32);
        if let Err(error) = self.engine.expect(of, self.pieces(number), until, call) {
            self.told.wrong.push(format!("process {}: expectation {number}: {error}", self.me));
        }
    }

    fn cancel(&mut self, now: Nanos) {
        let due: Vec<_> = self.cancels.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, number, id) in due {
            let how =
                if number.is_multiple_of(4) { Cancel::Drain(now + Nanos::micros(20)) } else { Cancel::Now };
            if self.engine.cancel(now, id, how) && self.spec.hasty {
                fill(self.there + self.target_at(number), |_| REVOKED);
            }
        }
    }

    fn take_heard(&mut self) {
        let Heard { ended, reached } = std::mem::take(&mut *self.heard.lock().expect("one thread"));
        for (number, result) in reached {
            self.reached += 1;
            let at = self.base + self.target_at(number);
            let is_right = |word| load(at + 8 * word) == shape(self.other, number, word);
            match result {
                Ok(()) if (0..SLOT / 8).all(is_right) => {}
                Ok(()) => self.wrong(number, "bytes are not there when immediates were counted"),
                Err(error) => self.wrong(number, &error.to_string()),
            }
            fill(at, |_| READ);
        }
        for (number, ended) in ended {
            self.ended += 1;
            fill(self.base + number as u64 * SLOT, |_| REUSED);
            let written = ended.quiesced.as_ref().map(|proof| proof.written());
            self.board.written.borrow_mut()[self.me as usize][number] = written;
            match (&ended.result, written) {
                (Ok(()), Some(written)) if written == self.pieces(number) => self.told.written += 1,
                (Err(TransferError::Cancelled { .. }), Some(_)) if self.is_cancelled(number) => {
                    self.told.cancelled += 1;
                    if !self.spec.hasty {
                        fill(self.there + self.target_at(number), |_| REVOKED);
                    }
                }
                _ => self.told.other.push(format!("{number}: {ended:?}")),
            }
        }
    }

    fn wrong(&mut self, number: usize, text: &str) {
        self.told.wrong.push(format!("process {}: transfer {number} of the other: {text}", self.me));
    }

    /// Nothing was written behind a reader or into memory that was taken back, and every immediate was counted once.
    fn judge(&mut self) {
        let theirs = self.board.written.borrow()[self.other as usize].clone();
        for (number, written) in theirs.into_iter().enumerate() {
            let at = self.base + self.target_at(number);
            let count = self.engine.counter(PeerId(self.other), number as u32);
            let whole = written == Some(self.pieces(number));
            let (mark, left) = match self.is_cancelled(number) {
                true => (if whole { None } else { Some(REVOKED) }, written.unwrap_or(u64::MAX)),
                false => (Some(READ), 0),
            };
            if mark.is_some_and(|mark| (0..SLOT / 8).any(|word| load(at + 8 * word) != mark)) {
                self.wrong(number, "its target was written after it was free");
            }
            if count != left {
                self.wrong(number, &format!("expected {left} immediates in the end, got {count}"));
            }
        }
    }
}
