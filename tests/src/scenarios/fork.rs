//! What a public attempt at failover for the same kernels does, defect by defect: a scenario each that its rule fails
//! and ours holds. The rule is a break (`shunt_layout::mutant`); those that other scenarios catch already stand in
//! `tests/tests/fork.rs` alone.

use shunt_device::{Deadline, HeapOffset, Put, Solo};

use super::kit::{
    Wrongs, both_ways, brisk, clean, failovers_of, gap_below, judged, spec, ways_back, wrong_if,
};
use super::scenario::Scenario;
use crate::cluster::Cluster;
use crate::spread;
use crate::traffic::Traffic;

pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "a_put_returns_before_its_completion", seeds: 2, run: put_returns },
    Scenario { name: "what_other_warps_had_in_flight", seeds: 4, run: in_flight },
    Scenario { name: "the_way_back_is_taken", seeds: 2, run: way_back },
    Scenario { name: "two_rails_of_three_die", seeds: 4, run: two_of_three },
    Scenario { name: "a_dead_rail_is_shared_by_all", seeds: 1, run: shared_by_all },
    Scenario { name: "agents_agree_while_their_rail_is_dead", seeds: 2, run: agents_agree },
];

/// A put is posted and not awaited, whatever its path does, and one whose doorbell is left is not either.
fn put_returns(seed: u64) -> Wrongs {
    judged(|| {
        let spec = spec(seed, &["100us:0.0:blackhole-tx"]);
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let task = cluster.spawn("put", 0, move |kernel| {
            let channel = kernel.device().channel(1, 0);
            kernel.world.sleep(200_000);
            let begun = kernel.world.now();
            let put = Put { dst: HeapOffset(4096), src: HeapOffset(0), bytes: 8 };
            let taken = (0..3).all(|_| channel.try_put_rung(Solo, put, seed == 0).ticket().is_some());
            let took_ns = kernel.world.now() - begun;
            let ended = channel.quiet(Solo, Deadline::after(kernel.world.now(), 1_000_000_000));
            (taken && ended.is_ok(), took_ns)
        });
        let (well, took_ns) = cluster.sim.finish(&task);
        let mut wrongs = wrong_if(!well, || "a put was refused, or the quiet failed".into());
        // Far below the time for which the path may be silent.
        wrongs.extend(wrong_if(took_ns > spec.suspect_floor_ns / 4, || {
            format!("three puts took {took_ns} ns")
        }));
        wrongs
    })
}

/// Whatever was outstanding on the path that failed, of all warps, is delivered or replayed.
fn in_flight(seed: u64) -> Wrongs {
    let fault = ["1ms:0.0:down", "1ms:1.0:down", "1ms:0.0:blackhole-tx", "1ms:1.0:blackhole-rx"];
    let mut spec = both_ways(seed, &[fault[seed as usize % 4]]);
    spec.warps = 4;
    spec.traffic = Traffic { messages: 400, slots: 64, pace_ns: 5_000, ..spec.traffic };
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

fn way_back(seed: u64) -> Wrongs {
    let mut spec = brisk(both_ways(seed, &["1ms:0.0:down", "3ms:0.0:up"]));
    spec.traffic.messages = 600;
    clean(&spec, |outcome| wrong_if(ways_back(outcome).count() == 0, || "no channel went back".into()))
}

/// The rails of one end die one after the other, until one is left.
fn two_of_three(seed: u64) -> Wrongs {
    let pe = seed % 2;
    let faults = [format!("1ms:{pe}.0:down"), format!("4ms:{pe}.{}:down", 1 + seed / 2 % 2)];
    let mut spec = spec(seed, &faults.each_ref().map(String::as_str));
    (spec.rails, spec.backups) = (3, 2);
    clean(&spec, |outcome| failovers_of(outcome, 1))
}

/// No survivor carries more than its share of what a dead rail carried.
fn shared_by_all(_: u64) -> Wrongs {
    judged(|| {
        let spread = spread::run(&[2]);
        let counts = spread.rows[1].channels.iter().enumerate().filter(|(rail, _)| *rail != 2);
        let (least, most) = counts.fold((u32::MAX, 0), |(least, most), (_, n)| (least.min(*n), most.max(*n)));
        wrong_if(most > least + 1, || format!("between {least} and {most} channels on a rail\n{spread}"))
    })
}

/// The rail that all agree about is the one that died, at both ends.
fn agents_agree(seed: u64) -> Wrongs {
    let spec = both_ways(seed, &["1ms:0.0:down", "1ms:1.0:down"]);
    clean(&spec, |outcome| {
        let mut wrongs = failovers_of(outcome, 2);
        wrongs.extend(gap_below(outcome, 20_000_000));
        wrongs
    })
}
