//! The oldest unfinished message of a path: whether its bytes excuse that the path is silent.

use super::state::State;
use crate::journal;
use crate::part::part;
use crate::paths::Paths;
use crate::platform::Platform;
use crate::send_queue::SendQueue;
use crate::stall::{SLOWEST_BYTES, UNIT_NS};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::Word;

part! {
    /// Looks at one WQE.
    pub(crate) OldestMessage { state: State, paths: Paths }
}

impl<P: Platform> OldestMessage<'_, P> {
    /// True if the oldest unfinished message, that of `at`, is so large that it may still be on its way, `beyond` the
    /// time after which the path would be suspected. Looked at by who is about to suspect it, and by nobody else: one
    /// copy, out of the way of the waits.
    #[inline(never)]
    pub(crate) fn is_moving_slow(self, at: Word, beyond: u32) -> bool {
        let slot = at.slot();
        if self.paths().port_down(slot) || Mutant::BytesUnseen.on() {
            return false;
        }
        let queue = SendQueue::of(self.ptr, slot);
        // What lies there of another generation is a number that comes to nothing: the close compares generations.
        let block = queue.block(at.index().wrapping_sub(queue.base));
        let bytes = journal::bytes_moved(block.load_word(0), block.load_word(1), block.load_word(8));
        let most = self.state().chain_bound_ns() / 2 / UNIT_NS;
        let allowed = bytes / SLOWEST_BYTES;
        (beyond as u64) < most && beyond < allowed
    }
}
