//! The list of normal mode that a GPU runs, here by lanes as coroutines: groups of 2, 32 and 64, two or three blocks at
//! the same time.

use shunt_deep_ep_bridge::scenarios::LAYERS;
use shunt_deep_ep_bridge::scenarios::normal::{NormalScenario, of};
use shunt_deep_ep_bridge::{Format, MoeError, Patience};
use shunt_kernels::scenarios::Group;
use shunt_layout::state::SwitchKind;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::all;
use shunt_tests::moe_normal::{patience, spec};
use shunt_tests::moe_warps::{WarpNodeBuffer, start_normal};
use std::rc::Rc;

/// All ranks play their part; what is wrong, and failovers.
fn play(scenario: &NormalScenario, lanes: u32, seed: u64, wrong: fn(&mut [u16])) -> (Vec<String>, usize) {
    let mut spec = spec(&scenario.shape, seed);
    spec.faults =
        scenario.fault.iter().map(|fault| format!("10us:0.0:{fault}").parse().expect("a fault")).collect();
    let cluster = Cluster::start(&spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let patience = Patience { blocks: scenario.blocks, ..patience(&spec) };
    let (cases, shared) = (Rc::new(scenario.cases(seed)), Rc::new(scenario.clone()));
    let rank_part = |rank: u32| {
        let (cases, scenario) = (cases.clone(), shared.clone());
        let on = shared.clone();
        start_normal(&cluster, &on, lanes, rank, patience, move |buffer: &mut WarpNodeBuffer| {
            let mut cases = (*cases).clone();
            // What is sent, not what it is held against.
            wrong(&mut cases[LAYERS - 1].case.x[rank as usize]);
            scenario.play(buffer, &cases, |_| {})
        })
    };
    let tasks: Vec<_> = (0..scenario.shape.ranks()).map(rank_part).collect();
    let said: Vec<Result<Vec<String>, MoeError>> = cluster.sim.finish_all(&tasks);
    let records = cluster.records();
    let failovers = records.iter().filter(|(_, record)| record.kind == SwitchKind::Failover as u32).count();
    (all(said), failovers)
}

fn hold(scenarios: Vec<NormalScenario>, lanes: u32) {
    let mut wrongs = Vec::new();
    for (seed, scenario) in (1..).zip(scenarios) {
        let (wrong, failovers) = play(&scenario, lanes, seed, |_| {});
        wrongs.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", scenario.name)));
        assert!(scenario.fault.is_none() || failovers > 0, "{}: no channel switched", scenario.name);
    }
    assert!(wrongs.is_empty(), "{} lanes:\n{}", lanes, wrongs.join("\n"));
}

#[test]
fn two_lanes() {
    hold(of(Group::Thread), 2);
}

#[test]
fn warps() {
    hold(of(Group::Warp), 32);
}

/// Every third: both formats; none, an error completion and silence.
#[test]
fn blocks_of_two_warps() {
    hold(of(Group::Block).into_iter().step_by(3).collect(), 64);
}

/// A channel that is not as it was sent is found. (FP8 travels as the caller made it, not as `x` has it.)
#[test]
fn one_wrong_channel_is_found() {
    let plain = |scenario: &&NormalScenario| scenario.format == Format::Bf16 && scenario.fault.is_none();
    for scenario in of(Group::Warp).iter().filter(plain) {
        let (wrongs, _) = play(scenario, 32, 9, |x| x.iter_mut().take(512).for_each(|bits| *bits ^= 1 << 9));
        assert!(!wrongs.is_empty(), "{}: no rank saw it", scenario.name);
    }
}
