//! Where an arriving message may land: the scatter list of a receive WQE.

use crate::dma::{Data, Piece, Sge};
use crate::memory::Span;
use shunt_layout::mlx5::cqe::{Syndrome, vendor};
use shunt_layout::mlx5::wqe::{DataSegment, SEGMENT_BYTES, TERMINATE_SCATTER_LIST_KEY};

/// Why a receive WQE is not good enough: syndrome and vendor syndrome.
pub(crate) type Refused = (Syndrome, u8);
/// Where a message may land, and how much room there is.
pub(crate) type Scatter = (Data, u64);

/// The WQE makes no sense.
pub(crate) const MALFORMED: Refused = (Syndrome::LOCAL_QP_OPERATION, vendor::MALFORMED);

/// The scatter list of a WQE that begins at `start`, and the bytes it holds.
pub(crate) fn read(wqe: Span, start: u64) -> Result<Scatter, Refused> {
    let (mut pieces, mut room) = (Vec::new(), 0);
    for offset in (start..wqe.bytes()).step_by(SEGMENT_BYTES) {
        let (low, high) = (wqe.load64(offset), wqe.load64(offset + 8));
        let segment = [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32];
        match DataSegment::read(segment) {
            DataSegment::Pointer { lkey: TERMINATE_SCATTER_LIST_KEY, .. } => break,
            DataSegment::Inline { .. } => return Err(MALFORMED),
            DataSegment::Pointer { bytes, lkey, address } => {
                // Zero is 2^31, as the PRM has it; libmlx5 writes it for an empty piece of a shared queue. The key
                // is asked only for bytes that come.
                let bytes = if bytes == 0 { 1 << 31 } else { bytes };
                pieces.push(Sge { lkey, address, bytes });
                room += bytes as u64;
            }
        }
    }
    let list = match pieces[..] {
        [] => Data::None,
        [one] => Data::One(one),
        _ => Data::Many(pieces.into_iter().map(Piece::Pointer).collect()),
    };
    Ok((list, room))
}
