//! What calls of normal mode take besides: a layout that the caller knows, no experts, biases.

use shunt_deep_ep_bridge::normal::reference::NormalCase;
use shunt_deep_ep_bridge::normal::{Tokens, layer};
use shunt_deep_ep_bridge::{Format, MoeError, Runner};
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::all;
use shunt_tests::moe_normal::{NodeBuffer, SMALL as SHAPE, cases, patience, spec, start};

const HIDDEN: usize = SHAPE.hidden as usize;
fn on_all(
    seed: u64,
    body: impl Fn(&mut NodeBuffer, &NormalCase) -> Result<Vec<String>, MoeError> + Clone + 'static,
) {
    let spec = spec(&SHAPE, seed);
    let cluster = Cluster::start(&spec);
    let case = cases(SHAPE, 3, Format::Bf16, seed, 1).remove(0);
    let task = |rank| {
        let (body, case) = (body.clone(), case.clone());
        start(&cluster, SHAPE, rank, patience(&spec), move |buffer, _| body(buffer, &case))
    };
    let tasks: Vec<_> = (0..SHAPE.ranks()).map(task).collect();
    let wrongs = all(cluster.sim.finish_all(&tasks));
    assert!(wrongs.is_empty(), "seed {seed}: {}", wrongs.join("\n"));
}

/// By token and rank.
fn ways(case: &NormalCase, rank: u32) -> Vec<bool> {
    let tokens = 0..case.case.tokens(rank) as u32;
    tokens.flat_map(|token| (0..SHAPE.ranks()).map(move |to| case.goes(rank, token, to))).collect()
}

#[test]
fn a_layout_that_the_caller_knows_is_the_one_that_is_found() {
    for seed in 0..4 {
        on_all(seed, |buffer, case| {
            let rank = buffer.runner().rank();
            let found = buffer.dispatch_layout(3, &case.case.topk_index[rank as usize])?;
            let told = buffer.layout_of(&ways(case, rank), &found.expert_counts, 3)?;
            let mut wrongs = Vec::new();
            if told != found {
                wrongs.push(format!("rank {rank}: {told:?}, found is {found:?}"));
            }
            // Without experts: the same rows, and nothing beside them.
            let plain = buffer.layout_of(&ways(case, rank), &found.expert_counts, 0)?;
            let received = buffer.dispatch(Tokens::Bf16(&case.case.x[rank as usize]), &plain, &[], &[])?;
            wrongs.extend(layer::check_received(case, rank, &received, false));
            if !received.topk_index.is_empty() || !received.topk_weights.is_empty() {
                wrongs.push(format!("rank {rank}: experts of no rank"));
            }
            wrongs.extend(layer::answer(buffer, case, &received, false)?);
            let mut refused = |what: &str, met: Result<(), MoeError>, part: &str| match met {
                Err(error) if error.to_string().contains(part) => {}
                other => wrongs.push(format!("rank {rank}: {what}: {other:?}")),
            };
            let zeros = [0; 8];
            let of =
                |ways: usize, counts: &[u32]| buffer.layout_of(&vec![false; ways], counts, 0).map(|_| ());
            refused("half a token", of(6, &zeros), "a multiple of 4");
            refused("tokens", of(40, &zeros), "9 at most");
            refused("experts", of(8, &zeros[1..]), "expected 8");
            refused("counts", of(8, &[3; 8]), "2 at most");
            Ok(wrongs)
        });
    }
}

#[test]
fn biases_are_added_before_the_sum_is_rounded() {
    for seed in 0..4 {
        on_all(seed, |buffer, case| {
            let rank = buffer.runner().rank();
            let (mut wrongs, received) = layer::dispatch(buffer, case)?;
            // What ranks make is what came: a token comes back as often as there are ranks that it went to.
            let made: Vec<u16> = received.x.iter().flat_map(|word| bf16(*word)).collect();
            let tokens = case.case.tokens(rank);
            // Powers of two around one, and too small for a sum that is rounded first.
            let bias =
                |number: usize| (0..tokens * HIDDEN).map(move |at| [0x3f80, 0x3b80][(at + number) % 2]);
            let (first, second): (Vec<u16>, Vec<u16>) = (bias(0).collect(), bias(1).collect());
            for biases in [[Some(&first[..]), None], [None, Some(&second[..])], [Some(&first), Some(&second)]]
            {
                let combined = buffer.combine_biased(&made, None, biases, &received.handle)?;
                let wrong = (0..tokens * HIDDEN).find(|at| {
                    let bias = biases.map(|bias| bias.map(|bias| value(bias[*at])));
                    combined.x[*at] != sum(case, rank, *at, bias)
                });
                wrongs.extend(wrong.map(|at| format!("rank {rank}, channel {at}: {:#x}", combined.x[at])));
            }
            match buffer.combine_biased(&made, None, [None, Some(&first[1..])], &received.handle) {
                Err(MoeError::Argument { what: "channels of a bias", .. }) => {}
                Ok(_) if tokens == 0 => {}
                other => wrongs.push(format!("rank {rank}: {:?} of half a bias", other.map(|_| ()))),
            }
            Ok(wrongs)
        });
    }
}

fn bf16(word: u64) -> [u16; 4] {
    [0, 16, 32, 48].map(|shift| (word >> shift) as u16)
}

fn value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest BF16, ties to even.
fn rounded(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// A channel as it comes back: sums of nodes are rounded, the whole once more, with the biases in it.
fn sum(case: &NormalCase, rank: u32, at: usize, biases: [Option<f32>; 2]) -> u16 {
    let (token, part) = ((at / HIDDEN) as u32, value(case.case.x[rank as usize][at]));
    let mut all = 0f32;
    for node in 0..SHAPE.nodes {
        let mut ranks = node * SHAPE.locals..(node + 1) * SHAPE.locals;
        if ranks.clone().any(|to| case.goes(rank, token, to)) {
            let parts = ranks.by_ref().filter(|to| case.goes(rank, token, *to));
            all += value(rounded(parts.fold(0f32, |sum, _| sum + part)));
        }
    }
    rounded(biases.into_iter().flatten().fold(all, |sum, bias| sum + bias))
}
