//! Calls on a stream where the program's kernels run: a kernel makes each, in the stream's order, so that a stream can
//! be captured. What a kernel cannot do, because it reaches memory outside the heap, is left to the caller.

use super::Session;
use crate::failure::Failure;
use crate::stream_call::{StreamCall, What};
use std::ffi::c_void;

impl Session {
    /// Launches a call. `Ok(false)`: no kernel can do it.
    ///
    /// # Errors
    /// What is wrong with its arguments, or no kernel could be launched. What befalls the kernel is told as of all
    /// device functions.
    pub fn launch(&self, call: &StreamCall, stream: *mut c_void) -> Result<bool, Failure> {
        if !self.kernels.can_launch() || !self.is_for_kernels(call)? {
            return Ok(false);
        }
        // Calls that no kernel does went by the host's channel, and are behind them on the stream.
        if !matches!(call.what, What::Put | What::Get | What::Signal | What::Wait | What::Meet) {
            self.peers.others().try_for_each(|pe| self.peers.quiet(pe as i32))?;
        }
        self.kernels.launch(call, stream).map(|()| true)
    }

    /// Whether all that it reads and writes lies in the heap, where the arguments are good.
    fn is_for_kernels(&self, call: &StreamCall) -> Result<bool, Failure> {
        let inside = |at, bytes| self.heap.offset(at, bytes).map(|_| ());
        let word = || self.heap.word(call.word);
        match call.what {
            What::Put => {
                self.peers.check(call.peer)?;
                inside(call.target, call.bytes)?;
                if call.word != 0 {
                    word()?;
                }
                Ok(self.is_symmetric(call.source, call.bytes))
            }
            What::Get => {
                self.peers.check(call.peer)?;
                inside(call.source, call.bytes)?;
                Ok(self.is_symmetric(call.target, call.bytes))
            }
            What::Signal => self.peers.check(call.peer).and(word()).map(|()| true),
            What::Wait => word().map(|()| true),
            What::Quiet => Ok(true),
            What::Meet | What::Barrier => self.teams.team(call.peer).map(|_| true),
            What::Broadcast | What::Collect | What::AllToAll => {
                let size = u64::from(self.teams.team(call.peer)?.size());
                let (to, from) = match call.what {
                    What::Broadcast => (1, 1),
                    What::Collect => (size, 1),
                    _ => (size, size),
                };
                inside(call.target, call.bytes.saturating_mul(to))?;
                inside(call.source, call.bytes.saturating_mul(from)).map(|()| true)
            }
        }
    }
}
