//! What a queue pair reads and writes under its own keys: gather and scatter lists.

use crate::cx::Cx;
use crate::memory::{Access, Span, Use};
use crate::nic::SoftNic;
use crate::packet::Payload;
use crate::placement::How;
use crate::qp::{Data, Piece, Qp, Sge};

impl SoftNic {
    /// Translates a local access of a queue pair.
    pub(crate) fn local(&self, qp: &Qp, sge: Sge, offset: u32, bytes: u32, access: Access) -> Option<Span> {
        let want = Use {
            key: sge.lkey,
            pd: qp.pd,
            qpn: qp.qpn,
            address: sge.address.wrapping_add(offset as u64),
            bytes: bytes as u64,
            access,
        };
        self.memory.check(want).map(|(span, _)| span)
    }

    /// Reads `bytes` of a gather list from `offset`.
    #[inline(always)] // on the way of every packet
    pub(crate) fn gather(
        &self,
        qp: &Qp,
        data: &Data,
        offset: u32,
        bytes: u32,
        cx: &mut Cx,
    ) -> Option<Payload> {
        let mut payload = cx.pool.take(bytes as usize);
        let into = payload.bytes_mut();
        match data {
            Data::None => {}
            Data::Small(small) => into.copy_from_slice(&small[offset as usize..(offset + bytes) as usize]),
            Data::One(sge) => self.local(qp, *sge, offset, bytes, Access::LocalRead)?.load(into),
            Data::Many(pieces) => {
                let (mut skip, mut done) = (offset, 0);
                for piece in pieces {
                    let some = piece.bytes().saturating_sub(skip).min(bytes - done as u32);
                    let target = &mut into[done..done + some as usize];
                    match piece {
                        _ if some == 0 => {}
                        Piece::Pointer(sge) => {
                            self.local(qp, *sge, skip, some, Access::LocalRead)?.load(target);
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
        &self,
        qp: &Qp,
        data: &Data,
        offset: u32,
        bytes: u32,
        cx: &mut Cx,
    ) -> Option<Payload> {
        self.gather(qp, data, offset, bytes, cx)
    }

    /// Writes bytes into a scatter list at `offset`. False if no key allows it.
    pub(crate) fn scatter(
        &mut self,
        qp: &Qp,
        data: &Data,
        offset: u32,
        payload: Payload,
        cx: &mut Cx,
    ) -> bool {
        let bytes = payload.bytes().len() as u32;
        match data {
            Data::One(sge) => {
                let Some(span) = self.local(qp, *sge, offset, bytes, Access::LocalWrite) else {
                    return false;
                };
                self.place(span, payload, How::default(), cx);
            }
            Data::Many(pieces) => {
                let (mut skip, mut done) = (offset, 0);
                for piece in pieces {
                    let some = piece.bytes().saturating_sub(skip).min(bytes - done);
                    if let (Piece::Pointer(sge), true) = (piece, some > 0) {
                        let Some(span) = self.local(qp, *sge, skip, some, Access::LocalWrite) else {
                            return false;
                        };
                        let mut part = cx.pool.take(some as usize);
                        let from = done as usize;
                        part.bytes_mut().copy_from_slice(&payload.bytes()[from..from + some as usize]);
                        self.place(span, part, How::default(), cx);
                    }
                    skip = skip.saturating_sub(piece.bytes());
                    done += some;
                }
                cx.pool.give(payload);
            }
            _ => {}
        }
        true
    }
}
