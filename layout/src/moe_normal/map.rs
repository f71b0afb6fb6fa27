//! A shape with all that is made of it once: kernels add offsets up for every word they touch.

use super::words::{BY_BOTH, BY_LOCAL, BY_NODE, OF_LOCAL, OF_NODE};
use super::{
    ByBoth, ByLocal, ByNode, NormalShape, OF_RANK, OfLocal, OfNode, OfRank, RECORD_SETS, Ring, Slots,
    WATCH_WORDS,
};
use crate::moe::{At, WORD_BYTES};

/// What kernels of normal mode are told of their shape, as the host works it out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NormalMap {
    shape: NormalShape,
    words_by_node: u64,
    words_by_local: u64,
    words_by_both: u64,
    words_of_node: u64,
    words_of_local: u64,
    words_of_channel: u64,
    records: u64,
    rings: [u64; Ring::ALL as usize],
    bytes: u64,
    dispatch_stride: u64,
    combine_stride: u64,
    /// Slots of a ring between nodes.
    pub far: Slots,
    /// Slots of a ring inside a node.
    pub near: Slots,
}

impl core::ops::Deref for NormalMap {
    type Target = NormalShape;
    #[inline(always)]
    fn deref(&self) -> &NormalShape {
        &self.shape
    }
}

impl NormalMap {
    /// Works it out.
    pub const fn of(shape: NormalShape) -> Self {
        let (mut rings, mut ring) = ([0; Ring::ALL as usize], 0);
        while ring < Ring::ALL {
            rings[ring as usize] = shape.rings(ring).0;
            ring += 1;
        }
        Self {
            shape,
            words_by_node: shape.words_by_node().0,
            words_by_local: shape.words_by_local().0,
            words_by_both: shape.words_by_both().0,
            words_of_node: shape.words_of_node().0,
            words_of_local: shape.words_of_local().0,
            words_of_channel: shape.words_of_channel().0,
            records: shape.words_bytes(),
            rings,
            bytes: shape.bytes(),
            dispatch_stride: shape.dispatch_stride(),
            combine_stride: shape.combine_stride(),
            far: Slots::of(shape.slots),
            near: Slots::of(shape.near_slots),
        }
    }

    /// The same, each number handed through `with`, which gives it back: for kernels that hide from their compiler that
    /// it is always the same.
    #[inline(always)]
    pub fn each(&self, with: impl Fn(u64) -> u64) -> Self {
        let small = |number: u32| with(number as u64) as u32;
        let [a, b, c, d, e, f] = self.rings;
        Self {
            shape: NormalShape {
                nodes: small(self.shape.nodes),
                locals: small(self.shape.locals),
                local_experts: small(self.shape.local_experts),
                tokens: small(self.shape.tokens),
                hidden: small(self.shape.hidden),
                topk: small(self.shape.topk),
                channels: small(self.shape.channels),
                chunk: small(self.shape.chunk),
                slots: small(self.shape.slots),
                near_slots: small(self.shape.near_slots),
            },
            words_by_node: with(self.words_by_node),
            words_by_local: with(self.words_by_local),
            words_by_both: with(self.words_by_both),
            words_of_node: with(self.words_of_node),
            words_of_local: with(self.words_of_local),
            words_of_channel: with(self.words_of_channel),
            records: with(self.records),
            rings: [with(a), with(b), with(c), with(d), with(e), with(f)],
            bytes: with(self.bytes),
            dispatch_stride: with(self.dispatch_stride),
            combine_stride: with(self.combine_stride),
            far: self.far.each(&with),
            near: self.near.each(&with),
        }
    }

    /// Bytes of all that an exchange needs.
    #[inline(always)]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Distance of dispatch messages.
    #[inline(always)]
    pub const fn dispatch_stride(&self) -> u64 {
        self.dispatch_stride
    }

    /// Bytes of a combine message.
    #[inline(always)]
    pub const fn combine_stride(&self) -> u64 {
        self.combine_stride
    }

    /// Where a ring begins. By a number that is known where this is compiled: no index is looked at.
    #[inline(always)]
    const fn ring(&self, ring: Ring) -> At {
        let [a, b, c, d, e, f] = self.rings;
        At(match ring {
            Ring::DispatchSend => a,
            Ring::DispatchReceive => b,
            Ring::CombineSend => c,
            Ring::CombineReceive => d,
            Ring::NearDispatch => e,
            Ring::NearCombine => f,
        })
    }
}

/// Words. All begin at zero, and none ever becomes less but by a cleaning.
impl NormalMap {
    /// A word of what a rank says to all. No number but the rank's has a part in where it lies: ranks of other shapes
    /// have it there as well.
    #[inline(always)]
    pub const fn of_rank(&self, word: OfRank, rank: u32) -> At {
        At(0).plus(rank as u64 * OF_RANK + word as u64, WORD_BYTES)
    }

    /// How many words channels have: [`counter`](Self::counter).
    #[inline(always)]
    pub const fn counters(&self) -> u64 {
        (self.words_of_node - self.words_by_node) / WORD_BYTES
    }

    /// A word of channels, by its number among all of them.
    #[inline(always)]
    pub const fn counter(&self, number: u64) -> At {
        At(self.words_by_node).plus(number, WORD_BYTES)
    }

    /// A word of a channel and a node.
    #[inline(always)]
    pub const fn by_node(&self, word: ByNode, channel: u32, node: u32) -> At {
        let number = channel as u64 * self.shape.nodes as u64 + node as u64;
        At(self.words_by_node).plus(number * BY_NODE + word as u64, WORD_BYTES)
    }

