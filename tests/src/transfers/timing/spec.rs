//! What a run is, what is measured of it, and what processes know of each other.

use std::cell::{Cell, RefCell};

use shunt_host::nanos::Nanos;
use shunt_transfer_engine::rc::Patience;

use crate::rng::Rng;

/// Bytes of a page: one write.
pub const PAGE: u64 = 64 << 10;
/// Pages of a transfer.
pub const PAGES: u32 = 8;
/// Bytes of a transfer.
pub(super) const SLOT: u64 = PAGE * PAGES as u64;
/// Transfers under way at most, and slots for them: one that was read is given back later.
pub(super) const WINDOW: usize = 4;
pub(super) const SLOTS: usize = 12;
/// A word is written, and looked at, in so many bytes.
pub(super) const STEP: u64 = 64;

/// How long ports hold packets back.
pub(super) const HOLD_NS: u64 = 20_000_000;

/// What happens in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// A port goes down at a random moment, and comes up later. The rails are kept busy until all pieces that it hit
    /// are done, then there is little traffic.
    Down,
    /// A port holds everything back for 20 ms. Meanwhile a transfer with a piece there is cancelled at once.
    Cancel,
    /// The sender falls silent, and its ports hold everything back for 20 ms at most. The receiver cuts it off, and
    /// takes its memory back.
    Revoke,
    /// The receiver falls silent, and nothing reaches its ports any more. The sender cuts it off.
    Leave,
    /// A port goes down for 20 ms. The rails are busy all the time.
    Rate,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct TimingSpec {
    /// Everything random comes from it.
    pub seed: u64,
    /// What happens.
    pub case: Case,
    /// Rails of each process.
    pub rails: u32,
    /// What each carries.
    pub rail_gbps: f64,
    /// How patient both processes are.
    pub patience: Patience,
    /// A break of the judge: memory is taken back at the cancel or cut, and not when that is proven.
    pub hasty: bool,
}

impl TimingSpec {
    /// On four rails, with the patience of hardware.
    pub const fn new(seed: u64, case: Case) -> Self {
        let rail_gbps = if matches!(case, Case::Rate) { 10.0 } else { 25.0 };
        Self { seed, case, rails: 4, rail_gbps, patience: Patience::HARDWARE, hasty: false }
    }

    /// What the seed draws.
    pub(super) fn draw(&self) -> Drawn {
        let mut rng = Rng::new(self.seed ^ 0x7143_0000);
        let steady_ns = if self.case == Case::Rate { 12_000_000 } else { 300_000 };
        let for_ns = match self.case {
            Case::Down => rng.between(5_000_000, 120_000_000),
            // Some of it ends before the cut is proven.
            Case::Revoke if rng.one_in(2) => rng.between(50_000, 400_000),
            _ => HOLD_NS,
        };
        Drawn {
            pe: rng.below(2) as u32,
            rail: rng.below(self.rails.into()) as u32,
            at_ns: steady_ns + rng.below(1_000_000),
            for_ns,
            after_ns: rng.below(300_000),
        }
    }
}

/// What the seed has drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drawn {
    /// Whose port, and which.
    pub pe: u32,
    pub rail: u32,
    /// When it happens, after the first transfer, and for how long.
    pub at_ns: u64,
    pub for_ns: u64,
    /// How much later somebody cancels or cuts off.
    pub after_ns: u64,
}

/// What is measured, in nanoseconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// From the fault to the first piece that is done of those that were under way on the lane.
    First,
    /// To the last of them.
    Last,
    /// Longest time without a completion on any lane, until then.
    Quiet,
    /// From the fault until the lane is left.
    Detect,
    /// From there until its fence tells what was executed.
    Fence,
    /// From the port that is there again until a piece is done on that rail.
    Back,
    /// From a cancel until nothing of the transfer lands any more.
    Cancel,
    /// From a cut by the receiver until nothing of the sender lands any more; the sender is silent.
    Revoke,
    /// From a cut by the sender until nothing of the receiver lands any more; the receiver is silent.
    Leave,
    /// From that cut until all transfers to the receiver have ended: no packet lives any more.
    Ends,
}

/// Bytes a second, in virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Before the fault.
    pub before: f64,
    /// While the port is down.
    pub during: f64,
    /// Once the rail is used again.
    pub after: f64,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct TimingReport {
    /// Promises that were broken.
    pub wrong: Vec<String>,
    /// Why it shows nothing, if it does not.
    pub not_exercised: Option<String>,
    /// What was measured.
    pub times: Vec<(Measure, u64)>,
    /// Of [`Case::Rate`].
    pub rates: Option<Rates>,
    /// Transfers that were written whole.
    pub written: u64,
    /// Virtual time.
    pub took_ns: u64,
}

/// What processes know of each other.
pub(super) struct Board {
    /// By slot: a transfer may be written there.
    pub free: RefCell<Vec<bool>>,
    /// Transfers that were begun.
    pub begun: Cell<usize>,
    /// The transfer that was cancelled.
    pub cancelled: Cell<Option<usize>>,
    /// The receiver neither looks nor answers.
    pub silent: Cell<bool>,
    /// The receiver cuts the sender off then.
    pub revoke: Cell<Nanos>,
    /// Nothing more is sent.
    pub over: Cell<bool>,
}

impl Board {
    /// At the start.
    pub fn new() -> Self {
        Self {
            free: RefCell::new(vec![true; SLOTS]),
            begun: Cell::new(0),
            cancelled: Cell::new(None),
            silent: Cell::new(false),
            revoke: Cell::new(Nanos::MAX),
            over: Cell::new(false),
        }
    }
}
