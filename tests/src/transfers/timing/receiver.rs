//! The process that reads.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use shunt_device::platform::host::World;
use shunt_host::nanos::Nanos;
use shunt_transfer_engine::engine::{Engine, Policy};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::rc::RcDomain;

use super::memory::{READ, TAKEN, fill, holds, shape};
use super::spec::{Board, Case, Measure, PAGES, SLOT, SLOTS, TimingReport, TimingSpec};
use crate::sim::SimWorld;
use crate::transfers::ground::{Opened, Seat};

/// The other process.
const OTHER: PeerId = PeerId(0);
/// Pause between two looks, and the same where nothing has come for a while.
const BUSY_NS: u64 = 2_000;
const IDLE_NS: u64 = 20_000;
const WHILE: Nanos = Nanos::micros(400);
/// Transfers that were read before a slot is given back.
const KEPT: usize = 3;
/// What is late by less than a lifetime comes in this time.
const LATE_NS: u64 = 4_000_000;

/// The number of a transfer, and what became of its expectation.
type Reached = (usize, Result<(), TransferError>);

/// A process that has started.
pub(super) struct Receiver {
    spec: TimingSpec,
    sim: Arc<SimWorld>,
    world: Arc<dyn World>,
    board: Rc<Board>,
    engine: Engine<RcDomain>,
    base: u64,
    heard: Arc<Mutex<Vec<Reached>>>,
    /// By number, whether it was read.
    read: Vec<bool>,
    kept: VecDeque<usize>,
    left: Arc<Mutex<bool>>,
    revoked: Option<Nanos>,
    taken: bool,
    told: TimingReport,
}

impl Receiver {
    /// Opens what it needs, and connects to the other.
    pub fn start(seat: Seat, board: Rc<Board>, spec: TimingSpec) -> Self {
        let (sim, world) = (seat.sim.clone(), seat.world.clone());
        let Opened { domain, base, .. } = seat.open(SLOT * SLOTS as u64, spec.patience);
        Self {
            spec,
            sim,
            world,
            board,
            engine: Engine::new(domain, Policy::of_rails(spec.rails)),
            base,
            heard: Arc::default(),
            read: Vec::new(),
            kept: VecDeque::new(),
            left: Arc::default(),
            revoked: None,
            taken: false,
            told: TimingReport::default(),
        }
    }

    fn now(&self) -> Nanos {
        Nanos::new(self.world.now_ns())
    }

    fn slot(&self, number: usize) -> u64 {
        self.base + (number % SLOTS) as u64 * SLOT
    }

    /// Reads until nothing more is sent.
    pub fn run(mut self) -> TimingReport {
        let mut last = self.now();
        while !self.board.over.get() {
            let now = self.now();
            if self.board.silent.get() {
                self.sim.sleep(IDLE_NS);
                continue;
            }
            self.expect();
            if self.engine.step(now) {
                last = now;
            }
            self.take_heard();
            self.cut_off(now);
            self.sim.sleep(if now < last + WHILE { BUSY_NS } else { IDLE_NS });
        }
        for _ in 0..LATE_NS / 20_000 {
            self.engine.step(self.now());
            self.take_heard();
            self.sim.sleep(20_000);
        }
        self.judge();
        self.told.wrong.extend(self.engine.domain.take_remarks());
        self.told
    }

    /// Expects every transfer that may have begun.
    fn expect(&mut self) {
        while self.read.len() < self.board.begun.get() + 1 {
            let number = self.read.len();
            self.read.push(false);
            let heard = self.heard.clone();
            let call = Box::new(move |result| heard.lock().expect("one thread").push((number, result)));
            let of = (OTHER, number as u32);
            if let Err(error) = self.engine.expect(of, PAGES.into(), Nanos::MAX, call) {
                self.told.wrong.push(format!("expectation {number}: {error}"));
            }
        }
    }

    fn take_heard(&mut self) {
        let heard = std::mem::take(&mut *self.heard.lock().expect("one thread"));
        for (number, result) in heard {
            match result {
                Ok(()) if self.board.cancelled.get() == Some(number) || self.taken => {}
                Ok(()) => self.take(number),
                Err(TransferError::Missing { .. }) if self.spec.case == Case::Revoke => {}
                Err(error) => self.told.wrong.push(format!("expectation {number}: {error}")),
            }
        }
    }

    /// Looks at what has arrived, and marks it.
    fn take(&mut self, number: usize) {
        self.read[number] = true;
        if !holds(self.slot(number), |word| shape(number, word)) {
            self.told.wrong.push(format!("transfer {number}: other bytes than were sent"));
        }
        fill(self.slot(number), |_| READ);
        self.kept.push_back(number);
        if self.kept.len() > KEPT
            && let Some(first) = self.kept.pop_front()
        {
            self.look(first);
            let is_cancelled = self.board.cancelled.get() == Some(first);
            self.board.free.borrow_mut()[first % SLOTS] = !is_cancelled;
        }
    }

    /// What was cancelled may have been read before: its sender had not heard that it was written.
    fn look(&mut self, number: usize) {
        let is_cancelled = self.board.cancelled.get() == Some(number);
        if !is_cancelled && !holds(self.slot(number), |_| READ) {
            self.told.wrong.push(format!("transfer {number}: written after it was read"));
        }
    }

    fn cut_off(&mut self, now: Nanos) {
        if now >= self.board.revoke.get() && self.revoked.is_none() {
            self.revoked = Some(now);
            let left = self.left.clone();
            self.engine.leave(now, OTHER, Box::new(move || *left.lock().expect("one thread") = true));
            if self.spec.hasty {
                self.take_back();
            }
        }
        if !self.taken && *self.left.lock().expect("one thread") {
            self.taken = true;
            let took = self.revoked.map(|at| (self.now() - at).get());
            self.told.times.extend(took.map(|ns| (Measure::Revoke, ns)));
            if !self.spec.hasty {
                self.take_back();
            }
        }
    }

    /// All memory is used for something else.
    fn take_back(&self) {
        (0..SLOTS).for_each(|slot| fill(self.slot(slot), |_| TAKEN));
    }

    /// Nothing has landed behind a reader, or in memory that was taken back, and each immediate was counted once.
    fn judge(&mut self) {
        let begun = self.board.begun.get();
        match self.spec.case {
            Case::Revoke if !self.taken => self.told.wrong.push("expected a cut, got none".to_owned()),
            Case::Revoke => {
                let wrong = (0..SLOTS).filter(|slot| !holds(self.slot(*slot), |_| TAKEN));
                let say = |slot| format!("slot {slot}: written after its sender was cut off");
                let wrong: Vec<_> = wrong.map(say).collect();
                self.told.wrong.extend(wrong);
            }
            Case::Leave => {}
            _ => {
                for number in self.kept.clone() {
                    self.look(number);
                }
                for number in 0..begun {
                    if self.board.cancelled.get() == Some(number) {
                        if !holds(self.slot(number), |_| TAKEN) {
                            self.told.wrong.push(format!("transfer {number}: written after its cancel"));
                        }
                        continue;
                    }
                    let (read, more) = (self.read[number], self.engine.counter(OTHER, number as u32));
                    if !read || more > 0 {
                        self.told.wrong.push(format!(
                            "transfer {number}: expected {PAGES} immediates, got {} and {more} more",
                            if read { "them" } else { "fewer" }
                        ));
                    }
                }
            }
        }
    }
}
