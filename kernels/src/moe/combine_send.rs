//! `moe_combine_send` and `moe_combine_send_log`: what this rank's experts made, back to where the tokens came from.

use super::call::{MoeCall, ZERO_COPY};
use super::combine_log;
use super::exchange::{Exchange, FLAG, Part, split};
use super::stop::Stop;
use super::tensor;
use shunt_device::{Device, HeapOffset, PIECE_BYTES, Platform, Put, WarpLanes};

/// Reads `x` (unless `ZERO_COPY`, which LogFMT has not), `source`, `ranges`. Warps share out the pairs of local expert
/// and rank: the warp of one brings the rows of the rank's tokens to the expert's slots there and raises the expert's
/// flag behind them. The value is the number of messages.
#[inline(always)]
pub fn run<P: Platform, L: WarpLanes, const LOG: bool>(
    device: Device<'_, P>,
    lanes: L,
    part: Part,
    call: &MoeCall,
) -> Result<u64, Stop> {
    let exchange = Exchange::begin(device, lanes, call);
    exchange.check()?;
    exchange.room()?;
    let (mut pair, step) = part.stride();
    let mut sent = 0;
    while pair < call.shape.experts() {
        let (local, rank) = split(pair, call.shape.ranks);
        if !exchange.masked(rank) {
            sent += answer::<P, L, LOG>(&exchange, local, rank)?;
        }
        pair += step;
    }
    Ok(sent)
}

/// One pair; how many messages.
#[inline(always)]
fn answer<P: Platform, L: WarpLanes, const LOG: bool>(
    exchange: &Exchange<'_, '_, P, L>,
    local: u32,
    rank: u32,
) -> Result<u64, Stop> {
    let (call, shape, lanes) = (exchange.call, &exchange.call.shape, exchange.lanes);
    let (set, expert) = (exchange.set(), exchange.me as u64 * shape.local_experts as u64 + local as u64);
    // SAFETY: a range for each pair (`MoeCall`).
    let range: u64 = unsafe { tensor::read(call.ranges, local as u64 * shape.ranks as u64 + rank as u64) };
    let (first, rows) = (range >> 32, range & 0xffff_ffff);
    if first + rows > shape.rows() {
        return Err(Stop::wrong(rank));
    }
    let (near, mut poster) = (exchange.near(rank), exchange.poster(rank, local));
    let mut row = first;
    while row < first + rows {
        // SAFETY: a word for each row of each local expert (`MoeCall`).
        let token: u32 = unsafe { tensor::read(call.source, local as u64 * shape.rows() + row) };
        if token >= shape.tokens {
            return Err(Stop::wrong(rank));
        }
        let src = exchange.at(shape.combine_source(set, local, row));
        let (slot, number) = (shape.combine_slot(set, expert, token), local as u64 * shape.rows() + row);
        let to = if near != 0 { near + slot.0 } else { exchange.device.local_address(src) };
        let mut bytes = shape.bf16_bytes();
        if LOG {
            bytes = combine_log::write(exchange, to, number);
        } else if near != 0 || !call.has(ZERO_COPY) {
            fill(exchange, src, to, number);
        }
        if near == 0 {
            poster.put(lanes, Put { dst: exchange.at(slot), src, bytes });
        }
        row += 1;
    }
    let word = shape.flag(set, expert);
    if near != 0 {
        exchange.cover_near(near, word, FLAG);
        return Ok(rows);
    }
    poster.signal(lanes, exchange.at(word), exchange.covering(FLAG).0);
    exchange.settle(&poster)?;
    Ok(rows)
}

/// Brings a row, as it lies in the send buffer or in `x`, to an address: that of its slot, where it is mapped here, or
/// of the send buffer.
#[inline(always)]
fn fill<P: Platform, L: WarpLanes>(exchange: &Exchange<'_, '_, P, L>, src: HeapOffset, to: u64, row: u64) {
    let zero_copy = exchange.call.has(ZERO_COPY);
    let pieces = exchange.call.shape.bf16_bytes() / PIECE_BYTES;
    let mut piece = exchange.lanes.rank() as u64;
    while piece < pieces {
        let words = if zero_copy {
            exchange.device.load_piece(HeapOffset(src.0 + piece * PIECE_BYTES))
        } else {
            // SAFETY: the row of `x`, whole pieces of it (`MoeCall`; the hidden size is a multiple of 512).
            unsafe { tensor::read(exchange.call.x, row * pieces + piece) }
        };
        exchange.store_near(to, piece * PIECE_BYTES, words);
        piece += exchange.lanes.size() as u64;
    }
}
