//! What a call posts: checked against its regions, and cut into pieces. Pure.

use crate::call::{Paged, Policy, Read, Share, Write};
use crate::domain::{Op, Piece};
use crate::error::TransferError;
use crate::ids::TransferId;
use crate::region::{Mr, MrDesc};
use crate::shard::{PIECE_MAX, page_pairs, pieces};
use std::sync::Arc;

/// Cuts the calls of one transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<'a> {
    /// What both ends agree on.
    pub policy: &'a Policy,
    /// Whose pieces they are.
    pub transfer: TransferId,
}

impl Cut<'_> {
    /// The pieces of a single write.
    pub fn write(&self, write: &Write<'_>) -> Result<Vec<Piece>, TransferError> {
        let Write { len, imm, from: (source, from), to: (target, to), .. } = *write;
        self.check_keys(source, target)?;
        let from = source.part("source", from, len)?;
        let to = target.writable("target", to, len)?;
        let piece = |(at, len)| self.piece(Op::Write(imm), (source, from + at), (target, to + at), len);
        Ok(pieces(len, self.policy.writes_of(len)).map(piece).collect())
    }

    /// The pieces of a single read.
    pub fn read(&self, read: &Read<'_>) -> Result<Vec<Piece>, TransferError> {
        let Read { len, from: (source, from), to: (target, to), .. } = *read;
        self.check_keys(target, source)?;
        if len == 0 {
            let (what, want) = ("bytes of a read", "one or more");
            return Err(TransferError::Refused { what, want, met: "none".to_owned() });
        }
        let from = source.readable("source", from, len)?;
        let to = target.part("target", to, len)?;
        let one = |(at, len)| self.piece(Op::Read, (target, to + at), (source, from + at), len);
        Ok(pieces(len, self.policy.writes_of(len)).map(one).collect())
    }

    /// The pages of a write.
    pub fn paged(&self, paged: &Paged<'_>) -> Result<Vec<Piece>, TransferError> {
        let Paged { page_len, imm, from: (source, from), to: (target, to), .. } = *paged;
        self.check_keys(source, target)?;
        let pairs = page_pairs(from, to)?;
        if pairs.len() == 0 || page_len > PIECE_MAX {
            let met = format!("{} of {page_len} bytes", pairs.len());
            let (what, want) = ("pages", "one or more of at most 2^30 bytes");
            return Err(TransferError::Refused { what, want, met });
        }
        let mut all = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let Some((from, to)) = pair else {
                let (what, want) = ("pages", "offsets below 2^64");
                return Err(TransferError::Refused { what, want, met: "an index beyond that".to_owned() });
            };
            let from = source.part("source page", from, page_len)?;
            let to = target.writable("target page", to, page_len)?;
            all.push(self.piece(Op::Write(imm), (source, from), (target, to), page_len));
        }
        Ok(all)
    }

    /// What one peer gets of a scatter.
    pub fn share(&self, source: &Mr, share: &Share<'_>) -> Result<Piece, TransferError> {
        let Share { len, imm, from, to: (target, to), .. } = *share;
        self.check_keys(source, target)?;
        if len > PIECE_MAX {
            let (what, want) = ("a share of a scatter", "2^30 bytes at most");
            return Err(TransferError::Refused { what, want, met: len.to_string() });
        }
        let from = source.part("source", from, len)?;
        let to = target.writable("target", to, len)?;
        Ok(self.piece(Op::Write(imm), (source, from), (target, to), len))
    }

    /// A bare immediate.
    pub fn bare(&self, imm: u32, source: &Mr, target: &MrDesc) -> Result<Piece, TransferError> {
        self.check_keys(source, target)?;
        let (from, to) = (source.part("source", 0, 0)?, target.writable("target", 0, 0)?);
        Ok(self.piece(Op::Write(Some(imm)), (source, from), (target, to), 0))
    }

    /// A part of a message.
    pub fn part(&self, part: Arc<[u8]>) -> Piece {
        let (transfer, len, none) = (self.transfer, part.len() as u64, || Arc::from([]));
        Piece {
            transfer,
            op: Op::Send(part),
            local: 0,
            local_keys: none(),
            remote: 0,
            remote_keys: none(),
            len,
        }
    }

    fn piece(&self, op: Op, local: (&Mr, u64), remote: (&MrDesc, u64), len: u64) -> Piece {
        let (local_keys, remote_keys) = (local.0.keys().clone(), remote.0.keys().clone());
        let transfer = self.transfer;
        Piece { transfer, op, local: local.1, local_keys, remote: remote.1, remote_keys, len }
    }

    /// A region without a key for a rail that is used could not go over it.
    fn check_keys(&self, source: &Mr, target: &MrDesc) -> Result<(), TransferError> {
        let fewest = source.keys().len().min(target.keys().len());
        if fewest >= self.policy.rails as usize {
            return Ok(());
        }
        let met = format!("{fewest} for {} rails", self.policy.rails);
        Err(TransferError::Refused { what: "a region's keys", want: "one for each rail", met })
    }
}
