//! The role of a combine that sums what nodes sent for a token of this rank, and tells them that their slots were
//! taken.

use super::layout::goes;
use super::node::{FULL, Node, POSTED, Turn, afresh, least};
use super::role::{Halt, Role};
use super::sum::sum_nodes;
use crate::nvptx_math::rolled;
use shunt_device::{Lanes, Platform};
use shunt_layout::moe_normal::ByNode;

/// One turn: sums a chunk at most, in the order of tokens.
#[inline(always)]
pub fn turn<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32) -> Result<Turn, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let channel = afresh(channel);
    let (call, shape, lanes) = (node.call, &node.call.shape, node.lanes);
    let (_, end) = shape.tokens_of(channel, call.tokens);
    let cursor = shape.by_node(ByNode::Summed, channel, 0);
    let (first, mut code) = (if node.leads() { node.word(cursor) } else { 0 }, Turn::Idle);
    if node.leads() {
        code = match () {
            () if first >= end as u64 && !owes(node, channel) => Turn::Done,
            () if owes(node, channel) || there(node, channel, first as u32) != 0 => Turn::Moved,
            () => Turn::Idle,
        };
    }
    match node.share(code as u64) {
        0 => return Ok(Turn::Done),
        1 => {}
        _ => return Ok(Turn::Idle),
    }
    let first = lanes.broadcast(first, 0) as u32;
    let last = least(end as u64, first as u64 + shape.chunk as u64) as u32;
    let mut token = first;
    while token < last {
        rolled();
        let there = if node.leads() { there(node, channel, token) } else { 0 };
        match node.share(there) {
            0 => break,
            THERE => {}
            odd => return Err(node.weighed_otherwise(node.rank_of((odd - ODD) as u32))),
        }
        sum_nodes(node, channel, token, |from| goes(call, token, from));
        lanes.sync();
        if node.leads() {
            take(node, channel, token);
        }
        lanes.sync();
        token += 1;
    }
    let done = if node.leads() {
        node.set(cursor, token as u64);
        tell(node, channel, token != first)
    } else {
        POSTED
    };
    node.agree(Role::CombineHead, shape.channels + channel, done)
}

/// All sums are there.
const THERE: u64 = 1;
/// And the node whose rows have weights where this rank has none, or none where this one has.
const ODD: u64 = 2;

/// Whether all nodes that a token went to have sent their sums, with weights as this rank. Leader only.
#[inline(always)]
fn there<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, token: u32) -> u64 {
    let shape = &node.call.shape;
    let (mut from, mut all, mut odd) = (0, true, 0);
    while from < afresh(shape.nodes) {
        rolled();
        if goes(node.call, token, from) {
            let taken = node.word(shape.by_node(ByNode::CombineTaken, channel, from));
            let came = node.word(shape.by_node(ByNode::CombineTail, channel, from)) > taken;
            let at = shape.combine_come(channel, from, shape.far.slot(taken));
            if came && node.odd(at) {
                odd = ODD + from as u64;
            }
            all &= came;
        }
        from += 1;
    }
    if odd != 0 { odd } else { all as u64 * THERE }
}

/// One slot of each of them was taken. Leader only.
#[inline(always)]
fn take<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, token: u32) {
    let (shape, mut from) = (&node.call.shape, 0);
    while from < afresh(shape.nodes) {
        rolled();
        if goes(node.call, token, from) {
            let taken = shape.by_node(ByNode::CombineTaken, channel, from);
            node.set(taken, node.word(taken) + 1);
        }
        from += 1;
    }
}

/// Whether a node is to be told of a chunk. Leader only.
#[inline(always)]
fn owes<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32) -> bool {
    let (mut from, mut any) = (0, false);
    while from < afresh(node.call.shape.nodes) {
        rolled();
        any |= owed(node, channel, from) >= node.call.shape.chunk as u64;
        from += 1;
    }
    any
}

/// Slots of a node that were taken, and that it was not told of.
#[inline(always)]
fn owed<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, from: u32) -> u64 {
    let word = |word| node.word(node.call.shape.by_node(word, channel, from));
    word(ByNode::CombineTaken) - word(ByNode::CombineTold)
}

/// Returns heads where a chunk is owed. Leader only.
#[inline(always)]
fn tell<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, moved: bool) -> u64 {
    let (mut turn, mut from) = (if moved { MOVED } else { IDLE }, 0);
    while from < afresh(node.call.shape.nodes) {
        rolled();
        match tell_one(node, afresh(channel), from) {
            IDLE => {}
            MOVED => turn = MOVED,
            failed => return failed,
        }
        from += 1;
    }
    turn
}

const IDLE: u64 = Turn::Idle as u64;
const MOVED: u64 = Turn::Moved as u64;

/// Returns the head to one node, if it is owed a chunk.
#[inline(always)]
fn tell_one<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, channel: u32, from: u32) -> u64 {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let shape = &call.shape;
    if owed(node, channel, from) < shape.chunk as u64 {
        return IDLE;
    }
    let taken = node.word(shape.by_node(ByNode::CombineTaken, channel, from));
    let word = shape.by_node(ByNode::CombineHead, channel, node.node);
    let posted = if from == node.node {
        node.set(word, taken);
        POSTED
    } else {
        node.post((node.rank_of(from), shape.channels + channel), None, node.at(word), taken, 0)
    };
    match posted {
        POSTED => {}
        FULL => return IDLE,
        failed => return failed,
    }
    // Where that is, found again: no register holds it while the head is posted.
    node.set(shape.by_node(ByNode::CombineTold, afresh(channel), from), taken);
    MOVED
}
