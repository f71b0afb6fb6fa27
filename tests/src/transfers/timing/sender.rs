//! The process that writes.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use shunt_device::platform::host::World;
use shunt_host::nanos::Nanos;
use shunt_soft_nic::fault::FaultKind;
use shunt_soft_nic::{RailAt, SharedFabric};
use shunt_transfer_engine::engine::{Engine, OnDone, Paged, Policy};
use shunt_transfer_engine::ids::{PeerId, TransferId};
use shunt_transfer_engine::region::{Mr, MrDesc};
use shunt_transfer_engine::shard::Pages;
use shunt_transfer_engine::transfer::{Cancel, Ended};

use super::memory::{TAKEN, fill, shape};
use super::spec::{
    Board, Case, Drawn, HOLD_NS, Measure, PAGE, PAGES, Rates, SLOT, SLOTS, TimingReport, TimingSpec, WINDOW,
};
use super::watched::{Fault, Watched};
use crate::sim::SimWorld;
use crate::transfers::ground::{Opened, Seat};

/// The other process.
const OTHER: PeerId = PeerId(1);
/// Pause between two looks while the rails are busy, and while little happens.
const BUSY_NS: u64 = 1_000;
const IDLE_NS: u64 = 20_000;
/// With little traffic a transfer begins so often.
const RARE: Nanos = Nanos::millis(1);
/// What a run waits for comes sooner, in virtual time.
const PATIENCE: Nanos = Nanos::secs(1);
/// From a change to the first instant at which a rate is measured, and how long it is.
const SETTLE: Nanos = Nanos::millis(2);
const SPAN: Nanos = Nanos::millis(10);

/// How much is to be sent.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    Full,
    Little,
    None,
}

/// A process that has started.
pub(super) struct Sender {
    spec: TimingSpec,
    drawn: Drawn,
    sim: Arc<SimWorld>,
    world: Arc<dyn World>,
    fabric: SharedFabric,
    board: Rc<Board>,
    engine: Engine<Watched>,
    region: Mr,
    target: MrDesc,
    base: u64,
    there: u64,
    heard: Arc<Mutex<Vec<(usize, Ended)>>>,
    /// By number: whether it is under way, and as which transfer.
    begun: Vec<Option<TransferId>>,
    under_way: usize,
    last: Nanos,
    /// When the cancelled one had ended.
    quiet: Option<Nanos>,
    told: TimingReport,
}

impl Sender {
    /// Opens what it needs, and connects to the other.
    pub fn start(seat: Seat, board: Rc<Board>, spec: TimingSpec) -> Self {
        let (sim, world, fabric) = (seat.sim.clone(), seat.world.clone(), seat.fabric.clone());
        let Opened { domain, region, target, base, there } = seat.open(SLOT * SLOTS as u64, spec.patience);
        Self {
            spec,
            drawn: spec.draw(),
            sim,
            world,
            fabric,
            board,
            engine: Engine::new(Watched::new(domain), Policy::of_rails(spec.rails)),
            region,
            target,
            base,
            there,
            heard: Arc::default(),
            begun: Vec::new(),
            under_way: 0,
            last: Nanos::ZERO,
            quiet: None,
            told: TimingReport::default(),
        }
    }

    fn now(&self) -> Nanos {
        Nanos::new(self.world.now_ns())
    }

    /// Has it all happen.
    pub fn run(mut self) -> TimingReport {
        let rails = self.spec.rails as usize;
        let is_whole = |own: &Self| own.engine.rails_to(OTHER).len() == rails;
        if self.until("every lane", Load::None, PATIENCE, is_whole) {
            match self.spec.case {
                Case::Down => self.port_down(),
                Case::Cancel => self.cancel(),
                Case::Revoke => self.fall_silent(),
                Case::Leave => self.leave(),
                Case::Rate => self.rates(),
            }
        }
        if !matches!(self.spec.case, Case::Revoke | Case::Leave) {
            self.until("the end of all transfers", Load::None, PATIENCE, |own| own.under_way == 0);
        }
        self.board.over.set(true);
        self.told.wrong.extend(self.engine.domain.inner.take_remarks());
        self.told
    }

    /// Goes on until something is so. False if it is not so in time: that is wrong.
    fn until(
        &mut self,
        what: &str,
        load: Load,
        patience: Nanos,
        mut is_so: impl FnMut(&Self) -> bool,
    ) -> bool {
        let until = self.now() + patience;
        while !is_so(self) {
            if self.now() > until {
                let ms = patience.get() / 1_000_000;
                self.told.wrong.push(format!("expected {what} within {ms} ms, got none"));
                return false;
            }
            self.turn(load);
        }
        true
    }

