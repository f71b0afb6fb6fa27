//! What a switch counts and records for the host. Slow paths only.

use super::words::words;
use crate::part::part;
use crate::platform::Platform;
use crate::root::root;
use crate::shared::{Shared, fields};
use shunt_layout::state::{
    NO_SLOT, PathIdentity, PathRow, RECORDS, SLOTS_MAX, STEP_RECORDS, StepRecord, SwitchKind, SwitchRecord,
    SwitchWord, Tally,
};

fields!(PathRow { identity: PathIdentity });

fields!(Tally {
    pub(super) suspicions: u64,
    pub(super) fences_asked: u64,
    pub(super) replayed: u64,
    pub(super) placeholders: u64,
    pub(super) late_tickets: u64,
    pub(super) ledger_cuts: u64,
    pub(super) pathless: u64,
    pub(super) uncertain: u64,
    entered: [u32; SLOTS_MAX],
    left: [u32; SLOTS_MAX],
});

fields!(SwitchRecord {
    sequence: u64,
    kind: u32,
    cause: u32,
    peer: u32,
    channel: u32,
    from: u32,
    to: u32,
    syndrome: u32,
    ledger: u32,
    done_at_close: u64,
    executed: u64,
    journal_end: u64,
    generation: u64,
    stamps: [u64; 6],
    left: PathIdentity,
    entered: PathIdentity,
});

fields!(StepRecord {
    sequence: u64,
    at_ns: u64,
    row: u32,
    step: u32,
    from: u32,
    to: u32,
    cause: u32,
    from_incarnation: u32,
    done: u64,
    executed: u64,
    journal_end: u64,
});

/// Adds to a counter of the channel. Only the owner of its switch does.
pub(super) fn count<P: Platform>(counter: Shared<'_, P, u64>, more: u64) {
    if more != 0 {
        counter.store(counter.load().wrapping_add(more));
    }
}

/// Counts one more.
fn count_one<P: Platform>(counter: Shared<'_, P, u32>) {
    counter.store(counter.load().wrapping_add(1));
}

impl<'s, P: Platform> Shared<'s, P, PathIdentity> {
    /// Copies it word by word.
    fn copy_to(self, to: Shared<'s, P, PathIdentity>) {
        let word = |identity: Self, number: usize| {
            // SAFETY: an identity is a whole number of words, aligned to them in each row that has one (the assertion
            // below).
            unsafe { Shared::new(identity.address().cast::<u64>().add(number), identity.platform()) }
        };
        let mut i = 0;
        while i < size_of::<PathIdentity>() / 8 {
            word(to, i).store(word(self, i).load());
            i += 1;
        }
    }
}
const _: () = {
    assert!(size_of::<PathIdentity>().is_multiple_of(8));
    assert!(align_of::<PathRow>() >= 8 && core::mem::offset_of!(PathRow, identity).is_multiple_of(8));
    assert!(core::mem::offset_of!(SwitchRecord, left).is_multiple_of(8));
    assert!(core::mem::offset_of!(SwitchRecord, entered).is_multiple_of(8));
};

part! {
    /// Writes the two rings of records and a channel's counters of slots.
    pub(super) Records {}
}

impl<'s, P: Platform> Records<'s, P> {
    /// A generation was opened: which slot it left and which it entered.
    pub(super) fn count_opened(self, from: u32, to: u32) {
        let tally = self.ptr.tally();
        let slots = root!(self.ptr.state, slots);
        if from < slots {
            count_one(tally.left().element(from as usize));
        }
        if to < slots {
            count_one(tally.entered().element(to as usize));
        }
    }

    /// Leaves a record of a step that is entered now, if records are asked for.
    #[inline(always)]
    pub(super) fn step(self, at: SwitchWord, now: u64) {
        if root!(self.ptr.state, step_records) != 0 {
            self.write_step(at, now);
        }
    }

    /// The record is this call's alone until the ring has gone round, and a reader that is overtaken sees it by the
    /// sequence, which is written last.
    #[inline(never)]
    fn write_step(self, at: SwitchWord, now: u64) {
        let words = words(self.ptr);
        let (from, to) = (words.from().load(), at.to());
        let (cause, row) = (words.cause().load(), self.ptr.row());
        let (incarnation, journal_end) = (words.from_incarnation().load(), words.journal_end().load());
        let (done, executed) = (words.done_at_close().load(), words.executed().load());
        let (number, record) = self.take_step_record();
        record.sequence().store_release(0);
        self.ptr.platform().announce_before_recheck();
        record.at_ns().store(now);
        record.row().store(row);
        record.step().store(at.step() as u32);
        record.from().store(from);
        record.to().store(to);
        record.cause().store(cause);
        record.from_incarnation().store(incarnation);
        record.done().store(done);
        record.executed().store(executed);
        record.journal_end().store(journal_end);
        record.sequence().store_release(number + 1);
    }

    #[inline(always)]
    fn take_step_record(self) -> (u64, Shared<'s, P, StepRecord>) {
        let state = self.ptr.state;
        // SAFETY: the one head counter of the ring.
        let number = unsafe { state.row_of::<u64>(root!(state, steps_head), 0) }.fetch_add(1);
        // SAFETY: modulo the length of the ring.
        (number, unsafe { state.row_of(root!(state, steps), (number % STEP_RECORDS as u64) as u32) })
    }

    #[inline(always)]
    fn take_record(self) -> (u64, Shared<'s, P, SwitchRecord>) {
        let state = self.ptr.state;
        // SAFETY: the one head counter of the ring.
        let number = unsafe { state.row_of::<u64>(root!(state, records_head), 0) }.fetch_add(1);
        // SAFETY: modulo the length of the ring.
        (number, unsafe { state.row_of(root!(state, records), (number % RECORDS as u64) as u32) })
    }

    /// Leaves a record of a whole switch, as `write_step` does of a step.
    pub(super) fn write(self, kind: SwitchKind, to: u32, generation: u64) {
        let words = words(self.ptr);
        let from = words.from().load();
        let (cause, syndrome, ledger) =
            (words.cause().load(), words.syndrome().load(), words.ledger().load());
        let (done, executed) = (words.done_at_close().load(), words.executed().load());
        let journal_end = words.journal_end().load();
        let (number, record) = self.take_record();
        record.sequence().store_release(0);
        self.ptr.platform().announce_before_recheck();
        record.kind().store(kind as u32);
        record.cause().store(cause);
        record.peer().store(self.ptr.peer());
        record.channel().store(self.ptr.index());
        record.from().store(from);
        record.to().store(to);
        record.syndrome().store(syndrome);
        record.ledger().store((ledger != 0) as u32);
        record.done_at_close().store(done);
        record.executed().store(executed);
        record.journal_end().store(journal_end);
        record.generation().store(generation);
        let mut i = 0;
        while i < 6 {
            record.stamps().element(i).store(words.stamps().element(i).load());
            i += 1;
        }
        self.ptr.path(from).identity().copy_to(record.left());
        if to != NO_SLOT {
            self.ptr.path(to).identity().copy_to(record.entered());
        }
        record.sequence().store_release(number + 1);
    }
}
