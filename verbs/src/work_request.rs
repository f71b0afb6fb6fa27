//! A request of the journal as libibverbs' work request, and the other way round.

use core::ffi::c_int;
use core::mem::offset_of;
use shunt_mlx5_sys::{ibv_send_wr, ibv_sge};
use shunt_verbs_journal::record::{Record, Slot, Words};
use shunt_verbs_journal::request::{Kind, Piece};

/// A record and libibverbs agree on what a buffer is, and on a row of words of a request.
const _: () = {
    assert!(size_of::<Piece>() == size_of::<ibv_sge>() && align_of::<Piece>() == align_of::<ibv_sge>());
    assert!(offset_of!(Piece, length) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Piece, lkey) == offset_of!(ibv_sge, lkey));
    let from = offset_of!(ibv_send_wr, num_sge);
    assert!(offset_of!(ibv_send_wr, opcode) - from == offset_of!(Words, opcode));
    assert!(offset_of!(ibv_send_wr, send_flags) - from == offset_of!(Words, flags));
    assert!(offset_of!(ibv_send_wr, __bindgen_anon_1) - from == offset_of!(Words, immediate));
    assert!(offset_of!(ibv_send_wr, wr) - from == offset_of!(Words, target));
    assert!(offset_of!(ibv_send_wr, qp_type) - from == size_of::<Words>() && from % align_of::<Words>() == 0);
    assert!(offset_of!(ibv_send_wr, send_flags) == offset_of!(ibv_send_wr, opcode) + 4);
    assert!(offset_of!(ibv_send_wr, wr) == offset_of!(ibv_send_wr, __bindgen_anon_1) + 4);
};

/// Opcode and flags of a request, as they lie in memory: [`shunt_verbs_journal::record::Shape::word`].
#[inline(always)]
pub fn word(wr: &ibv_send_wr) -> u64 {
    let row = (&raw const *wr).cast::<u8>().wrapping_add(offset_of!(ibv_send_wr, opcode));
    // SAFETY: both words lie in the request, one behind the other.
    unsafe { row.cast::<u64>().read_unaligned() }
}

/// Writes down what differs from one request to the next.
///
/// # Safety
/// It has one buffer, as its list says, and is no atomic.
#[inline(always)]
pub unsafe fn slot(wr: &ibv_send_wr, to: &mut Slot) {
    let row = (&raw const *wr).cast::<u8>().wrapping_add(offset_of!(ibv_send_wr, __bindgen_anon_1));
    // SAFETY: the row lies in the request, and all of it is plain words of the program's; there is one buffer, laid out
    // as ours, by the caller.
    unsafe {
        to.wr_id = wr.wr_id;
        to.tail = row.cast::<[u32; 4]>().read();
        to.first = wr.sg_list.cast::<Piece>().read();
    }
}

/// Writes down what the program posts.
///
/// # Safety
/// The list of buffers is as long as the request says.
#[inline]
pub unsafe fn record(wr: &ibv_send_wr, to: &mut Record) {
    to.wr_id = wr.wr_id;
    let row = (&raw const *wr).cast::<u8>().wrapping_add(offset_of!(ibv_send_wr, num_sge));
    // SAFETY: the row lies in the request, laid out as ours, and all of it is plain words of the program's.
    to.words = unsafe { row.cast::<Words>().read() };
    if wr.num_sge == 1 {
        // SAFETY: there is one, by the caller, laid out as ours.
        to.first = unsafe { wr.sg_list.cast::<Piece>().read() };
    }
}

/// Writes what a request does, and the address and key at the other end.
pub fn fill(wr: &mut ibv_send_wr, kind: Kind, remote: u64, rkey: u32) {
    put(wr, &Record::new(0, kind, (remote, rkey)));
}

fn put(wr: &mut ibv_send_wr, record: &Record) {
    wr.opcode = record.words.opcode;
    wr.__bindgen_anon_1.imm_data = record.words.immediate;
    // SAFETY: the union is as long, and of plain words.
    unsafe { (&raw mut wr.wr).cast::<[u64; 4]>().write(record.words.target) };
}

/// What a record says, with these buffers.
pub fn of(record: &Record, pieces: &mut [ibv_sge]) -> ibv_send_wr {
    let mut wr =
        ibv_send_wr { wr_id: record.wr_id, send_flags: record.words.flags, ..ibv_send_wr::default() };
    put(&mut wr, record);
    wr.sg_list = pieces.as_mut_ptr();
    wr.num_sge = pieces.len() as c_int;
    wr
}
