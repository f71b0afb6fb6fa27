//! What each rank sends to each other one, and where that comes to; where each row of a rank's experts lies. Pure.

use crate::buffers::Buffers;
use crate::routes::Counts;
use serde::{Deserialize, Serialize};
use shunt_transfer_engine::shard::{pieces, writes_of};

/// What an immediate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum What {
    /// A rank's counts are there.
    Counts,
    /// Rows of a rank are there.
    Rows,
    /// What a rank's experts made is there.
    Made,
    /// A rank has read everything, and may be written to again.
    Free,
}

impl What {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Counts, Self::Rows, Self::Made, Self::Free];

    /// The immediate of a layer: each has its own, of 2^28 layers.
    pub const fn imm(self, layer: u64) -> u32 {
        (self as u32 + 1) << 28 | (layer & 0x0fff_ffff) as u32
    }
}

/// One write: one immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// To which rank.
    pub to: u32,
    /// What its immediate says.
    pub what: What,
    /// First byte in this rank's region.
    pub from: u64,
    /// First byte in the other's.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// The plan of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Where everything lies.
    pub buffers: &'a Buffers,
    /// Which rank it is.
    pub rank: u32,
    /// What is known of the layer.
    pub counts: &'a Counts,
}

/// Where a row of an expert lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this rank's own rows.
    Own(u64),
    /// In a private buffer.
    Private(u64),
    /// In the contiguous buffer.
    Contiguous(u64),
}

impl Place {
    /// First byte in the region that others write into; `None` if the row never left this rank.
    pub const fn received(self) -> Option<u64> {
        match self {
            Self::Own(_) => None,
            Self::Private(at) | Self::Contiguous(at) => Some(at),
        }
    }
}

/// A row of one of this rank's experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Whose it is.
    pub source: u32,
    /// Which expert of all ranks.
    pub expert: u32,
    /// Its place among the rows of its source for this rank.
    pub number: u64,
    /// Where it lies.
    pub place: Place,
}

impl Plan<'_> {
    fn others(&self) -> impl Iterator<Item = u32> {
        let rank = self.rank;
        (0..self.buffers.shape.ranks).filter(move |other| *other != rank)
    }

    /// An immediate alone, to every other rank: this one has read everything.
    pub fn free(&self) -> Vec<Part> {
        self.others().map(|to| Part { to, what: What::Free, from: 0, at: 0, len: 0 }).collect()
    }

    /// Own counts, to every other rank.
    pub fn counts(&self) -> Vec<Part> {
        let (at, len) = (self.buffers.counts(self.rank), self.buffers.counts_bytes());
        self.others().map(|to| Part { to, what: What::Counts, from: 0, at, len }).collect()
    }

    /// How many writes so many rows of so many bytes each are: both ends compute it.
    fn writes_of(&self, rows: u64, bytes: u64) -> u64 {
        let Buffers { rails, piece_min, .. } = *self.buffers;
        if rows == 0 { 0 } else { u64::from(writes_of(rows * bytes, rails, piece_min)).min(rows) }
    }

    /// Cuts rows of so many bytes each, so that all rails have some.
    fn cut(&self, whole: Part, bytes: u64) -> Vec<Part> {
        let rows = whole.len / bytes;
        let cut = pieces(rows, self.writes_of(rows, bytes) as u32);
        let part = |(first, rows): (u64, u64)| {
            let (from, at) = (whole.from + first * bytes, whole.at + first * bytes);
            Part { from, at, len: rows * bytes, ..whole }
        };
        cut.map(part).collect()
    }

    /// The first rows for each rank, to its private buffer. Own counts are enough for it.
    pub fn first(&self) -> Vec<Part> {
        let part = |to| {
            let rows = self.buffers.first(self.counts.between(self.rank, to));
            let from = self.buffers.row(self.counts.before(self.rank, to));
            let (at, len) = (self.buffers.private(self.rank, 0), rows * self.buffers.row_bytes());
            self.cut(Part { to, what: What::Rows, from, at, len }, self.buffers.row_bytes())
        };
        self.others().flat_map(part).collect()
    }

    /// Rows of a rank that go to another's contiguous buffer.
    fn rest_of(&self, from: u32, to: u32) -> u64 {
        let rows = self.counts.between(from, to);
        rows - self.buffers.first(rows)
    }

    /// Where the rows of a rank begin in another's contiguous buffer.
    fn rest_at(&self, from: u32, to: u32) -> u64 {
        (0..from).filter(|source| *source != to).map(|source| self.rest_of(source, to)).sum()
    }

    /// The rest of the rows for each rank, to its contiguous buffer. All counts must be known.
    pub fn rest(&self) -> Vec<Part> {
        let part = |to| {
            let rows = self.counts.between(self.rank, to);
            let first = self.buffers.first(rows);
            let from = self.buffers.row(self.counts.before(self.rank, to) + first);
            let at = self.buffers.contiguous(self.rest_at(self.rank, to));
            let bytes = self.buffers.row_bytes();
            self.cut(Part { to, what: What::Rows, from, at, len: (rows - first) * bytes }, bytes)
        };
        self.others().flat_map(part).collect()
    }

    /// Immediates of [`What::Rows`] that a rank sends to this one.
    pub fn rows_from(&self, source: u32) -> u64 {
        let rows = self.counts.between(source, self.rank);
        let first = self.buffers.first(rows);
        let bytes = self.buffers.row_bytes();
        self.writes_of(first, bytes) + self.writes_of(rows - first, bytes)
    }

    /// Where what this rank's experts made of a rank's rows begins, among all that they made.
    pub fn made_at(&self, source: u32) -> u64 {
        (0..source).map(|before| self.counts.between(before, self.rank)).sum()
    }

    /// What this rank's experts made, to where the rows came from. All counts must be known.
    pub fn made(&self) -> Vec<Part> {
        let part = |to| {
            let from = self.buffers.made(self.made_at(to));
            let at = self.buffers.returned(self.counts.before(to, self.rank));
            let len = self.counts.between(to, self.rank) * self.buffers.made_bytes();
            self.cut(Part { to, what: What::Made, from, at, len }, self.buffers.made_bytes())
        };
        self.others().flat_map(part).collect()
    }

    /// Immediates of [`What::Made`] that a rank sends to this one.
    pub fn made_from(&self, other: u32) -> u64 {
        self.writes_of(self.counts.between(self.rank, other), self.buffers.made_bytes())
    }

    /// Rows of this rank's experts: by expert, by source, in the order of the source's rows. All counts must be known.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let local = u64::from(self.buffers.shape.local_experts);
        let first = u64::from(self.rank) * local;
        let mut arrivals = Vec::new();
        for expert in first..first + local {
            for source in 0..self.buffers.shape.ranks {
                let before: u64 = (first..expert).map(|of| self.counts.of(source, of)).sum();
                let numbers = before..before + self.counts.of(source, expert);
                let expert = expert as u32;
                arrivals.extend(numbers.map(|number| {
                    let place = self.place(source, number);
                    Arrival { source, expert, number, place }
                }));
            }
        }
        arrivals
    }

    fn place(&self, source: u32, number: u64) -> Place {
        if source == self.rank {
            return Place::Own(self.buffers.row(self.counts.before(source, self.rank) + number));
        }
        let first = self.buffers.first(self.counts.between(source, self.rank));
        match number.checked_sub(first) {
            None => Place::Private(self.buffers.private(source, number)),
            Some(rest) => Place::Contiguous(self.buffers.contiguous(self.rest_at(source, self.rank) + rest)),
        }
    }
}
