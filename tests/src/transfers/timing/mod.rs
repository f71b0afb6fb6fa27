//! How long faults, cancels and cuts take: pages of 64 KiB over four rails of soft NICs, in virtual time.
//!
//! One process writes, the other reads. The reader checks every page when its immediates are counted, marks it, and
//! looks at the mark before the page is given back: what lands late is found.

mod receiver;
mod sender;
mod spec;
mod watched;

use std::rc::Rc;

use receiver::Receiver;
use sender::Sender;
use spec::Board;
pub use spec::{Case, Measure, PAGE, PAGES, Rates, TimingReport, TimingSpec};

use super::ground::{Ground, Played};
use crate::oracle::{load, store};

/// A run that takes longer, in virtual time, has come to a stop.
const LIMIT_NS: u64 = 3_000_000_000;
/// What stands where a page was read, and where memory was taken back.
const READ: u64 = u64::MAX - 1;
const TAKEN: u64 = u64::MAX - 2;

/// How long ports hold packets back.
const HOLD_NS: u64 = 20_000_000;

/// What a word of a transfer is.
const fn shape(transfer: usize, at: u64) -> u64 {
    ((transfer as u64) << 24 | at) ^ 0x5ec0
}

/// Writes a slot.
fn fill(at: u64, of: impl Fn(u64) -> u64) {
    (0..spec::SLOT / spec::STEP).for_each(|word| store(at + spec::STEP * word, of(word)));
}

/// True if a slot holds this.
fn holds(at: u64, of: impl Fn(u64) -> u64) -> bool {
    (0..spec::SLOT / spec::STEP).all(|word| load(at + spec::STEP * word) == of(word))
}

/// Runs it.
pub fn run(spec: &TimingSpec) -> TimingReport {
    let ground = Ground { seed: spec.seed, rails: spec.rails, rail_gbps: spec.rail_gbps, limit_ns: LIMIT_NS };
    let (board, own) = (Rc::new(Board::new()), *spec);
    let Played { told, hits, took_ns } = ground.play(move |seat| match seat.me {
        0 => Sender::start(seat, board.clone(), own).run(),
        _ => Receiver::start(seat, board.clone(), own).run(),
    });
    let mut all = TimingReport { took_ns, ..TimingReport::default() };
    for report in told {
        all.wrong.extend(report.wrong);
        all.not_exercised = all.not_exercised.or(report.not_exercised);
        all.times.extend(report.times);
        all.rates = all.rates.or(report.rates);
        all.written += report.written;
    }
    if hits == 0 {
        all.not_exercised.get_or_insert_with(|| "the fault hit nothing".to_owned());
    }
    all
}
