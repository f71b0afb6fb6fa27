//! `moe_dispatch_send`: each token to the experts that it chose.

use super::call::{EXPONENTS, FP8, MoeCall, ROUNDED};
use super::exchange::{Exchange, Part};
use super::number::{Scale, four, four_fp8, larger, largest_of_sixteen, sixteen_fp8};
use super::stop::Stop;
use super::tensor;
use crate::nvptx_math::{rolled, unknown};
use shunt_device::{Device, HeapOffset, PIECE_BYTES, Platform, Put, Solo, WarpLanes};
use shunt_layout::moe::{HEADER_BYTES, SCALE_GROUP};

/// Reads `x`, `topk_index`. Warps share out the experts: the warp of one goes through the tokens in order, makes the
/// messages that nobody made yet, brings them to the expert's slots for this rank and tells how many behind them. The
/// value is the number of messages.
#[inline(always)]
pub fn run<P: Platform, L: WarpLanes>(
    device: Device<'_, P>,
    lanes: L,
    part: Part,
    call: &MoeCall,
) -> Result<u64, Stop> {
    let exchange = Exchange::begin(device, lanes, call);
    exchange.check()?;
    exchange.room()?;
    let (mut expert, step) = part.stride();
    let mut sent = 0;
    while expert < call.shape.experts() {
        let (rank, _) = exchange.home(expert);
        if !exchange.masked(rank) {
            sent += serve(&exchange, expert)?;
        }
        expert += step;
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
fn serve<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>, expert: u64) -> Result<u64, Stop> {
    let (call, lanes) = (exchange.call, exchange.lanes);
    let (rank, local) = exchange.home(expert);
    let mut poster = exchange.poster(rank, local);
    let bytes = call.shape.dispatch_message(call.has(FP8));
    let (mut first, mut sent) = (0, 0);
    while first < call.tokens {
        // A lane a token; then all of them the messages of those that chose.
        let mine = first + lanes.rank();
        let mut wanted = lanes.ballot(mine < call.tokens && chose(call, mine, expert));
        prepare(exchange, first, wanted)?;
        while wanted != 0 {
            let token = first + wanted.trailing_zeros();
            wanted &= wanted - 1;
            // Offsets are found again for each message: kept, they would take registers while one is made.
            let set = unknown(exchange.set());
            let src = exchange.at(call.shape.dispatch_source(set, token));
            let slot = call.shape.dispatch_slot(set, local, exchange.me, sent);
            let near = exchange.near(unknown(rank as u64) as u32);
            if near != 0 {
                exchange.copy_near(near + slot.0, src, bytes);
            } else {
                poster.put(lanes, Put { dst: exchange.at(slot), src, bytes });
            }
            sent += 1;
        }
        first += lanes.size();
    }
    let word = call.shape.count(unknown(exchange.set()), local, exchange.me);
    let near = exchange.near(rank);
    if near != 0 {
        exchange.cover_near(near, word, sent);
        return Ok(sent);
    }
    poster.signal(lanes, exchange.at(word), exchange.covering(sent).0);
    exchange.settle(&poster)?;
    Ok(sent)
}

/// What a look at a token's claim says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// Its message is made.
    Made,
    /// This warp makes it.
    Mine,
    /// Another warp is at it.
    Others,
}

/// Sees to it that the messages of tokens from `first` on are made whose bit is set in `wanted`, each once, whichever
/// warp comes first. A warp makes all that it took before it waits for others, so nobody waits in a circle.
#[inline(always)]
fn prepare<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    first: u32,
    wanted: u32,
) -> Result<(), Stop> {
    let (lanes, made) = (exchange.lanes, 2 * exchange.number + 1);
    let at = exchange.at(exchange.call.shape.claim(first + lanes.rank()));
    let asks = wanted >> lanes.rank() & 1 != 0;
    let claim = if asks { take(exchange, at) } else { Claim::Made };
    let mut mine = lanes.ballot(claim == Claim::Mine);
    if mine != 0 {
        while mine != 0 {
            make(exchange, first + mine.trailing_zeros());
            mine &= mine - 1;
        }
        lanes.sync();
        if claim == Claim::Mine {
            exchange.device.store(at, made);
        }
    }
    let late =
        claim == Claim::Others && exchange.device.wait_until_ge(Solo, at, made, exchange.deadline).is_err();
    let late = lanes.ballot(late);
    // What others made is there for all lanes.
    lanes.sync();
    if late == 0 { Ok(()) } else { Err(Stop::late(exchange.me, 0)) }
}

/// One lane's part: whose the message of a token is.
#[inline(always)]
fn take<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>, claim: HeapOffset) -> Claim {
    let (making, made) = (2 * exchange.number, 2 * exchange.number + 1);
    let seen = exchange.device.load(claim);
    if seen == made {
        return Claim::Made;
    }
    if seen < making && exchange.device.swap_if(claim, seen, making) == seen {
        return Claim::Mine;
    }
    Claim::Others
}

