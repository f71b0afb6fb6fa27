//! The list that a GPU runs, here by lanes as coroutines: groups of 2, 32 and 64, three blocks at the same time.

use shunt_deep_ep_bridge::scenarios::{LAYERS, Scenario, of};
use shunt_deep_ep_bridge::{MoeError, Patience};
use shunt_kernels::scenarios::Group;
use shunt_layout::state::SwitchKind;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{all, patience, spec};
use shunt_tests::moe_warps::{WarpBuffer, start};
use std::rc::Rc;

/// All ranks play their part; what is wrong, and failovers.
fn play(scenario: &Scenario, lanes: u32, seed: u64, wrong: fn(&mut [u16])) -> (Vec<String>, usize) {
    let mut spec = spec(&scenario.shape, seed);
    if scenario.fails {
        spec.faults = vec!["10us:0.0:down".parse().expect("a fault")];
    }
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let patience = Patience { blocks: scenario.blocks, signals: scenario.signals, ..patience(&spec) };
    let (cases, shared) = (Rc::new(scenario.cases(seed)), Rc::new(scenario.clone()));
    let rank_part = |rank: u32| {
        let (cases, scenario) = (cases.clone(), shared.clone());
        start(&cluster, scenario.clone().as_ref(), lanes, rank, patience, move |buffer: &mut WarpBuffer| {
            let mut cases = (*cases).clone();
            // What is sent, not what it is held against.
            wrong(&mut cases[LAYERS - 1].x[rank as usize]);
            scenario.play(buffer, &cases, |_| {})
        })
    };
    let tasks: Vec<_> = (0..scenario.shape.ranks).map(rank_part).collect();
    let said: Vec<Result<Vec<String>, MoeError>> = cluster.sim.finish_all(&tasks);
    let records = cluster.records();
    let failovers = records.iter().filter(|(_, record)| record.kind == SwitchKind::Failover as u32).count();
    (all(said), failovers)
}

fn hold(group: Group, lanes: u32) {
    let mut wrongs = Vec::new();
    for (seed, scenario) in (1..).zip(of(group)) {
        let (wrong, failovers) = play(&scenario, lanes, seed, |_| {});
        wrongs.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", scenario.name)));
        assert!(!scenario.fails || failovers > 0, "{}: the port failed behind it", scenario.name);
    }
    assert!(wrongs.is_empty(), "{} lanes:\n{}", lanes, wrongs.join("\n"));
}

#[test]
fn two_lanes() {
    hold(Group::Thread, 2);
}

#[test]
fn warps() {
    hold(Group::Warp, 32);
}

#[test]
fn blocks_of_two_warps() {
    hold(Group::Block, 64);
}

/// A channel that is not as it was sent is found, in a graph as well.
#[test]
fn one_wrong_channel_is_found() {
    for scenario in of(Group::Warp).iter().filter(|scenario| scenario.shape.ranks == 2 && !scenario.fails) {
        let (wrongs, _) = play(scenario, 32, 9, |x| x.iter_mut().take(512).for_each(|bits| *bits ^= 1 << 9));
        assert!(!wrongs.is_empty(), "{}: no rank saw it", scenario.name);
    }
}