    /// Sends and looks until then.
    fn pass(&mut self, load: Load, until: Nanos) {
        while self.now() < until {
            self.turn(load);
        }
    }

    fn turn(&mut self, load: Load) {
        let now = self.now();
        self.engine.step(now);
        self.take_heard();
        let may = match load {
            Load::Full => WINDOW,
            Load::Little if now >= self.last + RARE => 1,
            _ => 0,
        };
        while self.under_way < may && self.begin(now) {}
        self.sim.sleep(if load == Load::Full { BUSY_NS } else { IDLE_NS });
    }

    /// Begins the next transfer. False if its slot is not free. The last one there may have been read before this end
    /// knows that it was written.
    fn begin(&mut self, now: Nanos) -> bool {
        let number = self.begun.len();
        let slot = number % SLOTS;
        if number.checked_sub(SLOTS).is_some_and(|last| self.begun[last].is_some()) {
            return false;
        }
        if !std::mem::replace(&mut self.board.free.borrow_mut()[slot], false) {
            return false;
        }
        let at = slot as u64 * SLOT;
        fill(self.base + at, |word| shape(number, word));
        let heard = self.heard.clone();
        let done = OnDone::Call(Box::new(move |ended| {
            heard.lock().expect("one thread").push((number, ended));
        }));
        let pages = Pages { indices: (0..PAGES).collect(), stride: PAGE, offset: at };
        let (from, to) = ((&self.region, &pages), (&self.target, &pages));
        let paged = Paged { peer: OTHER, page_len: PAGE, imm: Some(number as u32), from, to };
        match self.engine.submit_paged(now, &paged, done) {
            Ok(id) => self.begun.push(Some(id)),
            Err(error) => {
                self.told.wrong.push(format!("transfer {number}: {error}"));
                return false;
            }
        }
        self.under_way += 1;
        self.last = now;
        self.board.begun.set(self.begun.len());
        true
    }

    fn take_heard(&mut self) {
        let now = self.now();
        let heard = std::mem::take(&mut *self.heard.lock().expect("one thread"));
        for (number, ended) in heard {
            self.under_way -= 1;
            self.begun[number] = None;
            let is_cancelled = self.board.cancelled.get() == Some(number);
            match (&ended.result, &ended.quiesced) {
                (Ok(()), Some(_)) if !is_cancelled => self.told.written += 1,
                // Nothing of it lands any more: the memory is used for something else at once.
                (_, Some(_)) if is_cancelled => {
                    if !self.spec.hasty {
                        self.take_back(number);
                    }
                    self.quiet = Some(now);
                }
                _ if matches!(self.spec.case, Case::Revoke | Case::Leave) => {}
                _ => self.told.wrong.push(format!("transfer {number}: expected its end, got {ended:?}")),
            }
        }
    }

    /// The memory of a transfer at the other end is used for something else.
    fn take_back(&self, number: usize) {
        fill(self.there + (number % SLOTS) as u64 * SLOT, |_| TAKEN);
    }

    /// Plans the fault of the run.
    fn plan(&mut self, kind: impl Fn(u64) -> FaultKind) -> Fault {
        let Drawn { pe, rail, at_ns, for_ns, .. } = self.drawn;
        let at = self.now() + Nanos::new(at_ns);
        self.fabric.with(|fabric| fabric.plan(at.get(), RailAt { pe, rail }, kind(for_ns)));
        let fault = Fault { at, up: at + Nanos::new(for_ns), rail };
        self.engine.domain.log.expect(fault);
        fault
    }

    fn plan_down(&mut self) -> Fault {
        self.plan(|for_ns| FaultKind::Down { for_ns: Some(for_ns) })
    }

    fn port_down(&mut self) {
        let fault = self.plan_down();
        self.until("the pieces of the failed lane", Load::Full, PATIENCE, |own| {
            own.engine.domain.log.is_settled()
        });
        self.until("the rail back", Load::Little, PATIENCE, |own| own.engine.domain.log.seen.back.is_some());
        let seen = &self.engine.domain.log.seen;
        if seen.met == 0 {
            self.told.not_exercised = Some("nothing was under way on the lane".to_owned());
        }
        let since = |from: Nanos, to: Option<Nanos>| to.map(|to| (to - from).get());
        let times = [
            (Measure::First, since(fault.at, seen.first)),
            (Measure::Last, since(fault.at, seen.last)),
            (Measure::Quiet, Some(seen.quiet.get())),
            (Measure::Detect, since(fault.at, seen.left)),
            (Measure::Fence, seen.left.and_then(|left| since(left, seen.fenced))),
            (Measure::Back, since(fault.up, seen.back)),
        ];
        self.told.times.extend(times.into_iter().filter_map(|(what, ns)| Some((what, ns?))));
    }

