//! The role of a dispatch that takes tokens from a rank of this node to their rows.

use super::call::FP8;
use super::node::{Node, Turn, afresh, may_take};
use super::role::{Halt, Role};
use crate::moe::stop::Stop;
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{HeapOffset, Lanes, PIECE_BYTES, Platform};
use shunt_layout::moe_normal::ByLocal;

/// One turn: takes a chunk at most.
#[inline(always)]
pub fn turn<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    channel: u32,
    local: u32,
) -> Result<Turn, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let (channel, local) = (afresh(channel), afresh(local));
    let (shape, lanes) = (&node.call.shape, node.lanes);
    let (mut code, mut taken, mut may) = (Turn::Idle, 0, 0);
    if node.leads() {
        let word = |word| node.word(shape.by_local(word, channel, local));
        let until = word(ByLocal::Until);
        taken = word(ByLocal::Taken);
        may = may_take(word(ByLocal::Tail), taken, until, shape.chunk);
        code = match () {
            () if may > 0 => Turn::Moved,
            () if taken == until => Turn::Done,
            () => Turn::Idle,
        };
    }
    match node.share(code as u64) {
        0 => return Ok(Turn::Done),
        1 => {}
        _ => return Ok(Turn::Idle),
    }
    let (mut taken, may) = (lanes.broadcast(taken, 0), lanes.broadcast(may, 0));
    let end = taken + may;
    while taken < end {
        rolled();
        let slot = shape.near.slot(taken);
        unpack(node, node.at(shape.near_dispatch(channel, local, slot)))?;
        taken += 1;
    }
    // All lanes have read what is now given back.
    lanes.sync();
    if node.leads() {
        node.set(shape.by_local(ByLocal::Taken, channel, local), taken);
        node.set_near(local, shape.by_local(ByLocal::Head, channel, node.local), taken);
    }
    Ok(Turn::Moved)
}

/// Brings one message to its row.
#[inline(always)]
fn unpack<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, at: HeapOffset) -> Result<(), Halt> {
    let (call, shape, lanes) = (node.call, &node.call.shape, node.lanes);
    let header = node.device.load_piece(at);
    node.hold(header)?;
    let from = header[0] as u32;
    let position = word_of(node, at, shape.rows_at(), node.local as u64);
    let known = from < shape.ranks();
    // SAFETY: a word for each rank (`NormalCall`).
    let first: u32 = if known { unsafe { tensor::read(call.prefix, from as u64) } } else { 0 };
    let row = first as u64 + position as u64;
    if !known || row >= call.rows {
        return Err(Halt { role: Role::DispatchReceive, stop: Stop::wrong(from) });
    }
    let (data, bytes) = (shape.data_at(), shape.data_bytes(call.has(FP8)));
    let (pieces, scales) = (bytes / PIECE_BYTES, 4 * shape.scales() / PIECE_BYTES);
    let all = if call.has(FP8) { pieces + scales } else { pieces };
    let mut piece = lanes.rank() as u64;
    while piece < all {
        rolled();
        let words = node.device.load_piece(HeapOffset(at.0 + data + piece * PIECE_BYTES));
        // SAFETY: the row and its scales, whole pieces of them (`NormalCall`); there is room for the row.
        unsafe {
            if piece < pieces {
                tensor::write(call.out, row * pieces + piece, words);
            } else {
                tensor::write(call.out_scales, row * scales + piece - pieces, words);
            }
        }
        piece += lanes.size() as u64;
    }
    choices(node, at, row);
    Ok(())
}

/// A 32-bit word of a message.
#[inline(always)]
fn word_of<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, at: HeapOffset, from: u64, number: u64) -> u32 {
    let piece = node.device.load_piece(HeapOffset(at.0 + from + number / 4 * PIECE_BYTES));
    let word = if number & 2 == 0 { piece[0] } else { piece[1] };
    (word >> (32 * (number & 1))) as u32
}

/// Experts of a row, as numbers of this rank's, and their weights.
#[inline(always)]
fn choices<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, at: HeapOffset, row: u64) {
    let (call, shape) = (node.call, &node.call.shape);
    let first = node.me as u64 * shape.local_experts as u64;
    let mut k = if call.out_index == 0 { call.topk as u64 } else { node.lanes.rank() as u64 };
    while k < call.topk as u64 {
        rolled();
        let expert = word_of(node, at, shape.choices_at(), k) as u64;
        let weight = word_of(node, at, shape.choices_at(), shape.topk as u64 + k);
        let here = expert >= first && expert < first + shape.local_experts as u64;
        let number = row * call.topk as u64 + k;
        // SAFETY: `topk` of each a row (`NormalCall`); there is room for the row.
        unsafe {
            tensor::write(call.out_index, number, if here { (expert - first) as i64 } else { -1 });
            if call.out_weights != 0 {
                tensor::write(call.out_weights, number, if here { weight } else { 0 });
            }
        }
        k += node.lanes.size() as u64;
    }
}
