//! Between what a buffer does and what comes behind it: settling, and cleaning after a fault.

use super::{MADE, NormalBuffer, NormalRunner};
use crate::fault::MoeError;
use shunt_kernels::moe::normal::{CLEAN, NormalCall, NormalKernel, ZERO};
use std::sync::atomic::Ordering;

impl<R: NormalRunner> NormalBuffer<R> {
    /// Waits until nothing that this rank posted is under way, and all ranks are there: behind it the part of the heap
    /// may become something else's. All ranks call it together.
    ///
    /// # Errors
    /// A rank did not come, or is lost.
    pub fn settle(&mut self) -> Result<(), MoeError> {
        let call = NormalCall { number: self.met + 1, blocks: 1, ..self.call() };
        self.run(NormalKernel::Settle, &call)?;
        self.met += 1;
        Ok(())
    }

    /// All ranks call it together, whichever of them met a fault: what was under way is given up, and a buffer that
    /// was broken is usable again, as a new one. Layouts and handles of before are worth nothing any more. Where it
    /// ends with a fault it may be called again, and goes on where it was.
    ///
    /// It has two halves. Behind the first all that any rank posted is done, and no rank is in a call: each sets its
    /// words to zero. Behind the second all ranks have done so. A rank that is through with a half never repeats it:
    /// the others may be in calls again.
    ///
    /// # Errors
    /// A rank did not come, or is lost; sizes differ, which is for good.
    pub fn clean(&mut self) -> Result<(), MoeError> {
        self.agreement.check()?;
        // By other sizes the words of a cleaning lie elsewhere.
        self.hold_broken()?;
        let halves = self.cleaned / 2 * 2 + 2;
        while self.cleaned < halves {
            let number = self.cleaned + 1;
            let flags = if number < halves { CLEAN | ZERO } else { CLEAN };
            // Until its end: a call in between would count from words that are half of before.
            self.broken = true;
            let call = NormalCall { number, flags, blocks: 1, ..self.call() };
            self.run_broken(NormalKernel::Settle, &call)?;
            self.cleaned = number;
        }
        (self.notified, self.met, self.broken) = (0, 0, false);
        self.made = MADE.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
