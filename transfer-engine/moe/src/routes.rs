//! Routes of a layer: which rows a rank sends, in which order, and how many go to each expert. Pure.
//!
//! A row is a token on its way to one of its experts. Rows of a rank stand in the order of the experts, and of the
//! tokens for each expert. Experts of a rank have adjacent numbers, so the rows for a rank are adjacent.

use shunt_layout::moe::{Shape, TOPK_MAX};
use thiserror::Error;

/// Why routes cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadRoutes {
    /// Experts of a token.
    #[error("experts of a token: expected 1 to {TOPK_MAX}, got {0}")]
    Topk(u32),
    /// Not so many experts for each token.
    #[error("routes: expected {topk} for each of at most {tokens} tokens, got {met}")]
    Length {
        /// Experts of a token.
        topk: u32,
        /// Tokens of a rank at most.
        tokens: u32,
        /// Routes that there are.
        met: usize,
    },
    /// No such expert.
    #[error("token {token}: expected an expert below {experts}, or -1 for none, got {met}")]
    NoExpert {
        /// Which token.
        token: usize,
        /// Experts of all ranks.
        experts: u64,
        /// What was there.
        met: i64,
    },
    /// The same expert twice.
    #[error("token {token}: expected experts that differ, got {met} twice")]
    Twice {
        /// Which token.
        token: usize,
        /// The expert.
        met: i64,
    },
    /// What a rank says of its rows.
    #[error("counts of rank {rank}: expected {want}, got {met}")]
    Counts {
        /// Whose.
        rank: u32,
        /// What would be some.
        want: String,
        /// What was there.
        met: String,
    },
}

/// A token on its way to one of its experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which token of this rank.
    pub token: u32,
    /// Which expert of all ranks.
    pub expert: u32,
    /// Which of the token's experts it is.
    pub choice: u32,
}

/// The rows of a rank, in order.
///
/// # Errors
/// An expert that is not there, one twice, or another number of them than tokens have.
pub fn rows(shape: &Shape, topk: u32, routes: &[i64]) -> Result<Vec<Row>, BadRoutes> {
    if topk == 0 || topk > TOPK_MAX {
        return Err(BadRoutes::Topk(topk));
    }
    let (each, tokens) = (topk as usize, shape.tokens);
    if !routes.len().is_multiple_of(each) || routes.len() / each > tokens as usize {
        return Err(BadRoutes::Length { topk, tokens, met: routes.len() });
    }
    let mut rows = Vec::with_capacity(routes.len());
    for (token, chosen) in routes.chunks(each).enumerate() {
        for (choice, expert) in chosen.iter().enumerate() {
            let experts = shape.experts();
            if *expert >= experts as i64 {
                return Err(BadRoutes::NoExpert { token, experts, met: *expert });
            }
            if *expert >= 0 && chosen[..choice].contains(expert) {
                return Err(BadRoutes::Twice { token, met: *expert });
            }
            if *expert >= 0 {
                rows.push(Row { token: token as u32, expert: *expert as u32, choice: choice as u32 });
            }
        }
    }
    rows.sort_by_key(|row| (row.expert, row.token));
    Ok(rows)
}

/// Rows of every rank for every expert, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    shape: Shape,
    most: u64,
    /// By rank: by expert.
    known: Vec<Option<Vec<u32>>>,
}

impl Counts {
    /// Of no rank yet.
    pub fn new(shape: Shape, topk: u32) -> Self {
        let most = rows_max(&shape, topk);
        Self { shape, most, known: vec![None; shape.ranks as usize] }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.known.iter_mut().for_each(|counts| *counts = None);
    }

    /// Takes what a rank says.
    ///
    /// # Errors
    /// There is no such rank, or no rank has so many rows.
    pub fn learn(&mut self, rank: u32, counts: &[u32]) -> Result<(), BadRoutes> {
        let refused = |want: String, met: String| Err(BadRoutes::Counts { rank, want, met });
        let (experts, tokens) = (self.shape.experts() as usize, self.shape.tokens);
        if counts.len() != experts {
            return refused(format!("{experts} numbers"), counts.len().to_string());
        }
        if let Some(met) = counts.iter().find(|count| **count > tokens) {
            return refused(format!("at most {tokens} rows of an expert"), met.to_string());
        }
        let sum = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        let most = self.most;
        if let Some(met) = counts.chunks(self.shape.local_experts as usize).map(sum).find(|sum| *sum > most) {
            return refused(format!("at most {most} rows for a rank"), met.to_string());
        }
        match self.known.get_mut(rank as usize) {
            Some(known) => *known = Some(counts.to_vec()),
            None => return refused(format!("a rank below {}", self.shape.ranks), rank.to_string()),
        }
        Ok(())
    }

    /// Whether all ranks' are known.
    pub fn are_whole(&self) -> bool {
        self.known.iter().all(Option::is_some)
    }

    /// Rows of a rank for an expert; 0 where they are not known.
    pub fn of(&self, rank: u32, expert: u64) -> u64 {
        let known = self.known.get(rank as usize).and_then(Option::as_ref);
        known.and_then(|counts| counts.get(expert as usize)).map_or(0, |count| u64::from(*count))
    }

    /// Rows of a rank for the experts of another.
    pub fn between(&self, from: u32, to: u32) -> u64 {
        let local = u64::from(self.shape.local_experts);
        let first = u64::from(to) * local;
        (first..first + local).map(|expert| self.of(from, expert)).sum()
    }

    /// Rows of a rank for ranks before this one.
    pub fn before(&self, from: u32, to: u32) -> u64 {
        (0..to).map(|rank| self.between(from, rank)).sum()
    }
}

/// Rows of one rank for another at most.
pub fn rows_max(shape: &Shape, topk: u32) -> u64 {
    u64::from(shape.tokens) * u64::from(topk.min(shape.local_experts))
}

/// How many rows go to each expert.
pub fn count(shape: &Shape, rows: &[Row]) -> Vec<u32> {
    let mut counts = vec![0; shape.experts() as usize];
    rows.iter().for_each(|row| counts[row.expert as usize] += 1);
    counts
}

/// Counts as they travel: 4 bytes each, little endian.
pub fn to_bytes(counts: &[u32]) -> Vec<u8> {
    counts.iter().flat_map(|count| count.to_le_bytes()).collect()
}

/// Counts as they came.
pub fn from_bytes(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|count| u32::from_le_bytes(*count)).collect()
}
