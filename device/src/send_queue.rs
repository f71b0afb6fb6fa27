//! The send queue of a path: its ring, its doorbell, and what a post reads of the path, which is one cache line.

use crate::platform::Platform;
use crate::root::root;
use crate::shared::{Shared, fields};
use crate::state_ptr::{ChannelPtr, StatePtr};
use crate::wqe_write::{AtomicSegments, Place, Segments};
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::doorbell;
use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::state::{HotPath, PathRow, Word};

fields!(HotPath {
    send_queue: u64,
    base: u64,
    doorbell_record: u64,
    doorbell_register: u64,
    qpn_shifted: u32,
    log_depth: u32,
    local_rail: u32,
    remote_rail: u32,
    completion_queue: u64,
    pub(crate) wide: u64,
    incarnation: u32,
});

fields!(PathRow { base: u64 });

/// The hot line of a path.
#[derive(Clone, Copy)]
pub(crate) struct SendQueue<'s, P: Platform> {
    state: StatePtr<'s, P>,
    pub(crate) ring: u64,
    doorbell_record: u64,
    doorbell_register: u64,
    /// The ticket at physical index 0.
    pub(crate) base: u64,
    pub(crate) qpn_shifted: u32,
    pub(crate) local_rail: u32,
    pub(crate) remote_rail: u32,
}

impl<'s, P: Platform> SendQueue<'s, P> {
    /// That of a slot of a channel. What is read changes only under the switch that enters the path, and a reader of
    /// the wrong moment loses its compare-and-swap.
    #[inline(always)]
    pub(crate) fn of(ptr: ChannelPtr<'s, P>, slot: u32) -> Self {
        let (row, p) = (ptr.hot(slot).address(), ptr.platform());
        // SAFETY: neighbouring fields of a row of the table of hot lines, each whole.
        unsafe {
            // Not the read-only path of `load_key`: a path is recreated, with another QPN, while kernels run.
            let [ring, base] = p.load_two(addr_of_mut!((*row).send_queue));
            let [doorbell_record, doorbell_register] = p.load_two(addr_of_mut!((*row).doorbell_record));
            let [qpn_shifted, _log_depth, local_rail, remote_rail] =
                p.load_four(addr_of_mut!((*row).qpn_shifted));
            Self {
                state: ptr.state,
                ring,
                doorbell_record,
                doorbell_register,
                base,
                qpn_shifted,
                local_rail,
                remote_rail,
            }
        }
    }

    /// The same queue pair with the ring that it had before its path was recreated.
    pub(crate) fn with_ring(self, ring: u64, base: u64) -> Self {
        Self { ring, base, ..self }
    }

    /// Sets the base of a path, for the switch that enters it; and where reports of the host find it.
    pub(crate) fn set_base(ptr: ChannelPtr<'s, P>, slot: u32, base: u64) {
        ptr.hot(slot).base().store(base);
        ptr.path(slot).base().store(base);
    }

    /// Takes over what the agent says of a path, unless it is the incarnation that was entered last: for the switch
    /// that enters it, behind its second look at the path's state. From there on the row does not change (Dekker), and
    /// no caller posts: the channel is closed and settled.
    #[inline(never)]
    pub(crate) fn adopt(state: StatePtr<'s, P>, row: u32, slot: u32) {
        let ptr = state.row(row);
        let (row, hot, p) = (ptr.path(slot).address(), ptr.hot(slot), ptr.platform());
        // SAFETY: fields of a row of the path table, each whole by itself.
        let (pairs, numbers, entries, incarnation) = unsafe {
            let record = p.load_two(addr_of_mut!((*row).doorbell_record));
            (
                (p.load(addr_of_mut!((*row).send_queue)), record),
                p.load_four(addr_of_mut!((*row).qpn_shifted)),
                p.load(addr_of_mut!((*row).completion_queue)),
                p.load32(addr_of_mut!((*row).incarnation)),
            )
        };
        if hot.incarnation().load() == incarnation {
            return;
        }
        hot.send_queue().store(pairs.0);
        hot.doorbell_record().store(pairs.1[0]);
        hot.doorbell_register().store(pairs.1[1]);
        hot.qpn_shifted().store(numbers[0]);
        hot.log_depth().store(numbers[1]);
        hot.local_rail().store(numbers[2]);
        hot.remote_rail().store(numbers[3]);
        hot.completion_queue().store(entries);
        hot.wide().store(0);
        hot.incarnation().store(incarnation);
    }

    /// Where ticket `number` of the group of `word` stands. In 32 bits: positions, counters and doorbells need no more.
    #[inline(always)]
    pub(crate) fn place(&self, word: Word, number: u32) -> Place {
        let index = (word.0 as u32).wrapping_add(number).wrapping_sub(self.base as u32);
        Place { index: index as u64, qpn_shifted: self.qpn_shifted }
    }

    /// A physical index as a place.
    #[inline(always)]
    pub(crate) const fn place_at(&self, physical: u64) -> Place {
        Place { index: physical, qpn_shifted: self.qpn_shifted }
    }

    /// The block of a physical index.
    #[inline(always)]
    pub(crate) fn block(&self, physical: u64) -> Shared<'s, P, Wqebb> {
        let at = self.ring + (physical as u32 & root!(self.state, ring_mask)) as u64 * 64;
        // SAFETY: under the ring's mask; all rings have one depth.
        unsafe { Shared::new(at as *mut Wqebb, self.state.platform) }
    }

    /// Writes one WQE of one block.
    #[inline(always)]
    pub(crate) fn write(&self, physical: u64, wqe: &Segments) {
        let block = self.block(physical);
        block.store_segment(0, wqe.segments[0]);
        block.store_segment(1, wqe.segments[1]);
        if wqe.ds > 2 {
            block.store_segment(2, wqe.segments[2]);
        }
    }

    /// Writes the one or two blocks of an atomic.
    #[inline(always)]
    pub(crate) fn write_atomic(&self, physical: u64, wqe: &AtomicSegments) {
        let block = self.block(physical);
        block.store_segment(0, wqe.segments[0]);
        block.store_segment(1, wqe.segments[1]);
        block.store_segment(2, wqe.segments[2]);
        block.store_segment(3, wqe.segments[3]);
        if wqe.ds > 4 {
            self.block(physical.wrapping_add(1)).store_segment(0, wqe.segments[4]);
        }
    }

    /// Writes a whole block (replay).
    #[inline(always)]
    pub(crate) fn write_block(&self, physical: u64, wqe: &Wqebb) {
        let block = self.block(physical);
        let mut i = 0;
        while i < 4 {
            let segment = [wqe.0[i * 4], wqe.0[i * 4 + 1], wqe.0[i * 4 + 2], wqe.0[i * 4 + 3]];
            block.store_segment(i, segment);
            i += 1;
        }
    }

    /// Tells the NIC of everything below physical index `next`: WQEs that who wrote them put before a barrier, and that
    /// the caller has acquired since. A NIC may read the record at any time. The caller holds the post lock, so
    /// doorbell stores of one QP never interleave.
    #[inline(always)]
    pub(crate) fn ring_doorbell(&self, next: u64) {
        let p = self.state.platform;
        // SAFETY: record and register of this path, which upload and agent wrote into its row.
        unsafe {
            p.store_doorbell_record(self.doorbell_record as *mut u32, doorbell::send_counter(next));
            match root!(self.state, own_end) {
                0 => p.record_before_register(),
                _ => p.own_stores_before_store(),
            }
            p.store_register(self.doorbell_register as *mut u64, doorbell::register(next, self.qpn_shifted));
        }
    }
}
