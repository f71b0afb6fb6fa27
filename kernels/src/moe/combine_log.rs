//! Rows of a combine as LogFMT-10: how a message is made, and read by sixteen channels.
//!
//! | where | what |
//! | --- | --- |
//! | a word for each group | its range, or that it travels as BF16, and as which of those ([`Group`]) |
//! | 160 bytes for each group | low bytes of 128 codes, then their two high bits; of BF16 the first 80 channels |
//! | 96 bytes for each group of BF16 | its other 48 channels |
//!
//! So groups lie where they lie whatever the others are, and a message is as long as it has to be.

use super::exchange::Exchange;
use super::logfmt::{Codes, Group, Range};
use super::number::four;
use super::tensor;
use crate::nvptx_math::{read_four_words, rolled, unknown};
use shunt_device::{HeapOffset, PIECE_BYTES, Platform, WarpLanes};
use shunt_layout::moe::{At, SCALE_GROUP, Shape};

/// Groups whose words fill a piece: a lane makes as many words.
const GROUPS: u64 = 4;
/// Sixteen channels: a group has as many times that.
const SIXTEENS: u64 = SCALE_GROUP / 16;
/// Bytes of sixteen channels as BF16.
const SIXTEEN_BYTES: u64 = 32;
/// Pieces of a group of BF16 that lie where its codes would.
const FIRST_PIECES: u64 = shunt_layout::moe::LOG_GROUP_BYTES / PIECE_BYTES;

/// Makes the message of a row of `x` at an address; its bytes. All lanes.
///
/// What it computes once a row is not kept from before the loop over rows: that takes more registers than there are.
#[inline(always)]
pub fn write<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>, to: u64, row: u64) -> u64 {
    let (device, lanes, to) = (exchange.device, exchange.lanes, unknown(to));
    let shape = Shape { hidden: unknown(exchange.call.shape.hidden as u64) as u32, ..exchange.call.shape };
    let (from, lane) = (exchange.call.x + row * shape.bf16_bytes(), unknown(lanes.rank() as u64));
    // SAFETY: a slot that credits made this rank's, until a post or a word covers it (`Exchange::store_near`).
    let store = |at: At, piece| unsafe { device.store_piece_near(to + at.0, piece) };
    encode(store, &shape, from, (lane, lanes.size() as u64));
    let (blocks, below) = (shape.scales() / GROUPS, (1u32 << lane) - 1);
    let (mut first, mut wholes) = (0, 0);
    while first < blocks {
        rolled();
        let block = first + lane;
        let (mut words, mut number) = ([0u64; 2], 0);
        while number < GROUPS {
            rolled();
            let group = block * GROUPS + number;
            let x = from + group * SIXTEENS * SIXTEEN_BYTES;
            let range = if block < blocks { range(x) } else { Range::NONE };
            let others = lanes.ballot(!range.fits());
            let mut word = range.word();
            if !range.fits() {
                let place = wholes + (others & below).count_ones() as u64;
                word = Group::whole(place);
                store_whole(store, &shape, x, group, place);
            }
            wholes += others.count_ones() as u64;
            words = [words[0] >> 32 | words[1] << 32, words[1] >> 32 | (word as u64) << 32];
            number += 1;
        }
        if block < blocks {
            store(At(block * PIECE_BYTES), words);
        }
        first += lanes.size() as u64;
    }
    shape.log_rest(wholes).0
}

/// Groups that travel in ten bits, a lane each. Before their words are made: in one loop both take more registers than
/// there are, and their ranges are found again sooner than kept.
#[inline(always)]
fn encode(store: impl Fn(At, [u64; 2]) + Copy, shape: &Shape, from: u64, (lane, lanes): (u64, u64)) {
    let mut group = lane;
    while group < shape.scales() {
        rolled();
        let x = from + group * SIXTEENS * SIXTEEN_BYTES;
        let range = range(x);
        if range.fits() {
            let at = shape.log_group(group);
            store_codes(|bytes, piece| store(At(at.0 + bytes), piece), x, &Codes::of(range.word()));
        }
        group += lanes;
    }
}

/// Two words of four BF16 at a time: a group's sixteen channels `number`.
#[inline(always)]
fn sixteen(x: u64, number: u64) -> [u32; 8] {
    // SAFETY: channels of a row of `x` (`MoeCall`), which has whole groups.
    unsafe { tensor::read_sixteen(x + number * SIXTEEN_BYTES) }
}

/// The next one first: a loop over words that stay in registers.
#[inline(always)]
const fn turned([a, b, c, d, e, f, g, h]: [u32; 8]) -> [u32; 8] {
    [b, c, d, e, f, g, h, a]
}

