//! Ranks of normal mode that do not have alike what they must: sizes, terms of a call, room for rows. All ranks say so,
//! none waits for its deadline, and no row or sum that is wrong is handed out.

use shunt_deep_ep_bridge::normal::reference::NormalCase;
use shunt_deep_ep_bridge::normal::{NormalReceived, Tokens, layer};
use shunt_deep_ep_bridge::{Format, MoeError};
use shunt_layout::moe_normal::{CallTerms, NormalShape, Terms, Why};
use shunt_tests::cluster::Cluster;
use shunt_tests::moe::all;
use shunt_tests::moe_normal::{NodeBuffer, SMALL as SHAPE, cases, patience, spec, start};

/// Runs `body` on all ranks, each with a buffer of its own shape; what they say is wrong.
fn on_all(
    seed: u64,
    shapes: [NormalShape; 4],
    body: impl Fn(&mut NodeBuffer, u32) -> Result<Vec<String>, MoeError> + Clone + 'static,
) -> Vec<String> {
    let largest = shapes.into_iter().max_by_key(NormalShape::bytes).expect("four");
    let channels = shapes.map(|shape| shape.channels).into_iter().max().expect("four");
    let mut spec = spec(&largest, seed);
    spec.channels = 2 * channels;
    let cluster = Cluster::start(&spec);
    let task = |(rank, shape)| {
        let body = body.clone();
        start(&cluster, shape, rank, patience(&spec), move |buffer, _| body(buffer, rank))
    };
    let tasks: Vec<_> = (0..).zip(shapes).map(task).collect();
    all(cluster.sim.finish_all(&tasks))
}

fn hold(seed: u64, body: impl Fn(&mut NodeBuffer, u32) -> Result<Vec<String>, MoeError> + Clone + 'static) {
    let wrongs = on_all(seed, [SHAPE; 4], body);
    assert!(wrongs.is_empty(), "seed {seed}: {}", wrongs.join("\n"));
}

/// A dispatch of one token to the last expert there is.
fn dispatch_one(buffer: &mut NodeBuffer) -> Result<NormalReceived, MoeError> {
    let (expert, hidden) = (buffer.shape().experts() as i64 - 1, buffer.shape().hidden as usize);
    let layout = buffer.dispatch_layout(1, &[expert])?;
    buffer.dispatch(Tokens::Bf16(&vec![0x3f80; hidden]), &layout, &[expert], &[1.0])
}

