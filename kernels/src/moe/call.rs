//! What a MoE kernel is told. It travels by value, as the parameter of a launch.

use shunt_layout::moe::Shape;

/// Channels are sent as FP8 with scales; else as BF16.
pub const FP8: u32 = 1;
/// Scales are powers of two.
pub const ROUNDED: u32 = 2;
/// Scales are handed out as their exponents, four to a word; they are powers of two then.
pub const EXPONENTS: u32 = 4;
/// What experts made lies in the send buffer already.
pub const ZERO_COPY: u32 = 8;
/// Ranks of this node whose heaps are mapped are asked for a sign of life where they let a wait wait: what they are
/// sent goes by no NIC, which would find that they are gone. Else the deadline finds it.
pub const ASK: u32 = 16;

/// Counts and flags are kind 1: absolute values that nobody clears, and that may be repeated. On all ranks alike, for
/// as long as the buffer is there.
pub const ABSOLUTE: u32 = 32;

/// A combine that is received is the last call of a graph: the word at [`MoeCall::before`] becomes its number, so that
/// the next replay counts on from there.
pub const COUNT_ON: u32 = 64;

/// The arguments of every MoE kernel. Each reads those that its documentation names and leaves the others alone.
///
/// Addresses are of memory that the kernel's threads reach; nobody else touches what they lead to while it runs, but
/// ranks of this node in the parts of the heap that `peers` names.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoeCall {
    /// What all ranks agree on.
    pub shape: Shape,
    /// Heap offset of the exchange's part, a multiple of 16.
    pub base: u64,
    /// Address of a word for each rank: the address at which this one reaches that part of its heap, or 0 where it does
    /// not, and a NIC has to. 0: nobody's. The same for as long as the buffer is there.
    pub peers: u64,
    /// Number of this call, from 1; dispatches and combines are counted together. Below 2^32, with what is at `before`.
    pub call: u64,
    /// Address of a word that is added to it, or 0. What a graph launches has the same arguments at each replay: its
    /// calls are numbered from 1, and this word holds the number of the last call before them.
    pub before: u64,
    /// Calls up to this one are over on every rank.
    pub floor: u64,
    /// Patience of the whole kernel, in nanoseconds.
    pub timeout_ns: u64,
    /// Between two looks at whether a peer that is waited for is lost. Longer than the device's own patience.
    pub slice_ns: u64,
    /// Dispatch: the tokens, BF16. Combine: what the experts made, BF16, by local expert and row. A multiple of 16 on a
    /// GPU, which loads sixteen bytes at a time; of 8 on a CPU.
    pub x: u64,
    /// Experts of each token, 64 bits each; negative: none.
    pub topk_index: u64,
    /// Their weights, 32-bit floats.
    pub topk_weights: u64,
    /// What comes out: rows by local expert (FP8 or BF16), or the combined tokens (BF16).
    pub out: u64,
    /// Scales of the rows, by local expert, group and row: 32-bit floats, or four exponents a word.
    pub out_scales: u64,
    /// By local expert and row: the token's index at its source, 32 bits. Dispatch writes it, combine reads it.
    pub source: u64,
    /// By local expert and rank: rows (low half) and the first of them (high half). Dispatch writes it, combine reads
    /// it.
    pub ranges: u64,
    /// By local expert: rows, 32 bits.
    pub counts: u64,
    /// Tokens of this rank in this call.
    pub tokens: u32,
    /// Experts of a token.
    pub topk: u32,
    /// Blocks of the launch.
    pub blocks: u32,
    /// [`FP8`] and its like.
    pub flags: u32,
}

impl MoeCall {
    /// Whether a flag is set.
    #[inline(always)]
    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

const _: () = assert!(size_of::<MoeCall>() == 152);
