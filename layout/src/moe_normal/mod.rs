//! Where everything of a normal-mode MoE exchange lies in the symmetric heap: the same offsets on every rank.
//!
//! Ranks of one node reach each other's memory; ranks of equal number in their nodes reach each other by RDMA. A
//! channel is a part of the tokens with rings of its own. In each ring slots are counted for as long as the buffer is
//! there, from 0 on, and nothing is ever cleared.
//!
//! First lies what each rank says to all, where ranks of another shape find it as well: the shape itself.
//!
//! A ring that is sent from and the ring that arrives are mirrors: slot `n` of one is put into slot `n` of the other.

mod map;
mod slots;
mod terms;
mod words;

pub use map::NormalMap;
pub use slots::Slots;
pub use terms::{CallTerms, Difference, Terms, Why};
pub use words::{ByBoth, ByLocal, ByNode, OF_RANK, OfLocal, OfNode, OfRank};

use crate::moe::{ALIGN, At, BadShape, HIDDEN_STEP, RANKS_MAX, SCALE_GROUP, TOPK_MAX, WORD_BYTES};
use words::{BY_BOTH, BY_LOCAL, BY_NODE, OF_LOCAL, OF_NODE};

/// Ranks of a node at most: bits of a mask.
pub const LOCALS_MAX: u32 = 32;
/// Sets of notify's records: calls whose records may be under way at the same time.
pub const RECORD_SETS: u64 = 2;
/// Bytes of a message's header: the rank it is from, and the token's index there, 32 bits each; terms of the call.
pub const HEADER_BYTES: u64 = 16;
/// In place of a row: the token does not go there.
pub const NOWHERE: u32 = u32::MAX;
/// Words of a channel in which its block keeps what it remembers between two pauses.
pub const WATCH_WORDS: u64 = 7;
/// Pieces of a message are whole.
const PIECE: u64 = 16;

/// The numbers that all ranks agree on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NormalShape {
    /// Nodes.
    pub nodes: u32,
    /// Ranks of a node. Rank `r` is number `r % locals` of node `r / locals`.
    pub locals: u32,
    /// Experts of one rank.
    pub local_experts: u32,
    /// Tokens of one rank in one call, at most.
    pub tokens: u32,
    /// Channels of a token's vector.
    pub hidden: u32,
    /// Experts of a token, at most.
    pub topk: u32,
    /// Parts that the tokens are cut into.
    pub channels: u32,
    /// Slots that one put brings at most.
    pub chunk: u32,
    /// Slots of a ring between nodes: a multiple of `chunk`, twice as many at least.
    pub slots: u32,
    /// Slots of a ring inside a node.
    pub near_slots: u32,
}

/// What of a normal-mode shape cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNormalShape {
    /// What low-latency shapes have as well.
    Shape(BadShape),
    /// Ranks of a node: 1 to [`LOCALS_MAX`], and a divisor of the ranks. Ranks of a node, and ranks.
    Locals(u32, u32),
    /// Experts of a token: 1 to [`TOPK_MAX`].
    Topk(u32),
    /// Channels and slots inside a node: 1 or more of each.
    None(&'static str),
    /// Slots: a multiple of the chunk, twice as many at least. Both are given.
    Slots(u32, u32),
}

impl core::fmt::Display for BadNormalShape {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Shape(bad) => bad.fmt(f),
            Self::Locals(met, ranks) => {
                write!(f, "ranks of a node: expected 1 to {LOCALS_MAX}, a divisor of {ranks}, got {met}")
            }
            Self::Topk(met) => write!(f, "experts of a token: expected 1 to {TOPK_MAX}, got {met}"),
            Self::None(what) => write!(f, "{what}: expected 1 or more, got 0"),
            Self::Slots(met, chunk) => {
                let least = 2 * *chunk as u64;
                write!(
                    f,
                    "slots of a ring: expected a multiple of the chunk, {chunk}, and at least {least}, got {met}"
                )
            }
        }
    }
}

const fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGN) * ALIGN
}

#[inline(always)]
const fn pieces(bytes: u64) -> u64 {
    bytes.div_ceil(PIECE) * PIECE
}

