//! What orders transfers: quiet, fence.

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

    /// What is sent to a PE before this arrives before what is sent to it after. A channel keeps its own order, across
    /// switches. But a PE whose heap is mapped here is sent puts by stores, and atomics and signals by NIC: a store
    /// would overtake those, so they are waited for. Stores are there before anything is posted behind them: each copy
    /// ends with a fence of the processor, and a doorbell stands behind another.
    ///
    /// # Errors
    /// The first channel that carries nothing any more.
    pub fn fence(&self) -> Result<(), Failure> {
        self.peers.fence()?;
        let mapped = self.peers.others().filter(|pe| self.node.base(*pe).is_some());
        mapped.into_iter().try_for_each(|pe| self.peers.quiet(pe as i32))
    }
}
