//! What a kernel of normal mode is told. It travels by value, as the parameter of a launch.

use crate::nvptx_math::{known_from, unknown};
use shunt_layout::moe_normal::NormalMap;

/// Channels are FP8 with scales, as the caller made them; else BF16.
pub const FP8: u32 = 1;
/// Settling is half of a cleaning, and has words of its own.
pub const CLEAN: u32 = 2;
/// Behind it this rank's words are zero.
pub const ZERO: u32 = 4;
/// Holding is saying that this rank gave a call up.
pub const GIVE_UP: u32 = 8;

/// The arguments of every kernel of normal mode. Each reads those that its documentation names and leaves the others
/// alone.
///
/// Addresses are of memory that the kernel's threads reach; nobody else touches what they lead to while it runs, but
/// ranks of this node in the parts of the heap that `peers` names.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NormalCall {
    /// What all ranks agree on, and where all of it lies.
    pub shape: NormalMap,
    /// Heap offset of the exchange's part, a multiple of 16.
    pub base: u64,
    /// By rank of this node: the address at which this one reaches that part of its heap.
    pub peers: u64,
    /// Notify, meeting: its number, from 1. With `GIVE_UP`: why.
    pub number: u64,
    /// Notify, dispatch, combine: terms of the call, bits of `CallTerms`.
    pub terms: u64,
    /// By rank: what it said. Holding writes eight words, its `Terms`; notify one, bits of its `CallTerms`.
    pub said: u64,
    /// Patience of the whole kernel, in nanoseconds.
    pub timeout_ns: u64,
    /// Between two looks at whether a peer is lost. Longer than the device's own patience.
    pub slice_ns: u64,
    /// Dispatch: the tokens, BF16 or FP8. Combine: rows as they were received, BF16.
    pub x: u64,
    /// Dispatch, FP8: scales by token, 32-bit floats.
    pub x_scales: u64,
    /// Layout, dispatch: experts of each token, 64 bits each; negative: none. Dispatch: or 0.
    pub topk_index: u64,
    /// Dispatch: their weights, 32-bit floats. Combine: weights of each row. Or 0.
    pub topk_weights: u64,
    /// Layout: tokens to each rank, 32 bits.
    pub rank_counts: u64,
    /// Layout: tokens to each node, 32 bits.
    pub node_counts: u64,
    /// Layout writes, notify reads: tokens to each expert, 32 bits.
    pub expert_counts: u64,
    /// By token and rank: the row among all that go to this rank from here, 32 bits, or `NOWHERE`. Layout writes it,
    /// all others read it.
    pub position: u64,
    /// By channel and rank: tokens that come from it, 32 bits. Notify writes it, dispatch and combine read it.
    pub incoming: u64,
    /// By rank: rows of all ranks before it, 32 bits; behind the last one all rows. Notify writes it, others read it.
    pub prefix: u64,
    /// By node and channel: tokens that come from the rank of equal number there, for this node. Notify writes it,
    /// dispatch and combine read it.
    pub arriving: u64,
    /// By local expert: rows, 32 bits. Notify writes it.
    pub counts: u64,
    /// By node, channel and token of the channel, in the order in which they came: bits of the ranks of this node that
    /// it went to. Dispatch writes it, combine reads it.
    pub forward: u64,
    /// Dispatch: the rows. Combine: the combined tokens, BF16.
    pub out: u64,
    /// Dispatch, FP8: scales by row.
    pub out_scales: u64,
    /// Dispatch: experts of each row as numbers of this rank's, 64 bits; -1: another rank's, or none.
    pub out_index: u64,
    /// Dispatch: their weights, 0 where the expert is another rank's. Combine: the tokens' weights. Or 0.
    pub out_weights: u64,
    /// Combine: what is added to each token, BF16. Or 0.
    pub biases: [u64; 2],
    /// Rows that there is room for.
    pub rows: u64,
    /// Tokens of this rank.
    pub tokens: u32,
    /// Experts of a token.
    pub topk: u32,
    /// Blocks of the launch.
    pub blocks: u32,
    /// [`FP8`], [`CLEAN`], [`ZERO`], [`GIVE_UP`].
    pub flags: u32,
}

impl NormalCall {
    /// The same, as the compiler cannot know it from before: a role makes what it needs of it in each of its turns, and
    /// leaves the registers to the others meanwhile.
    #[inline(always)]
    pub fn afresh(&self) -> Self {
        let moment = unknown(0);
        let with = |number: u64| known_from(number, moment);
        let small = |number: u32| with(number as u64) as u32;
        let [first, second] = self.biases;
        Self {
            shape: self.shape.each(with),
            base: with(self.base),
            peers: with(self.peers),
            number: with(self.number),
            terms: with(self.terms),
            said: with(self.said),
            timeout_ns: with(self.timeout_ns),
            slice_ns: with(self.slice_ns),
            x: with(self.x),
            x_scales: with(self.x_scales),
            topk_index: with(self.topk_index),
            topk_weights: with(self.topk_weights),
            rank_counts: with(self.rank_counts),
            node_counts: with(self.node_counts),
            expert_counts: with(self.expert_counts),
            position: with(self.position),
            incoming: with(self.incoming),
            prefix: with(self.prefix),
            arriving: with(self.arriving),
            counts: with(self.counts),
            forward: with(self.forward),
            out: with(self.out),
            out_scales: with(self.out_scales),
            out_index: with(self.out_index),
            out_weights: with(self.out_weights),
            biases: [with(first), with(second)],
            rows: with(self.rows),
            tokens: small(self.tokens),
            topk: small(self.topk),
            blocks: small(self.blocks),
            flags: small(self.flags),
        }
    }

    /// Whether a flag is set.
    #[inline(always)]
    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

const _: () = assert!(size_of::<NormalCall>() == 432);
