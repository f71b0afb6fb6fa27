//! `moe_dispatch_receive`: what came for this rank's experts, packed.

use super::call::{EXPONENTS, FP8, MoeCall};
use super::exchange::{Exchange, Part, split};
use super::number::Scale;
use super::stop::Stop;
use super::tensor;
use shunt_device::{Device, HeapOffset, PIECE_BYTES, Platform, WarpLanes};
use shunt_layout::moe::HEADER_BYTES;

/// Writes `out`, `out_scales` (FP8), `source`, `ranges`, `counts`. Warps share out the pairs of local expert and rank:
/// the warp of one waits for the count, takes rows of the expert and copies the messages there. The value is the
/// number of rows.
#[inline(always)]
pub fn run<P: Platform, L: WarpLanes>(
    device: Device<'_, P>,
    lanes: L,
    part: Part,
    call: &MoeCall,
) -> Result<u64, Stop> {
    let exchange = Exchange::begin(device, lanes, call);
    exchange.check()?;
    let (mut pair, step) = part.stride();
    let mut rows = 0;
    while pair < call.shape.experts() {
        let (local, rank) = split(pair, call.shape.ranks);
        rows += take(&exchange, local, rank)?;
        pair += step;
    }
    Ok(rows)
}

/// One pair; how many rows.
#[inline(always)]
fn take<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    local: u32,
    rank: u32,
) -> Result<u64, Stop> {
    let shape = &exchange.call.shape;
    let word = shape.count(exchange.set(), local, rank);
    let most = shape.tokens as u64;
    let heard = if exchange.masked(rank) { None } else { exchange.hear_number(word, most, rank, local)? };
    let (rows, masked) = (heard.unwrap_or(0), heard.is_none());
    let first = if exchange.leads() { reserve(exchange, local, rank, rows) } else { 0 };
    let first = exchange.lanes.broadcast(first, 0);
    let mut slot = 0;
    while slot < rows {
        let from = exchange.at(shape.dispatch_slot(exchange.set(), local, rank, slot));
        unpack(exchange, from, local as u64 * shape.rows() + first + slot, local, first + slot);
        slot += 1;
    }
    // All lanes have read what is now given back.
    exchange.lanes.sync();
    let mut done = Ok(());
    if exchange.leads() && !masked {
        exchange.give_back(word);
        let heard = exchange.at(shape.heard(rank));
        if exchange.device.add(heard, 1) + 1 == shape.local_experts as u64 {
            exchange.device.store(heard, 0);
            done = exchange.thank(rank);
        }
    }
    exchange.agree(done)?;
    Ok(rows)
}

/// Takes rows of an expert for what a rank sent; the first of them. The last rank that is heard tells how many there
/// are.
#[inline(always)]
fn reserve<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    local: u32,
    rank: u32,
    rows: u64,
) -> u64 {
    let (call, shape) = (exchange.call, &exchange.call.shape);
    let taken = exchange.at(shape.taken(local));
    let before = exchange.device.add(taken, 1 << 32 | rows);
    let first = before & 0xffff_ffff;
    let number = local as u64 * shape.ranks as u64 + rank as u64;
    // SAFETY: a range for each pair, a count for each local expert (`MoeCall`); only this warp has this pair, and only
    // one rank is the last.
    unsafe {
        tensor::write(call.ranges, number, first << 32 | rows);
        if (before >> 32) + 1 == shape.ranks as u64 {
            exchange.device.store(taken, 0);
            tensor::write(call.counts, local as u64, (first + rows) as u32);
        }
    }
    first
}

/// Copies one message to its row.
#[inline(always)]
fn unpack<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    from: HeapOffset,
    row: u64,
    local: u32,
    row_of_expert: u64,
) {
    let (call, shape) = (exchange.call, &exchange.call.shape);
    if exchange.leads() {
        let [header, _] = exchange.device.load_piece(from);
        // SAFETY: a word for each row of each local expert (`MoeCall`); this row is this warp's.
        unsafe { tensor::write(call.source, row, header as u32) };
    }
    let data = HeapOffset(from.0 + HEADER_BYTES);
    let bytes = if call.has(FP8) { shape.hidden as u64 } else { shape.bf16_bytes() };
    let pieces = bytes / PIECE_BYTES;
    let mut piece = exchange.lanes.rank() as u64;
    while piece < pieces {
        let words = exchange.device.load_piece(HeapOffset(data.0 + piece * PIECE_BYTES));
        // SAFETY: the row, whole pieces of it (`MoeCall`; the hidden size is a multiple of 512).
        unsafe { tensor::write(call.out, row * pieces + piece, words) };
        piece += exchange.lanes.size() as u64;
    }
    if call.has(FP8) {
        unpack_scales(exchange, HeapOffset(data.0 + bytes), local, row_of_expert);
    }
}

/// Scales are handed out by group first: neighbouring rows lie side by side, as matrix units want them.
#[inline(always)]
fn unpack_scales<P: Platform, L: WarpLanes>(
    exchange: &Exchange<'_, '_, P, L>,
    from: HeapOffset,
    local: u32,
    row: u64,
) {
    let (call, shape) = (exchange.call, &exchange.call.shape);
    let fours = shape.scales() / 4;
    let mut four = exchange.lanes.rank() as u64;
    while four < fours {
        let words = exchange.device.load_piece(HeapOffset(from.0 + four * PIECE_BYTES));
        let backs = [words[0] as u32, (words[0] >> 32) as u32, words[1] as u32, (words[1] >> 32) as u32];
        let [a, b, c, d] = backs;
        if call.has(EXPONENTS) {
            let of = |back: u32| Scale::exponent(f32::from_bits(back));
            let word = u32::from_le_bytes([of(a), of(b), of(c), of(d)]);
            // SAFETY: a word for each four groups of each row (`MoeCall`); this row is this warp's.
            unsafe {
                tensor::write(call.out_scales, (local as u64 * fours + four) * shape.rows() + row, word)
            };
        } else {
            let at = |group: u64| (local as u64 * shape.scales() + 4 * four + group) * shape.rows() + row;
            // SAFETY: a word for each group of each row (`MoeCall`); this row is this warp's.
            unsafe {
                tensor::write(call.out_scales, at(0), a);
                tensor::write(call.out_scales, at(1), b);
                tensor::write(call.out_scales, at(2), c);
                tensor::write(call.out_scales, at(3), d);
            }
        }
        four += exchange.lanes.size() as u64;
    }
}
