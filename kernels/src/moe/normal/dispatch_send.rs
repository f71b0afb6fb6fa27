//! The role of a dispatch that puts tokens to a node, and counts them behind each put: sender and coordinator.

use super::call::FP8;
use super::layout::{goes, position};
use super::node::{FULL, Node, POSTED, Turn, afresh, may_fill};
use super::role::{Halt, Role};
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{HeapOffset, Lanes, PIECE_BYTES, Platform, Put};
use shunt_layout::moe_normal::{ByNode, NOWHERE};

/// What the leader finds: what is to be done, tokens looked at, slots filled, and how many more may be.
struct Plan {
    turn: Turn,
    cursor: u64,
    filled: u64,
    may: u64,
}

/// One turn: fills a chunk at most, and puts what is whole or the last.
#[inline(always)]
pub fn turn<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, to: u32) -> Result<Turn, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let (channel, to) = (afresh(channel), afresh(to));
    let (call, lanes) = (node.call, node.lanes);
    let (_, end) = call.shape.tokens_of(channel, call.tokens);
    let plan = if node.leads() { plan(node, channel, to, end) } else { NOTHING };
    match node.share(plan.turn as u64) {
        0 => return Ok(Turn::Done),
        1 => {}
        _ => return Ok(Turn::Idle),
    }
    let mut token = lanes.broadcast(plan.cursor, 0) as u32;
    let (mut filled, may) = (lanes.broadcast(plan.filled, 0), lanes.broadcast(plan.may, 0));
    let full = filled + may;
    while token < end {
        rolled();
        let here = goes(call, token, to);
        if here && filled == full {
            break;
        }
        if here {
            make(node, source(node, channel, to, filled), to, token);
            filled += 1;
        }
        token += 1;
    }
    lanes.sync();
    let done = if node.leads() { put(node, channel, to, token, filled) } else { POSTED };
    node.agree(Role::DispatchSend, channel, done)
}

const NOTHING: Plan = Plan { turn: Turn::Idle, cursor: 0, filled: 0, may: 0 };

#[inline(always)]
fn plan<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, to: u32, end: u32) -> Plan {
    let shape = &node.call.shape;
    let word = |word| node.word(shape.by_node(word, channel, to));
    let (cursor, filled, put) =
        (word(ByNode::Cursor), word(ByNode::DispatchFilled), word(ByNode::DispatchPut));
    if cursor >= end as u64 && filled == put {
        return Plan { turn: Turn::Done, ..NOTHING };
    }
    let (may, whole) = may_fill(filled, put, word(ByNode::DispatchHead), shape.far, shape.chunk);
    let due = whole || filled > put && cursor >= end as u64;
    let turn = if due || may > 0 { Turn::Moved } else { Turn::Idle };
    Plan { turn, cursor, filled, may }
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
        return node.at(shape.dispatch_come(channel, to, slot));
    }
    node.at(shape.dispatch_sent(channel, to, slot))
}

/// Puts what is due. Leader only.
#[inline(always)]
fn put<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    channel: u32,
    to: u32,
    cursor: u32,
    filled: u64,
) -> u64 {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let shape = &call.shape;
    let at = |word| shape.by_node(word, channel, to);
    let (before, end) = (node.word(at(ByNode::DispatchFilled)), shape.tokens_of(channel, call.tokens).1);
    let looked = node.word(at(ByNode::Cursor)) != cursor as u64;
    node.set(at(ByNode::Cursor), cursor as u64);
    node.set(at(ByNode::DispatchFilled), filled);
    let put = node.word(at(ByNode::DispatchPut));
    let (_, whole) = may_fill(filled, put, filled, shape.far, shape.chunk);
    let moved = filled != before || looked;
    if whole || filled > put && cursor >= end {
        let word = node.at(shape.by_node(ByNode::DispatchTail, channel, node.node));
        let posted = if to == node.node {
            node.device.store(word, filled);
            POSTED
        } else {
            let (src, slot) = (source(node, channel, to, put), shape.far.slot(put));
            let dst = node.at(shape.dispatch_come(channel, node.node, slot));
            let last = (filled - put - 1) * shape.dispatch_stride();
            let bytes = last + shape.dispatch_message(call.has(FP8));
            node.post((node.rank_of(to), channel), Some(Put { dst, src, bytes }), word, filled, 0)
        };
        match posted {
            POSTED => {}
            FULL => return if moved { Turn::Moved as u64 } else { Turn::Idle as u64 },
            failed => return failed,
        }
        // Where that is, found again: no register holds it while the chunk is posted.
        node.set(shape.by_node(ByNode::DispatchPut, afresh(channel), to), filled);
        return Turn::Moved as u64;
    }
    if moved { Turn::Moved as u64 } else { Turn::Idle as u64 }
}

/// Makes the message of a token: header, its rows at the ranks of the node, experts and weights, channels, scales.
#[inline(always)]
fn make<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, at: HeapOffset, to: u32, token: u32) {
    let (call, shape, lanes) = (node.call, &node.call.shape, node.lanes);
    let (choices, data) = (shape.choices_at() / PIECE_BYTES, shape.data_at() / PIECE_BYTES);
    let bytes = shape.data_bytes(call.has(FP8));
    let scales = data + bytes / PIECE_BYTES;
    let end = shape.dispatch_message(call.has(FP8)) / PIECE_BYTES;
    let mut piece = lanes.rank() as u64;
    while piece < end {
        rolled();
        let words = if piece == 0 {
            [node.me as u64 | (token as u64) << 32, call.terms]
        } else if piece < choices {
            of_four(|number| row(node, to, token, 4 * (piece - 1) + number))
        } else if piece < data {
            of_four(|number| choice(node, token, 4 * (piece - choices) + number))
        } else if piece < scales {
            // SAFETY: the token's row of `x`, whole pieces of it (`NormalCall`; the hidden size is a multiple of 512).
            unsafe { tensor::read(call.x, token as u64 * (scales - data) + piece - data) }
        } else {
            // SAFETY: its scales, whole pieces as well.
            unsafe { tensor::read(call.x_scales, token as u64 * (end - scales) + piece - scales) }
        };
        node.device.store_piece(HeapOffset(at.0 + piece * PIECE_BYTES), words);
        piece += lanes.size() as u64;
    }
}

/// A piece of four words.
#[inline(always)]
fn of_four(word: impl Fn(u64) -> u32) -> [u64; 2] {
    [word(0) as u64 | (word(1) as u64) << 32, word(2) as u64 | (word(3) as u64) << 32]
}

#[inline(always)]
fn row<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, to: u32, token: u32, local: u64) -> u32 {
    if local >= node.call.shape.locals as u64 {
        return NOWHERE;
    }
    position(node.call, token, to * node.call.shape.locals + local as u32)
}

/// An expert of a token, or behind them a weight.
#[inline(always)]
fn choice<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, token: u32, number: u64) -> u32 {
    let (call, most) = (node.call, node.call.shape.topk as u64);
    let weight = number >= most;
    let k = if weight { number - most } else { number };
    let at = token as u64 * call.topk as u64 + k;
    if k >= call.topk as u64 || call.topk_index == 0 {
        return if weight { 0 } else { NOWHERE };
    }
    if weight {
        // SAFETY: a weight for each index (`NormalCall`).
        return if call.topk_weights == 0 { 0 } else { unsafe { tensor::read(call.topk_weights, at) } };
    }
    // SAFETY: `topk` indices a token (`NormalCall`).
    let index: i64 = unsafe { tensor::read(call.topk_index, at) };
    if index < 0 { NOWHERE } else { index as u32 }
}
