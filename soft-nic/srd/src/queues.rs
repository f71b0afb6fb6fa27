//! The queues that a program and its device share: send ring, receive ring, completion ring.

use crate::format::{
    CQE_BYTES, Completion, CqDoorbell, Descriptor, Piece, RECEIVE_BYTES, Status, WQE_BYTES, Wqe,
};
use crate::memory::Shared;

/// A ring, and the register that tells how far it is filled.
#[derive(Debug)]
pub struct Ring {
    /// The entries.
    pub entries: Shared,
    /// The page of the register.
    pub page: Shared,
    /// Where the register lies in it.
    pub register: usize,
    /// Entries: a power of two, 32768 at most.
    pub depth: u32,
}

impl Ring {
    /// The count in the register.
    fn filled(&self) -> u16 {
        self.page.register(self.register) as u16
    }

    fn reset(&self) {
        self.page.clear();
        self.entries.clear();
    }
}

/// A send queue.
#[derive(Debug)]
pub struct SendQueue {
    ring: Ring,
    taken: u16,
    passes: bool,
}

impl SendQueue {
    /// An empty one.
    pub fn new(ring: Ring) -> Self {
        Self { ring, taken: 0, passes: false }
    }

    /// Takes the next WQE, if the doorbell says that there is one.
    pub fn take(&mut self) -> Option<Result<Wqe, (u16, Status)>> {
        let waiting = self.ring.filled().wrapping_sub(self.taken);
        // More than the ring holds is no count.
        if waiting == 0 || u32::from(waiting) > self.ring.depth {
            return None;
        }
        let slot = u32::from(self.taken) & (self.ring.depth - 1);
        let wqe = Wqe::read(&self.ring.entries.entry::<WQE_BYTES>(slot as usize * WQE_BYTES));
        let wqe = match wqe {
            Ok(wqe) if wqe.phase != self.passes => Err((wqe.request, Status::BadOperation)),
            other => other,
        };
        self.taken = self.taken.wrapping_add(1);
        if u32::from(self.taken) & (self.ring.depth - 1) == 0 {
            self.passes = !self.passes;
        }
        Some(wqe)
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.ring.reset();
        (self.taken, self.passes) = (0, false);
    }
}

/// A receive that a message takes.
#[derive(Debug, PartialEq, Eq)]
pub struct Receive {
    /// The library's number of it.
    pub request: u16,
    /// Where the message goes.
    pub pieces: Vec<Piece>,
}

impl Receive {
    /// Bytes it has room for.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.bytes)).sum()
    }
}

/// A receive queue.
#[derive(Debug)]
pub struct ReceiveQueue {
    ring: Ring,
    taken: u16,
}

impl ReceiveQueue {
    /// An empty one.
    pub fn new(ring: Ring) -> Self {
        Self { ring, taken: 0 }
    }

    /// Takes the next receive, if the doorbell says that there is a whole one.
    pub fn take(&mut self) -> Option<Receive> {
        let waiting = self.ring.filled().wrapping_sub(self.taken);
        if u32::from(waiting) > self.ring.depth {
            return None;
        }
        let mut receive: Option<Receive> = None;
        for n in 0..waiting {
            let slot = u32::from(self.taken.wrapping_add(n)) & (self.ring.depth - 1);
            let at = slot as usize * RECEIVE_BYTES;
            let met = Descriptor::read(&self.ring.entries.entry::<RECEIVE_BYTES>(at));
            let receive = receive.get_or_insert(Receive { request: met.request, pieces: Vec::new() });
            receive.pieces.push(met.piece);
            if met.last {
                self.taken = self.taken.wrapping_add(n + 1);
                return Some(Receive {
                    request: receive.request,
                    pieces: std::mem::take(&mut receive.pieces),
                });
            }
        }
        None
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.ring.reset();
        self.taken = 0;
    }
}

