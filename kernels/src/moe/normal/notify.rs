//! `moe_normal_notify`: how many tokens come, from where, on which channel; and by which terms each rank calls.

use super::call::NormalCall;
use super::layout::{goes, home, position};
use super::node::{Node, Waits, afresh};
use super::role::{Halt, Role};
use crate::moe::exchange::split;
use crate::moe::stop::Stop;
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{Device, HeapOffset, Lanes, Platform, Put};
use shunt_layout::moe_normal::{NOWHERE, OfLocal, OfNode, RECORD_SETS};

/// One block. Reads `position`, `expert_counts`; writes `incoming`, `prefix`, `arriving`, `counts`, `said`. Each node
/// gets a record by the rank of equal number; ranks of a node then read each other's. The value is the number of rows.
///
/// Nothing is zeroed and nobody meets: records have numbers, and room for two.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &NormalCall,
) -> Result<u64, Halt> {
    if block != 0 {
        return Ok(0);
    }
    let node = Node::begin(device, lanes, call);
    node.check(Role::NotifySend)?;
    send(&node)?;
    gather(&node)?;
    let rows = read(&node)?;
    give_back(&node)?;
    Ok(rows)
}

/// A record for each node, in an order of this rank's own: its node is the last.
#[inline(always)]
fn send<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> Result<(), Halt> {
    let (call, shape) = (node.call, &node.call.shape);
    let set = call.number % RECORD_SETS;
    let mut turn = 1;
    while turn <= shape.nodes {
        rolled();
        let (_, to) = split(node.node as u64 + turn as u64, shape.nodes);
        let who = Waits { role: Role::NotifySend, rank: node.rank_of(to), index: 0 };
        let here = to == node.node;
        if call.number > RECORD_SETS {
            // What the record before the last said was read: its room is free, here and there.
            node.hear(who, shape.of_node(OfNode::Credit, to), call.number - RECORD_SETS)?;
        }
        let come = node.at(shape.record_come(set, node.node));
        let sent = if here { come } else { node.at(shape.record_sent(set, to)) };
        make(node, sent, to);
        let word = shape.of_node(OfNode::Noted, node.node);
        if here {
            node.lanes.sync();
            if node.leads() {
                node.set(word, call.number);
            }
        } else {
            let put = Put { dst: come, src: sent, bytes: shape.record_bytes() };
            node.tell(who, Some(put), node.at(word), call.number)?;
        }
        turn += 1;
    }
    Ok(())
}

/// Makes the record for a node, a piece a lane.
#[inline(always)]
fn make<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, at: HeapOffset, to: u32) {
    let pieces = node.call.shape.record_words() / 2;
    let mut piece = node.lanes.rank() as u64;
    while piece < pieces {
        rolled();
        let words = [recorded(node.call, to, 2 * piece), recorded(node.call, to, 2 * piece + 1)];
        node.device.store_piece(HeapOffset(at.0 + piece * 16), words);
        piece += node.lanes.size() as u64;
    }
}

/// A word of the record for a node.
#[inline(always)]
fn recorded(call: &NormalCall, to: u32, word: u64) -> u64 {
    let shape = &call.shape;
    let (group, channel) = split(word, shape.channels);
    if group > shape.locals {
        let number = word - shape.channels as u64 * (1 + shape.locals as u64);
        if number >= shape.locals as u64 * shape.local_experts as u64 {
            return call.terms;
        }
        let first = to as u64 * shape.locals as u64 * shape.local_experts as u64;
        // SAFETY: a word for each expert (`NormalCall`).
        return unsafe { tensor::read::<u32>(call.expert_counts, first + number) } as u64;
    }
    let (mut token, end) = shape.tokens_of(channel, call.tokens);
    let mut count = 0;
    while token < end {
        rolled();
        let rank = (to * shape.locals).wrapping_add(group).wrapping_sub(1);
        let there = if group == 0 { goes(call, token, to) } else { position(call, token, rank) != NOWHERE };
        count += there as u64;
        token += 1;
    }
    count
}

/// Waits for the records of all nodes, and until all ranks of this node have theirs.
#[inline(always)]
fn gather<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> Result<(), Halt> {
    let (shape, number, mut from) = (&node.call.shape, node.call.number, 0);
    while from < afresh(shape.nodes) {
        rolled();
        let who = Waits { role: Role::NotifyReceive, rank: node.rank_of(from), index: 0 };
        node.hear(who, shape.of_node(OfNode::Noted, from), number)?;
        from += 1;
    }
    meet(node, OfLocal::Noted, number, Role::NotifyReceive)
}

