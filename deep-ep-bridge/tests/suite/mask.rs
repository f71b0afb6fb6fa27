//! Ranks that agree on who is left out: who goes on goes on with right results, who does not is told so.

use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::{Format, MoeError, Patience};
use shunt_device::FaultKind;
use shunt_layout::moe::Shape;
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::moe::{RankBuffer, cases, patience, pause, spec, start, start_on_nodes};
use shunt_tests::spec::RunSpec;
use std::rc::Rc;

/// Layers before which something must have happened, at one each few microseconds.
const BEFORE: usize = 2_000;
/// Layers behind it.
const BEHIND: usize = 3;
/// Times that a rank cleans before it has cleaned.
const TRIES: usize = 8;

/// How a rank ended.
#[derive(Debug)]
struct End {
    rank: u32,
    /// What its first call that failed said.
    met: Option<MoeError>,
    /// What kept it from going on.
    ended: Option<MoeError>,
    epoch: u64,
    mask: Vec<bool>,
    wrongs: Vec<String>,
}

fn shape() -> Shape {
    Shape::new(4, 8, 3, 512).unwrap()
}

fn four(seed: u64) -> RunSpec {
    RunSpec { give_up_ns: 100_000_000, time_limit_ns: 200_000_000_000, ..spec(&shape(), seed) }
}

fn agreeing(spec: &RunSpec) -> Patience {
    Patience { timeout_ns: 1_500_000_000, mask_lost: true, ..patience(spec) }
}

/// Layers until one fails, cleaning until it is done, layers again.
fn life(buffer: &mut RankBuffer, kernel: &Kernel, cases: &[Case], rank: u32) -> End {
    let mut end = End { rank, met: None, ended: None, epoch: 0, mask: Vec::new(), wrongs: Vec::new() };
    for number in 0..BEFORE {
        match layer::run(buffer, &cases[number % cases.len()], Manner::default()) {
            Ok(wrongs) => end.wrongs.extend(wrongs),
            Err(error) => {
                end.met = Some(error);
                break;
            }
        }
        pause(kernel, 100_000);
    }
    let again = |error: &MoeError| !matches!(error, MoeError::LeftOut { .. } | MoeError::NoMajority { .. });
    let mut behind = 0;
    for _ in 0..TRIES {
        let done = buffer.clean().and_then(|()| {
            behind = 0;
            for case in &cases[..BEHIND] {
                end.wrongs.extend(layer::run(buffer, case, Manner::default())?);
                behind += 1;
            }
            Ok(())
        });
        end.ended = done.err();
        if !end.ended.as_ref().is_some_and(again) {
            break;
        }
    }
    if end.ended.is_none() && behind != BEHIND {
        end.wrongs.push(format!("rank {rank}: {behind} layers behind it"));
    }
    (end.epoch, end.mask) = (buffer.epoch(), buffer.mask());
    end
}

/// Runs all ranks, of which `gone` do not end; each is a node of its own.
fn lives(cluster: &Cluster, gone: &[u32]) -> Vec<End> {
    lives_on_nodes(cluster, gone, 1)
}

/// The same on nodes of so many ranks.
fn lives_on_nodes(cluster: &Cluster, gone: &[u32], locals: u32) -> Vec<End> {
    let cases = Rc::new(cases(shape(), 3, Format::Bf16, cluster.spec.seed, 4));
    let patience = agreeing(&cluster.spec);
    let tasks: Vec<_> = (0..4)
        .filter_map(|rank| {
            let cases = cases.clone();
            let body = move |buffer: &mut RankBuffer, kernel: &Kernel| life(buffer, kernel, &cases, rank);
            let task = start_on_nodes(cluster, shape(), locals, rank, patience, body);
            // Kept, so that it runs until it is killed.
            if gone.contains(&rank) {
                std::mem::forget(task)
            } else {
                return Some(task);
            }
            None
        })
        .collect();
    cluster.sim.finish_all(&tasks)
}

fn parted(cluster: &Cluster, left: &[u32], right: &[u32], agents: bool) {
    for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (*a, *b))) {
        cluster.fabric.with(|fabric| fabric.part(a, b));
        if agents {
            cluster.oob.cut(a, b);
        }
    }
}

fn goes_on(end: &End, mask: [bool; 4]) {
    assert!(end.ended.is_none() && end.wrongs.is_empty(), "{end:?}");
    assert!(end.met.is_some(), "it noticed: {end:?}");
    assert!(end.epoch > 0 && end.mask == mask, "{end:?}");
}