/// One of the four 32-bit words of a piece.
#[inline(always)]
const fn quarter(piece: [u64; 2], number: u64) -> u32 {
    let half = if number < 2 { piece[0] } else { piece[1] };
    (half >> (32 * (number % 2))) as u32
}

#[inline(always)]
fn range(x: u64) -> Range {
    let (mut range, mut number) = (Range::NONE, 0);
    while number < SIXTEENS {
        rolled();
        let mut words = sixteen(x, number);
        let mut left = words.len();
        while left != 0 {
            range = range.with(words[0] as u16).with((words[0] >> 16) as u16);
            words = turned(words);
            left -= 1;
        }
        number += 1;
    }
    range
}

#[inline(always)]
fn store_whole(store: impl Fn(At, [u64; 2]), shape: &Shape, x: u64, group: u64, place: u64) {
    let (mut piece, mut at) = (0, shape.log_group(group));
    // One after the other: a loop that is laid out takes more registers than there are.
    while piece < unknown(2 * SIXTEENS) {
        rolled();
        if piece == FIRST_PIECES {
            at = shape.log_rest(place);
        }
        // SAFETY: channels of a row of `x` (`MoeCall`), which has whole groups.
        let [a, b, c, d] = unsafe { read_four_words::<0>(x + piece * PIECE_BYTES) };
        store(at, [a as u64 | (b as u64) << 32, c as u64 | (d as u64) << 32]);
        (piece, at) = (piece + 1, at.plus(1, PIECE_BYTES));
    }
}

/// Where a piece of a group of BF16 lies in a message.
#[inline(always)]
fn piece_of(shape: &Shape, group: u64, place: u64, piece: u64) -> At {
    if piece < FIRST_PIECES {
        shape.log_group(group).plus(piece, PIECE_BYTES)
    } else {
        shape.log_rest(place).plus(piece - FIRST_PIECES, PIECE_BYTES)
    }
}

#[inline(always)]
fn store_codes(store: impl Fn(u64, [u64; 2]), x: u64, codes: &Codes) {
    let (mut tops, mut number) = ([0u64; 2], 0);
    while number < SIXTEENS {
        rolled();
        let (mut words, mut low, mut top, mut pair) = (sixteen(x, number), [0u64; 2], 0u64, 0);
        while pair < 8 {
            rolled();
            let (one, two) = (codes.code(words[0] as u16), codes.code((words[0] >> 16) as u16));
            words = turned(words);
            let bytes = (one & 0xff | (two & 0xff) << 8) as u64;
            low = [low[0] >> 16 | low[1] << 48, low[1] >> 16 | bytes << 48];
            top |= ((one >> 8 | two >> 8 << 2) as u64) << (4 * pair);
            pair += 1;
        }
        store(number * PIECE_BYTES, low);
        tops = [tops[0] >> 32 | tops[1] << 32, tops[1] >> 32 | top << 32];
        number += 1;
        if number % GROUPS == 0 {
            store((SIXTEENS + number / GROUPS - 1) * PIECE_BYTES, tops);
        }
    }
}

/// Sixteen channels, in fours.
pub type Sixteen = [[f32; 4]; 4];

/// Channels `16 * number` and on of a message at `slot`.
#[inline(always)]
pub fn read<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    slot: HeapOffset,
    number: u64,
) -> Sixteen {
    let shape = &exchange.call.shape;
    let load = |at: At| exchange.device.load_piece(HeapOffset(slot.0 + at.0));
    let (group, part) = (number / SIXTEENS, number % SIXTEENS);
    let words = load(At(0).plus(group / GROUPS, PIECE_BYTES));
    match Group::of(quarter(words, group % GROUPS)) {
        Group::Whole(place) => {
            // Of a sender that differs there may be anything; what is read is in the slot all the same.
            let place = if place < shape.scales() { place } else { 0 };
            let [a, b] = load(piece_of(shape, group, place, 2 * part));
            let [c, d] = load(piece_of(shape, group, place, 2 * part + 1));
            [four(a), four(b), four(c), four(d)]
        }
        Group::Codes(codes) => {
            let at = shape.log_group(group);
            let low = load(at.plus(part, PIECE_BYTES));
            let tops = load(at.plus(SIXTEENS + part / GROUPS, PIECE_BYTES));
            let top = quarter(tops, part % GROUPS);
            let four_codes = |low: u64, top: u32| {
                let code =
                    |at: u32| codes.value((low >> (8 * at)) as u32 & 0xff | (top >> (2 * at) & 3) << 8);
                [code(0), code(1), code(2), code(3)]
            };
            [
                four_codes(low[0], top),
                four_codes(low[0] >> 32, top >> 8),
                four_codes(low[1], top >> 16),
                four_codes(low[1] >> 32, top >> 24),
            ]
        }
    }
}
