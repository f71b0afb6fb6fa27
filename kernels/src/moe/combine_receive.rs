//! `moe_combine_receive` and `moe_combine_receive_log`: what experts made of this rank's tokens, weighed and summed.

use super::call::{COUNT_ON, MoeCall};
use super::combine_log::{self, Sixteen};
use super::exchange::{Exchange, Part, split};
use super::number::{four, four_bf16};
use super::stop::Stop;
use super::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{Device, HeapOffset, PIECE_BYTES, Platform, WarpLanes};

/// Reads `topk_index`, `topk_weights`; writes `out`. Warps share out the tokens, several of them one token where there
/// are more warps: the warp of one waits for the flags of its experts and sums in their order, as 32-bit floats, each
/// product rounded by itself; the sum is rounded to BF16. The last warp to end clears the flags. The value is the
/// number of tokens summed.
///
/// Experts of ranks that are left out count nothing.
#[inline(always)]
pub fn run<P: Platform, L: WarpLanes, const LOG: bool>(
    device: Device<'_, P>,
    lanes: L,
    part: Part,
    call: &MoeCall,
) -> Result<u64, Stop> {
    let exchange = Exchange::begin(device, lanes, call);
    exchange.check()?;
    let shares = shares(call, part);
    let (mut unit, step) = part.stride();
    let mut summed = 0;
    while unit < call.tokens as u64 * shares as u64 {
        let (token, share) = split(unit, shares);
        sum::<P, L, LOG>(&exchange, token, (share, shares))?;
        summed += (share == 0) as u64;
        unit += step;
    }
    lanes.sync();
    let ended = exchange.at(call.shape.ended());
    let last = exchange.leads() && exchange.device.add(ended, 1) + 1 == part.of as u64;
    if device.share(lanes, last as u64) != 0 {
        if exchange.leads() {
            exchange.device.store(ended, 0);
        }
        give_back(&exchange)?;
        if exchange.leads() && call.before != 0 && call.has(COUNT_ON) {
            // SAFETY: a word of the caller's; all other warps have ended, and this one's lanes have met.
            unsafe { tensor::write(call.before, 0, exchange.number) };
        }
    }
    Ok(summed)
}

/// Warps of one token at most.
const SHARES_MAX: u32 = 8;

/// Warps of one token.
#[inline(always)]
const fn shares(call: &MoeCall, part: Part) -> u32 {
    let (each, _) = split(part.of as u64, call.tokens);
    if each > SHARES_MAX {
        SHARES_MAX
    } else if each == 0 {
        1
    } else {
        each
    }
}

/// A share of a token's channels.
#[inline(always)]
fn sum<P: Platform, L: WarpLanes, const LOG: bool>(
    exchange: &Exchange<'_, '_, P, L>,
    token: u32,
    (share, shares): (u32, u32),
) -> Result<(), Stop> {
    let (call, shape) = (exchange.call, &exchange.call.shape);
    // An index beyond all experts is found below; what stands for it here is not looked at.
    let flag = |k: u64| {
        let expert = chosen(call, token, k as u32).filter(|expert| *expert < shape.experts()).unwrap_or(0);
        let (rank, local) = exchange.home(expert);
        (shape.flag(exchange.set(), expert), rank, local)
    };
    let is_expert = |k: u32| chosen(call, token, k).is_some_and(|expert| expert < shape.experts());
    if exchange.which(call.topk, |k| chosen(call, token, k).is_some() && !is_expert(k)) != 0 {
        return Err(Stop::wrong(exchange.me));
    }
    let asked = exchange.which(call.topk, is_expert);
    exchange.hear_those(asked, exchange.least(), flag)?;
    // Left out by now: to all lanes of this token the same.
    let there = exchange.which(call.topk, |k| asked >> k & 1 != 0 && !exchange.is_left_out(flag(k as u64).1));
    let wrong = exchange.which(call.topk, |k| there >> k & 1 != 0 && !exchange.is_flag(flag(k as u64).0));
    if wrong != 0 {
        return Err(Stop::wrong(flag(wrong.trailing_zeros() as u64).1));
    }
    if LOG {
        let sixteens = shape.hidden as u64 / 16;
        let end = sixteens * (share as u64 + 1) / shares as u64;
        let mut number = sixteens * share as u64 / shares as u64 + exchange.lanes.rank() as u64;
        while number < end {
            sum_sixteen(exchange, token, there, number);
            number += exchange.lanes.size() as u64;
        }
        return Ok(());
    }
    let pieces = shape.bf16_bytes() / PIECE_BYTES;
    let (begin, end) = (pieces * share as u64 / shares as u64, pieces * (share as u64 + 1) / shares as u64);
    let mut piece = begin + exchange.lanes.rank() as u64;
    while piece < end {
        sum_pieces(exchange, token, there, piece, end);
        piece += PIECES * exchange.lanes.size() as u64;
    }
    Ok(())
}

