//! What goes into a call and comes out of it: tokens, rows, and what a dispatch leaves for those behind it.

/// What a dispatch leaves for those that follow it: a combine, or a dispatch of other tokens that go the same ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalHandle {
    pub(super) position: Vec<u32>,
    pub(super) incoming: Vec<u32>,
    pub(super) prefix: Vec<u32>,
    pub(super) arriving: Vec<u32>,
    pub(super) forward: Vec<u32>,
    pub(super) counts: Vec<u32>,
    pub(super) buffer: u64,
    pub(super) tokens: u32,
    pub(super) topk: u32,
    pub(super) rows: u64,
}

impl NormalHandle {
    /// Rows that came.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Numbers of a dispatch's tokens, as kernels know them: which row each token of this rank is at each rank; rows
    /// that come in each part from each rank; tokens that come over a rail in each part from each node; and to which
    /// ranks of the node each of those goes on.
    pub fn ways(&self) -> [&[u32]; 4] {
        [&self.position, &self.incoming, &self.arriving, &self.forward]
    }

    /// Rows that came from a rank.
    pub fn rows_from(&self, rank: usize) -> std::ops::Range<usize> {
        match (self.prefix.get(rank), self.prefix.get(rank + 1)) {
            (Some(first), Some(end)) => *first as usize..*end as usize,
            _ => 0..0,
        }
    }
}

/// Tokens as they travel.
#[derive(Clone, Copy, Debug)]
pub enum Tokens<'t> {
    /// BF16.
    Bf16(&'t [u16]),
    /// FP8, and a scale for every 128 channels.
    Fp8(&'t [u8], &'t [f32]),
}

impl Tokens<'_> {
    pub(super) const fn fp8(&self) -> bool {
        matches!(self, Self::Fp8(..))
    }
}

/// What came for this rank's experts.
#[derive(Clone, Debug)]
pub struct NormalReceived {
    /// By row: channels as bytes of the format, in words.
    pub x: Vec<u64>,
    /// FP8: by row, a scale for every 128 channels.
    pub scales: Vec<f32>,
    /// By row: experts as numbers of this rank's; -1: another rank's, or none. Empty where none were sent.
    pub topk_index: Vec<i64>,
    /// Their weights; 0 where the expert is another rank's.
    pub topk_weights: Vec<f32>,
    /// By local expert: rows.
    pub counts: Vec<u32>,
    /// For what follows.
    pub handle: NormalHandle,
}

/// Combined tokens.
#[derive(Clone, Debug)]
pub struct NormalCombined {
    /// By token, BF16.
    pub x: Vec<u16>,
    /// By token: sums of the rows' weights. Empty where none were given.
    pub topk_weights: Vec<f32>,
}
