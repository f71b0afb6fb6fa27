//! Cleaning a buffer, and who is left out of it.

use super::{Buffer, argument, numbered};
use crate::agreement::{Agreement, Mask, last_meeting};
use crate::fault::MoeError;
use crate::runner::Runner;
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_layout::moe::CALLS_MAX;
use std::sync::atomic::Ordering;

/// Bits of a meeting's word that hold a call's number; the meeting's own is above them.
const CALL_BITS: u32 = 32;

/// Whether there are numbers for both halves of a meeting, by itself or of an epoch, and for the call it stands behind.
fn may_meet(meeting: u64, epoch: Option<u64>, sent: u64) -> Result<(), MoeError> {
    numbered("meeting", meeting + 1, epoch.map_or(CALLS_MAX, last_meeting))?;
    numbered("call", sent + 1, CALLS_MAX)
}

impl<R: Runner> Buffer<R> {
    /// DeepEP's `clean_low_latency_buffer`: all ranks call it together. What was under way is given up, words begin at
    /// zero, a buffer that was broken is usable again. Where the ranks agree on a mask it is taken here, and those that
    /// are left out need not come.
    ///
    /// # Errors
    /// A rank did not come, or is lost; this rank is left out.
    pub fn clean(&mut self) -> Result<(), MoeError> {
        self.take_mask()?;
        may_meet(self.meeting, self.agreed.as_ref().map(Mask::epoch), self.sent)?;
        let from = match self.half_met() {
            Some(agreement) => self.meet_the_rest(&agreement)?,
            None => {
                // Behind a call that was begun and is not counted: its number is not used again.
                let call = MoeCall { floor: self.meeting, blocks: 1, ..self.call(self.sent + 1, 0) };
                self.run(Stage::Clean, &call)?
            }
        };
        // One that failed is held again under its number: ranks may try as often as they like, and meet.
        self.meeting += 2;
        (self.sent, self.received, self.floor, self.broken, self.lent) = (from, from, from, false, 0);
        Ok(())
    }

    /// This rank came to the second half of the meeting before: its words are cleared, and others may have gone on
    /// since. They must not be cleared once more.
    fn half_met(&self) -> Option<Agreement> {
        let own = self.word(self.shape.meeting(self.runner.rank())).load(Ordering::Acquire);
        if own >> CALL_BITS == self.meeting + 1 { self.runner.agreement() } else { None }
    }

    /// Waits for the others at the second half of a meeting; the number that calls are counted from.
    fn meet_the_rest(&self, agreement: &Agreement) -> Result<u64, MoeError> {
        let (mask, second) = (self.mask(), self.meeting + 1);
        let word = |rank| self.word(self.shape.meeting(rank)).load(Ordering::Acquire);
        let ranks = || (0..self.shape.ranks).filter(|rank| !mask[*rank as usize]);
        let missing = || ranks().find(|rank| word(*rank) >> CALL_BITS < second);
        agreement.wait(self.patience.timeout_ns, || missing().is_none());
        match missing() {
            Some(rank) => Err(MoeError::Unmet(rank)),
            None => Ok(ranks().map(|rank| word(rank) & ((1 << CALL_BITS) - 1)).max().unwrap_or(self.sent)),
        }
    }

    /// Takes the mask that the ranks agreed on. Calls before it and behind it are of different epochs.
    fn take_mask(&mut self) -> Result<(), MoeError> {
        let Some(agreed) = &mut self.agreed else { return Ok(()) };
        let taken = agreed.take(self.patience.timeout_ns).inspect_err(|_| self.broken = true)?;
        for rank in &taken.masked {
            self.mask_word(*rank).store(1, Ordering::Release);
        }
        self.meeting = taken.meeting.unwrap_or(self.meeting);
        Ok(())
    }

    /// Decisions about who is left out that this buffer goes by; 0 where there was none, or nothing is agreed on.
    pub fn epoch(&self) -> u64 {
        self.agreed.as_ref().map_or(0, Mask::epoch)
    }

    /// DeepEP's `low_latency_query_mask_buffer`: true for ranks that are left out.
    pub fn mask(&self) -> Vec<bool> {
        let word = |rank| self.mask_word(rank).load(Ordering::Acquire) != 0;
        (0..self.shape.ranks).map(word).collect()
    }

    /// DeepEP's `low_latency_update_mask_buffer`: leaves a rank out, or takes it in again. One that was taken in again
    /// left words half counted, so that the buffer is broken until all ranks have cleaned.
    ///
    /// # Errors
    /// There is no such rank, or it is this one; the ranks agree on their mask, so that no rank sets it alone.
    pub fn set_mask(&mut self, rank: u32, masked: bool) -> Result<(), MoeError> {
        if rank >= self.shape.ranks || rank == self.runner.rank() {
            let right = format!("below {}, and not {}, this one", self.shape.ranks, self.runner.rank());
            return Err(argument("a rank to mask", rank, right));
        }
        if self.agreed.is_some() {
            return Err(argument(
                "set_mask",
                "with mask_lost",
                "a mask that the ranks agree on, and no other",
            ));
        }
        let before = self.mask_word(rank).swap(u64::from(masked), Ordering::AcqRel);
        self.broken |= before != 0 && !masked;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::first_meeting;

    /// Meetings of one epoch stay below those of the next, and all fit their half of a word.
    #[test]
    fn meetings_end_where_their_numbers_do() {
        for (epoch, last) in
            [(None, CALLS_MAX), (Some(0), 0xffff), (Some(3), 0x3_ffff), (Some(0xffff), CALLS_MAX)]
        {
            assert_eq!(may_meet(last - 1, epoch, 0), Ok(()), "{epoch:?}");
            let refused = may_meet(last + 1, epoch, 0);
            assert_eq!(
                refused,
                Err(MoeError::Numbers { what: "meeting", met: last + 2, most: last }),
                "{epoch:?}"
            );
            assert!(last < first_meeting(epoch.unwrap_or(0xffff) + 1) && last <= CALLS_MAX);
        }
        assert_eq!(may_meet(2, None, CALLS_MAX - 1), Ok(()));
        assert!(
            may_meet(2, None, CALLS_MAX)
                .is_err_and(|error| error.to_string().contains("call number 4294967296"))
        );
    }
}
