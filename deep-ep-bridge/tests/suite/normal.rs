//! Layers of normal mode without faults of rails; what is refused, and who is named where a rank does not come.

use shunt_deep_ep_bridge::fault::At;
use shunt_deep_ep_bridge::normal::reference::NormalCase;
use shunt_deep_ep_bridge::normal::{Tokens, layer};
use shunt_deep_ep_bridge::{Format, MoeError};
use shunt_device::FaultKind;
use shunt_kernels::moe::normal::Role;
use shunt_layout::moe_normal::NormalShape;
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::all;
use shunt_tests::moe_normal::{NodeBuffer, cases, patience, spec, start};
use std::rc::Rc;

/// A shape whose rings are so small that all of them wrap.
fn shape(nodes: u32, locals: u32, channels: u32) -> NormalShape {
    let (local_experts, tokens, hidden, topk) = (2, 9, 512, 4);
    let (chunk, slots, near_slots) = (2, 4, 3);
    NormalShape { nodes, locals, local_experts, tokens, hidden, topk, channels, chunk, slots, near_slots }
}

fn layers(buffer: &mut NodeBuffer, cases: &[NormalCase]) -> Result<Vec<String>, MoeError> {
    let mut wrongs = Vec::new();
    for (number, case) in (0..).zip(cases) {
        let (wrong, handle) = layer::run(buffer, case)?;
        wrongs.extend(wrong);
        // Other tokens that go the same ways, twice.
        for seed in 0..number % 3 {
            let again = NormalCase { case: case.case.again(seed), ..case.clone() };
            wrongs.extend(layer::run_cached(buffer, &again, &handle)?);
        }
    }
    buffer.settle()?;
    Ok(wrongs)
}

fn hold(nodes: u32, locals: u32, channels: u32, seeds: u64) {
    let shape = shape(nodes, locals, channels);
    for seed in 0..seeds {
        let spec = spec(&shape, seed);
        let cluster = Cluster::start(&spec);
        let of = |topk: u32| {
            let format = if (u64::from(topk) + seed) % 2 == 0 { Format::Fp8 } else { Format::Bf16 };
            cases(shape, topk, format, seed * 10 + u64::from(topk), 1)
        };
        let all_cases: Rc<Vec<NormalCase>> = Rc::new((1..=4).flat_map(of).collect());
        let tasks: Vec<_> = (0..shape.ranks())
            .map(|rank| {
                let cases = all_cases.clone();
                start(&cluster, shape, rank, patience(&spec), move |buffer, _| layers(buffer, &cases))
            })
            .collect();
        let wrongs = all(cluster.sim.finish_all(&tasks));
        assert!(wrongs.is_empty(), "{nodes} nodes of {locals}, seed {seed}: {}", wrongs.join("\n"));
    }
}

#[test]
fn two_nodes_of_two() {
    hold(2, 2, 2, 3);
}

#[test]
fn two_nodes_of_four() {
    hold(2, 4, 2, 3);
}

#[test]
fn four_nodes_of_two() {
    hold(4, 2, 3, 3);
}

/// Runs `body` on all ranks of two nodes of two.
fn on_all(
    seed: u64,
    timeout_ns: u64,
    body: impl Fn(&mut NodeBuffer, u32) -> Result<Vec<String>, MoeError> + Clone + 'static,
) -> Vec<Result<Vec<String>, MoeError>> {
    let shape = shape(2, 2, 2);
    let spec = spec(&shape, seed);
    let cluster = Cluster::start(&spec);
    let mut patience = patience(&spec);
    patience.timeout_ns = timeout_ns;
    let task = |rank| {
        let body = body.clone();
        start(&cluster, shape, rank, patience, move |buffer, _| body(buffer, rank))
    };
    let tasks: Vec<_> = (0..4).map(task).collect();
    cluster.sim.finish_all(&tasks)
}

#[test]
fn a_reference_that_is_wrong_is_found_out() {
    // One in which the second rank's first token chooses two experts.
    let chooses = |case: &NormalCase| case.case.topk_index[1].iter().take(2).all(|index| *index >= 0);
    let some = |case: &NormalCase| case.case.tokens(1) > 0 && chooses(case);
    let right = cases(shape(2, 2, 2), 3, Format::Bf16, 3, 20).into_iter().find(some).expect("one of twenty");
    let changes: [fn(&mut NormalCase); 3] = [
        |case| case.case.topk_index[1][0] ^= 4,
        |case| case.case.topk_weights[1][1] += 0.5,
        |case| case.case = case.case.again(5),
    ];
    for change in changes {
        let mut wrong = right.clone();
        change(&mut wrong);
        let right = right.clone();
        let ends = on_all(1, 10_000_000_000, move |buffer, rank| {
            // What is sent is wrong; what it is held against is right.
            let (mut found, received) = layer::dispatch(buffer, &wrong)?;
            if received.handle.rows() == right.rows(rank).len() {
                found.extend(layer::check_received(&right, rank, &received, true));
                found.extend(layer::answer(buffer, &right, &received, true)?);
            } else {
                found.push("rows".into());
                layer::answer(buffer, &wrong, &received, true)?;
            }
            Ok(found)
        });
        assert!(!all(ends).is_empty(), "no rank saw it");
    }
}

