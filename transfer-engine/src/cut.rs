//! What a call posts: checked against its regions, and cut into pieces. Pure.

use crate::call::{Barrier, Paged, Policy, Read, Share, Write};
use crate::error::TransferError;
use crate::ids::PeerId;
use crate::piece::{Op, Span, Spans, Work};
use crate::region::{Mr, MrDesc};
use crate::shard::{PIECE_MAX, pieces, same_number};
use std::collections::BTreeSet;

/// Most pages of a call: they are counted in 32 bits.
const COUNT_MAX: usize = u32::MAX as usize;

/// Cuts calls, by what both ends agree on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<'a>(pub &'a Policy);

impl Cut<'_> {
    /// The pieces of a single write.
    pub fn write(self, write: &Write<'_>) -> Result<Spans, TransferError> {
        let Write { len, from: (source, from), to: (target, to), .. } = *write;
        self.check_keys(source, target)?;
        let from = source.part("source", from, len)?;
        let to = target.writable("target", to, len)?;
        Ok(self.split(from, to, len))
    }

    /// The pieces of a single read.
    pub fn read(self, read: &Read<'_>) -> Result<Spans, TransferError> {
        let Read { len, from: (source, from), to: (target, to), .. } = *read;
        self.check_keys(target, source)?;
        if len == 0 {
            let (what, want) = ("bytes of a read", "one or more");
            return Err(TransferError::Refused { what, want, met: "none".to_owned() });
        }
        let from = source.readable("source", from, len)?;
        let to = target.part("target", to, len)?;
        Ok(self.split(to, from, len))
    }

    /// The pages of a write.
    #[inline]
    pub fn paged(self, paged: &Paged<'_>) -> Result<Spans, TransferError> {
        let Paged { page_len, from: (source, from), to: (target, to), .. } = *paged;
        self.check_keys(source, target)?;
        let count = same_number(from, to)?;
        if count == 0 || count > COUNT_MAX || page_len > PIECE_MAX {
            return Err(no_pages(count, page_len));
        }
        target.check_writable("target page")?;
        let len = page_len as u32;
        if count == 1 {
            let (local, remote) = page(paged, 0)?;
            return Ok(Spans::One(Span { local, remote, len }));
        }
        let (from_pages, to_pages) = (source.pages(from, page_len), target.pages(to, page_len));
        let (pairs, mut fit) = (from.indices.iter().zip(&to.indices), true);
        let spans = pairs.map(|(from, to)| {
            fit &= from_pages.hold(*from) & to_pages.hold(*to);
            Span { local: from_pages.begin(*from), remote: to_pages.begin(*to), len }
        });
        let spans: Vec<_> = spans.collect();
        if fit {
            return Ok(Spans::Many(spans));
        }
        // With more care: which one does not, and why?
        let span = |number| page(paged, number).map(|(local, remote)| Span { local, remote, len });
        (0..count).map(span).collect::<Result<_, _>>().map(Spans::Many)
    }

    /// What one peer gets of a scatter.
    pub fn share(self, source: &Mr, share: &Share<'_>) -> Result<Spans, TransferError> {
        let Share { len, from, to: (target, to), .. } = *share;
        self.check_keys(source, target)?;
        if len > PIECE_MAX {
            let (what, want) = ("a share of a scatter", "2^30 bytes at most");
            return Err(TransferError::Refused { what, want, met: len.to_string() });
        }
        let local = source.part("source", from, len)?;
        let remote = target.writable("target", to, len)?;
        Ok(Spans::One(Span { local, remote, len: len as u32 }))
    }

    /// A bare immediate.
    pub fn bare(self, source: &Mr, target: &MrDesc) -> Result<Spans, TransferError> {
        self.check_keys(source, target)?;
        let (local, remote) = (source.part("source", 0, 0)?, target.writable("target", 0, 0)?);
        Ok(Spans::One(Span { local, remote, len: 0 }))
    }

    /// The words of a barrier, of which none may be expected already.
    pub fn barrier(
        self,
        barrier: &Barrier<'_>,
        is_expected: impl Fn(PeerId) -> bool,
    ) -> Result<Vec<(PeerId, Work)>, TransferError> {
        let Barrier { imm, from, others, .. } = *barrier;
        let refused = |met: String| {
            let (what, want) = ("the others of a barrier", "one or more, each once, none awaited already");
            Err(TransferError::Refused { what, want, met })
        };
        let mut seen = BTreeSet::new();
        for (peer, _) in others {
            if !seen.insert(*peer) {
                return refused(format!("peer {peer} twice"));
            }
            if is_expected(*peer) {
                return refused(format!("peer {peer}, whose {imm:#x} is expected already"));
            }
        }
        if others.is_empty() {
            return refused("none".to_owned());
        }
        let one = |(peer, target): &(PeerId, &MrDesc)| {
            Ok((*peer, Work::new(Op::Write(Some(imm)), from, target, self.bare(from, target)?)))
        };
        others.iter().map(one).collect()
    }

    /// What brings what was written to a region into its memory.
    pub fn flush(self, target: &MrDesc) -> Result<Work, TransferError> {
        let remote = target.writable("what is flushed", 0, 1)?;
        let fewest = target.keys().len();
        if fewest >= self.0.rails as usize {
            Ok(Work::of_flush(target, remote))
        } else {
            Err(few_keys(fewest, self.0.rails))
        }
    }

    /// The pieces of so many bytes that lie there.
    fn split(self, local: u64, remote: u64, len: u64) -> Spans {
        let count = self.0.writes_of(len);
        // No piece is longer than `PIECE_MAX`.
        let span = |(at, len)| Span { local: local + at, remote: remote + at, len: len as u32 };
        match count {
            1 => Spans::One(span((0, len))),
            _ => Spans::Many(pieces(len, count).map(span).collect()),
        }
    }

    /// A region without a key for a rail that is used could not go over it.
    #[inline]
    fn check_keys(self, source: &Mr, target: &MrDesc) -> Result<(), TransferError> {
        let fewest = source.keys().len().min(target.keys().len());
        if fewest >= self.0.rails as usize { Ok(()) } else { Err(few_keys(fewest, self.0.rails)) }
    }
}

/// Where a page lies at both ends.
#[inline]
fn page(paged: &Paged<'_>, number: usize) -> Result<(u64, u64), TransferError> {
    let Paged { page_len, from: (source, from), to: (target, to), .. } = *paged;
    let Some((from, to)) = from.at(number).zip(to.at(number)) else {
        let (what, want) = ("pages", "offsets below 2^64");
        return Err(TransferError::Refused { what, want, met: "an index beyond that".to_owned() });
    };
    Ok((source.part("source page", from, page_len)?, target.part("target page", to, page_len)?))
}

#[cold]
fn no_pages(count: usize, page_len: u64) -> TransferError {
    let met = format!("{count} of {page_len} bytes");
    TransferError::Refused { what: "pages", want: "1 to 2^32 - 1 of at most 2^30 bytes", met }
}

#[cold]
fn few_keys(fewest: usize, rails: u32) -> TransferError {
    let met = format!("{fewest} for {rails} rails");
    TransferError::Refused { what: "a region's keys", want: "one for each rail", met }
}
