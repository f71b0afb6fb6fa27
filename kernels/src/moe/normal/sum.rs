//! Sums of a combine: as 32-bit floats, in the order of ranks and then of nodes, rounded to BF16 at each of the two.
//! The order is the same no matter which comes first, so the bits are, too. Biases are behind all nodes, before the
//! rounding.

use super::call::NormalCall;
use super::node::{Node, afresh};
use crate::moe::number::{four, four_bf16};
use crate::moe::tensor;
use crate::nvptx_math::rolled;
use shunt_device::{HeapOffset, Lanes, PIECE_BYTES, Platform};
use shunt_layout::moe_normal::{ByBoth, ByNode};

/// The channel, the node, and whose parts are summed: bits of ranks of this node.
#[derive(Clone, Copy)]
pub struct Sum {
    pub channel: u32,
    pub node: u32,
    pub mask: u32,
}

/// Eight channels, or four weights, of all parts so far.
#[derive(Clone, Copy)]
struct Parts([f32; 4], [f32; 4]);

impl Parts {
    const NONE: Self = Self([0.0; 4], [0.0; 4]);

    /// With eight channels more.
    #[inline(always)]
    const fn and(self, words: [u64; 2]) -> Self {
        let [low, high] = words;
        Self(add(self.0, four(low)), add(self.1, four(high)))
    }

    /// With four weights more.
    #[inline(always)]
    const fn and_weights(self, words: [u64; 2]) -> Self {
        let [low, high] = words;
        let part = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
        let [a, b, c, d] = part;
        let part = [f32::from_bits(a), f32::from_bits(b), f32::from_bits(c), f32::from_bits(d)];
        Self(add(self.0, part), self.1)
    }

    #[inline(always)]
    const fn channels(self) -> [u64; 2] {
        [four_bf16(self.0), four_bf16(self.1)]
    }

    #[inline(always)]
    const fn weights(self) -> [u64; 2] {
        let [a, b, c, d] = self.0;
        let (low, high) = ((a.to_bits(), b.to_bits()), (c.to_bits(), d.to_bits()));
        [low.0 as u64 | (low.1 as u64) << 32, high.0 as u64 | (high.1 as u64) << 32]
    }
}

#[inline(always)]
const fn add(sum: [f32; 4], part: [f32; 4]) -> [f32; 4] {
    let ([a, b, c, d], [e, f, g, h]) = (sum, part);
    [a + e, b + f, c + g, d + h]
}

/// Sums the next rows that ranks of this node handed over, to a slot.
#[inline(always)]
pub fn sum_near<P: Platform, L: Lanes>(node: &Node<'_, '_, P, L>, sum: Sum, to: HeapOffset) {
    let shape = &node.call.shape;
    let (pieces, all) = (shape.data_bytes(false) / PIECE_BYTES, shape.combine_stride() / PIECE_BYTES);
    let mut piece = node.lanes.rank() as u64;
    while piece < all {
        rolled();
        let (mut parts, mut local) = (Parts::NONE, 0);
        while local < afresh(shape.locals) {
            rolled();
            if sum.mask >> local & 1 != 0 {
                let taken = node.word(shape.by_both(ByBoth::Taken, sum.channel, sum.node, local));
                let slot = shape.near.slot(taken);
                let at = node.at(shape.near_combine(sum.channel, sum.node, local, slot)).0;
                let words = node.device.load_piece(HeapOffset(at + piece * PIECE_BYTES));
                parts = if piece < pieces { parts.and(words) } else { parts.and_weights(words) };
            }
            local += 1;
        }
        let words = if piece < pieces { parts.channels() } else { parts.weights() };
        node.device.store_piece(HeapOffset(to.0 + piece * PIECE_BYTES), words);
        piece += node.lanes.size() as u64;
    }
}

/// Sums what nodes sent next on a channel, to a token's row of the result. Nodes are asked one by one whether the token
/// went there.
#[inline(always)]
pub fn sum_nodes<P: Platform, L: Lanes>(
    node: &Node<'_, '_, P, L>,
    channel: u32,
    token: u32,
    goes: impl Fn(u32) -> bool,
) {
    let (call, shape) = (node.call, &node.call.shape);
    let (pieces, all) = (shape.data_bytes(false) / PIECE_BYTES, shape.combine_stride() / PIECE_BYTES);
    let mut piece = node.lanes.rank() as u64;
    while piece < all {
        rolled();
        let (mut parts, mut from) = (Parts::NONE, 0);
        while from < afresh(shape.nodes) {
            rolled();
            if goes(from) {
                let taken = node.word(shape.by_node(ByNode::CombineTaken, channel, from));
                let at = node.at(shape.combine_come(channel, from, shape.far.slot(taken))).0;
                let words = node.device.load_piece(HeapOffset(at + piece * PIECE_BYTES));
                parts = if piece < pieces { parts.and(words) } else { parts.and_weights(words) };
            }
            from += 1;
        }
        if piece < pieces {
            parts = biased(call, token, pieces, piece, parts);
            // SAFETY: the token's row of the result, whole pieces of it (`NormalCall`); this token is this block's.
            unsafe { tensor::write(call.out, token as u64 * pieces + piece, parts.channels()) };
        } else if call.out_weights != 0 {
            let [low, high] = parts.weights();
            let words = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
            store_weights(call.out_weights, token, 4 * (piece - pieces), call.topk, words);
        }
        piece += node.lanes.size() as u64;
    }
}

/// Eight channels of a token with those of its biases.
#[inline(always)]
fn biased(call: &NormalCall, token: u32, pieces: u64, piece: u64, parts: Parts) -> Parts {
    let [first, second] = call.biases;
    let number = token as u64 * pieces + piece;
    // SAFETY: a row of each token, whole pieces of it (`NormalCall`).
    unsafe {
        let parts = if first == 0 { parts } else { parts.and(tensor::read(first, number)) };
        if second == 0 { parts } else { parts.and(tensor::read(second, number)) }
    }
}

/// Stores those of four weights that there are.
#[inline(always)]
fn store_weights(to: u64, token: u32, first: u64, topk: u32, words: [u32; 4]) {
    let [a, b, c, d] = words;
    let one = |number: u64, word: u32| {
        if first + number < topk as u64 {
            // SAFETY: `topk` of each token (`NormalCall`); this token is this block's.
            unsafe { tensor::write(to, token as u64 * topk as u64 + first + number, word) };
        }
    };
    one(0, a);
    one(1, b);
    one(2, c);
    one(3, d);
}
