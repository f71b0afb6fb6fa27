//! What a switch counts, and the record of each step where those are asked for. Slow paths only.

use super::get;
use crate::access::Channel;
use crate::platform::Platform;
use crate::root::root;
use core::ptr::addr_of_mut;
use shunt_layout::state::Step;

/// Adds to a counter of the channel. Only the owner of its switch does.
macro_rules! count {
    ($channel:expr, $field:ident += $value:expr) => {{
        let value: u64 = $value;
        if value != 0 {
            // SAFETY: a field of a valid channel's counters, which only the owner of its switch writes.
            unsafe {
                let word = addr_of_mut!((*$channel.tally()).$field);
                $channel.platform().store(word, $channel.platform().load(word).wrapping_add(value));
            }
        }
    }};
}
pub(crate) use count;

impl<P: Platform> Channel<'_, P> {
    /// A generation was opened: which slot it left and which it entered.
    pub(super) fn count_opened(self, from: u32, to: u32) {
        let (p, tally) = (self.platform(), self.tally());
        let slots = root!(self.device, slots);
        // SAFETY: elements of a valid channel's counters: slots are below their number, and only the owner of the
        // switch writes them.
        unsafe {
            if from < slots {
                let word = addr_of_mut!((*tally).left).cast::<u32>().add(from as usize);
                p.store32(word, p.load32(word).wrapping_add(1));
            }
            if to < slots {
                let word = addr_of_mut!((*tally).entered).cast::<u32>().add(to as usize);
                p.store32(word, p.load32(word).wrapping_add(1));
            }
        }
    }

    /// Leaves a record of a step that is entered now, if records are asked for.
    #[inline(always)]
    pub(super) fn record_step(self, step: Step, now: u64) {
        if root!(self.device, step_records) != 0 {
            self.write_step(step as u32, now);
        }
    }

    #[inline(never)]
    fn write_step(self, step: u32, now: u64) {
        let p = self.platform();
        let (from, to) = (get!(self, from: u32), get!(self, to: u32));
        let (cause, row) = (get!(self, cause: u32), self.row());
        let (incarnation, journal_end) = (get!(self, from_incarnation: u32), get!(self, journal_end: u64));
        let (done, executed) = (get!(self, done_at_close: u64), get!(self, executed: u64));
        // SAFETY: head counter and ring are device state; the record is this call's alone until the ring has gone
        // round, and a reader that is overtaken sees it by the sequence.
        unsafe {
            let number = p.fetch_add(root!(self.device, steps_head) as *mut u64, 1);
            let record = self.step_record(number);
            p.store_release(addr_of_mut!((*record).sequence), 0);
            p.announce_before_recheck();
            p.store(addr_of_mut!((*record).at_ns), now);
            p.store32(addr_of_mut!((*record).row), row);
            p.store32(addr_of_mut!((*record).step), step);
            p.store32(addr_of_mut!((*record).from), from);
            p.store32(addr_of_mut!((*record).to), to);
            p.store32(addr_of_mut!((*record).cause), cause);
            p.store32(addr_of_mut!((*record).from_incarnation), incarnation);
            p.store(addr_of_mut!((*record).done), done);
            p.store(addr_of_mut!((*record).executed), executed);
            p.store(addr_of_mut!((*record).journal_end), journal_end);
            p.store_release(addr_of_mut!((*record).sequence), number + 1);
        }
    }
}