fn one_epoch(ends: &[&End]) {
    assert!(ends.iter().all(|end| end.epoch == ends[0].epoch), "{ends:?}");
}

#[test]
fn three_go_on_without_one_that_is_killed() {
    for seed in 0..4 {
        let mut spec = four(seed);
        let killed = 3 - seed as u32;
        spec.faults = vec![format!("2ms:{killed}:peer-killed").parse().expect("a fault")];
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let ends = lives(&cluster, &[killed]);
        let mask = std::array::from_fn(|rank| rank as u32 == killed);
        ends.iter().for_each(|end| goes_on(end, mask));
        one_epoch(&ends.iter().collect::<Vec<_>>());
    }
}

/// What ranks of a node send each other goes by no NIC: one that is killed is found by asking.
#[test]
fn three_go_on_without_one_of_their_node_that_is_killed() {
    for (seed, locals) in [(0, 4), (1, 4), (2, 2)] {
        let mut spec = four(seed);
        let killed = 3 - seed as u32;
        spec.faults = vec![format!("2ms:{killed}:peer-killed").parse().expect("a fault")];
        let cluster = Cluster::start(&spec);
        spec.faults.iter().for_each(|fault| cluster.inject(fault));
        let ends = lives_on_nodes(&cluster, &[killed], locals);
        let mask = std::array::from_fn(|rank| rank as u32 == killed);
        ends.iter().for_each(|end| goes_on(end, mask));
        let lost = |end: &End| matches!(&end.met, Some(MoeError::Fault(met)) if met.fault.kind == FaultKind::PeerLost);
        assert!(ends.iter().any(lost), "by its deadline alone: {ends:?}");
        one_epoch(&ends.iter().collect::<Vec<_>>());
    }
}

#[test]
fn of_two_halves_the_one_with_rank_0_goes_on() {
    for (seed, agents) in [(1, true), (2, false), (3, true)] {
        let cluster = Cluster::start(&four(seed));
        parted(&cluster, &[0, 1], &[2, 3], agents);
        let ends = lives(&cluster, &[]);
        ends[..2].iter().for_each(|end| goes_on(end, [false, false, true, true]));
        one_epoch(&[&ends[0], &ends[1]]);
        for end in &ends[2..] {
            let told = matches!(end.ended, Some(MoeError::LeftOut { .. }));
            let alone = matches!(end.ended, Some(MoeError::NoMajority { .. }));
            assert!(if agents { alone } else { told || alone }, "{end:?}");
        }
    }
}

#[test]
fn three_go_on_without_one_that_they_do_not_reach() {
    for (seed, rank, agents) in [(1, 3, true), (2, 0, false), (3, 0, true)] {
        let cluster = Cluster::start(&four(seed));
        let others: Vec<u32> = (0..4).filter(|other| *other != rank).collect();
        parted(&cluster, &[rank], &others, agents);
        let ends = lives(&cluster, &[]);
        let mask = std::array::from_fn(|other| other as u32 == rank);
        let (left, on): (Vec<&End>, Vec<&End>) = ends.iter().partition(|end| end.rank == rank);
        on.iter().for_each(|end| goes_on(end, mask));
        one_epoch(&on);
        let ended = left[0].ended.as_ref();
        assert!(
            matches!(ended, Some(MoeError::NoMajority { .. }) | Some(MoeError::LeftOut { .. })),
            "{:?}",
            left[0]
        );
    }
}

/// Only two ranks lose each other: the higher one is left out, no matter which ranks still reach it.
#[test]
fn of_two_that_lost_each_other_the_lower_is_kept() {
    let cluster = Cluster::start(&four(1));
    parted(&cluster, &[1], &[2], false);
    let ends = lives(&cluster, &[]);
    for rank in [0, 1, 3] {
        goes_on(&ends[rank], [false, false, true, false]);
    }
    assert!(matches!(ends[2].ended, Some(MoeError::LeftOut { .. })), "{:?}", ends[2]);
}

#[test]
fn a_mask_that_is_agreed_on_is_set_by_nobody_alone() {
    let cluster = Cluster::start(&four(1));
    let said = start(&cluster, shape(), 0, agreeing(&cluster.spec), |buffer, _| {
        (buffer.set_mask(3, true).map_err(|error| error.to_string()), buffer.epoch(), buffer.mask())
    });
    let (refused, epoch, mask) = cluster.sim.finish(&said);
    assert!(refused.is_err_and(|text| text.contains("agree on, and no other")));
    assert_eq!((epoch, mask), (0, vec![false; 4]));
}
