//! `moe_dispatch_send`: each token to the experts that it chose.

use super::call::{EXPONENTS, FP8, MoeCall, ROUNDED};
use super::exchange::{Exchange, tensor};
use super::number::{Scale, four, four_fp8, larger};
use super::stop::Stop;
use crate::nvptx_math::{rolled, unknown};
use shunt_device::{Device, HeapOffset, Lanes, PIECE_BYTES, Platform, Put, Solo};
use shunt_layout::moe::{HEADER_BYTES, SCALE_GROUP};

/// Reads `x`, `topk_index`. Blocks share out the experts: the block of one goes through the tokens in order, makes the
/// messages that nobody made yet, puts them into the expert's slots for this rank and tells how many behind them. The
/// value is the number of messages.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &MoeCall,
) -> Result<u64, Stop> {
    let exchange = Exchange::begin(device, lanes, call);
    exchange.check()?;
    exchange.room()?;
    let (mut sent, mut expert) = (0, block as u64);
    while expert < call.shape.experts() {
        let (rank, _) = exchange.home(expert);
        if !exchange.masked(rank) {
            sent += serve(&exchange, expert)?;
        }
        expert += call.blocks.max(1) as u64;
    }
    Ok(sent)
}

/// Whether a token chose an expert. An expert that is chosen twice gets the token once: both weights count for it.
#[inline(always)]
fn chose(call: &MoeCall, token: u32, expert: u64) -> bool {
    let (mut k, mut found) = (0, false);
    while k < call.topk {
        rolled();
        // SAFETY: `topk` indices a token (`MoeCall`); only tokens of this call are asked about.
        let index: i64 = unsafe { tensor::read(call.topk_index, token as u64 * call.topk as u64 + k as u64) };
        found |= index == expert as i64;
        k += 1;
    }
    found
}

/// All that one expert is sent; how many messages.
#[inline(always)]
fn serve<P: Platform, L: Lanes>(exchange: &Exchange<'_, '_, P, L>, expert: u64) -> Result<u64, Stop> {
    let (call, lanes) = (exchange.call, exchange.lanes);
    let (rank, local) = exchange.home(expert);
    let mut poster = exchange.poster(rank, local);
    let bytes = call.shape.dispatch_message(call.has(FP8));
    let (mut first, mut sent) = (0, 0);
    while first < call.tokens {
        // A lane a token; then all of them the messages of those that chose.
        let mine = first + lanes.rank();
        let wanted = (mine < call.tokens && chose(call, mine, expert)) as u64;
        let mut lane = 0;
        while lane < lanes.size() && first + lane < call.tokens {
            if lanes.broadcast(wanted, lane) != 0 {
                let token = first + lane;
                prepare(exchange, token)?;
                // Offsets are found again for each message: kept, they would take registers while one is made.
                let set = unknown(exchange.set());
                let src = exchange.at(call.shape.dispatch_source(set, token));
                let dst = exchange.at(call.shape.dispatch_slot(set, local, exchange.me, sent));
                if rank == exchange.me {
                    copy(exchange, dst, src, bytes);
                } else {
                    poster.put(lanes, Put { dst, src, bytes });
                }
                sent += 1;
            }
            lane += 1;
        }
        first += lanes.size();
    }
    let word = exchange.at(call.shape.count(unknown(exchange.set()), local, exchange.me));
    if rank == exchange.me {
        lanes.sync();
        if exchange.leads() {
            exchange.device.store(word, exchange.covering(sent).1);
        }
        return Ok(sent);
    }
    poster.signal(lanes, word, exchange.covering(sent).0);
    exchange.settle(&poster)?;
    Ok(sent)
}

/// Copies within this rank's heap.
#[inline(always)]
fn copy<P: Platform, L: Lanes>(
    exchange: &Exchange<'_, '_, P, L>,
    dst: HeapOffset,
    src: HeapOffset,
    bytes: u64,
) {
    let mut at = exchange.lanes.rank() as u64 * PIECE_BYTES;
    while at < bytes {
        let piece = exchange.device.load_piece(HeapOffset(src.0 + at));
        exchange.device.store_piece(HeapOffset(dst.0 + at), piece);
        at += exchange.lanes.size() as u64 * PIECE_BYTES;
    }
}

/// What a look at a token's claim says to all lanes.
const READY: u64 = 0;
const MINE: u64 = 1;
const LATE: u64 = 2;

/// Sees to it that the message of a token is made, once, whichever block comes first.
#[inline(always)]
fn prepare<P: Platform, L: Lanes>(exchange: &Exchange<'_, '_, P, L>, token: u32) -> Result<(), Stop> {
    let claim = exchange.at(exchange.call.shape.claim(token));
    let answer = if exchange.leads() { take(exchange, claim) } else { READY };
    match exchange.device.share(exchange.lanes, answer) {
        READY => Ok(()),
        MINE => {
            make(exchange, token);
            exchange.lanes.sync();
            if exchange.leads() {
                exchange.device.store(claim, 2 * exchange.number + 1);
            }
            Ok(())
        }
        _ => Err(Stop::late(exchange.me, 0)),
    }
}