/// What a completion queue has to say of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Its program shall have an event.
    Completion,
    /// A completion found no room.
    Overrun,
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    ring: Ring,
    entry_bytes: usize,
    /// Its program has a channel for events.
    notifies: bool,
    /// Entries written.
    written: u64,
    /// The count of events with which the last one was raised.
    raised: Option<u8>,
    /// Where the program was then.
    consumed_then: u16,
    overrun: bool,
}

impl CompletionQueue {
    /// An empty one, with entries of so many bytes.
    pub fn new(ring: Ring, entry_bytes: usize, notifies: bool) -> Self {
        let (raised, consumed_then) = (None, 0);
        Self { ring, entry_bytes, notifies, written: 0, raised, consumed_then, overrun: false }
    }

    /// Writes a completion.
    pub fn write(&mut self, completion: &Completion) -> Option<Notice> {
        let waiting = (self.written as u16).wrapping_sub(self.doorbell().consumed);
        if u32::from(waiting) >= self.ring.depth {
            let first = !std::mem::replace(&mut self.overrun, true);
            return first.then_some(Notice::Overrun);
        }
        let depth = u64::from(self.ring.depth);
        let phase = (self.written / depth).is_multiple_of(2);
        let slot = (self.written % depth) as usize;
        let words = completion.words(phase);
        let count = if self.entry_bytes == CQE_BYTES { CQE_BYTES / 8 } else { words.len() };
        self.ring.entries.put(slot * self.entry_bytes, &words[..count]);
        self.written += 1;
        self.look()
    }

    fn doorbell(&self) -> CqDoorbell {
        CqDoorbell::read(self.ring.page.register(self.ring.register))
    }

