//! Where everything lies in the two regions of a rank: one that the others write into, one that it sends from. Pure.
//!
//! | received | what it is |
//! | --- | --- |
//! | counts | of each rank: its rows for every expert |
//! | private | of each rank: its first rows, sent before the routes are known |
//! | contiguous | the others' rows after those, one rank behind the other |
//! | returned | what experts made of this rank's rows, in the order of the rows |
//!
//! | sent | what it is |
//! | --- | --- |
//! | counts | its own |
//! | rows | its rows, in order |
//! | made | what its experts made, one rank behind the other, each in the order of that rank's rows |

use crate::routes::rows_max;
use shunt_layout::moe::{ALIGN, Shape};

/// The buffers of a rank: the same on all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// Sizes that all ranks agree on.
    pub shape: Shape,
    /// Experts of a token.
    pub topk: u32,
    /// Rows of a private buffer.
    pub private: u32,
    /// Rails of a rank: what goes to one other rank is cut for them.
    pub rails: u32,
    /// Least bytes of what is cut.
    pub piece_min: u64,
}

const fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGN) * ALIGN
}

impl Buffers {
    /// Bytes of a rank's counts.
    pub const fn counts_bytes(&self) -> u64 {
        4 * self.shape.experts()
    }

    /// Bytes of a row: a header of four words, and BF16 channels.
    pub const fn row_bytes(&self) -> u64 {
        self.shape.dispatch_message(false)
    }

    /// Bytes of what an expert makes of a row.
    pub const fn made_bytes(&self) -> u64 {
        self.shape.bf16_bytes()
    }

    /// Rows of one rank for another at most.
    pub fn rows_max(&self) -> u64 {
        rows_max(&self.shape, self.topk)
    }

    /// Of so many rows for a rank, those that go to its private buffer.
    pub fn first(&self, rows: u64) -> u64 {
        rows.min(u64::from(self.private))
    }

    /// The counts of a rank, received.
    pub const fn counts(&self, rank: u32) -> u64 {
        rank as u64 * aligned(self.counts_bytes())
    }

    /// A row of a rank's private buffer.
    pub const fn private(&self, rank: u32, row: u64) -> u64 {
        let bytes = aligned(self.private as u64 * self.row_bytes());
        self.counts(self.shape.ranks) + rank as u64 * bytes + row * self.row_bytes()
    }

    /// A row of the contiguous buffer.
    pub const fn contiguous(&self, row: u64) -> u64 {
        self.private(self.shape.ranks, 0) + row * self.row_bytes()
    }

    /// What came back of a row of this rank.
    pub fn returned(&self, row: u64) -> u64 {
        let rest = self.rows_max().saturating_sub(u64::from(self.private));
        let end = self.contiguous(rest * u64::from(self.shape.ranks - 1));
        aligned(end) + row * self.made_bytes()
    }

    /// Rows that a rank sends at most.
    pub fn own_rows(&self) -> u64 {
        u64::from(self.shape.tokens) * u64::from(self.topk).min(self.shape.experts())
    }

    /// Bytes that others write into.
    pub fn receive_bytes(&self) -> u64 {
        self.returned(self.own_rows())
    }

    /// A row, sent.
    pub const fn row(&self, row: u64) -> u64 {
        aligned(self.counts_bytes()) + row * self.row_bytes()
    }

    /// What experts made, sent: so many rows behind the first.
    pub fn made(&self, row: u64) -> u64 {
        aligned(self.row(self.own_rows())) + row * self.made_bytes()
    }

    /// Bytes that this rank sends from.
    pub fn send_bytes(&self) -> u64 {
        self.made(self.rows_max() * u64::from(self.shape.ranks))
    }
}
