//! What orders transfers: fence, quiet, flush.

use super::Session;
use crate::failure::Failure;
use shunt_device::Solo;

impl Session {
    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let me = self.me();
        (0..self.pes()).filter(move |pe| *pe != me)
    }

    /// Waits until all that kernels posted is done, or until nobody is left to take it.
    ///
    /// # Errors
    /// A channel of theirs carries nothing any more, or the call's time is over.
    pub(super) fn patiently_quiet(&self, nobody_is_left: impl Fn() -> bool) -> Result<(), Failure> {
        let since = self.now_ns();
        while !self.kernels_quiet(self.slice_ns())? {
            let waited = self.now_ns() - since;
            if waited > self.settings.call_deadline_ns {
                return Err(self.overdue("what kernels sent".to_owned(), waited));
            }
            if nobody_is_left() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until everything that was posted is done, by kernels as well.
    ///
    /// # Errors
    /// The first channel that carries nothing any more.
    pub fn quiet(&self) -> Result<(), Failure> {
        self.patiently_quiet(|| false)?;
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
