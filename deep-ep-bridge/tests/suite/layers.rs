//! Layers without faults.

use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::{Format, MoeError};
use shunt_layout::moe::Shape;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::{RankBuffer, all, cases, patience, spec, start};
use std::rc::Rc;

const MANNERS: [Manner; 3] = [Manner::Copied, Manner::LogFmt, Manner::ZeroCopy];
const FORMATS: [Format; 4] = [Format::Bf16, Format::Fp8, Format::Fp8Rounded, Format::Fp8Exponents];

fn layers(buffer: &mut RankBuffer, cases: &[Case]) -> Result<Vec<String>, MoeError> {
    let mut wrongs = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        wrongs.extend(layer::run(buffer, case, MANNERS[number % 3])?);
    }
    Ok(wrongs)
}

fn hold(ranks: u32, local_experts: u32, topks: &[u32]) {
    let shape = Shape::new(ranks, ranks * local_experts, 5, 512).unwrap();
    let spec = spec(&shape, u64::from(ranks));
    let cluster = Cluster::start(&spec);
    let of = |(at, topk): (usize, &u32)| cases(shape, *topk, FORMATS[at % 4], u64::from(*topk), 2);
    let all_cases: Rc<Vec<Case>> = Rc::new(topks.iter().enumerate().flat_map(of).collect());
    let tasks: Vec<_> = (0..ranks)
        .map(|rank| {
            let cases = all_cases.clone();
            start(&cluster, shape, rank, patience(&spec), move |buffer, _| layers(buffer, &cases))
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "{} ranks: {}", ranks, wrongs.join("\n"));
}

#[test]
fn two_ranks() {
    hold(2, 4, &[1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn four_ranks() {
    hold(4, 3, &[8, 1, 7, 2, 6, 3, 5, 4]);
}

#[test]
fn eight_ranks() {
    hold(8, 2, &[2, 4, 1, 8, 3, 6, 5, 7]);
}

#[test]
fn sixteen_ranks() {
    hold(16, 1, &[4, 8, 1, 7, 2, 6, 3, 5]);
}

#[test]
fn a_reference_that_is_wrong_is_found_out() {
    let shape = Shape::new(2, 4, 4, 512).unwrap();
    let spec = spec(&shape, 1);
    for break_it in [
        |case: &mut Case| case.topk_index[0][0] ^= 1,
        |case: &mut Case| case.topk_weights[0][0] *= 1.01,
        |case: &mut Case| case.x[0].iter_mut().for_each(|bits| *bits ^= 1 << 9),
    ] {
        let cluster = Cluster::start(&spec);
        // One whose first token chooses somebody.
        let chooses = |case: &Case| case.topk_index[0].first().is_some_and(|index| *index >= 0);
        let right = (0..).map(|seed| Case::random(shape, 2, Format::Bf16, seed)).find(chooses).unwrap();
        let mut wrong = right.clone();
        break_it(&mut wrong);
        let tasks: Vec<_> = (0..2)
            .map(|rank| {
                let (right, wrong) = (right.clone(), wrong.clone());
                start(&cluster, shape, rank, patience(&spec), move |buffer, _| {
                    // What is sent is wrong; what it is held against is right.
                    let sent = layer::send(buffer, &wrong)?;
                    let received = buffer.receive_dispatch(sent)?;
                    let mut found = layer::check_received(buffer, &right, &received);
                    let sent = layer::answer(buffer, &wrong, received, Manner::default())?;
                    let combined = buffer.receive_combine(sent)?;
                    found.extend(layer::check_combined(buffer, &right, &combined));
                    Ok::<_, MoeError>(found)
                })
            })
            .collect();
        let wrongs = all(cluster.sim.finish_all(&tasks));
        assert!(!wrongs.is_empty(), "no rank saw it");
    }
}

#[test]
fn two_calls_may_be_under_way() {
    let shape = Shape::new(4, 8, 4, 512).unwrap();
    let spec = spec(&shape, 5);
    let cluster = Cluster::start(&spec);
    let all_cases = Rc::new(cases(shape, 3, Format::Fp8, 9, 12));
    let tasks: Vec<_> = (0..4)
        .map(|rank| {
            let cases = all_cases.clone();
            start(&cluster, shape, rank, patience(&spec), move |buffer, _| {
                let mut wrongs = Vec::new();
                for two in cases.chunks(2) {
                    let sent = (layer::send(buffer, &two[0])?, layer::send(buffer, &two[1])?);
                    let received = (buffer.receive_dispatch(sent.0)?, buffer.receive_dispatch(sent.1)?);
                    wrongs.extend(layer::check_received(buffer, &two[0], &received.0));
                    wrongs.extend(layer::check_received(buffer, &two[1], &received.1));
                    let first = layer::answer(buffer, &two[0], received.0, Manner::default())?;
                    let second = layer::answer(buffer, &two[1], received.1, Manner::ZeroCopy)?;
                    let combined = buffer.receive_combine(first)?;
                    wrongs.extend(layer::check_combined(buffer, &two[0], &combined));
                    let combined = buffer.receive_combine(second)?;
                    wrongs.extend(layer::check_combined(buffer, &two[1], &combined));
                }
                Ok::<_, MoeError>(wrongs)
            })
        })
        .collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}
