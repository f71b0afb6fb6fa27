//! What orders transfers: quiet, flush. A fence is the channels' own.

use super::Session;
use crate::failure::Failure;

impl Session {
    /// Waits until everything that was posted is done, by kernels as well.
    ///
    /// # Errors
    /// The first channel that carries nothing any more.
    pub fn quiet(&self) -> Result<(), Failure> {
        self.kernels.quiet(|| false)?;
        self.peers.others().try_for_each(|pe| self.peers.quiet(pe as i32))?;
        // What was got is there.
        self.peers.settle_writes();
        Ok(())
    }
}
