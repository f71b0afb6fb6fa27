//! Pieces that are posted at once, as a domain sees them. Pure.

use crate::ids::TransferId;
use crate::lives::Lives;
use crate::piece::{Held, Op, Piece};
use std::collections::BTreeMap;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Whose it is.
    pub transfer: TransferId,
    /// What it does.
    pub op: Op,
    /// Where the bytes are at this end, or come to.
    pub local: u64,
    /// Keys of that region, by rail of this end.
    pub local_keys: &'a [u32],
    /// The same at the peer.
    pub remote: u64,
    /// Keys of that region, by rail of the peer.
    pub remote_keys: &'a [u32],
    /// How many bytes, 2^30 at most.
    pub len: u32,
    /// The bytes of a SEND; of others there are none.
    pub part: &'a [u8],
}

/// Pieces of one lane, one or more.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub(crate) pieces: &'a [Piece],
    /// The number of the first one on its lane.
    pub(crate) first: u64,
    /// Those of the lane of which a piece does not say all.
    pub(crate) odd: &'a BTreeMap<u64, Held>,
    pub(crate) lives: &'a Lives,
}

impl<'a> Batch<'a> {
    /// How many.
    pub const fn count(&self) -> usize {
        self.pieces.len()
    }

    /// What is to be posted, in order.
    #[inline]
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request<'a>> + use<'a> {
        let Self { pieces, first, odd, lives } = *self;
        let (mut of, mut keys): (_, (&[u32], &[u32])) = (TransferId::ENDED, (&[], &[]));
        pieces.iter().enumerate().map(move |(at, piece)| {
            let Piece { transfer, op, local, remote, len, .. } = *piece;
            if transfer != of {
                let known = lives.get(transfer).map(|life| &life.work);
                keys = known.map_or((&[], &[]), |work| (&work.local_keys, &work.remote_keys));
                of = transfer;
            }
            let held = if op == Op::Send { odd.get(&(first + at as u64)) } else { None };
            let part = held.and_then(|held| held.part.as_deref()).unwrap_or(&[]);
            Request { transfer, op, local, local_keys: keys.0, remote, remote_keys: keys.1, len, part }
        })
    }
}
