//! Gather and scatter lists: what a queue pair reads and writes under its own keys.

use crate::memory::{Access, Memory, Span, Use};
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_soft_wire::packet::{Payload, Pool};

/// A local access that no key allows: syndrome and vendor syndrome.
pub(crate) const LOCAL_KEY: (Syndrome, u8) = (Syndrome::LOCAL_PROTECTION, vendor::LOCAL_KEY);

/// A pointer segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sge {
    pub(crate) lkey: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
}

/// One entry of a gather list.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Pointer(Sge),
    Inline(Vec<u8>),
}

impl Piece {
    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Self::Pointer(sge) => sge.bytes,
            Self::Inline(bytes) => bytes.len() as u32,
        }
    }
}

/// Local data of a WQE. The common shapes need no allocation.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    None,
    /// Inline, up to 32 bytes; the WQE holds how many.
    Small([u8; 32]),
    One(Sge),
    Many(Box<[Piece]>),
}

/// Whose keys an access may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) pd: u32,
    pub(crate) qpn: u32,
}

impl Owner {
    /// Translates a local access to `bytes` of a piece from `offset`.
    pub(crate) fn local(
        self,
        memory: &Memory,
        sge: Sge,
        offset: u32,
        bytes: u32,
        access: Access,
    ) -> Option<Span> {
        let want = Use {
            key: sge.lkey,
            pd: self.pd,
            qpn: self.qpn,
            address: sge.address.wrapping_add(offset as u64),
            bytes: bytes as u64,
            access,
        };
        memory.check(want).map(|(span, _)| span)
    }

    /// Reads `bytes` of a gather list from `offset`. `None` if no key allows it.
    #[inline(always)] // on the way of every packet
    pub(crate) fn gather(
        self,
        memory: &Memory,
        data: &Data,
        offset: u32,
        bytes: u32,
        pool: &mut Pool,
    ) -> Option<Payload> {
        let mut payload = pool.take(bytes as usize);
        let into = payload.bytes_mut();
        match data {
            Data::None => {}
            Data::Small(small) => into.copy_from_slice(&small[offset as usize..(offset + bytes) as usize]),
            Data::One(sge) => self.local(memory, *sge, offset, bytes, Access::LocalRead)?.load(into),
            Data::Many(pieces) => {
                let (mut skip, mut done) = (offset, 0);
                for piece in pieces {
                    let some = piece.bytes().saturating_sub(skip).min(bytes - done as u32);
                    let target = &mut into[done..done + some as usize];
                    match piece {
                        _ if some == 0 => {}
                        Piece::Pointer(sge) => {
                            self.local(memory, *sge, skip, some, Access::LocalRead)?.load(target);
                        }
                        Piece::Inline(inline) => {
                            target.copy_from_slice(&inline[skip as usize..(skip + some) as usize]);
                        }
                    }
                    skip = skip.saturating_sub(piece.bytes());
                    done += some as usize;
                }
            }
        }
        Some(payload)
    }

    /// The same for what is not a plain WRITE: out of the way of what is.
    #[inline(never)]
    pub(crate) fn gather_message(
        self,
        memory: &Memory,
        data: &Data,
        offset: u32,
        bytes: u32,
        pool: &mut Pool,
    ) -> Option<Payload> {
        self.gather(memory, data, offset, bytes, pool)
    }
}
