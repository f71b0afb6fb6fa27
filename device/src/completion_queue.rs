//! The completion queue of a path: a ring as deep as its send queue, every WQE signalled, so that CQE *n* is that of
//! WQE *n*, but for WQEs of two blocks (`multi_block.rs`).

use crate::platform::Platform;
use crate::ring;
use crate::root::root;
use crate::shared::Shared;
use crate::state_ptr::ChannelPtr;
use core::ptr::addr_of_mut;
use shunt_layout::mlx5::cqe::{CQE_BYTES, SYNDROME_WORD_OFFSET, TAIL_OFFSET, Tail};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::CqMap;

/// What a look at the completions of a path needs; a post does not.
#[derive(Clone, Copy)]
pub(crate) struct CompletionQueue<P: Platform> {
    platform: P,
    entries: u64,
    /// How completions map to tickets.
    pub(crate) map: CqMap,
    log_depth: u32,
    mask: u32,
}

impl<P: Platform> CompletionQueue<P> {
    /// That of a slot of a channel.
    #[inline(always)]
    pub(crate) fn of(ptr: ChannelPtr<'_, P>, slot: u32) -> Self {
        let (row, platform) = (ptr.hot(slot).address(), ptr.platform());
        // SAFETY: neighbouring fields of a row of the table of hot lines, each whole by itself. They change only while
        // no caller may use the path, or by compare-and-swap.
        let [entries, map] = unsafe { platform.load_two(addr_of_mut!((*row).completion_queue)) };
        Self {
            platform,
            entries,
            map: CqMap(map),
            log_depth: root!(ptr.state, log_depth),
            mask: root!(ptr.state, ring_mask),
        }
    }

    /// The owner bit of completion `number`.
    #[inline(always)]
    pub(crate) const fn owner(&self, number: u32) -> bool {
        number >> (self.log_depth & 31) & 1 != 0
    }

    /// The last word of completion `number`, which the NIC writes last.
    #[inline(always)]
    pub(crate) fn tail_word(&self, number: u32) -> Shared<'_, P, u32> {
        let at = self.entries + (number & self.mask) as u64 * CQE_BYTES as u64;
        // SAFETY: under the ring's mask.
        unsafe { Shared::new((at + TAIL_OFFSET as u64) as *mut u32, self.platform) }
    }

    /// The last word of the CQE of a ticket, if that CQE was written.
    #[inline(always)]
    pub(crate) fn tail(&self, ticket: u64) -> Option<Tail> {
        self.tail_behind(self.map.physical(ticket), self.map.lag())
    }

    /// The last word of the CQE of a physical index behind `lag` WQEs of two blocks, if that CQE was written.
    #[inline(always)]
    pub(crate) fn tail_behind(&self, physical: u32, lag: u32) -> Option<Tail> {
        let number = physical.wrapping_sub(lag) as u64;
        let tail = Tail::from_memory(self.tail_word(number as u32).load_cqe());
        // Every WQE is signalled, so CQE n is that of WQE n; the counter says so a second time, so that a map that
        // is behind finds nothing.
        let counted = tail.wqe_counter == physical as u16
            && (CqMap::index(physical) <= u16::MAX as u32 || !Mutant::CounterNotWrapped.on());
        if tail.belongs_to(number, self.log_depth) && counted { Some(tail) } else { None }
    }

    /// Syndrome and vendor syndrome of an error CQE: low byte, next byte. Its tail was seen.
    #[inline(always)]
    pub(crate) fn syndrome(&self, physical: u32, lag: u32) -> u32 {
        let number = physical.wrapping_sub(lag) as u64;
        let at = self.entries + ring::position(number, self.log_depth) * CQE_BYTES as u64;
        // SAFETY: inside the queue, as `tail_word`.
        let word =
            unsafe { Shared::<P, u32>::new((at + SYNDROME_WORD_OFFSET as u64) as *mut u32, self.platform) };
        let word = u32::from_be(word.load_cqe());
        (word & 0xff) | (word & 0xff00)
    }
}
