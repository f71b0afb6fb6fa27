//! Verbs programs through random faults, by the library that makes them outlive a NIC.

use super::kit::{Wrongs, not_exercised};
use super::scenario::Scenario;
use crate::verbs::{Does, Request, VerbsSpec, run, sample};
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "verbs_programs_through_random_faults", seeds: 60, run: through_faults },
    Scenario { name: "verbs_completions_that_come_late", seeds: 8, run: late_completions },
    Scenario { name: "verbs_schedules_of_a_move", seeds: 8, run: sample },
    Scenario { name: "verbs_a_return_under_load", seeds: 4, run: busy_return },
    Scenario { name: "verbs_programs_that_sleep", seeds: 40, run: sleepers },
    Scenario { name: "verbs_buffers_that_are_shared", seeds: 40, run: sharers },
];

/// The first port comes back while requests are under way: the backup is left in the middle of them.
fn busy_return(seed: u64) -> Wrongs {
    let down = FaultKind::Down { for_ns: Some(1_500_000) };
    // What the backup has executed completes so much later that some is always on its way.
    let late = FaultKind::LateCqe { by_ns: 300_000, for_ns: Some(40_000_000) };
    let at = |pe, rail| RailAt { pe, rail };
    let report = run(&VerbsSpec {
        atomics: false,
        pace_ns: 20_000,
        requests: 1_000,
        faults: vec![
            (400_000 + seed * 70_000, at(seed as u32 % 2, 0), down),
            (400_000, at(0, 1), late),
            (400_000, at(1, 1), late),
        ],
        ..VerbsSpec::quiet(seed)
    });
    let wrong = report.wrong();
    let returned = report.sum(|told| told.at_home) == 2;
    match wrong.is_empty() && !returned {
        true => vec![not_exercised("a direction did not come back")],
        false => wrong,
    }
}

/// Receives complete at the NIC, and their completions come milliseconds later, when their path has been left.
fn late_completions(seed: u64) -> Wrongs {
    let at = |pe| RailAt { pe, rail: 0 };
    let late = FaultKind::LateCqe { by_ns: 2_500_000, for_ns: Some(9_000_000) };
    let down = FaultKind::Down { for_ns: Some(4_000_000) };
    let report = run(&VerbsSpec {
        pace_ns: 25_000,
        requests: 400,
        posts: [true, false],
        faults: vec![(500_000, at(1), late), (3_000_000 + seed * 100_000, at(0), down)],
        ..VerbsSpec::quiet(seed)
    });
    match report.wrong() {
        wrong if wrong.is_empty() && report.hits < 2 => vec![not_exercised("a fault hit nothing")],
        wrong => wrong,
    }
}

/// Draws until a fault hits something that moves for it.
const TRIES: u64 = 5;

fn through_faults(seed: u64) -> Wrongs {
    until_it_moves(seed, |spec| spec)
}

/// Programs sleep on their completion channels: none sleeps beside a completion.
fn sleepers(seed: u64) -> Wrongs {
    if seed.is_multiple_of(4) { all_by_the_cut(seed) } else { until_it_moves(seed, VerbsSpec::sleeping) }
}

/// All that is under way was executed, and no acknowledgement came: nothing but the cut says so, and nothing else wakes
/// the program.
fn all_by_the_cut(seed: u64) -> Wrongs {
    let few = |number| match number {
        23 => Does::Send,
        _ => Does::Write,
    };
    let few: Vec<Request> =
        (0..24).map(|number| Request { does: few(number), signaled: true, inline: false }).collect();
    let drop_acks = FaultKind::DropAcks { for_ns: Some(12_000_000) };
    let report = run(&VerbsSpec {
        requests: few.len() as u64,
        few,
        posts: [true, false],
        pace_ns: 2_000,
        late_ns: 800_000,
        faults: vec![(seed * 100, RailAt { pe: 0, rail: 0 }, drop_acks)],
        ..VerbsSpec::quiet(seed).sleeping()
    });
    let moved = report.hits == 1 && report.sum(|told| told.switches) > 0;
    let wrong = report.wrong();
    if wrong.is_empty() && !moved { vec![not_exercised("nothing had to move")] } else { wrong }
}

/// Connections take their buffers from one queue, with as many as messages come: none is lost, or used twice.
fn sharers(seed: u64) -> Wrongs {
    until_it_moves(seed, |spec| spec.sharing(0))
}

fn until_it_moves(seed: u64, of: impl Fn(VerbsSpec) -> VerbsSpec) -> Wrongs {
    for again in 0..TRIES {
        let spec = of(VerbsSpec::random(seed | again << 32));
        let report = run(&spec);
        let wrong = report.wrong();
        let woken = !spec.sleeps || report.sum(|told| told.wakes) > 0;
        if !wrong.is_empty() || report.hits > 0 && report.sum(|told| told.switches) > 0 && woken {
            return wrong;
        }
    }
    vec![not_exercised("nothing had to move")]
}