    fn cancel(&mut self) {
        let fault = self.plan(|for_ns| FaultKind::Hold { for_ns });
        self.pass(Load::Full, fault.at + Nanos::new(self.drawn.after_ns));
        let held = self.engine.domain.log.on_rail(self.drawn.rail).next();
        let number = held.and_then(|held| self.begun.iter().position(|id| *id == Some(held)));
        let Some((number, transfer)) = number.zip(held) else {
            self.told.not_exercised = Some("nothing was under way on the lane that holds".to_owned());
            return;
        };
        self.board.cancelled.set(Some(number));
        let now = self.now();
        self.engine.cancel(now, transfer, Cancel::Now);
        if self.spec.hasty {
            self.take_back(number);
        }
        self.until("the end of what was cancelled", Load::Full, PATIENCE, |own| own.quiet.is_some());
        self.told.times.extend(self.quiet.map(|quiet| (Measure::Cancel, (quiet - now).get())));
        // What the port has held back comes now.
        self.pass(Load::None, fault.up + SETTLE);
    }

    /// Plans a fault of every port of an end.
    fn plan_all(&self, pe: u32, at: Nanos, kind: FaultKind) {
        let all = (0..self.spec.rails).map(|rail| RailAt { pe, rail });
        self.fabric.with(|fabric| all.for_each(|rail| fabric.plan(at.get(), rail, kind)));
    }

    fn fall_silent(&mut self) {
        let at = self.now() + Nanos::new(self.drawn.at_ns);
        self.plan_all(0, at, FaultKind::Hold { for_ns: self.drawn.for_ns });
        self.board.revoke.set(at + Nanos::new(self.drawn.after_ns));
        self.pass(Load::Full, at);
        if self.under_way == 0 {
            self.told.not_exercised = Some("nothing was under way".to_owned());
        }
        // What the ports have held back comes before it goes on.
        self.sim.sleep(HOLD_NS + SETTLE.get());
        let now = self.now();
        self.pass(Load::Full, now + SETTLE);
    }

    fn leave(&mut self) {
        let at = self.now() + Nanos::new(self.drawn.at_ns);
        self.plan_all(1, at, FaultKind::BlackholeRx { for_ns: None });
        self.pass(Load::Full, at);
        self.board.silent.set(true);
        self.pass(Load::Full, at + Nanos::new(self.drawn.after_ns));
        if self.under_way == 0 {
            self.told.not_exercised = Some("nothing was under way".to_owned());
        }
        let (now, left) = (self.now(), Arc::new(Mutex::new(false)));
        let tell = left.clone();
        let done = Box::new(move || *tell.lock().expect("one thread") = true);
        self.engine.leave(now, OTHER, done);
        let mut since = None;
        let is_left = |own: &Self| {
            let is_left = *left.lock().expect("one thread");
            since = since.or(is_left.then(|| own.now()));
            is_left
        };
        self.until("a cut", Load::None, PATIENCE, is_left);
        self.told.times.extend(since.map(|since| (Measure::Leave, (since - now).get())));
        if self.until("the end of all transfers", Load::None, PATIENCE, |own| own.under_way == 0) {
            let ns = (self.now() - now).get();
            self.told.times.push((Measure::Ends, ns));
        }
        self.board.silent.set(false);
    }

    fn rates(&mut self) {
        let fault = self.plan_down();
        let before = self.rate(fault.at - SPAN);
        let during = self.rate(fault.at + SETTLE);
        self.until("the rail back", Load::Full, PATIENCE, |own| own.engine.domain.log.seen.back.is_some());
        let after = self.rate(self.now() + SETTLE);
        self.told.rates = Some(Rates { before, during, after });
        if self.engine.domain.log.seen.met == 0 {
            self.told.not_exercised = Some("nothing was under way on the lane".to_owned());
        }
    }

    /// Bytes a second from then on.
    fn rate(&mut self, from: Nanos) -> f64 {
        self.pass(Load::Full, from);
        let (began, bytes) = (self.now(), self.engine.domain.log.bytes);
        self.pass(Load::Full, began + SPAN);
        (self.engine.domain.log.bytes - bytes) as f64 * 1e9 / (self.now() - began).get() as f64
    }
}