#[test]
fn a_rank_that_does_not_come_ends_the_others_by_their_deadline() {
    const TIMEOUT_NS: u64 = 50_000_000;
    let case = cases(shape(2, 2, 2), 3, Format::Bf16, 4, 1).remove(0);
    let ends = on_all(1, TIMEOUT_NS, move |buffer, rank| {
        if rank == 3 {
            return Ok(Vec::new());
        }
        let Err(MoeError::Fault(fault)) = layer::dispatch(buffer, &case) else {
            return Ok(vec![format!("rank {rank}: no fault")]);
        };
        let mut wrongs = Vec::new();
        // Before the first dispatch all wait for what all say.
        let named = (fault.at, fault.fault.kind, fault.fault.peer);
        if named != (At::Role(Role::Hold), FaultKind::Overdue, 3) {
            wrongs.push(format!("rank {rank}: {fault}"));
        }
        match layer::dispatch(buffer, &case) {
            Err(MoeError::NormalBroken) => {}
            other => wrongs.push(format!("rank {rank}: {:?} behind a fault", other.map(|_| ()))),
        }
        Ok(wrongs)
    });
    let wrongs = all(ends);
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

#[test]
fn a_rank_that_does_not_come_again_ends_the_others_by_their_deadline() {
    const TIMEOUT_NS: u64 = 50_000_000;
    let case = cases(shape(2, 2, 2), 3, Format::Bf16, 4, 1).remove(0);
    let ends = on_all(1, TIMEOUT_NS, move |buffer, rank| {
        let (wrong, _) = layer::run(buffer, &case)?;
        if rank == 3 {
            // The others' last words may still be on their way.
            return Ok(wrong);
        }
        let Err(MoeError::Fault(fault)) = layer::dispatch(buffer, &case) else {
            return Ok(vec![format!("rank {rank}: no fault")]);
        };
        let mut wrongs = wrong;
        // Its rail waits for its record; its node for what it has read. Rank 0 waits for rank 1, which waits as well.
        let peer = [1, 3, 3][rank as usize];
        let named = (fault.at, fault.fault.kind, fault.fault.peer);
        if named != (At::Role(Role::NotifyReceive), FaultKind::Overdue, peer) {
            wrongs.push(format!("rank {rank}: {fault}"));
        }
        match layer::dispatch(buffer, &case) {
            Err(MoeError::NormalBroken) => {}
            other => wrongs.push(format!("rank {rank}: {:?} behind a fault", other.map(|_| ()))),
        }
        Ok(wrongs)
    });
    let wrongs = all(ends);
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_sent() {
    let case = cases(shape(2, 2, 2), 3, Format::Bf16, 6, 1).remove(0);
    let ends = on_all(2, 10_000_000_000, move |buffer, rank| {
        let mut wrongs = Vec::new();
        let mut refused = |what: &str, met: Result<(), MoeError>, part: &str| match met {
            Err(error) if error.to_string().contains(part) => {}
            other => wrongs.push(format!("rank {rank}: {what}: {other:?}")),
        };
        let tokens = vec![0u16; 512];
        refused("no experts", buffer.dispatch_layout(0, &[]).map(|_| ()), "1 to 4");
        refused("half a token", buffer.dispatch_layout(2, &[0, 1, 2]).map(|_| ()), "a multiple of 2");
        refused("an expert", buffer.dispatch_layout(1, &[8]).map(|_| ()), "below 8");
        refused("tokens", buffer.dispatch_layout(1, &[0; 10]).map(|_| ()), "9 at most");
        let layout = buffer.dispatch_layout(1, &[0])?;
        let mut sent = |x: Tokens<'_>, index: &[i64], weights: &[f32]| {
            buffer.dispatch(x, &layout, index, weights).map(|_| ())
        };
        refused("no tokens", sent(Tokens::Bf16(&[]), &[0], &[1.0]), "as the layout has");
        refused("weights", sent(Tokens::Bf16(&tokens), &[0], &[]), "topk weights");
        refused("indices", sent(Tokens::Bf16(&tokens), &[0, 1], &[1.0, 1.0]), "those of the layout");
        refused("half a row", sent(Tokens::Bf16(&tokens[1..]), &[0], &[1.0]), "a multiple of 512");
        refused("scales", sent(Tokens::Fp8(&[0; 512], &[1.0]), &[0], &[1.0]), "expected 4");
        // Nothing of all that was sent: a layer is right.
        let (wrong, handle) = layer::run(buffer, &case)?;
        refused("rows", buffer.combine(&tokens[1..], None, &handle).map(|_| ()), "channels of all rows");
        refused(
            "other tokens",
            buffer.dispatch_cached(Tokens::Bf16(&[0; 5120]), &handle).map(|_| ()),
            "tokens",
        );
        wrongs.extend(wrong);
        Ok(wrongs)
    });
    let wrongs = all(ends);
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}