impl NormalShape {
    /// A shape that can be.
    ///
    /// # Errors
    /// What cannot, and what would be right.
    pub const fn check(self) -> Result<Self, BadNormalShape> {
        let (ranks, none) = (self.nodes as u64 * self.locals as u64, BadNormalShape::None);
        if self.nodes == 0 || ranks > RANKS_MAX as u64 {
            return Err(BadNormalShape::Shape(BadShape::Ranks(if self.nodes == 0 {
                0
            } else {
                ranks as u32
            })));
        }
        if self.locals == 0 || self.locals > LOCALS_MAX {
            return Err(BadNormalShape::Locals(self.locals, ranks as u32));
        }
        if self.topk == 0 || self.topk > TOPK_MAX {
            return Err(BadNormalShape::Topk(self.topk));
        }
        if self.local_experts == 0 {
            return Err(none("experts of a rank"));
        }
        if self.channels == 0 {
            return Err(none("channels"));
        }
        if self.near_slots == 0 {
            return Err(none("slots inside a node"));
        }
        if self.tokens == 0 {
            return Err(BadNormalShape::Shape(BadShape::Tokens(0)));
        }
        if self.hidden == 0 || !self.hidden.is_multiple_of(HIDDEN_STEP) {
            return Err(BadNormalShape::Shape(BadShape::Hidden(self.hidden)));
        }
        if self.chunk == 0 || !self.slots.is_multiple_of(self.chunk) || self.slots / 2 < self.chunk {
            return Err(BadNormalShape::Slots(self.slots, self.chunk));
        }
        match self.too_large() {
            Some((what, met, most)) => Err(BadNormalShape::Shape(BadShape::TooLarge { what, met, most })),
            None => Ok(self),
        }
    }

    /// Rows and positions are words of 32 bits; no offset may wrap.
    const fn too_large(&self) -> Option<(&'static str, u128, u64)> {
        let rows = self.ranks() as u128 * self.tokens as u128;
        if rows >= NOWHERE as u128 {
            return Some(("rows of a rank", rows, NOWHERE as u64 - 1));
        }
        let slot = 16 * self.hidden as u128 + 8 * self.locals as u128 + 1024;
        let rings = self.channels as u128 * self.nodes as u128 * (self.locals as u128 + 8);
        let records =
            16 * (self.locals as u128 + 1) * (self.channels as u128 + self.local_experts as u128 + 8);
        let bytes = slot * rings * (self.slots as u128 + self.near_slots as u128 + 8)
            + 64 * records * (self.nodes as u128 + 8);
        if bytes > u64::MAX as u128 {
            return Some(("bytes", bytes, u64::MAX));
        }
        None
    }

    /// Ranks of all nodes.
    #[inline(always)]
    pub const fn ranks(&self) -> u32 {
        self.nodes * self.locals
    }

    /// Experts of all ranks.
    #[inline(always)]
    pub const fn experts(&self) -> u64 {
        self.ranks() as u64 * self.local_experts as u64
    }

    /// Tokens of a channel, at most, of so many in all.
    #[inline(always)]
    pub const fn part(&self, tokens: u32) -> u32 {
        // No panic path: a shape has channels.
        match (tokens.checked_div(self.channels), tokens.checked_rem(self.channels)) {
            (Some(part), Some(rest)) => part + (rest != 0) as u32,
            _ => 0,
        }
    }

    /// The tokens of a channel, of so many: the first, and the one behind the last.
    #[inline(always)]
    pub const fn tokens_of(&self, channel: u32, tokens: u32) -> (u32, u32) {
        let part = self.part(tokens) as u64;
        let (first, end) = (channel as u64 * part, channel as u64 * part + part);
        let most = tokens as u64;
        ((if first < most { first } else { most }) as u32, (if end < most { end } else { most }) as u32)
    }

    /// Bytes of a token's channels.
    #[inline(always)]
    pub const fn data_bytes(&self, fp8: bool) -> u64 {
        self.hidden as u64 * if fp8 { 1 } else { 2 }
    }

    /// Scales of a token.
    #[inline(always)]
    pub const fn scales(&self) -> u64 {
        self.hidden as u64 / SCALE_GROUP
    }

    /// Where in a dispatch message the token's rows are, at each rank of the node it goes to.
    #[inline(always)]
    pub const fn rows_at(&self) -> u64 {
        HEADER_BYTES
    }

    /// Where its experts are, 32 bits each, and behind them their weights.
    #[inline(always)]
    pub const fn choices_at(&self) -> u64 {
        HEADER_BYTES + pieces(4 * self.locals as u64)
    }

    /// Where its channels are, and behind them their scales.
    #[inline(always)]
    pub const fn data_at(&self) -> u64 {
        self.choices_at() + pieces(8 * self.topk as u64)
    }

    /// Bytes of a dispatch message.
    #[inline(always)]
    pub const fn dispatch_message(&self, fp8: bool) -> u64 {
        self.data_at() + self.data_bytes(fp8) + if fp8 { 4 * self.scales() } else { 0 }
    }

    /// Distance of dispatch messages: room for either.
    #[inline(always)]
    pub const fn dispatch_stride(&self) -> u64 {
        let (one, other) = (self.dispatch_message(true), self.dispatch_message(false));
        if one > other { one } else { other }
    }

