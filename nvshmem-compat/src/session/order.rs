//! What orders transfers: fence, quiet, flush.

use super::Session;
use crate::failure::Failure;
use shunt_device::Solo;

impl Session {
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let me = self.me();
        (0..self.pes()).filter(move |pe| *pe != me)
    }

    /// Waits until everything that was posted is done.
    ///
    /// # Errors
    /// The first channel that carries nothing any more.
    pub fn quiet(&self) -> Result<(), Failure> {
        self.others().try_for_each(|pe| self.quiet_to(pe as i32))
    }

    /// The same for what was posted to one PE.
    ///
    /// # Errors
    /// No such PE, or its channel carries nothing any more.
    pub fn quiet_to(&self, pe: i32) -> Result<(), Failure> {
        let pe = self.check_pe(pe)?;
        if pe == self.me() {
            return Ok(());
        }
        let channel = self.channel(pe);
        self.patiently(|| format!("all that was sent to PE {pe}"), |until| channel.quiet(Solo, until))
    }

    /// What is posted before this arrives before what is posted after it: host calls to one PE take one channel, which
    /// keeps their order across switches. So there is nothing to wait for, but a channel that is dead is told.
    ///
    /// # Errors
    /// The first channel that carries nothing any more.
    pub fn fence(&self) -> Result<(), Failure> {
        for pe in self.others() {
            self.channel(pe).alive().map_err(|fault| self.channel_failure(&fault))?;
        }
        Ok(())
    }
}