    /// Whether its program shall have an event now: once for each count of events it took.
    ///
    /// A register of memory shows the last write only. A program that arms and then takes completions overwrites its
    /// request. So one that took completions since the last event counts as armed: an event too many does no harm.
    pub fn look(&mut self) -> Option<Notice> {
        if !self.notifies {
            return None;
        }
        let doorbell = self.doorbell();
        let armed = doorbell.armed || doorbell.consumed != self.consumed_then;
        let unseen = self.written as u16 != doorbell.consumed;
        if !armed || !unseen || self.raised == Some(doorbell.events) {
            return None;
        }
        (self.raised, self.consumed_then) = (Some(doorbell.events), doorbell.consumed);
        Some(Notice::Completion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CQE_WITH_SOURCE_BYTES, Side};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Memory of a ring and its register.
    struct Memory {
        ring: Vec<AtomicU64>,
        page: Vec<AtomicU64>,
    }

    impl Memory {
        fn new(bytes: usize) -> Self {
            let words = |bytes: usize| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
            Self { ring: words(bytes), page: words(64) }
        }

        fn ring(&self, depth: u32) -> Ring {
            let shared = |words: &[AtomicU64]| {
                // SAFETY: tests keep it as long as the queue, and touch it by whole words.
                unsafe { Shared::new(words.as_ptr().expose_provenance() as u64, words.len() * 8) }
            };
            Ring { entries: shared(&self.ring), page: shared(&self.page), register: 8, depth }
        }

        fn ring_register(&self, word: u32) {
            self.page[1].store(word.into(), Ordering::Release);
        }

        fn put(&self, at: usize, bytes: &[u8]) {
            for (n, word) in bytes.chunks_exact(8).enumerate() {
                let word = u64::from_ne_bytes(word.try_into().unwrap());
                self.ring[at / 8 + n].store(word, Ordering::Relaxed);
            }
        }
    }

    fn wqe(request: u8, phase: u8) -> [u8; WQE_BYTES] {
        let mut bytes = [0; WQE_BYTES];
        bytes[..4].copy_from_slice(&[request, 0, 0xa0, 0xc | phase]);
        bytes
    }

    #[test]
    fn a_send_ring_is_taken_by_its_doorbell_and_its_phase() {
        let memory = Memory::new(4 * WQE_BYTES);
        let mut queue = SendQueue::new(memory.ring(4));
        assert_eq!(queue.take(), None);
        // So far that the count in the register wraps.
        for n in 0..70_000u32 {
            let phase = (n / 4 % 2) as u8;
            memory.put(n as usize % 4 * WQE_BYTES, &wqe(n as u8, phase));
            memory.ring_register((n + 1) & 0xffff);
            assert_eq!(queue.take().unwrap().unwrap().request, u16::from(n as u8), "{n}");
            assert_eq!(queue.take(), None);
        }
        memory.put(0, &wqe(1, 1));
        queue.reset();
        memory.put(0, &wqe(1, 1));
        memory.ring_register(1);
        assert_eq!(queue.take(), Some(Err((1, Status::BadOperation))), "of another pass");
        memory.ring_register(7);
        assert_eq!(queue.take(), None, "more than the ring holds");
    }

    fn descriptor(request: u8, bytes: u8, control: u8) -> [u8; RECEIVE_BYTES] {
        [0, 0, 0, 0, 0, 0, 0, 0, request, 0, bytes, 0, 5, 0, 0, control]
    }

    #[test]
    fn a_receive_is_taken_when_it_is_whole() {
        let memory = Memory::new(4 * RECEIVE_BYTES);
        let mut queue = ReceiveQueue::new(memory.ring(4));
        memory.put(0, &descriptor(7, 10, 0x40));
        memory.put(RECEIVE_BYTES, &descriptor(0, 20, 0x80));
        memory.put(2 * RECEIVE_BYTES, &descriptor(8, 30, 0xc0));
        memory.ring_register(1);
        assert_eq!(queue.take(), None, "half of it");
        memory.ring_register(3);
        let met = queue.take().unwrap();
        assert_eq!((met.request, met.pieces.len(), met.bytes()), (7, 2, 30));
        assert_eq!(met.pieces[0].key, 5);
        assert_eq!(queue.take().map(|met| (met.request, met.bytes())), Some((8, 30)));
        assert_eq!(queue.take(), None);
    }

    fn completion(request: u16) -> Completion {
        Completion {
            request,
            status: Status::Ok,
            side: Side::Send,
            qpn: 1,
            bytes: 0,
            imm: None,
            handle: 0,
            source_qpn: 0,
            source: 0,
        }
    }

    #[test]
    fn completions_have_a_phase_and_end_where_there_is_no_room() {
        let memory = Memory::new(4 * CQE_WITH_SOURCE_BYTES);
        let mut queue = CompletionQueue::new(memory.ring(4), CQE_WITH_SOURCE_BYTES, false);
        for n in 0..200_000u32 {
            assert_eq!(queue.write(&completion(n as u16)), None);
            let word = memory.ring[n as usize % 4 * 4].load(Ordering::Acquire);
            assert_eq!((word as u16, word >> 24 & 1), (n as u16, u64::from(n / 4 % 2 == 0)));
            memory.ring_register((n + 1) & 0xffff);
        }
        let written = (0..6).map(|n| queue.write(&completion(n))).collect::<Vec<_>>();
        assert_eq!(written, [None, None, None, None, Some(Notice::Overrun), None], "and it says so once");
    }

    #[test]
    fn an_event_comes_once_for_each_that_was_taken() {
        let memory = Memory::new(8 * CQE_BYTES);
        let mut queue = CompletionQueue::new(memory.ring(8), CQE_BYTES, true);
        assert_eq!(queue.write(&completion(0)), None, "it was not asked for");
        memory.ring_register(1 << 31);
        assert_eq!(queue.look(), Some(Notice::Completion), "what came before it was asked for counts");
        assert_eq!((queue.look(), queue.write(&completion(1))), (None, None));
        // It took one event and both completions, and asked again.
        memory.ring_register(1 << 31 | 1 << 29 | 2);
        assert_eq!(queue.look(), None, "there is nothing new");
        assert_eq!(queue.write(&completion(2)), Some(Notice::Completion));
        // It took that event, asked, and took a completion: the last write is all that can be seen.
        memory.ring_register(2 << 29 | 3);
        assert_eq!(queue.write(&completion(3)), Some(Notice::Completion));
    }
}
