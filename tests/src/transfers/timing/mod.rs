//! How long faults, cancels and cuts take: pages of 64 KiB over four rails of soft NICs, in virtual time.
//!
//! One process writes, the other reads. The reader checks every page when its immediates are counted, marks it, and
//! looks at the mark before the page is given back: what lands late is found.

mod memory;
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

/// A run that takes longer, in virtual time, has come to a stop.
const LIMIT_NS: u64 = 3_000_000_000;
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