/// The expert that a token chose `k`-th.
#[inline(always)]
fn chosen(call: &MoeCall, token: u32, k: u32) -> Option<u64> {
    // SAFETY: `topk` indices a token (`MoeCall`).
    let index: i64 = unsafe { tensor::read(call.topk_index, token as u64 * call.topk as u64 + k as u64) };
    if index < 0 { None } else { Some(index as u64) }
}

/// Weight of what the `k`-th expert made of a token, and where it lies.
#[inline(always)]
fn part<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    token: u32,
    k: u32,
) -> (f32, HeapOffset) {
    let (call, expert) = (exchange.call, chosen(exchange.call, token, k).unwrap_or(0));
    // SAFETY: a weight for each index (`MoeCall`).
    let weight = unsafe { tensor::read(call.topk_weights, token as u64 * call.topk as u64 + k as u64) };
    (weight, exchange.at(call.shape.combine_slot(exchange.set(), expert, token)))
}

/// Sixteen channels of a token that travelled as LogFMT, of the experts in `which`.
#[inline(always)]
fn sum_sixteen<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    token: u32,
    which: u32,
    number: u64,
) {
    let mut sum = Sixteen::default();
    let mut left = which;
    while left != 0 {
        rolled();
        let (weight, slot) = part(exchange, token, left.trailing_zeros());
        left &= left - 1;
        let [a, b, c, d] = combine_log::read(exchange, slot, number);
        let add = |at: usize, part| add_four(sum[at], part, weight);
        sum = [add(0, a), add(1, b), add(2, c), add(3, d)];
    }
    let at = 2 * (token as u64 * exchange.call.shape.hidden as u64 / 16 + number);
    let [a, b, c, d] = sum;
    // SAFETY: the token's row of the result (`MoeCall`); this share of it is this warp's.
    unsafe {
        tensor::write(exchange.call.out, at, [four_bf16(a), four_bf16(b)]);
        tensor::write(exchange.call.out, at + 1, [four_bf16(c), four_bf16(d)]);
    }
}

/// Pieces that a lane sums at a time: loads that are under way together.
const PIECES: u64 = 4;

/// Eight channels, as they are summed.
type Sum = [[f32; 4]; 2];

/// Pieces of a token from `first` on, as many lanes apart as there are, of the experts in `which`.
#[inline(always)]
fn sum_pieces<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    token: u32,
    which: u32,
    first: u64,
    end: u64,
) {
    let (call, shape) = (exchange.call, &exchange.call.shape);
    let step = exchange.lanes.size() as u64;
    let (mut a, mut b, mut c, mut d): (Sum, Sum, Sum, Sum) = Default::default();
    let mut left = which;
    while left != 0 {
        rolled();
        let k = left.trailing_zeros();
        left &= left - 1;
        let (weight, slot) = part(exchange, token, k);
        // One behind the last is the last again, and counts for nothing.
        let load = |number: u64| {
            let piece = first + number * step;
            let piece = if piece < end { piece } else { first };
            exchange.device.load_piece(HeapOffset(slot.0 + piece * PIECE_BYTES))
        };
        let (e, f, g, h) = (load(0), load(1), load(2), load(3));
        (a, b, c, d) = (add(a, e, weight), add(b, f, weight), add(c, g, weight), add(d, h, weight));
    }
    let store = |number: u64, sum: Sum| {
        let piece = first + number * step;
        if piece < end {
            let words = [four_bf16(sum[0]), four_bf16(sum[1])];
            let pieces = shape.bf16_bytes() / PIECE_BYTES;
            // SAFETY: the token's row of the result (`MoeCall`); this share of it is this warp's.
            unsafe { tensor::write(call.out, token as u64 * pieces + piece, words) };
        }
    };
    store(0, a);
    store(1, b);
    store(2, c);
    store(3, d);
}

#[inline(always)]
const fn add(sum: Sum, words: [u64; 2], weight: f32) -> Sum {
    [add_four(sum[0], four(words[0]), weight), add_four(sum[1], four(words[1]), weight)]
}

#[inline(always)]
const fn add_four(sum: [f32; 4], part: [f32; 4], weight: f32) -> [f32; 4] {
    let ([a, b, c, d], [e, f, g, h]) = (sum, part);
    [a + e * weight, b + f * weight, c + g * weight, d + h * weight]
}

/// Clears all flags, those of experts that no token chose as well, and gives the room back to the ranks that wrote
/// there.
#[inline(always)]
fn give_back<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>) -> Result<(), Stop> {
    let shape = &exchange.call.shape;
    let flag = |expert: u64| {
        let (rank, local) = exchange.home(expert);
        (shape.flag(exchange.set(), expert), rank, local)
    };
    exchange.hear_all(shape.experts(), exchange.least(), flag)?;
    let mut expert = exchange.lanes.rank() as u64;
    while expert < shape.experts() {
        let (at, rank, _) = flag(expert);
        if !exchange.is_left_out(rank) {
            exchange.give_back(at);
        }
        expert += exchange.lanes.size() as u64;
    }
    exchange.lanes.sync();
    exchange.for_ranks(|rank| exchange.thank(rank))
}
