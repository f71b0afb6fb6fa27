//! Ranks of this one's node, whose heaps are mapped here: what they are sent is stored there, and no NIC has a part in
//! it.
//!
//! The same bytes go to the same places as by a NIC, and the same words cover them: a release store in place of the
//! signal, behind all lanes' stores, which the receiver acquires. So it sees what it would see, and clears it the same
//! way. Why that is enough:
//!
//! * **A word has one writer and one way.** Processors and NICs are not atomic with each other, and two NICs are not
//!   either. But each word that another rank tells (a count by expert and rank, a flag by expert, a credit and a
//!   meeting by rank) is written by that rank alone, once a call; and a rank is mapped, or not, for as long as the
//!   buffer is there. So no word is written by both, and none by two.
//! * **A store replaces the add.** A signal of kind 2 adds to a word that its receiver cleared before it gave the
//!   credit that this rank waited for: the store of the sum is the same. Its clearing is ordered before that store by
//!   the credit. A store is applied once: nothing repeats it, there is no bracket, and it is never uncertain.
//! * **Room and order are those of the credits**, which come the same way. Nothing is under way once a kernel has
//!   ended, so a cleaning has nothing to wait for here: its meeting's word is a release store behind all of it.

use super::exchange::Exchange;
use super::tensor;
use shunt_device::{HeapOffset, PIECE_BYTES, Platform, WarpLanes};
use shunt_layout::moe::At;

impl<P: Platform, L: WarpLanes> Exchange<'_, '_, P, L> {
    /// The address at which this rank reaches `rank`'s part of the exchange, its own among them; 0 where a NIC does.
    #[inline(always)]
    pub fn near(&self, rank: u32) -> u64 {
        if rank == self.me {
            return self.device.local_address(HeapOffset(self.call.base));
        }
        if self.call.peers == 0 {
            return 0;
        }
        // SAFETY: an address for each rank (`MoeCall::peers`).
        unsafe { tensor::read(self.call.peers, rank as u64) }
    }

    /// Stores a word at a rank of this node. One lane.
    #[inline(always)]
    pub fn set_near(&self, near: u64, at: At, value: u64) {
        // SAFETY: a word of the exchange there, which lies inside its part of the heap (`MoeCall::peers`).
        unsafe { self.device.store_near(near.wrapping_add(at.0), value) }
    }

    /// Stores a piece of a message, so many bytes behind its first: in its slot at a rank of this node, or in this
    /// rank's send buffer.
    #[inline(always)]
    pub fn store_near(&self, first: u64, bytes: u64, piece: [u64; 2]) {
        // SAFETY: what credits made this rank's, until a word or a post covers it (`MoeCall::peers`).
        unsafe { self.device.store_piece_near(first.wrapping_add(bytes), piece) }
    }

    /// Copies a message of this rank's heap to a rank of this node. All lanes.
    #[inline(always)]
    pub fn copy_near(&self, to: u64, src: HeapOffset, bytes: u64) {
        let mut at = self.lanes.rank() as u64 * PIECE_BYTES;
        while at < bytes {
            self.store_near(to, at, self.device.load_piece(HeapOffset(src.0 + at)));
            at += self.lanes.size() as u64 * PIECE_BYTES;
        }
    }

    /// Tells a rank of this node what covers the messages that all lanes stored there: the word that a signal of so
    /// many would make.
    #[inline(always)]
    pub fn cover_near(&self, near: u64, at: At, number: u64) {
        self.lanes.sync();
        if self.leads() {
            self.set_near(near, at, self.covering(number).1);
        }
    }
}