/// Makes the message of a token: header, channels, scales.
#[inline(always)]
fn make<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>, token: u32) {
    let at = exchange.at(exchange.call.shape.dispatch_source(exchange.set(), token));
    if exchange.leads() {
        exchange.device.store_piece(at, [token as u64, 0]);
    }
    let data = HeapOffset(at.0 + HEADER_BYTES);
    if exchange.call.has(FP8) { make_fp8(exchange, token, data) } else { make_bf16(exchange, token, data) }
}

#[inline(always)]
fn make_bf16<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>, token: u32, data: HeapOffset) {
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

/// Groups whose scales fill a piece.
const GROUPS: u64 = 4;

#[inline(always)]
fn make_fp8<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>, token: u32, data: HeapOffset) {
    let scales = HeapOffset(data.0 + exchange.call.shape.hidden as u64);
    let rounded = exchange.call.has(ROUNDED) || exchange.call.has(EXPONENTS);
    if exchange.lanes.size() == WARP && BY_WARP {
        make_fp8_by_warp(exchange, token, (data, scales), rounded);
    } else {
        make_fp8_by_lane(exchange, token, (data, scales), rounded);
    }
}

/// A GPU that has no instruction for FP8 (before sm_89) would need more registers than there are.
const BY_WARP: bool = cfg!(any(not(target_arch = "nvptx64"), target_feature = "sm_89"));

/// Lanes of a whole warp: they make four groups at a time, a piece of sixteen channels each.
const WARP: u32 = 32;
/// Lanes of a group.
const MEMBERS: u32 = WARP / GROUPS as u32;
/// Channels that a warp makes at a time. The hidden size is a multiple of them.
const STEP: u64 = WARP as u64 * PIECE_BYTES;
const _: () = assert!(STEP == shunt_layout::moe::HIDDEN_STEP as u64);

#[inline(always)]
fn make_fp8_by_warp<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    token: u32,
    (data, scales): (HeapOffset, HeapOffset),
    rounded: bool,
) {
    let (call, lanes) = (exchange.call, exchange.lanes);
    let (steps, lane) = (call.shape.hidden as u64 / STEP, lanes.rank() as u64);
    let from = call.x + 2 * (call.shape.hidden as u64 * token as u64 + lane * PIECE_BYTES);
    let to = HeapOffset(data.0 + lane * PIECE_BYTES);
    let mut step = 0;
    while step < steps {
        rolled();
        // SAFETY: sixteen channels of a row of `x` (`MoeCall`).
        let words = unsafe { tensor::read_sixteen(from + 2 * STEP * step) };
        let mut amax = largest_of_sixteen(&words);
        amax = larger_bits(amax, lanes.across::<1>(amax));
        amax = larger_bits(amax, lanes.across::<2>(amax));
        amax = larger_bits(amax, lanes.across::<4>(amax));
        let scale = Scale::of(f32::from_bits(amax), rounded);
        exchange.device.store_piece(HeapOffset(to.0 + STEP * step), sixteen_fp8(&words, scale.by));
        // Those of the four groups, to the first lane.
        let own = scale.back.to_bits();
        let next = lanes.across::<MEMBERS>(own);
        let (third, fourth) = (lanes.across::<{ 2 * MEMBERS }>(own), lanes.across::<{ 2 * MEMBERS }>(next));
        let backs = [own as u64 | (next as u64) << 32, third as u64 | (fourth as u64) << 32];
        let at = HeapOffset(scales.0 + PIECE_BYTES * step);
        exchange.device.store_piece_if(exchange.leads(), at, backs);
        step += 1;
    }
}

#[inline(always)]
const fn larger_bits(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

/// A lane makes whole groups.
#[inline(always)]
fn make_fp8_by_lane<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    token: u32,
    (data, scales): (HeapOffset, HeapOffset),
    rounded: bool,
) {
    let (call, groups) = (exchange.call, exchange.call.shape.scales());
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
        // SAFETY: the group's words of a row of `x` (`MoeCall`).
        let [a, b, c, d] = four(unsafe { tensor::read(x, words + at) });
        amax = larger(larger(larger(larger(amax, a), b), c), d);
        at += 1;
    }
    amax
}

/// Eight channels, of the two words from `at` on.
#[inline(always)]
fn fp8_word(x: u64, at: u64, by: f32) -> u64 {
    // SAFETY: as for `amax`.
    let (low, high) = unsafe { (four(tensor::read(x, at)), four(tensor::read(x, at + 1))) };
    u64::from(four_fp8(low, by)) | u64::from(four_fp8(high, by)) << 32
}
