//! The journal of a switch: the ring of the path that is left.
//!
//! It is the only journal until the new ring holds all of it; nothing frees it before.

use super::words::words;
use crate::doorbell::Doorbell;
use crate::journal::{self, Entry};
use crate::multi_block::MultiBlock;
use crate::part::part;
use crate::platform::Platform;
use crate::send_queue::SendQueue;
use shunt_layout::mlx5::wqe::Wqebb;

part! {
    /// Reads the journal, and counts in it. What is read was published before the close and is kept until the switch
    /// is over.
    pub(super) OldRing { multi_block: MultiBlock, doorbell: Doorbell }
}

impl<'s, P: Platform> OldRing<'s, P> {
    /// The old ring as the switch found it. Its path may have been recreated since, in another ring.
    pub(super) fn queue(self) -> SendQueue<'s, P> {
        let words = words(self.ptr);
        let queue = SendQueue::of(self.ptr, words.from().load());
        queue.with_ring(words.journal_queue().load(), words.journal_base().load())
    }

    /// Entry of the journal for `ticket`.
    pub(super) fn entry(old: &SendQueue<'s, P>, ticket: u64) -> Entry {
        journal::read(&Self::block(old, ticket))
    }

    pub(super) fn block(old: &SendQueue<'s, P>, ticket: u64) -> Wqebb {
        old.block(ticket.wrapping_sub(old.base)).load()
    }

    /// True if the block of `ticket` is the second one of a WQE.
    pub(super) fn is_second(old: &SendQueue<'s, P>, ticket: u64) -> bool {
        let physical = ticket.wrapping_sub(old.base);
        let block = old.block(physical).load();
        !journal::starts_at(&block, physical, old.qpn_shifted)
    }

    /// Wide WQEs before `ticket` on the path that is left: all that were posted, less those in the journal behind it.
    pub(super) fn lag_at(self, ticket: u64) -> u64 {
        let wide = self.multi_block().posted(words(self.ptr).from().load());
        if wide == 0 {
            return 0;
        }
        let (old, end) = (self.queue(), words(self.ptr).journal_end().load());
        wide.wrapping_sub(self.multi_block().seconds_between(&old, ticket, end))
    }

    /// End of what may have been executed: what the old path's NIC was never told of, it did not send.
    pub(super) fn announced(self) -> u64 {
        words(self.ptr).journal_end().load().min(self.doorbell().posted())
    }

    /// First ticket whose fate is open.
    pub(super) fn undecided(self) -> u64 {
        words(self.ptr).executed().load().max(words(self.ptr).done_at_close().load())
    }
}