/// What is told of a change, and the change.
type Change = (&'static str, fn(&mut NormalShape));

/// One change of each size, which is on one rank only.
const CHANGES: [Change; 11] = [
    ("nodes", |shape| (shape.nodes, shape.locals) = (4, 1)),
    ("nodes", |shape| (shape.nodes, shape.locals) = (1, 4)),
    ("experts of a rank", |shape| shape.local_experts = 3),
    ("tokens of a rank at most", |shape| shape.tokens = 64),
    ("hidden size", |shape| shape.hidden = 1024),
    ("experts of a token at most", |shape| shape.topk = 6),
    ("channels, one for two SMs", |shape| shape.channels = 3),
    ("channels, one for two SMs", |shape| shape.channels = 1),
    ("slots that one put brings", |shape| shape.chunk = 1),
    ("slots of a ring between nodes", |shape| shape.slots = 8),
    ("slots of a ring inside a node", |shape| shape.near_slots = 4),
];

#[test]
fn sizes_of_all_ranks_are_held_before_anything_is_sent() {
    for (number, (what, change)) in (0..).zip(CHANGES) {
        let (odd, mut shapes) = (number % 4, [SHAPE; 4]);
        change(&mut shapes[odd]);
        let wrongs = on_all(number as u64, shapes, move |buffer, rank| {
            let other = if rank as usize != odd { odd } else { usize::from(odd == 0) };
            let right = Terms::of(shapes[rank as usize]).differ(&Terms::of(shapes[other]));
            let right = right.map(|difference| MoeError::Differs { rank: other as u32, difference });
            // The first call, and whatever comes behind it.
            let ends = [
                dispatch_one(buffer).map(|_| ()),
                dispatch_one(buffer).map(|_| ()),
                buffer.settle(),
                buffer.clean(),
            ];
            let wrong = ends.into_iter().find(|end| end.as_ref().err() != right.as_ref());
            let named = right.as_ref().is_some_and(|error| error.to_string().contains(what));
            let mut wrongs: Vec<String> =
                wrong.map(|met| format!("rank {rank}: {met:?}")).into_iter().collect();
            wrongs.extend((!named).then(|| format!("rank {rank}: {right:?}, it is {what}")));
            Ok(wrongs)
        });
        assert!(wrongs.is_empty(), "{what}, of rank {odd}: {}", wrongs.join("\n"));
    }
}

/// One that is too late for the first call of the others cleans with them: by other sizes its words would lie
/// elsewhere.
#[test]
fn a_cleaning_before_the_first_dispatch_holds_sizes_too() {
    let mut shapes = [SHAPE; 4];
    shapes[2].channels = 3;
    let wrongs = on_all(1, shapes, move |buffer, rank| {
        let other = if rank == 2 { 0 } else { 2 };
        let right = Terms::of(shapes[rank as usize]).differ(&Terms::of(shapes[other as usize]));
        let right = right.map(|difference| MoeError::Differs { rank: other, difference });
        let met = if rank == 2 { buffer.clean() } else { dispatch_one(buffer).map(|_| ()) };
        let ends = [met, buffer.clean()];
        let wrong = ends.into_iter().find(|end| end.as_ref().err() != right.as_ref());
        Ok(wrong.map(|met| format!("rank {rank}: {met:?}")).into_iter().collect())
    });
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    // The same sizes: it is nothing but a cleaning.
    hold(2, |buffer, _| {
        buffer.clean()?;
        mended(buffer, &cases(SHAPE, 3, Format::Bf16, 2, 1).remove(0))
    });
}

/// What one rank does otherwise in a dispatch that all are notified of.
const OTHERWISE: [(CallTerms, CallTerms); 4] = [
    (CallTerms::dispatch(3, false), CallTerms::dispatch(2, false)),
    (CallTerms::dispatch(3, false), CallTerms::dispatch(0, false)),
    (CallTerms::dispatch(3, false), CallTerms::dispatch(3, true)),
    (CallTerms::dispatch(3, true), CallTerms::dispatch(3, false)),
];

/// A dispatch by such terms: that of a case, but for its experts where there are to be none.
fn dispatch_by(buffer: &mut NodeBuffer, rank: u32, terms: CallTerms, seed: u64) -> Result<(), MoeError> {
    let format = if terms.fp8 { Format::Fp8 } else { Format::Bf16 };
    if terms.topk != 0 {
        let case = cases(SHAPE, terms.topk, format, seed, 1).remove(0);
        return layer::dispatch(buffer, &case).map(|_| ());
    }
    let case = cases(SHAPE, 3, format, seed, 1).remove(0);
    let tokens = case.case.tokens(rank) as u32;
    let ways: Vec<bool> = (0..tokens)
        .flat_map(|token| (0..4).map(move |to| (token, to)))
        .map(|(t, to)| case.goes(rank, t, to))
        .collect();
    let layout = buffer.layout_of(&ways, &[0; 8], 0)?;
    buffer.dispatch(Tokens::Bf16(&case.case.x[rank as usize]), &layout, &[], &[]).map(|_| ())
}

/// Nobody has sent a token by then: the buffers are not broken, and go on without a cleaning.
#[test]
fn terms_of_a_dispatch_are_held_before_a_token_is_sent() {
    for (seed, (usual, other)) in (0..8).zip(OTHERWISE.into_iter().cycle()) {
        let odd = (seed % 4) as u32;
        hold(seed, move |buffer, rank| {
            let (mut wrongs, case) = (Vec::new(), cases(SHAPE, 3, Format::Bf16, seed, 1).remove(0));
            for again in 0..2 {
                let own = if rank == odd { other } else { usual };
                let theirs = if rank == odd { usual } else { other };
                let named = if rank == odd { u32::from(odd == 0) } else { odd };
                let right =
                    own.differ(theirs).map(|difference| MoeError::Differs { rank: named, difference });
                let met = dispatch_by(buffer, rank, own, seed);
                if met.as_ref().err() != right.as_ref() {
                    wrongs.push(format!("rank {rank}, {again}: {met:?}"));
                }
                wrongs.extend(layer::run(buffer, &case)?.0);
            }
            buffer.settle()?;
            Ok(wrongs)
        });
    }
}

/// Says what is wrong with how a call ended in the middle of which ranks differ: every rank is told so, by what it
/// found or by who found it. One may be through with its own part by then, and is told in what it calls next.
fn told(
    buffer: &mut NodeBuffer,
    rank: u32,
    met: Result<(), MoeError>,
    own: CallTerms,
    theirs: CallTerms,
) -> Vec<String> {
    let met = match met {
        Ok(()) => buffer.settle(),
        met => met,
    };
    let right = match &met {
        Err(MoeError::Differs { difference, .. }) => own.differ(theirs) == Some(*difference),
        // Of two others; who is one of the two himself is told as if he had found it.
        Err(MoeError::GaveUp { why: Why::Differs { rank: other, theirs: a, own: b }, .. }) => {
            *other != rank && ((*a, *b) == (own, theirs) || (*a, *b) == (theirs, own))
        }
        _ => false,
    };
    let broken = matches!(buffer.settle(), Err(MoeError::NormalBroken));
    let wrong = (!right || !broken).then(|| format!("rank {rank}: {met:?}, broken: {broken}"));
    wrong.into_iter().collect()
}

/// Cleans, and runs a layer.
fn mended(buffer: &mut NodeBuffer, case: &NormalCase) -> Result<Vec<String>, MoeError> {
    buffer.clean()?;
    let (wrongs, _) = layer::run(buffer, case)?;
    buffer.settle()?;
    Ok(wrongs)
}

/// Nobody is notified of a dispatch by a handle: what ranks do not have alike is found by the header of a message.
#[test]
fn terms_of_a_dispatch_by_a_handle_are_held_in_each_message() {
    for seed in 0..8 {
        let (odd, swapped) = ((seed % 4) as u32, seed % 8 >= 4);
        hold(seed, move |buffer, rank| {
            let case = |format| cases(SHAPE, 3, format, seed, 1).remove(0);
            let (bf16, fp8) = (case(Format::Bf16), case(Format::Fp8));
            let (mut wrongs, handle) = layer::run(buffer, &bf16)?;
            let narrow = (rank == odd) != swapped;
            let terms = |fp8| CallTerms::dispatch(0, fp8);
            // What comes is as it was sent, or an error.
            let met = layer::run_cached(buffer, if narrow { &fp8 } else { &bf16 }, &handle);
            let met = met.map(|wrong| wrongs.extend(wrong));
            wrongs.extend(told(buffer, rank, met, terms(narrow), terms(!narrow)));
            wrongs.extend(mended(buffer, &bf16)?);
            Ok(wrongs)
        });
    }
}

/// Nobody is notified of a combine either: its sums carry in how many rows there were weights.
#[test]
fn whether_rows_have_weights_is_held_in_each_sum() {
    for seed in 0..8 {
        let (odd, swapped) = ((seed % 4) as u32, seed % 8 >= 4);
        hold(seed, move |buffer, rank| {
            let case = cases(SHAPE, 3, Format::Bf16, seed, 1).remove(0);
            let (mut wrongs, received) = layer::dispatch(buffer, &case)?;
            let weighs = (rank == odd) != swapped;
            let met = layer::answer(buffer, &case, &received, weighs).map(|wrong| wrongs.extend(wrong));
            let (own, theirs) = (CallTerms::combine(weighs), CallTerms::combine(!weighs));
            wrongs.extend(told(buffer, rank, met, own, theirs));
            wrongs.extend(mended(buffer, &case)?);
            Ok(wrongs)
        });
    }
}

/// A rank that has no room for the rows that come gives up, and the others know it before their deadline.
#[test]
fn too_many_rows_on_one_rank_end_the_call_of_all() {
    for seed in 0..8 {
        let case = cases(SHAPE, 3, Format::Bf16, seed, 1).remove(0);
        let odd =
            (0..4).find(|rank| case.rows((rank + seed as u32) % 4).len() > 1).expect("a rank with rows");
        let odd = (odd + seed as u32) % 4;
        hold(seed, move |buffer, rank| {
            let (routes, weights) =
                (&case.case.topk_index[rank as usize], &case.case.topk_weights[rank as usize]);
            let layout = buffer.dispatch_layout(3, routes)?;
            let rows = case.rows(rank).len() as u64;
            let room = if rank == odd { rows - 1 } else { rows };
            let x = Tokens::Bf16(&case.case.x[rank as usize]);
            let met = buffer.dispatch_within(room, x, &layout, routes, weights).map(|_| ());
            let met = if met.is_ok() { buffer.settle() } else { met };
            let why = Why::Rows(case.rows(odd).len() as u32 - 1);
            let right = match &met {
                Err(MoeError::Argument { what: "num_worst_tokens", .. }) => rank == odd,
                Err(error) => rank != odd && *error == MoeError::GaveUp { rank: odd, why },
                Ok(()) => false,
            };
            let mut wrongs = mended(buffer, &case)?;
            wrongs.extend((!right).then(|| format!("rank {rank}: {met:?}")));
            Ok(wrongs)
        });
    }
}
