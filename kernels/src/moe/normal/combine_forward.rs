//! The role of a combine that sums rows of this node for a token of another, and puts the sums there.

use super::node::{FULL, Node, POSTED, Turn, afresh, may_fill};
use super::role::{Halt, Role};
use super::sum::{Sum, sum_near};
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{HeapOffset, Lanes, Platform, Put};
use shunt_layout::moe_normal::{ByBoth, ByNode};

/// One turn: sums a chunk at most, and puts what is whole or the last.
#[inline(always)]
pub fn turn<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, to: u32) -> Result<Turn, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let (channel, to) = (afresh(channel), afresh(to));
    let (shape, lanes) = (&node.call.shape, node.lanes);
    let word = |word| node.word(shape.by_node(word, channel, to));
    let end = arriving(node, channel, to);
    let (mut code, mut cursor, mut filled, mut may) = (Turn::Idle, 0, 0, 0);
    if node.leads() {
        (cursor, filled) = (word(ByNode::Cursor), word(ByNode::CombineFilled));
        let put = word(ByNode::CombinePut);
        let (room, whole) = may_fill(filled, put, word(ByNode::CombineHead), shape.far, shape.chunk);
        let due = whole || filled > put && cursor >= end;
        may = room;
        code = match () {
            () if cursor >= end && filled == put => Turn::Done,
            () if due || room > 0 => Turn::Moved,
            () => Turn::Idle,
        };
    }
    match node.share(code as u64) {
        0 => return Ok(Turn::Done),
        1 => {}
        _ => return Ok(Turn::Idle),
    }
    let (mut cursor, mut filled) = (lanes.broadcast(cursor, 0), lanes.broadcast(filled, 0));
    let full = filled + lanes.broadcast(may, 0);
    let first = filled;
    while cursor < end && filled < full {
        rolled();
        let mask = mask(node, channel, to, cursor);
        let there = if node.leads() { there(node, channel, to, mask) } else { 0 };
        match node.share(there) {
            0 => break,
            THERE => {}
            odd => return Err(node.weighed_otherwise(node.node * shape.locals + (odd - ODD) as u32)),
        }
        let sum = Sum { channel, node: to, mask };
        sum_near(node, sum, source(node, channel, to, filled));
        lanes.sync();
        if node.leads() {
            take(node, channel, to, mask);
        }
        lanes.sync();
        (cursor, filled) = (cursor + 1, filled + 1);
    }
    lanes.sync();
    let moved = filled != first;
    let done = if node.leads() { put(node, (channel, to), (cursor, end), filled, moved) } else { POSTED };
    node.agree(Role::CombineForward, channel, done)
}

/// Sums that a node is to get on a channel.
#[inline(always)]
fn arriving<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, to: u32) -> u64 {
    let number = to as u64 * node.call.shape.channels as u64 + channel as u64;
    // SAFETY: a word for each node and channel (`NormalCall`).
    unsafe { tensor::read::<u32>(node.call.arriving, number) as u64 }
}

/// The ranks of this node that a token went to.
#[inline(always)]
fn mask<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, to: u32, number: u64) -> u32 {
    let shape = &node.call.shape;
    let row = to as u64 * shape.channels as u64 + channel as u64;
    // SAFETY: a mask for each token that the channel may have (`NormalCall`); `begin` looked at how many there are.
    unsafe { tensor::read(node.call.forward, row * shape.part(shape.tokens) as u64 + number) }
}

/// All rows are there.
const THERE: u64 = 1;
/// And the rank that has weights where this one has none, or none where this one has.
const ODD: u64 = 2;

/// Whether each of these ranks handed a row over, with weights as this one. Leader only.
#[inline(always)]
fn there<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, to: u32, mask: u32) -> u64 {
    let shape = &node.call.shape;
    let (mut local, mut all, mut odd) = (0, true, 0);
    while local < afresh(shape.locals) {
        rolled();
        if mask >> local & 1 != 0 {
            let taken = node.word(shape.by_both(ByBoth::Taken, channel, to, local));
            let came = node.word(shape.by_both(ByBoth::Tail, channel, to, local)) > taken;
            let at = shape.near_combine(channel, to, local, shape.near.slot(taken));
            if came && node.odd(at) {
                odd = ODD + local as u64;
            }
            all &= came;
        }
        local += 1;
    }
    if odd != 0 { odd } else { all as u64 * THERE }
}

/// Gives each of these ranks its slot back. Leader only.
#[inline(always)]
fn take<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, to: u32, mask: u32) {
    let (shape, mut local) = (&node.call.shape, 0);
    while local < afresh(shape.locals) {
        rolled();
        if mask >> local & 1 != 0 {
            let taken = shape.by_both(ByBoth::Taken, channel, to, local);
            let next = node.word(taken) + 1;
            node.set(taken, next);
            node.set_near(local, shape.by_both(ByBoth::Head, channel, to, node.local), next);
        }
        local += 1;
    }
}

/// Where a slot is filled: of a node's own, where it is taken from.
#[inline(always)]
fn source<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    channel: u32,
    to: u32,
    number: u64,
) -> HeapOffset {
    let shape = &node.call.shape;
    let slot = shape.far.slot(number);
    if to == node.node {
        return node.at(shape.combine_come(channel, to, slot));
    }
    node.at(shape.combine_sent(channel, to, slot))
}

/// Puts what is due. Leader only.
#[inline(always)]
fn put<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    (channel, to): (u32, u32),
    (cursor, end): (u64, u64),
    filled: u64,
    moved: bool,
) -> u64 {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let shape = &call.shape;
    let at = |word| shape.by_node(word, channel, to);
    node.set(at(ByNode::Cursor), cursor);
    node.set(at(ByNode::CombineFilled), filled);
    let put = node.word(at(ByNode::CombinePut));
    let (_, whole) = may_fill(filled, put, filled, shape.far, shape.chunk);
    let turn = if moved { Turn::Moved as u64 } else { Turn::Idle as u64 };
    if !(whole || filled > put && cursor >= end) {
        return turn;
    }
    let word = node.at(shape.by_node(ByNode::CombineTail, channel, node.node));
    let posted = if to == node.node {
        node.device.store(word, filled);
        POSTED
    } else {
        let (src, slot) = (source(node, channel, to, put), shape.far.slot(put));
        let dst = node.at(shape.combine_come(channel, node.node, slot));
        let bytes = (filled - put) * shape.combine_stride();
        node.post((node.rank_of(to), channel), Some(Put { dst, src, bytes }), word, filled, 0)
    };
    match posted {
        POSTED => {}
        FULL => return turn,
        failed => return failed,
    }
    // Where that is, found again: no register holds it while the sums are posted.
    node.set(shape.by_node(ByNode::CombinePut, afresh(channel), to), filled);
    Turn::Moved as u64
}
