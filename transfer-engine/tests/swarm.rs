//! Random transfers through random faults in virtual time, a small set of seeds. `examples/transfer_swarm.rs` runs
//! many.

use shunt_transfer_engine::sim::oracle::{Report, run};
use shunt_transfer_engine::sim::silence;

const SEEDS: u64 = 400;

fn sum(seeds: std::ops::Range<u64>, faults: bool) -> Report {
    let mut all = Report::default();
    for seed in seeds {
        let Report { wrong, counts, written, cancelled, lost, uncertain, unproven, replays } =
            run(seed, faults);
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        all.written += written;
        all.cancelled += cancelled;
        all.lost += lost;
        all.uncertain += uncertain;
        all.unproven += unproven;
        all.replays += replays;
        all.counts.reordered += counts.reordered;
        all.counts.landed_late += counts.landed_late;
        all.counts.lost += counts.lost;
        all.counts.acks_lost += counts.acks_lost;
        all.counts.held += counts.held;
        all.counts.late += counts.late;
        all.counts.fences += counts.fences;
        all.counts.reopened += counts.reopened;
        all.counts.hits += counts.hits;
    }
    all
}

#[test]
fn transfers_outlive_what_a_network_does() {
    let all = sum(0..SEEDS, true);
    let counts = all.counts;
    let happened = [
        ("faults that hit", counts.hits),
        ("pieces lost", counts.lost),
        ("answers lost after delivery", counts.acks_lost),
        ("pieces held back", counts.held),
        ("pieces that came after the fence", counts.late),
        ("pieces executed out of order", counts.reordered),
        ("writes that came to memory late", counts.landed_late),
        ("replays", all.replays),
        ("fences", counts.fences),
        ("lanes opened again", counts.reopened),
        ("transfers written", all.written),
        ("transfers cancelled", all.cancelled),
        ("peers lost", all.lost),
        ("uncertain", all.uncertain),
        ("unproven", all.unproven),
    ];
    for (what, count) in happened {
        assert!(count > 0, "{what}: none in {SEEDS} seeds, {all:?}");
    }
}

#[test]
fn a_seed_is_one_run() {
    for seed in 0..20 {
        assert_eq!(format!("{:?}", run(seed, true)), format!("{:?}", run(seed, true)));
    }
}

#[test]
fn without_faults_only_cancelled_transfers_are_not_written() {
    let all = sum(0..60, false);
    assert!(all.written > 0 && all.counts.lost + all.counts.acks_lost + all.counts.held == 0, "{all:?}");
}

#[test]
fn a_piece_that_is_lost_in_silence_ends_in_time() {
    for seed in 0..20 {
        let (wrong, lost) = silence::run(seed);
        assert!(wrong.is_empty() && lost > 0, "seed {seed}: {lost} pieces were lost, {wrong:#?}");
    }
}
