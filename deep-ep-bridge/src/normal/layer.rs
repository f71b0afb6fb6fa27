//! One layer of normal mode on one rank, each step of it held against the reference.

use super::reference::{NormalCase, Row};
use super::{Layout, NormalBuffer, NormalCombined, NormalHandle, NormalReceived, NormalRunner, Tokens};
use crate::fault::MoeError;
use crate::layer::Wrongs;
use crate::reference::value;
use crate::settings::Format;
use shunt_kernels::moe::number::from_fp8;

/// Most that is told of one step.
const TOLD: usize = 8;

/// A rank's tokens, as they are given to a dispatch.
struct Given {
    bytes: Vec<u8>,
    scales: Vec<f32>,
}

impl Given {
    fn of(case: &NormalCase, rank: u32) -> Self {
        let tokens = || (0..case.case.tokens(rank) as u32).map(|token| case.case.sent(rank, token));
        Self {
            bytes: tokens().flat_map(|sent| sent.data.clone()).collect(),
            scales: tokens().flat_map(|sent| sent.scales.clone()).map(f32::from_bits).collect(),
        }
    }

    fn tokens<'t>(&'t self, case: &'t NormalCase, rank: u32) -> Tokens<'t> {
        match case.case.format {
            Format::Bf16 => Tokens::Bf16(&case.case.x[rank as usize]),
            _ => Tokens::Fp8(&self.bytes, &self.scales),
        }
    }
}

/// A whole layer: layout, dispatch, experts, combine. What is wrong with it, and the handle.
///
/// # Errors
/// A fault.
pub fn run<R: NormalRunner>(
    buffer: &mut NormalBuffer<R>,
    case: &NormalCase,
) -> Result<(Wrongs, NormalHandle), MoeError> {
    let rank = buffer.runner().rank();
    let (mut wrongs, received) = dispatch(buffer, case)?;
    wrongs.extend(check_received(case, rank, &received, true));
    wrongs.extend(answer(buffer, case, &received, true)?);
    Ok((wrongs, received.handle))
}

/// The same for tokens that go the ways of an earlier dispatch.
///
/// # Errors
/// A fault.
pub fn run_cached<R: NormalRunner>(
    buffer: &mut NormalBuffer<R>,
    case: &NormalCase,
    handle: &NormalHandle,
) -> Result<Wrongs, MoeError> {
    let rank = buffer.runner().rank();
    let given = Given::of(case, rank);
    let received = buffer.dispatch_cached(given.tokens(case, rank), handle)?;
    let mut wrongs = check_received(case, rank, &received, false);
    wrongs.extend(answer(buffer, case, &received, false)?);
    Ok(wrongs)
}

/// Layout and dispatch; what is wrong with the layout, and what came.
///
/// # Errors
/// A fault.
pub fn dispatch<R: NormalRunner>(
    buffer: &mut NormalBuffer<R>,
    case: &NormalCase,
) -> Result<(Wrongs, NormalReceived), MoeError> {
    let rank = buffer.runner().rank();
    let given = Given::of(case, rank);
    let (routes, weights) = (&case.case.topk_index[rank as usize], &case.case.topk_weights[rank as usize]);
    let layout = buffer.dispatch_layout(case.case.topk, routes)?;
    let wrongs = check_layout(case, rank, &layout);
    let received = buffer.dispatch(given.tokens(case, rank), &layout, routes, weights)?;
    Ok((wrongs, received))
}

/// Ranks make what they make, and it is combined; what is wrong with that.
///
/// # Errors
/// A fault.
pub fn answer<R: NormalRunner>(
    buffer: &mut NormalBuffer<R>,
    case: &NormalCase,
    received: &NormalReceived,
    weighed: bool,
) -> Result<Wrongs, MoeError> {
    let rank = buffer.runner().rank();
    let made = made(case, rank, received);
    let weights = weighed.then_some(&received.topk_weights[..]);
    let combined = buffer.combine(&made, weights, &received.handle)?;
    Ok(check_combined(case, rank, &combined, weighed))
}

/// What a rank makes of its rows.
fn made(case: &NormalCase, rank: u32, received: &NormalReceived) -> Vec<u16> {
    let hidden = case.shape.hidden as usize;
    let channel = |number: usize| {
        if case.case.format == Format::Bf16 {
            return value((received.x[number / 4] >> (16 * (number % 4))) as u16);
        }
        from_fp8(received.x[number / 8].to_le_bytes()[number % 8]) * received.scales[number / 128]
    };
    (0..received.handle.rows() * hidden).map(|number| case.made(rank, channel(number))).collect()
}

