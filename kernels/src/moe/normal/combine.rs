//! `moe_normal_combine`: rows back to where their tokens came from, summed on the way.

use super::call::NormalCall;
use super::node::{Node, Pass, Turn, Waits, Watch, afresh};
use super::role::{Halt, Role};
use super::{combine_forward, combine_receive, combine_send};
use crate::moe::stop::Stop;
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{Device, Lanes, Platform};
use shunt_layout::moe_normal::{ByBoth, ByNode};
use shunt_layout::mutant::Mutant;

/// Reads `x`, `topk_weights`, `biases`, `position`, `incoming`, `prefix`, `arriving`, `forward`; writes `out`,
/// `out_weights`. Blocks share out the channels, as those of a dispatch, and as many. The value is the number of
/// tokens summed.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &NormalCall,
) -> Result<u64, Halt> {
    let node = Node::begin(device, lanes, call);
    node.check(Role::CombineSend)?;
    let tokens = begin(&node, block)?;
    let watch = Watch::new(&node, block);
    loop {
        let (mut pass, mut channel) = (Pass::new(), block);
        while channel < afresh(call.shape.channels) {
            rolled();
            play(&node, &watch, &mut pass, channel)?;
            channel += call.blocks.max(1);
        }
        let Some(who) = pass.waits else { return Ok(tokens) };
        if !pass.moved {
            watch.rest(&node, who)?;
        }
    }
}

/// Where this call begins and ends in each ring; the tokens of this block's channels.
#[inline(always)]
fn begin<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, block: u32) -> Result<u64, Halt> {
    let call = node.call.afresh();
    let node = &node.told(&call);
    let (call, shape) = (node.call, &node.call.shape);
    let (mut tokens, mut channel, mut bad) = (0, block, false);
    while channel < afresh(shape.channels) {
        rolled();
        let (first, end) = shape.tokens_of(channel, call.tokens);
        tokens += (end - first) as u64;
        let mut other = 0;
        while node.leads() && other < afresh(shape.nodes) {
            rolled();
            node.set(shape.by_node(ByNode::Cursor, channel, other), 0);
            node.set(shape.by_node(ByNode::Summed, channel, other), first as u64);
            let row = other as u64 * shape.channels as u64 + channel as u64;
            // SAFETY: a word for each node and channel (`NormalCall`).
            let arriving: u32 = unsafe { tensor::read(call.arriving, row) };
            bad |= arriving > shape.part(shape.tokens);
            let mut local = 0;
            while local < afresh(shape.locals) {
                rolled();
                let (next, end) = rows_from(call, channel, other * shape.locals + local);
                bad |= end > call.rows;
                node.set(shape.by_both(ByBoth::Next, channel, other, local), next);
                node.set(shape.by_both(ByBoth::End, channel, other, local), end);
                local += 1;
            }
            other += 1;
        }
        channel += call.blocks.max(1);
    }
    let bad = node.share(bad as u64) != 0;
    if bad { Err(Halt { role: Role::CombineSend, stop: Stop::wrong(node.me) }) } else { Ok(tokens) }
}

/// Rows of a channel that came from a rank: the first, and the one behind the last.
#[inline(always)]
fn rows_from(call: &NormalCall, channel: u32, rank: u32) -> (u64, u64) {
    let (ranks, mut before) = (call.shape.ranks() as u64, 0);
    // SAFETY: a word for each rank; a word for each channel and rank (`NormalCall`).
    unsafe {
        let mut next = tensor::read::<u32>(call.prefix, rank as u64) as u64;
        while before < channel as u64 {
            rolled();
            next += tensor::read::<u32>(call.incoming, before * ranks + rank as u64) as u64;
            before += 1;
        }
        (next, next + tensor::read::<u32>(call.incoming, channel as u64 * ranks + rank as u64) as u64)
    }
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
        let mut local = 0;
        while local < afresh(shape.locals) {
            rolled();
            let turn = combine_send::turn(node, channel, other, local)?;
            pass.note(turn, Role::CombineSend, node.node * shape.locals + local, channel);
            local += 1;
        }
        let rank = node.rank_of(other);
        let mut turn = combine_forward::turn(node, channel, other)?;
        while Mutant::RoleKeepsBlock.on() && turn == Turn::Idle {
            rolled();
            watch.rest(node, Waits { role: Role::CombineForward, rank, index: channel })?;
            turn = combine_forward::turn(node, channel, other)?;
        }
        pass.note(turn, Role::CombineForward, rank, channel);
        other += 1;
    }
    let turn = combine_receive::turn(node, channel)?;
    pass.note(turn, Role::CombineReceive, node.me, channel);
    Ok(())
}