    /// Bytes of a combine message: channels as BF16, behind them the weights, and behind all of these in how many of
    /// the summed rows there were weights, as 32-bit floats.
    #[inline(always)]
    pub const fn combine_stride(&self) -> u64 {
        self.data_bytes(false) + pieces(4 * (self.topk as u64 + 1))
    }

    /// Where in a combine message the piece is that has the number of rows with weights, and which of its four words.
    #[inline(always)]
    pub const fn weighed_at(&self) -> (u64, u32) {
        (self.data_bytes(false) + self.topk as u64 / 4 * PIECE, self.topk % 4)
    }

    /// Words of a record that notify sends to a node: tokens by channel; by channel and rank of the node; by rank of
    /// the node and its expert; terms of the call. An even number.
    #[inline(always)]
    pub const fn record_words(&self) -> u64 {
        let (channels, locals) = (self.channels as u64, self.locals as u64);
        (channels + channels * locals + locals * self.local_experts as u64 + 1).next_multiple_of(2)
    }

    /// Bytes of all that an exchange needs.
    pub const fn bytes(&self) -> u64 {
        self.rings(Ring::ALL).0
    }
}

/// Rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
enum Ring {
    DispatchSend = 0,
    DispatchReceive = 1,
    CombineSend = 2,
    CombineReceive = 3,
    NearDispatch = 4,
    NearCombine = 5,
}

impl Ring {
    const ALL: u64 = 6;
}

/// Where words, records and rings begin: [`NormalMap`] holds it for kernels.
impl NormalShape {
    /// Behind what each rank says to all.
    const fn words_by_node(&self) -> At {
        At(0).plus(self.ranks() as u64 * OF_RANK, WORD_BYTES)
    }

    const fn words_by_local(&self) -> At {
        self.words_by_node().plus(self.channels as u64 * self.nodes as u64 * BY_NODE, WORD_BYTES)
    }

    const fn words_by_both(&self) -> At {
        self.words_by_local().plus(self.channels as u64 * self.locals as u64 * BY_LOCAL, WORD_BYTES)
    }

    const fn words_of_node(&self) -> At {
        let all = self.channels as u64 * self.nodes as u64 * self.locals as u64;
        self.words_by_both().plus(all * BY_BOTH, WORD_BYTES)
    }

    const fn words_of_local(&self) -> At {
        self.words_of_node().plus(self.nodes as u64 * OF_NODE, WORD_BYTES)
    }

    const fn words_of_channel(&self) -> At {
        self.words_of_local().plus(self.locals as u64 * OF_LOCAL, WORD_BYTES)
    }

    /// Bytes of all words.
    pub const fn words_bytes(&self) -> u64 {
        aligned(self.words_of_channel().plus(self.channels as u64 * WATCH_WORDS, WORD_BYTES).0)
    }

    const fn records(&self) -> u64 {
        2 * RECORD_SETS * self.nodes as u64 * self.record_bytes()
    }

    /// Bytes of a record.
    #[inline(always)]
    pub const fn record_bytes(&self) -> u64 {
        self.record_words() * WORD_BYTES
    }

    const fn ring_bytes(&self, ring: u64) -> u64 {
        let (channels, nodes, locals) = (self.channels as u64, self.nodes as u64, self.locals as u64);
        let (slots, near) = (self.slots as u64, self.near_slots as u64);
        aligned(match ring {
            0 | 1 => channels * nodes * slots * self.dispatch_stride(),
            2 | 3 => channels * nodes * slots * self.combine_stride(),
            4 => channels * locals * near * self.dispatch_stride(),
            _ => channels * nodes * locals * near * self.combine_stride(),
        })
    }

    /// Where a ring of this number begins; behind the last: where all ends.
    const fn rings(&self, number: u64) -> At {
        let (mut at, mut ring) = (aligned(self.words_bytes() + self.records()), 0);
        while ring < number {
            at += self.ring_bytes(ring);
            ring += 1;
        }
        At(at)
    }
}

const _: () = assert!(Ring::NearCombine as u64 + 1 == Ring::ALL);
const _: () = assert!(size_of::<NormalShape>() == 40);
const PUBLISHED: NormalShape = NormalShape {
    nodes: 2,
    locals: 8,
    local_experts: 16,
    tokens: 4096,
    hidden: 7168,
    topk: 8,
    channels: 10,
    chunk: 20,
    slots: 140,
    near_slots: 288,
};
// Header, eight rows, eight experts and weights, and the channels.
const _: () = assert!(PUBLISHED.data_at() == 16 + 32 + 64);
const _: () = assert!(PUBLISHED.dispatch_message(true) == 112 + 7168 + 224);
const _: () = assert!(PUBLISHED.dispatch_stride() == 112 + 14336 && PUBLISHED.combine_stride() == 14336 + 48);
const _: () = assert!(matches!(PUBLISHED.weighed_at(), (14368, 0)));

#[cfg(test)]
mod tests;
