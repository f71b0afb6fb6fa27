//! Transfers of the transfer engine through random faults, on lanes with a count and without an order; and how long
//! faults, cancels and cuts take on soft NICs, in virtual time.

use crate::transfers::timing::{Case, Measure, TimingReport, TimingSpec, run};
use shunt_transfer_engine::sim::{oracle, silence};

use super::kit::{Wrongs, not_exercised, wrong_if};
use super::scenario::Scenario;

/// What a gap, and the proof of a cancel or cut, may take.
const BAR_NS: u64 = 1_000_000;
/// What is kept of what healthy rails carry.
const KEPT: f64 = 0.97;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "transfers_through_random_faults", seeds: 60, run: through_faults },
    Scenario { name: "transfers_a_piece_that_is_lost_in_silence", seeds: 12, run: lost_in_silence },
    Scenario { name: "transfers_leave_a_port_within_a_millisecond", seeds: 8, run: leave_a_port },
    Scenario { name: "transfers_prove_cancels_and_cuts_within_a_millisecond", seeds: 8, run: prove },
    Scenario { name: "transfers_keep_the_rate_of_healthy_rails", seeds: 1, run: keep_the_rate },
];

fn through_faults(seed: u64) -> Wrongs {
    oracle::run(seed, true).wrong
}

fn lost_in_silence(seed: u64) -> Wrongs {
    let (mut wrongs, lost) = silence::run(seed);
    wrongs.extend((lost == 0).then(|| not_exercised("no piece was lost")));
    wrongs
}

/// A run, and everything that is wrong with it: this was not measured, or took longer than the bar.
fn timed(seed: u64, case: Case, measured: &[Measure]) -> (TimingReport, Wrongs) {
    let report = run(&TimingSpec::new(seed, case));
    let mut wrongs = report.wrong.clone();
    wrongs.extend(report.not_exercised.as_deref().map(not_exercised));
    for measure in measured {
        let took = report.times.iter().find(|(what, _)| what == measure).map(|(_, ns)| *ns);
        let is_late = took.is_none_or(|ns| ns > BAR_NS);
        wrongs
            .extend(wrong_if(is_late, || format!("{measure:?}: expected {BAR_NS} ns at most, got {took:?}")));
    }
    (report, wrongs)
}

fn leave_a_port(seed: u64) -> Wrongs {
    timed(seed, Case::Down, &[Measure::First, Measure::Quiet]).1
}

fn prove(seed: u64) -> Wrongs {
    let of = |case, measure| timed(seed, case, &[measure]).1;
    [of(Case::Cancel, Measure::Cancel), of(Case::Revoke, Measure::Revoke), of(Case::Leave, Measure::Leave)]
        .concat()
}

fn keep_the_rate(seed: u64) -> Wrongs {
    let (report, mut wrongs) = timed(seed, Case::Rate, &[]);
    let rates = report.rates.unwrap_or_default();
    let bars = [("during", rates.during, 0.75 * rates.before), ("after", rates.after, rates.before)];
    for (when, got, of) in bars {
        let is_less = got.is_nan() || got <= 0.0 || got < KEPT * of;
        wrongs.extend(wrong_if(is_less, || {
            format!("{when}: expected {KEPT} of {of} bytes a second, got {got}")
        }));
    }
    wrongs
}