/// Tells all ranks of this node a number, and waits for theirs.
#[inline(always)]
pub fn meet<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    word: OfLocal,
    number: u64,
    role: Role,
) -> Result<(), Halt> {
    let shape = &node.call.shape;
    // All lanes are through with what this tells of.
    node.lanes.sync();
    let mut local = 0;
    while node.leads() && local < afresh(shape.locals) {
        rolled();
        node.set_near(local, shape.of_local(word, node.local), number);
        local += 1;
    }
    let mut local = 0;
    while local < afresh(shape.locals) {
        rolled();
        let who = Waits { role, rank: node.node * shape.locals + local, index: 0 };
        node.hear(who, shape.of_local(word, local), number)?;
        local += 1;
    }
    Ok(())
}

/// A word of the record that a rank of this node has from a node.
#[inline(always)]
fn heard<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, local: u32, from: u32, word: u64) -> u64 {
    let record = node.call.shape.record_come(node.call.number % RECORD_SETS, from);
    // SAFETY: a word of a record at a rank of this node (`NormalCall::peers`), which told that it is there.
    unsafe { node.device.load_near(node.near(local, record.plus(word, 8))) }
}

/// Reads all records; the rows that come.
#[inline(always)]
fn read<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> Result<u64, Halt> {
    let (call, shape, lanes) = (node.call, &node.call.shape, node.lanes);
    let (ranks, channels) = (shape.ranks() as u64, shape.channels as u64);
    let mut rank = lanes.rank();
    while rank < shape.ranks() {
        rolled();
        let (from, local) = home(call, rank);
        let terms = heard(node, local, from, shape.recorded_terms());
        // SAFETY: a word for each rank (`NormalCall`); this one is this lane's.
        unsafe { tensor::write(call.said, rank as u64, terms) };
        rank += lanes.size();
    }
    let mut number = lanes.rank() as u64;
    while number < ranks * channels {
        rolled();
        let (channel, rank) = split(number, shape.ranks());
        let (from, local) = home(call, rank);
        let count = heard(node, local, from, shape.recorded_rank(channel, node.local));
        // SAFETY: a word for each channel and rank (`NormalCall`); this one is this lane's.
        unsafe { tensor::write(call.incoming, number, count as u32) };
        number += lanes.size() as u64;
    }
    let mut number = lanes.rank() as u64;
    while number < shape.nodes as u64 * channels {
        rolled();
        let (from, channel) = split(number, shape.channels);
        let count = heard(node, node.local, from, shape.recorded_node(channel));
        // SAFETY: a word for each node and channel, as above.
        unsafe { tensor::write(call.arriving, number, count as u32) };
        number += lanes.size() as u64;
    }
    let mut expert = lanes.rank();
    while expert < shape.local_experts {
        rolled();
        let (mut rank, mut count) = (0, 0);
        while rank < shape.ranks() {
            rolled();
            let (from, local) = home(call, rank);
            count += heard(node, local, from, shape.recorded_expert(node.local, expert));
            rank += 1;
        }
        // SAFETY: a word for each local expert, as above.
        unsafe { tensor::write(call.counts, expert as u64, count as u32) };
        expert += lanes.size();
    }
    lanes.sync();
    let rows = if node.leads() { sum(call) } else { 0 };
    let rows = node.share(rows);
    if rows > ranks * shape.tokens as u64 {
        return Err(Halt { role: Role::NotifyReceive, stop: Stop::wrong(node.me) });
    }
    Ok(rows)
}

/// The first row of each rank; how many there are. Leader only.
#[inline(always)]
fn sum(call: &NormalCall) -> u64 {
    let ranks = call.shape.ranks() as u64;
    let (mut rows, mut rank) = (0u64, 0);
    while rank < ranks {
        rolled();
        let mut channel = 0;
        // SAFETY: a word for each rank and one more; a word for each channel and rank (`NormalCall`).
        unsafe {
            tensor::write(call.prefix, rank, rows as u32);
            while channel < call.shape.channels as u64 {
                rolled();
                rows += tensor::read::<u32>(call.incoming, channel * ranks + rank) as u64;
                channel += 1;
            }
        }
        rank += 1;
    }
    // SAFETY: as above.
    unsafe { tensor::write(call.prefix, ranks, rows as u32) };
    rows
}

/// Once all ranks of this node have read the records here, their room is given back to who sent them.
#[inline(always)]
fn give_back<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> Result<(), Halt> {
    let (shape, number) = (&node.call.shape, node.call.number);
    meet(node, OfLocal::Read, number, Role::NotifyCredit)?;
    let (mut from, word) = (0, shape.of_node(OfNode::Credit, node.node));
    while from < afresh(shape.nodes) {
        rolled();
        let who = Waits { role: Role::NotifyCredit, rank: node.rank_of(from), index: 0 };
        if from != node.node {
            node.tell(who, None, node.at(word), number)?;
        } else if node.leads() {
            node.set(word, number);
        }
        from += 1;
    }
    Ok(())
}