fn check_layout(case: &NormalCase, rank: u32, layout: &Layout) -> Wrongs {
    let (shape, mut wrongs) = (&case.shape, Vec::new());
    let mut hold = |what: &str, number: u32, met: u32, right: u32| {
        if met != right {
            wrongs.push(format!("rank {rank}, layout: {met} tokens to {what} {number}, expected {right}"));
        }
    };
    for (to, met) in (0..).zip(&layout.rank_counts) {
        hold("rank", to, *met, case.count(rank, to..to + 1));
    }
    for (to, met) in (0..).zip(&layout.node_counts) {
        hold("node", to, *met, case.count(rank, to * shape.locals..(to + 1) * shape.locals));
    }
    for (to, met) in (0..).zip(&layout.expert_counts) {
        let chosen = case.case.chosen(rank, u64::from(to));
        hold("expert", to, *met, chosen.len() as u32);
    }
    let met = |token: usize, to: u32| layout.is_token_in_rank(token, to as usize);
    let tokens = case.case.tokens(rank);
    let wrong = (0..tokens)
        .flat_map(|token| (0..shape.ranks()).map(move |to| (token, to)))
        .find(|(token, to)| met(*token, *to) != case.goes(rank, *token as u32, *to));
    wrongs.extend(wrong.map(|(token, to)| format!("rank {rank}, layout: token {token} and rank {to}")));
    wrongs
}

/// Holds what came against what was sent, bit by bit.
pub fn check_received(case: &NormalCase, rank: u32, received: &NormalReceived, chosen: bool) -> Wrongs {
    let (rows, mut wrongs) = (case.rows(rank), Vec::new());
    if received.handle.rows() != rows.len() {
        return vec![format!("rank {rank}: {} rows, expected {}", received.handle.rows(), rows.len())];
    }
    for (number, row) in rows.iter().enumerate() {
        let wrong = check_row(case, rank, received, number, *row, chosen);
        let Row { source, token } = row;
        let of = |what| format!("rank {rank}, row {number}, from rank {source}, token {token}: {what}");
        wrongs.extend(wrong.map(of));
    }
    for (local, met) in (0..).zip(&received.counts) {
        let expert = u64::from(rank * case.shape.local_experts + local);
        let right: usize = (0..case.shape.ranks()).map(|source| case.case.chosen(source, expert).len()).sum();
        if *met as usize != right {
            wrongs.push(format!("rank {rank}, expert {expert}: {met} rows are told, expected {right}"));
        }
    }
    for source in 0..case.shape.ranks() {
        let (met, right) =
            (received.handle.rows_from(source as usize), rows.iter().filter(|row| row.source == source));
        let right = right.count();
        if met.len() != right {
            wrongs.push(format!("rank {rank}: {} rows from rank {source}, expected {right}", met.len()));
        }
    }
    wrongs.truncate(TOLD);
    wrongs
}

fn check_row(
    case: &NormalCase,
    rank: u32,
    received: &NormalReceived,
    number: usize,
    row: Row,
    chosen: bool,
) -> Option<String> {
    let right = case.sent(row);
    let words = right.data.len() / 8;
    let found = &received.x[number * words..][..words];
    let wrong = right.data.chunks(8).zip(found).position(|(right, found)| right != found.to_le_bytes());
    if let Some(word) = wrong {
        let right = &right.data[8 * word..][..8];
        return Some(format!("word {word} is {:#x}, expected {right:x?}", found[word]));
    }
    let scales = right.scales.len();
    let found = &received.scales[number * scales..][..scales];
    if let Some(at) = (0..scales).find(|at| found[*at].to_bits() != right.scales[*at]) {
        return Some(format!("scale {at} is {:e}", found[at]));
    }
    if !chosen {
        return None;
    }
    let (own, topk) = (case.experts_of(rank), case.case.topk as usize);
    let route = case.route(row.source, row.token);
    let weights = &case.case.topk_weights[row.source as usize][row.token as usize * topk..][..topk];
    let wrong = (0..topk).find(|k| {
        let here = own.contains(&route[*k]);
        let right = if here { (route[*k] - own.start, weights[*k]) } else { (-1, 0.0) };
        (received.topk_index[number * topk + k], received.topk_weights[number * topk + k]) != right
    });
    wrong.map(|k| format!("its expert {k}"))
}

/// Holds what was combined against the reference: its bits, and the exact sum within the bound.
pub fn check_combined(case: &NormalCase, rank: u32, combined: &NormalCombined, weighed: bool) -> Wrongs {
    let (right, mut wrongs) = (case.combined(rank), Vec::new());
    if right.len() != combined.x.len() {
        wrongs.push(format!("rank {rank}: {} channels combined, expected {}", combined.x.len(), right.len()));
    }
    for (number, (found, right)) in combined.x.iter().zip(right).enumerate() {
        let met = f64::from(value(*found));
        let apart = (met - right.exact).abs();
        // A zero has two signs, and which of them a sum of nothing has is nobody's business.
        let same = *found == right.bits || met == 0.0 && right.bits & 0x7fff == 0;
        if !same || apart.is_nan() || apart > right.bound {
            let (token, channel) = (number / case.shape.hidden as usize, number % case.shape.hidden as usize);
            wrongs.push(format!(
                "rank {rank}, token {token}, channel {channel}: {found:#06x} ({met:e}), expected {right:x?}"
            ));
        }
        if wrongs.len() >= TOLD {
            break;
        }
    }
    if weighed && combined.topk_weights != case.weights(rank) {
        wrongs.push(format!("rank {rank}: its weights"));
    }
    wrongs
}
