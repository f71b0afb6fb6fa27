//! Exact fetching atomics: the word's owner executes the request and keeps the answer, so that no failure loses it.
//!
//! A fetching atomic of the NIC has one answer, and a port that fails may take it along. Here the request is a record
//! in the owner's memory with a number, written as a put and a kind 1 signal. The owner's agent executes it on the
//! word's home NIC and leaves a reply with that number. The requester READs the reply until it is there. Each step may
//! be repeated: a number that was executed is answered from the reply that lies there.
//!
//! A row of a channel has one request under way. Who finds the row taken waits for its turn.

use crate::part::part;
use crate::platform::Platform;
use crate::poster::is_none;
use crate::rma::Rma;
use crate::root::root;
use crate::shared::{Shared, fields};
use crate::state_ptr::StatePtr;
use crate::switch::{Report, Switch};
use crate::types::{Amo, FaultKind, HeapOffset, Posted};
use crate::waiter::Waiter;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{AmoForm, FetchReply, FetchRequest, FetchSlot, FetchStatus};

/// First pause between two looks at a reply, and the longest: it is doubled by each.
const PAUSES_NS: [u64; 2] = [1_000, 32_000];

const SLOT_BYTES: u64 = size_of::<FetchSlot>() as u64;
const REQUEST_AT: u64 = core::mem::offset_of!(FetchSlot, request) as u64;
const REPLY_AT: u64 = core::mem::offset_of!(FetchSlot, reply) as u64;
const DRAFT_AT: u64 = core::mem::offset_of!(FetchSlot, draft) as u64;
const LANDING_AT: u64 = core::mem::offset_of!(FetchSlot, landing) as u64;

fields!(FetchSlot {
    request: FetchRequest,
    reply: FetchReply,
    draft: FetchRequest,
    landing: FetchReply,
    asked: u64,
    answered: u64,
    lock: u32,
});
fields!(FetchRequest { number: u64, word: u64, operand: u64, expect: u64, form: u32 });

/// Fields of a reply; `number` is a field of a request as well.
struct Reply<'s, P>(Shared<'s, P, FetchReply>);

impl<P: Platform> Reply<'_, P> {
    fn read(&self) -> FetchReply {
        // SAFETY: four words of a row that lies in a table (`Shared::new`), aligned to 64 bytes.
        let load = |number: usize| unsafe {
            self.0.platform().load_acquire(self.0.address().cast::<u64>().add(number))
        };
        FetchReply { number: load(0), value: load(1), status: load(2), check: load(3) }
    }
}

part! {
    /// Asks the owner of a word for an atomic.
    pub(crate) ExactFetch { rma: Rma, waiter: Waiter, switch: Switch, report: Report }
}

/// What a caller is told: the kind of a fault or 0, and the value. Two registers.
const fn told(kind: u64, value: u64) -> u128 {
    (kind as u128) << 64 | value as u128
}

impl<'s, P: Platform> ExactFetch<'s, P> {
    /// Has an atomic executed at the peer. The upper half of the answer is the fault's kind or 0, the lower one what
    /// the word was.
    #[inline(always)]
    pub(crate) fn fetch(state: StatePtr<'s, P>, row: u32, at: u64, amo: Amo, until_ns: u64) -> u128 {
        let (form, operand, expect) = amo.request();
        Self::fetch_slow(state, row, at, form, operand, expect, until_ns)
    }

    /// Its arguments are words: a caller on a GPU would lay an [`Amo`] on its stack.
    #[inline(never)]
    fn fetch_slow(
        state: StatePtr<'s, P>,
        row: u32,
        at: u64,
        form: AmoForm,
        operand: u64,
        expect: u64,
        until_ns: u64,
    ) -> u128 {
        let fetch = ExactFetch::of(state.row(row));
        if root!(state, fetch) == 0 {
            return told(FaultKind::FetchNotExact as u64, 0);
        }
        let bytes = bytes_of(form);
        if !fetch.ptr.word_fits(HeapOffset(at), bytes) {
            return told(FaultKind::BadAddress as u64, 0);
        }
        // Of eight bytes, the owner compares and swaps for those that its NIC lacks.
        if !fetch.ptr.has_atomic(bytes == 4) {
            return told(FaultKind::NoMaskedAtomics as u64, 0);
        }
        let slot = fetch.slot();
        while !slot.lock().try_lock() {
            if fetch.switch().is_dead() {
                return told(fetch.report().dead_kind() as u64, 0);
            }
            if fetch.ptr.now_ns() > until_ns {
                return told(FaultKind::Overdue as u64, 0);
            }
            fetch.ptr.platform().relax();
        }
        let answer = fetch.fetch_in_turn(slot, at, form, operand, expect, until_ns);
        slot.lock().unlock();
        answer
    }

