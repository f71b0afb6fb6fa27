//! A signal in a group of tickets, alone or behind a put: how many tickets it takes, and what is written for them.

use crate::out_of_order::OutOfOrder;
use crate::part::part;
use crate::platform::Platform;
use crate::send_queue::SendQueue;
use crate::types::{Amo, HeapOffset, Signal};
use crate::wqe_write::{ADD_TAG, CLEARED_TAG};
use crate::wqe_writer::WqeWriter;
use shunt_layout::state::Word;

part! {
    /// Chooses the form of a signal.
    pub(crate) SignalGroup { writer: WqeWriter, out_of_order: OutOfOrder }
}

impl<'s, P: Platform> SignalGroup<'s, P> {
    /// Tickets of a signal: a bracketed one has a ledger word on either side.
    #[inline(always)]
    pub(crate) fn tickets(self, signal: Signal) -> u64 {
        let writer = self.writer();
        match signal {
            Signal::Cleared(_) | Signal::Cleared32(_) if writer.has_brackets() => {
                1 + 2 * writer.ledger_blocks()
            }
            Signal::Monotone(_) if writer.are_signals_atomics() => 2,
            _ => 1,
        }
    }

    /// Writes the WQEs of a signal, from number `first` of the group of `word` on. A bracketed one is
    /// `[A = n][signal][B = n]`, where `n` is the signal's ticket plus one: never zero, and always growing.
    #[inline(always)]
    pub(crate) fn write(
        self,
        queue: &SendQueue<'s, P>,
        word: Word,
        first: u64,
        at: HeapOffset,
        signal: Signal,
    ) {
        let (writer, out_of_order) = (self.writer(), self.out_of_order());
        let place = |number: u64| queue.place(word, (first + number) as u32);
        let (amo, tag) = match signal {
            Signal::Monotone(value) if writer.is_unordered() => {
                return out_of_order.write_signal_slow(word.0, first, at.0, value);
            }
            Signal::Cleared(add) if writer.is_unordered() => {
                return out_of_order.write_bracket_slow(word.0, first, at.0, add, false);
            }
            Signal::Cleared32(add) if writer.is_unordered() => {
                return out_of_order.write_bracket_slow(word.0, first, at.0, add as u64, true);
            }
            Signal::Monotone(value) => {
                return writer.monotone(queue, place(0), at, value);
            }
            Signal::Cleared(add) => (Amo::Add64(add), CLEARED_TAG),
            Signal::Cleared32(add) => (Amo::Add32(add), CLEARED_TAG),
            Signal::Add(add) => (Amo::Add64(add), ADD_TAG),
        };
        let answer = writer.unwanted(queue, tag);
        let bracketed = self.tickets(signal) > 1;
        let number = word.index() + first + 2;
        if bracketed {
            writer.ledger(queue, place(0), 0, number);
        }
        writer.amo(queue, place(bracketed as u64), at, amo, answer);
        if bracketed {
            writer.ledger(queue, place(2), 1, number);
        }
    }
}
