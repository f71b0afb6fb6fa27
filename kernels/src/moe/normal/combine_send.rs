//! The role of a combine that hands rows to the rank of this node that sends them on.

use super::hold::weighs;
use super::node::{Node, Turn, afresh, least};
use super::role::Halt;
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{Lanes, PIECE_BYTES, Platform};
use shunt_layout::moe_normal::ByBoth;

/// One turn, for rows that came from rank `local` of a node: hands a chunk to rank `local` of this one at most.
#[inline(always)]
pub fn turn<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    channel: u32,
    to: u32,
    local: u32,
) -> Result<Turn, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let (channel, to) = (afresh(channel), afresh(to));
    let (shape, lanes) = (&node.call.shape, node.lanes);
    let (mut code, mut next, mut pushed, mut may) = (Turn::Idle, 0, 0, 0);
    if node.leads() {
        let word = |word| node.word(shape.by_both(word, channel, to, local));
        next = word(ByBoth::Next);
        pushed = word(ByBoth::Pushed);
        let room = (shape.near_slots as u64).saturating_sub(pushed.saturating_sub(word(ByBoth::Head)));
        let left = word(ByBoth::End).saturating_sub(next);
        may = least(least(room, left), shape.chunk as u64);
        code = match () {
            () if left == 0 => Turn::Done,
            () if may > 0 => Turn::Moved,
            () => Turn::Idle,
        };
    }
    match node.share(code as u64) {
        0 => return Ok(Turn::Done),
        1 => {}
        _ => return Ok(Turn::Idle),
    }
    let (next, pushed) = (lanes.broadcast(next, 0), lanes.broadcast(pushed, 0));
    let (may, mut number) = (lanes.broadcast(may, 0), 0);
    while number < may {
        rolled();
        let slot = shape.near.slot(pushed + number);
        push(node, next + number, node.near(local, shape.near_combine(channel, to, node.local, slot)));
        number += 1;
    }
    lanes.sync();
    if node.leads() {
        node.set(shape.by_both(ByBoth::Next, channel, to, local), next + may);
        node.set(shape.by_both(ByBoth::Pushed, channel, to, local), pushed + may);
        node.set_near(local, shape.by_both(ByBoth::Tail, channel, to, node.local), pushed + may);
    }
    Ok(Turn::Moved)
}

/// A row, its weights behind it, and that there are any.
#[inline(always)]
fn push<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, row: u64, to: u64) {
    let (call, shape) = (node.call, &node.call.shape);
    let pieces = shape.data_bytes(false) / PIECE_BYTES;
    let all = shape.combine_stride() / PIECE_BYTES;
    let mut piece = node.lanes.rank() as u64;
    while piece < all {
        rolled();
        let words = if piece < pieces {
            // SAFETY: a row of `x`, whole pieces of it (`NormalCall`; the hidden size is a multiple of 512).
            unsafe { tensor::read(call.x, row * pieces + piece) }
        } else {
            let weight = |k: u64| weight(node, row, 4 * (piece - pieces) + k) as u64;
            [weight(0) | weight(1) << 32, weight(2) | weight(3) << 32]
        };
        // SAFETY: a slot of the ring at that rank (`NormalCall::peers`), which has been taken.
        unsafe { node.device.store_piece_near(to + piece * PIECE_BYTES, words) };
        piece += node.lanes.size() as u64;
    }
}

#[inline(always)]
fn weight<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, row: u64, k: u64) -> u32 {
    let call = node.call;
    if k == call.shape.topk as u64 {
        return if weighs(call) { 1f32 } else { 0f32 }.to_bits();
    }
    if k >= call.topk as u64 || call.topk_weights == 0 {
        return 0;
    }
    // SAFETY: `topk` of each row (`NormalCall`).
    unsafe { tensor::read(call.topk_weights, row * call.topk as u64 + k) }
}