    /// The row of this channel in the table behind this PE's heap.
    fn slot(self) -> Shared<'s, P, FetchSlot> {
        let (state, row) = (self.ptr.state, self.ptr.row() as u64);
        let at = state.local_address(HeapOffset(root!(state, fetch) + row * SLOT_BYTES));
        // SAFETY: the table behind the heap has a row for each channel, and a channel's row is below their number.
        unsafe { Shared::new(at as *mut FetchSlot, self.ptr.platform()) }
    }

    /// Heap offset of this PE's row at the peer.
    fn row_there(self) -> u64 {
        let state = self.ptr.state;
        let row = root!(state, my_pe) * root!(state, channels_per_pe) + self.ptr.index();
        row as u64
    }

    fn slot_there(self) -> u64 {
        root!(self.ptr.state, fetch) + self.row_there() * SLOT_BYTES
    }

    /// Heap offset of the number of this PE's row at the peer.
    fn number_there(self) -> u64 {
        let state = self.ptr.state;
        let rows = root!(state, pe_count) as u64 * root!(state, channels_per_pe) as u64;
        root!(state, fetch) + rows * SLOT_BYTES + self.row_there() * 8
    }

    /// The caller holds the row.
    fn fetch_in_turn(
        self,
        slot: Shared<'s, P, FetchSlot>,
        at: u64,
        form: AmoForm,
        operand: u64,
        expect: u64,
        until_ns: u64,
    ) -> u128 {
        // A request that was given up on may still be read by its owner: its reply comes first.
        let before = slot.asked().load_acquire();
        if slot.answered().load_acquire() != before {
            let met = self.reply_to(slot, before, until_ns);
            if (met >> 64) as u64 == FaultKind::Overdue as u64 || slot.answered().load_acquire() != before {
                return met;
            }
        }
        let number = before + 1;
        let draft = slot.draft();
        draft.word().store(at);
        draft.operand().store(operand);
        draft.expect().store(expect);
        draft.form().store(form as u32);
        draft.number().store_release(number);
        slot.asked().store_release(number);
        match self.ask(slot, number) {
            None => self.reply_to(slot, number, until_ns),
            Some(kind) => {
                // It was not posted: nobody will ever answer it.
                slot.asked().store_release(before);
                told(kind, 0)
            }
        }
    }

    /// Puts the request and its number at the owner. The kind of a fault, if it could not be posted.
    fn ask(self, slot: Shared<'s, P, FetchSlot>, number: u64) -> Option<u64> {
        if self.ptr.is_loopback() {
            let (request, draft) = (slot.request(), slot.draft());
            request.word().store(draft.word().load());
            request.operand().store(draft.operand().load());
            request.expect().store(draft.expect().load());
            request.form().store(draft.form().load());
            request.number().store(number);
            self.ptr.state.heap_word(HeapOffset(self.number_there())).store_release(number);
            return None;
        }
        let here = root!(self.ptr.state, fetch) + self.ptr.row() as u64 * SLOT_BYTES;
        let from = here + DRAFT_AT;
        let signal = (self.number_there(), number);
        self.fault_of(self.rma().post_record(self.slot_there() + REQUEST_AT, from, REQUEST_BYTES, signal))
    }

    /// READs the reply until it is there.
    fn reply_to(self, slot: Shared<'s, P, FetchSlot>, number: u64, until_ns: u64) -> u128 {
        let here = root!(self.ptr.state, fetch) + self.ptr.row() as u64 * SLOT_BYTES;
        let mut pause_ns = PAUSES_NS[0];
        loop {
            let reply = if self.ptr.is_loopback() {
                Reply(slot.reply()).read()
            } else {
                let posted =
                    self.rma().read_record(self.slot_there() + REPLY_AT, here + LANDING_AT, REPLY_BYTES);
                if let Some(kind) = self.fault_of(posted) {
                    return told(kind, 0);
                }
                match self.waiter().wait_slow(posted.raw(), until_ns) {
                    0 => Reply(slot.landing()).read(),
                    kind => return told(kind, 0),
                }
            };
            let other = Mutant::FetchReplyOfAnother.on() && reply.answers(reply.number) && reply.number != 0;
            if reply.answers(number) || other {
                slot.answered().store_release(number);
                return match FetchStatus::from_raw(reply.status) {
                    Some(FetchStatus::Done) => told(0, reply.value),
                    Some(FetchStatus::Refused) => told(FaultKind::BadAddress as u64, 0),
                    Some(FetchStatus::Unserved) => told(FaultKind::FenceUnproven as u64, 0),
                    _ => told(FaultKind::AnswerLost as u64, 0),
                };
            }
            let now = self.ptr.now_ns();
            if now > until_ns {
                return told(FaultKind::Overdue as u64, 0);
            }
            while self.ptr.now_ns().saturating_sub(now) < pause_ns {
                self.ptr.platform().relax();
            }
            pause_ns = (2 * pause_ns).min(PAUSES_NS[1]);
        }
    }

    fn fault_of(self, posted: Posted) -> Option<u64> {
        if !is_none(posted.raw()) {
            return None;
        }
        let kind = match posted.kind() {
            Some(kind) if !self.switch().is_dead() => kind,
            _ => self.report().dead_kind(),
        };
        Some(kind as u64)
    }
}

/// Bytes of the word that an atomic of this form changes. All of four bytes are masked ones.
const fn bytes_of(form: AmoForm) -> u64 {
    match form {
        AmoForm::Add32
        | AmoForm::Set32
        | AmoForm::And32
        | AmoForm::Or32
        | AmoForm::Xor32
        | AmoForm::CompareSwap32 => 4,
        AmoForm::Add64
        | AmoForm::Set64
        | AmoForm::And64
        | AmoForm::Or64
        | AmoForm::Xor64
        | AmoForm::CompareSwap64 => 8,
    }
}

const REQUEST_BYTES: u64 = size_of::<FetchRequest>() as u64;
const REPLY_BYTES: u64 = size_of::<FetchReply>() as u64;
