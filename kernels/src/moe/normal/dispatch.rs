//! `moe_normal_dispatch`: tokens to the ranks of their experts, once to each node and once to each rank.

use super::call::NormalCall;
use super::node::{Node, Pass, Turn, Waits, Watch, afresh};
use super::role::{Halt, Role};
use super::{dispatch_forward, dispatch_receive, dispatch_send};
use crate::moe::stop::Stop;
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{Device, Lanes, Platform};
use shunt_layout::moe_normal::{ByLocal, ByNode};
use shunt_layout::mutant::Mutant;

/// Reads `x`, `x_scales`, `topk_index`, `topk_weights`, `position`, `incoming`, `prefix`, `arriving`; writes `out`,
/// `out_scales`, `out_index`, `out_weights`, `forward`. Blocks share out the channels; the block of one plays all its
/// roles in turn, and a role that cannot go on leaves the turn to the next. So blocks may run at the same time, or one
/// after the other. The value is the number of rows that this block took.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &NormalCall,
) -> Result<u64, Halt> {
    let node = Node::begin(device, lanes, call);
    node.check(Role::DispatchSend)?;
    let rows = begin(&node, block)?;
    let watch = Watch::new(&node, block);
    loop {
        let (mut pass, mut channel) = (Pass::new(), block);
        while channel < afresh(call.shape.channels) {
            rolled();
            play(&node, &watch, &mut pass, channel)?;
            channel += call.blocks.max(1);
        }
        let Some(who) = pass.waits else { return Ok(rows) };
        if !pass.moved {
            watch.rest(&node, who)?;
        }
    }
}

/// Where this call begins and ends in each ring; the rows of this block's channels.
#[inline(always)]
fn begin<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, block: u32) -> Result<u64, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let (call, shape) = (node.call, &node.call.shape);
    let (mut rows, mut channel, mut bad) = (0, block, false);
    while node.leads() && channel < afresh(shape.channels) {
        rolled();
        let (first, _) = shape.tokens_of(channel, call.tokens);
        let mut other = 0;
        while other < afresh(shape.nodes) {
            rolled();
            node.set(shape.by_node(ByNode::Cursor, channel, other), first as u64);
            let row = other as u64 * shape.channels as u64 + channel as u64;
            // SAFETY: a word for each node and channel (`NormalCall`).
            let arriving: u32 = unsafe { tensor::read(call.arriving, row) };
            bad |= arriving > shape.part(shape.tokens);
            let until = node.word(shape.by_node(ByNode::DispatchTaken, channel, other)) + arriving as u64;
            node.set(shape.by_node(ByNode::DispatchUntil, channel, other), until);
            other += 1;
        }
        let mut local = 0;
        while local < afresh(shape.locals) {
            rolled();
            let count = from_local(call, channel, local);
            let until = node.word(shape.by_local(ByLocal::Taken, channel, local)) + count;
            node.set(shape.by_local(ByLocal::Until, channel, local), until);
            rows += count;
            local += 1;
        }
        channel += call.blocks.max(1);
    }
    let bad = node.share(bad as u64) != 0;
    if bad { Err(Halt { role: Role::DispatchSend, stop: Stop::wrong(node.me) }) } else { Ok(rows) }
}

/// Tokens that a rank of this node hands on to this one, of all nodes.
#[inline(always)]
fn from_local(call: &NormalCall, channel: u32, local: u32) -> u64 {
    let (shape, mut from, mut count) = (&call.shape, 0, 0);
    while from < afresh(shape.nodes) {
        rolled();
        let rank = from * shape.locals + local;
        let number = channel as u64 * shape.ranks() as u64 + rank as u64;
        // SAFETY: a word for each channel and rank (`NormalCall`).
        count += unsafe { tensor::read::<u32>(call.incoming, number) } as u64;
        from += 1;
    }
    count
}

/// A turn of each role of a channel.
#[inline(always)]
fn play<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    watch: &Watch,
    pass: &mut Pass,
    channel: u32,
) -> Result<(), Halt> {
    let (shape, mut other) = (&node.call.shape, 0);
    while other < afresh(shape.nodes) {
        rolled();
        let rank = node.rank_of(other);
        let mut turn = dispatch_send::turn(node, channel, other)?;
        while Mutant::RoleKeepsBlock.on() && turn == Turn::Idle {
            rolled();
            watch.rest(node, Waits { role: Role::DispatchSend, rank, index: channel })?;
            turn = dispatch_send::turn(node, channel, other)?;
        }
        pass.note(turn, Role::DispatchSend, rank, channel);
        let turn = dispatch_forward::turn(node, channel, other)?;
        pass.note(turn, Role::DispatchForward, rank, channel);
        other += 1;
    }
    let mut local = 0;
    while local < afresh(shape.locals) {
        rolled();
        let turn = dispatch_receive::turn(node, channel, local)?;
        pass.note(turn, Role::DispatchReceive, node.node * shape.locals + local, channel);
        local += 1;
    }
    Ok(())
}
