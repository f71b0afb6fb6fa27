//! `moe_normal_settle`: nothing that was posted is under way, and all ranks know it of each other.

use super::call::{CLEAN, NormalCall, ZERO};
use super::node::{Node, Waits, afresh};
use super::notify::meet;
use super::role::{Halt, Role};
use crate::moe::exchange::{quiet_slow, split};
use crate::moe::stop::Stop;
use crate::nvptx_math::rolled;
use shunt_device::{Device, Lanes, Platform, Solo};
use shunt_layout::moe_normal::{OfLocal, OfNode, OfRank};

/// One block, which all ranks run together: waits until all that this rank posted is done, and until all ranks are
/// there. Behind it the part of the heap may become something else's: nothing is repeated into it any more. With `ZERO`
/// this rank's words are then zero, but those of cleanings: with `CLEAN` those are what is met by. The value is 0.
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
    node.check(Role::Quiet)?;
    let shape = &call.shape;
    quiet(&node)?;
    let (there, near) = match call.has(CLEAN) {
        true => (OfNode::Cleaned, OfLocal::Cleaned),
        false => (OfNode::Meeting, OfLocal::Meeting),
    };
    let (word, mut to) = (shape.of_node(there, node.node), 0);
    while to < afresh(shape.nodes) {
        rolled();
        let who = Waits { role: Role::Meet, rank: node.rank_of(to), index: 0 };
        if to != node.node {
            node.tell(who, None, node.at(word), call.number)?;
        } else if node.leads() {
            node.set(word, call.number);
        }
        to += 1;
    }
    let mut from = 0;
    while from < afresh(shape.nodes) {
        rolled();
        let who = Waits { role: Role::Meet, rank: node.rank_of(from), index: 0 };
        node.hear(who, shape.of_node(there, from), call.number)?;
        from += 1;
    }
    // Ranks of this number are all there; ranks of this node say it of theirs.
    meet(&node, near, call.number, Role::Meet)?;
    if call.has(ZERO) {
        zero(&node);
    }
    // Nobody goes before what it told the others is there: it is repeated until then.
    quiet(&node)?;
    Ok(0)
}

/// Sets this rank's words to zero, but those of cleanings: who is ahead may have told its next one already. What ranks
/// gave up is of another epoch from here on.
#[inline(always)]
fn zero<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) {
    let (shape, lanes) = (&node.call.shape, node.lanes);
    let (mut word, ends) = (lanes.rank() as u64, shape.counters());
    while word < ends {
        rolled();
        node.set(shape.counter(word), 0);
        word += lanes.size() as u64;
    }
    let mut number = lanes.rank();
    while number < afresh(shape.nodes) {
        rolled();
        node.set(shape.of_node(OfNode::Noted, number), 0);
        node.set(shape.of_node(OfNode::Credit, number), 0);
        node.set(shape.of_node(OfNode::Meeting, number), 0);
        number += lanes.size();
    }
    let mut number = lanes.rank();
    while number < afresh(shape.locals) {
        rolled();
        node.set(shape.of_local(OfLocal::Noted, number), 0);
        node.set(shape.of_local(OfLocal::Read, number), 0);
        node.set(shape.of_local(OfLocal::Meeting, number), 0);
        number += lanes.size();
    }
    if node.leads() {
        node.set(shape.of_rank(OfRank::GaveUp, node.me), node.call.number << 32);
    }
    lanes.sync();
}

/// Waits until all that was posted to any node is done, and what this rank said to all.
#[inline(always)]
fn quiet<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>) -> Result<(), Halt> {
    let (shape, mut to) = (&node.call.shape, 0);
    while to < afresh(shape.nodes) {
        rolled();
        let (rank, mut index) = (node.rank_of(to), 0);
        while to != node.node && index < 2 * shape.channels {
            rolled();
            let mut kind = 0;
            if node.leads() && !node.device.channel(rank, index).try_quiet(Solo) {
                kind = quiet_slow(node.device, rank, index, node.deadline.at_ns);
            }
            let kind = node.share(kind);
            if kind != 0 {
                return Err(Halt { role: Role::Quiet, stop: Stop::ended(rank, index, kind) });
            }
            index += 1;
        }
        to += 1;
    }
    let mut rank = 0;
    while rank < afresh(shape.ranks()) {
        rolled();
        let far = split(rank as u64, shape.locals).1 != node.local;
        let mut kind = 0;
        if far && node.leads() && !node.device.channel(rank, 0).try_quiet(Solo) {
            kind = quiet_slow(node.device, rank, 0, node.deadline.at_ns);
        }
        let kind = node.share(kind);
        if kind != 0 {
            return Err(Halt { role: Role::Quiet, stop: Stop::ended(rank, 0, kind) });
        }
        rank += 1;
    }
    Ok(())
}