    /// A word of a channel and a rank of this node.
    #[inline(always)]
    pub const fn by_local(&self, word: ByLocal, channel: u32, local: u32) -> At {
        let number = channel as u64 * self.shape.locals as u64 + local as u64;
        At(self.words_by_local).plus(number * BY_LOCAL + word as u64, WORD_BYTES)
    }

    /// A word of a channel, a node and a rank of this node.
    #[inline(always)]
    pub const fn by_both(&self, word: ByBoth, channel: u32, node: u32, local: u32) -> At {
        let number = (channel as u64 * self.shape.nodes as u64 + node as u64) * self.shape.locals as u64
            + local as u64;
        At(self.words_by_both).plus(number * BY_BOTH + word as u64, WORD_BYTES)
    }

    /// A word of a node.
    #[inline(always)]
    pub const fn of_node(&self, word: OfNode, node: u32) -> At {
        At(self.words_of_node).plus(node as u64 * OF_NODE + word as u64, WORD_BYTES)
    }

    /// A word of a rank of this node.
    #[inline(always)]
    pub const fn of_local(&self, word: OfLocal, local: u32) -> At {
        At(self.words_of_local).plus(local as u64 * OF_LOCAL + word as u64, WORD_BYTES)
    }

    /// The first of the words in which the block of a channel keeps what it remembers between two pauses.
    #[inline(always)]
    pub const fn watch(&self, channel: u32) -> At {
        At(self.words_of_channel).plus(channel as u64 * WATCH_WORDS, WORD_BYTES)
    }
}

/// Records and rings.
impl NormalMap {
    /// The record for a node, as it is sent.
    #[inline(always)]
    pub const fn record_sent(&self, set: u64, node: u32) -> At {
        At(self.records).plus(set * self.shape.nodes as u64 + node as u64, self.shape.record_bytes())
    }

    /// The record from a node.
    #[inline(always)]
    pub const fn record_come(&self, set: u64, node: u32) -> At {
        let number = (RECORD_SETS + set) * self.shape.nodes as u64 + node as u64;
        At(self.records).plus(number, self.shape.record_bytes())
    }

    /// Word of a record: tokens of a channel, to the node.
    #[inline(always)]
    pub const fn recorded_node(&self, channel: u32) -> u64 {
        channel as u64
    }

    /// Word of a record: tokens of a channel, to a rank of the node.
    #[inline(always)]
    pub const fn recorded_rank(&self, channel: u32, local: u32) -> u64 {
        self.shape.channels as u64 * (1 + local as u64) + channel as u64
    }

    /// Word of a record: tokens to an expert of a rank of the node.
    #[inline(always)]
    pub const fn recorded_expert(&self, local: u32, expert: u32) -> u64 {
        let before = self.shape.channels as u64 * (1 + self.shape.locals as u64);
        before + local as u64 * self.shape.local_experts as u64 + expert as u64
    }

    /// Word of a record: the terms of the call, as [`CallTerms::bits`](super::CallTerms::bits) has them.
    #[inline(always)]
    pub const fn recorded_terms(&self) -> u64 {
        self.recorded_expert(self.shape.locals, 0)
    }

    #[inline(always)]
    const fn between(&self, ring: Ring, channel: u32, node: u32, slot: u64, stride: u64) -> At {
        let number = (channel as u64 * self.shape.nodes as u64 + node as u64) * self.shape.slots as u64;
        self.ring(ring).plus(number + slot, stride)
    }

    /// A dispatch message to a node, in slot `slot` of the ring.
    #[inline(always)]
    pub const fn dispatch_sent(&self, channel: u32, node: u32, slot: u64) -> At {
        self.between(Ring::DispatchSend, channel, node, slot, self.dispatch_stride())
    }

    /// A dispatch message from a node.
    #[inline(always)]
    pub const fn dispatch_come(&self, channel: u32, node: u32, slot: u64) -> At {
        self.between(Ring::DispatchReceive, channel, node, slot, self.dispatch_stride())
    }

    /// A combine message to a node.
    #[inline(always)]
    pub const fn combine_sent(&self, channel: u32, node: u32, slot: u64) -> At {
        self.between(Ring::CombineSend, channel, node, slot, self.combine_stride())
    }

    /// A combine message from a node.
    #[inline(always)]
    pub const fn combine_come(&self, channel: u32, node: u32, slot: u64) -> At {
        self.between(Ring::CombineReceive, channel, node, slot, self.combine_stride())
    }

    /// A dispatch message from a rank of this node.
    #[inline(always)]
    pub const fn near_dispatch(&self, channel: u32, local: u32, slot: u64) -> At {
        let number =
            (channel as u64 * self.shape.locals as u64 + local as u64) * self.shape.near_slots as u64;
        self.ring(Ring::NearDispatch).plus(number + slot, self.dispatch_stride())
    }

    /// A combine message from a rank of this node, for a node.
    #[inline(always)]
    pub const fn near_combine(&self, channel: u32, node: u32, local: u32, slot: u64) -> At {
        let number = (channel as u64 * self.shape.nodes as u64 + node as u64) * self.shape.locals as u64
            + local as u64;
        let at = self.ring(Ring::NearCombine);
        at.plus(number * self.shape.near_slots as u64 + slot, self.combine_stride())
    }
}
