//! `moe_combine_receive`: what experts made of this rank's tokens, weighed and summed.

use super::call::{COUNT_ON, MoeCall};
use super::exchange::{Exchange, FLAG, tensor};
use super::number::{four, four_bf16};
use super::stop::Stop;
use shunt_device::{Device, HeapOffset, Lanes, PIECE_BYTES, Platform};

/// Reads `topk_index`, `topk_weights`; writes `out`. Blocks share out the tokens: the block of one waits for the
/// flags of its experts and sums in their order, as 32-bit floats, each product rounded by itself; the sum is rounded
/// to BF16. The last block to end clears the flags. The value is the number of tokens summed.
///
/// Experts of ranks that are left out count nothing.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &MoeCall,
) -> Result<u64, Stop> {
    let exchange = Exchange::begin(device, lanes, call);
    exchange.check()?;
    let (mut summed, mut token) = (0, block);
    while token < call.tokens {
        sum(&exchange, token)?;
        summed += 1;
        token += call.blocks.max(1);
    }
    lanes.sync();
    let ended = exchange.at(call.shape.ended());
    let last = exchange.leads() && exchange.device.add(ended, 1) + 1 == call.blocks.max(1) as u64;
    if device.share(lanes, last as u64) != 0 {
        if exchange.leads() {
            exchange.device.store(ended, 0);
        }
        give_back(&exchange)?;
        if exchange.leads() && call.before != 0 && call.has(COUNT_ON) {
            // SAFETY: a word of the caller's; all other blocks have ended, and this one's lanes have met.
            unsafe { tensor::write(call.before, 0, exchange.number) };
        }
    }
    Ok(summed)
}

#[inline(always)]
fn sum<P: Platform, L: Lanes>(exchange: &Exchange<'_, '_, P, L>, token: u32) -> Result<(), Stop> {
    let (call, shape) = (exchange.call, &exchange.call.shape);
    let pieces = shape.bf16_bytes() / PIECE_BYTES;
    let mut k = 0;
    while k < call.topk {
        if let Some(expert) = chosen(call, token, k)
            && expert < shape.experts()
        {
            let (rank, local) = exchange.home(expert);
            if !exchange.masked(rank) {
                exchange.hear_number(shape.flag(exchange.set(), expert), FLAG, rank, local)?;
            }
        }
        k += 1;
    }
    // Who is left out by now stays so for all lanes of this token.
    let mut out = 0u32;
    let mut k = 0;
    while k < call.topk {
        let there = match chosen(call, token, k) {
            Some(expert) if expert < shape.experts() => !exchange.masked(exchange.home(expert).0),
            Some(_) => return Err(Stop::wrong(exchange.me)),
            None => false,
        };
        out |= (there as u32) << k;
        k += 1;
    }
    let mut piece = exchange.lanes.rank() as u64;
    while piece < pieces {
        let words = sum_piece(exchange, token, out, piece);
        // SAFETY: the token's row of the result (`MoeCall`); this token is this block's.
        unsafe { tensor::write(call.out, token as u64 * pieces + piece, words) };
        piece += exchange.lanes.size() as u64;
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

/// Eight channels of a token, of the experts in `which`.
#[inline(always)]
fn sum_piece<P: Platform, L: Lanes>(
    exchange: &Exchange<'_, '_, P, L>,
    token: u32,
    which: u32,
    piece: u64,
) -> [u64; 2] {
    let (call, shape) = (exchange.call, &exchange.call.shape);
    let (mut low, mut high) = ([0.0; 4], [0.0; 4]);
    let mut k = 0;
    while k < call.topk {
        if which >> k & 1 != 0
            && let Some(expert) = chosen(call, token, k)
        {
            let number = token as u64 * call.topk as u64 + k as u64;
            // SAFETY: a weight for each index (`MoeCall`).
            let weight = unsafe { tensor::read(call.topk_weights, number) };
            let at = exchange.at(shape.combine_slot(exchange.set(), expert, token)).0 + piece * PIECE_BYTES;
            let words = exchange.device.load_piece(HeapOffset(at));
            low = add(low, four(words[0]), weight);
            high = add(high, four(words[1]), weight);
        }
        k += 1;
    }
    [four_bf16(low), four_bf16(high)]
}

#[inline(always)]
const fn add(sum: [f32; 4], part: [f32; 4], weight: f32) -> [f32; 4] {
    let ([a, b, c, d], [e, f, g, h]) = (sum, part);
    [a + e * weight, b + f * weight, c + g * weight, d + h * weight]
}

/// Clears all flags, those of experts that no token chose as well, and gives the room back to who wrote there.
#[inline(always)]
fn give_back<P: Platform, L: Lanes>(exchange: &Exchange<'_, '_, P, L>) -> Result<(), Stop> {
    let shape = &exchange.call.shape;
    let mut rank = 0;
    while rank < shape.ranks {
        let (mut local, mut masked) = (0, exchange.masked(rank));
        while local < shape.local_experts && !masked {
            let flag = shape.flag(exchange.set(), rank as u64 * shape.local_experts as u64 + local as u64);
            masked = exchange.hear_number(flag, FLAG, rank, local)?.is_none();
            if !masked && exchange.leads() {
                exchange.give_back(flag);
            }
            local += 1;
        }
        let mut done = Ok(());
        if !masked && exchange.leads() {
            done = exchange.thank(rank);
        }
        exchange.agree(done)?;
        rank += 1;
    }
    Ok(())
}
