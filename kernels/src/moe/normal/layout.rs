//! `moe_normal_layout`: which token goes where.

use super::call::NormalCall;
use super::node::{Node, afresh};
use super::role::{Halt, Role};
use crate::moe::exchange::split;
use crate::moe::stop::Stop;
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{Device, Lanes, Platform};
use shunt_layout::moe_normal::NOWHERE;

/// Reads `topk_index`; writes `position`, `rank_counts`, `node_counts`, `expert_counts`. Lanes of all blocks share out
/// the ranks, nodes and experts, each of which goes through all tokens. The value is 0.
#[inline(always)]
pub fn run<P: Platform, L: Lanes>(
    device: Device<'_, P>,
    lanes: L,
    block: u32,
    call: &NormalCall,
) -> Result<u64, Halt> {
    let node = Node::begin(device, lanes, call);
    node.check(Role::Layout)?;
    let shape = &call.shape;
    let (ranks, nodes) = (shape.ranks() as u64, shape.nodes as u64);
    let all = call.blocks.max(1) as u64 * lanes.size() as u64;
    let mut item = block as u64 * lanes.size() as u64 + lanes.rank() as u64;
    let (mut bad, ends) = (false, ranks + nodes + shape.experts());
    while item < ends {
        rolled();
        if item < ranks {
            bad |= to_rank(call, item);
        } else if item < ranks + nodes {
            let experts = shape.locals as u64 * shape.local_experts as u64;
            count(call, call.node_counts, item - ranks, experts);
        } else {
            count(call, call.expert_counts, item - ranks - nodes, 1);
        }
        item += all;
    }
    lanes.sync();
    // Each lane says it of its own ranks; the leader's answer counts.
    let mut lane = 0;
    while lane < lanes.size() {
        rolled();
        if lanes.broadcast(bad as u64, lane) != 0 {
            return Err(Halt { role: Role::Layout, stop: Stop::wrong(node.me) });
        }
        lane += 1;
    }
    Ok(0)
}

/// Whether a token chose one of `experts` experts, the `number`-th of all groups of so many.
#[inline(always)]
fn chose(call: &NormalCall, token: u32, number: u64, experts: u64) -> bool {
    let (mut k, mut found) = (0, false);
    while k < afresh(call.topk) {
        rolled();
        // SAFETY: `topk` indices a token (`NormalCall`).
        let index: i64 = unsafe { tensor::read(call.topk_index, token as u64 * call.topk as u64 + k as u64) };
        found |= index >= 0 && index as u64 >= number * experts && (index as u64) < (number + 1) * experts;
        k += 1;
    }
    found
}

/// Rows at one rank. True if a token names an expert that there is not.
#[inline(always)]
fn to_rank(call: &NormalCall, rank: u64) -> bool {
    let (ranks, mut rows, mut token) = (call.shape.ranks() as u64, 0u32, 0);
    while token < call.tokens {
        rolled();
        let goes = chose(call, token, rank, call.shape.local_experts as u64);
        // SAFETY: a word for each token and rank (`NormalCall`); this rank is this lane's.
        unsafe {
            tensor::write(call.position, token as u64 * ranks + rank, if goes { rows } else { NOWHERE })
        };
        rows += goes as u32;
        token += 1;
    }
    // SAFETY: a word for each rank.
    unsafe { tensor::write(call.rank_counts, rank, rows) };
    rank == 0 && beyond(call)
}

/// Whether an index is no expert's.
#[inline(always)]
fn beyond(call: &NormalCall) -> bool {
    let (mut number, mut found) = (0, false);
    while number < call.tokens as u64 * call.topk as u64 {
        rolled();
        // SAFETY: as above.
        let index: i64 = unsafe { tensor::read(call.topk_index, number) };
        found |= index >= call.shape.experts() as i64;
        number += 1;
    }
    found
}

/// Tokens that go to a group of experts.
#[inline(always)]
fn count(call: &NormalCall, counts: u64, number: u64, experts: u64) {
    let (mut tokens, mut token) = (0u32, 0);
    while token < call.tokens {
        rolled();
        tokens += chose(call, token, number, experts) as u32;
        token += 1;
    }
    // SAFETY: a word for each node, or each expert (`NormalCall`); this one is this lane's.
    unsafe { tensor::write(counts, number, tokens) };
}

/// The row of a token at a rank, among all that go there from here; or `NOWHERE`.
#[inline(always)]
pub fn position(call: &NormalCall, token: u32, rank: u32) -> u32 {
    // SAFETY: a word for each token and rank (`NormalCall`); only tokens of this call are asked about.
    unsafe { tensor::read(call.position, token as u64 * call.shape.ranks() as u64 + rank as u64) }
}

/// Whether a token goes to a node at all.
#[inline(always)]
pub fn goes(call: &NormalCall, token: u32, node: u32) -> bool {
    let (mut local, mut found) = (0, false);
    while local < afresh(call.shape.locals) {
        rolled();
        found |= position(call, token, node * call.shape.locals + local) != NOWHERE;
        local += 1;
    }
    found
}

/// Node and number there of a rank.
#[inline(always)]
pub fn home(call: &NormalCall, rank: u32) -> (u32, u32) {
    split(rank as u64, call.shape.locals)
}