/// The leader's part: the block that comes first makes it, the others wait for him, who is at it.
#[inline(always)]
fn take<P: Platform, L: Lanes>(exchange: &Exchange<'_, '_, P, L>, claim: HeapOffset) -> u64 {
    let (making, made) = (2 * exchange.number, 2 * exchange.number + 1);
    let seen = exchange.device.load(claim);
    if seen == made {
        return READY;
    }
    if seen < making && exchange.device.swap_if(claim, seen, making) == seen {
        return MINE;
    }
    match exchange.device.wait_until_ge(Solo, claim, made, exchange.deadline) {
        Ok(_) => READY,
        Err(_) => LATE,
    }
}

/// Makes the message of a token: header, channels, scales.
#[inline(always)]
fn make<P: Platform, L: Lanes>(exchange: &Exchange<'_, '_, P, L>, token: u32) {
    let at = exchange.at(exchange.call.shape.dispatch_source(exchange.set(), token));
    if exchange.leads() {
        exchange.device.store_piece(at, [token as u64, 0]);
    }
    let data = HeapOffset(at.0 + HEADER_BYTES);
    if exchange.call.has(FP8) { make_fp8(exchange, token, data) } else { make_bf16(exchange, token, data) }
}

#[inline(always)]
fn make_bf16<P: Platform, L: Lanes>(exchange: &Exchange<'_, '_, P, L>, token: u32, data: HeapOffset) {
    let pieces = exchange.call.shape.bf16_bytes() / PIECE_BYTES;
    let mut piece = exchange.lanes.rank() as u64;
    while piece < pieces {
        let number = token as u64 * pieces + piece;
        // SAFETY: the token's row of `x`, whole pieces of it (`MoeCall`; the hidden size is a multiple of 512).
        let words: [u64; 2] = unsafe { tensor::read(exchange.call.x, number) };
        exchange.device.store_piece(HeapOffset(data.0 + piece * PIECE_BYTES), words);
        piece += exchange.lanes.size() as u64;
    }
}

/// Words of four BF16 in a group.
const GROUP_WORDS: u64 = SCALE_GROUP / 4;

/// Groups a lane makes at a time: their scales fill a piece.
const GROUPS: u64 = 4;

#[inline(always)]
fn make_fp8<P: Platform, L: Lanes>(exchange: &Exchange<'_, '_, P, L>, token: u32, data: HeapOffset) {
    let (call, groups) = (exchange.call, exchange.call.shape.scales());
    let rounded = call.has(ROUNDED) || call.has(EXPONENTS);
    let scales = HeapOffset(data.0 + call.shape.hidden as u64);
    let mut first = exchange.lanes.rank() as u64 * GROUPS;
    while first < groups {
        let (mut backs, mut number) = ([0u64; 2], 0);
        while number < unknown(GROUPS) {
            rolled();
            let group = first + number;
            let words = (token as u64 * groups + group) * GROUP_WORDS;
            let scale = Scale::of(amax(call.x, words), rounded);
            let to = HeapOffset(data.0 + group * SCALE_GROUP);
            let mut at = 0;
            while at < unknown(GROUP_WORDS) {
                rolled();
                let piece =
                    [fp8_word(call.x, words + at, scale.by), fp8_word(call.x, words + at + 2, scale.by)];
                exchange.device.store_piece(HeapOffset(to.0 + at * 4), piece);
                at += 4;
            }
            // Pushed down from above: no number of a register depends on the turn.
            backs = [backs[0] >> 32 | backs[1] << 32, backs[1] >> 32 | (scale.back.to_bits() as u64) << 32];
            number += 1;
        }
        exchange.device.store_piece(HeapOffset(scales.0 + first * 4), backs);
        first += exchange.lanes.size() as u64 * GROUPS;
    }
}

/// The largest magnitude of a group.
#[inline(always)]
fn amax(x: u64, words: u64) -> f32 {
    let (mut amax, mut at) = (0.0, 0);
    while at < unknown(GROUP_WORDS) {
        rolled();
        // SAFETY: the group's words of a row of `x` (`MoeCall`). Four loads at a time.
        let words: [u64; 4] = unsafe { tensor::read(x + 8 * (words + at), 0) };
        let [a, b, c, d] = words;
        amax = largest(largest(largest(largest(amax, four(a)), four(b)), four(c)), four(d));
        at += 4;
    }
    amax
}

/// The largest magnitude of four more.
#[inline(always)]
const fn largest(amax: f32, values: [f32; 4]) -> f32 {
    let [a, b, c, d] = values;
    larger(larger(larger(larger(amax, a), b), c), d)
}

/// Eight channels, of the two words from `at` on.
#[inline(always)]
fn fp8_word(x: u64, at: u64, by: f32) -> u64 {
    // SAFETY: as for `amax`.
    let (low, high) = unsafe { (four(tensor::read(x, at)), four(tensor::read(x, at + 1))) };
    u64::from(four_fp8(low, by)) | u64::from(four_fp8(high, by)) << 32
}
