//! The device code that ships, on loom's atomics: two warps, every interleaving with a few preemptions, weak memory.
#![allow(missing_docs)]

use shunt_concurrency::platform;
use shunt_device::journal;
use shunt_device::{CqCheck, Deadline, Device, HeapOffset, Platform, Solo};
use shunt_layout::mlx5::cqe::{Tail, opcode};
use shunt_layout::mlx5::doorbell::Doorbell;
use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::state::{AnswerStatus, ReadyWord, Word};
use std::mem::offset_of;

platform!(loom);

impl Memory {
    /// A doorbell: everything it covers must be visible to the one that rings, as a NIC may fetch it now.
    fn ring(&self, register: usize, value: u64) {
        let bell = Doorbell::from_register(value);
        let slot = bell.qpn - 0x100;
        // SAFETY: a row of the bench; the send queue's address stands still.
        let queue = unsafe { (*self.bench.path(slot)).send_queue };
        for index in 0..u64::from(bell.next_index) {
            let block = queue + index % shunt_concurrency::DEPTH as u64 * 64;
            let control = self.half(block as usize).load(Ordering::Relaxed);
            let written = u32::from_be(control) >> 8 & 0xffff;
            assert_eq!(
                u64::from(written),
                index,
                "no loss: a doorbell covers a block that is not visible yet"
            );
            assert_ne!(control, 0, "no loss: a doorbell covers a block that was never written");
        }
        self.rung.lock().expect("no panic under this lock").push((register, u64::from(bell.next_index)));
    }

    fn channel_word(&self, offset: usize) -> u64 {
        self.word(self.bench.channel() as usize + offset).load(Ordering::SeqCst)
    }

    /// The remote words that the blocks of a path write, in order.
    fn written(&self, slot: u32, count: u64) -> Vec<u64> {
        // SAFETY: rows and the root stand still.
        let (queue, heap) = unsafe { ((*self.bench.path(slot)).send_queue, (*self.bench.state).heap_base) };
        (0..count)
            .map(|index| {
                // SAFETY: a block of the bench.
                let block: Wqebb = unsafe { Checked(self).load_wqe((queue + index * 64) as *const Wqebb) };
                (journal::read(&block).remote - heap) / 8
            })
            .collect()
    }
}

fn post(memory: &Memory, word: u64) -> u64 {
    // SAFETY: the bench wrote the state and outlives this.
    let device =
        unsafe { Device::attach(memory.bench.state, Checked(memory)) }.expect("the state of this version");
    device.channel(1, 0).p_nbi(Solo, HeapOffset(word * 8), word + 1, 8).expect("the channel lives").0
}

fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(run);
}

/// Two warps post at once: tickets, blocks, `ready`, `posted` and the last doorbell.
fn two_posts(memory: Memory) {
    let memory = Arc::new(memory);
    let other = memory.clone();
    let thread = loom::thread::spawn(move || post(&other, 1));
    let mine = post(&memory, 0);
    let theirs = thread.join().expect("the other warp ends");
    assert_eq!(mine + theirs, 1, "one ticket each");
    assert_eq!(ReadyWord(memory.channel_word(offset_of!(shunt_layout::state::Channel, ready))).index(), 2);
    let posted = memory.channel_word(offset_of!(shunt_layout::state::Channel, posted));
    assert_eq!(posted, 2, "all that was published was rung");
    let mut written = memory.written(0, 2);
    assert_eq!(written[mine as usize], 0, "the block of a ticket is that of its warp");
    written.sort_unstable();
    assert_eq!(written, [0, 1], "no ticket lost, none doubled");
    let rung = memory.rung.lock().expect("no panic under this lock");
    assert!(rung.windows(2).all(|pair| pair[0].1 < pair[1].1), "doorbells go forward: {rung:?}");
    assert_eq!(rung.last().map(|bell| bell.1), Some(2), "all that is published is rung");
}

#[test]
fn two_warps_post() {
    explore(3, || two_posts(Memory::new(1)));
}

#[test]
#[should_panic(expected = "no loss")]
fn without_order_a_doorbell_covers_what_is_not_there() {
    explore(3, || two_posts(Memory { unordered_publish: true, ..Memory::new(1) }));
}

#[test]
#[should_panic(expected = "no loss")]
fn without_acquiring_its_turn_a_doorbell_covers_what_is_not_there() {
    explore(3, || two_posts(Memory { unacquired_turn: true, ..Memory::new(1) }));
}

#[test]
#[should_panic(expected = "all that was published was rung")]
fn without_the_post_lock_a_doorbell_goes_back() {
    explore(3, || two_posts(Memory { no_post_lock: true, ..Memory::new(1) }));
}

/// Ticket 0 has an error completion on path 0; one warp switches, answered by its agent, while the other posts.
fn switch_and_post() {
    let memory = Arc::new(Memory::new(2));
    assert_eq!(post(&memory, 0), 0);
    let tail = Tail { wqe_counter: 0, opcode: opcode::REQ_ERR, owner: false };
    // SAFETY: a row of the bench; the queue's address stands still.
    let entry =
        unsafe { (*memory.bench.path(0)).completion_queue } as usize + shunt_layout::mlx5::cqe::TAIL_OFFSET;
    memory.half(entry - 8).store(0x15u32.to_be(), Ordering::SeqCst);
    memory.half(entry).store(tail.to_memory(), Ordering::SeqCst);
    answer_first_request(&memory);
    let other = memory.clone();
    let thread = loom::thread::spawn(move || post(&other, 1));
    look(&memory);
    assert_eq!(thread.join().expect("the other warp ends"), 1);
    look(&memory);
    let done = Word(memory.channel_word(offset_of!(shunt_layout::state::Channel, done)));
    assert_eq!((done.slot(), done.generation(), done.flag(), done.index()), (1, 1, false, 0), "one switch");
    assert_eq!(memory.channel_word(offset_of!(shunt_layout::state::Channel, posted)), 2, "all is rung");
    assert_eq!(memory.written(1, 2), [0, 1], "the journal, and what came during the switch, each once");
}

/// One look of a waiter: it carries the switch on as far as it goes.
fn look(memory: &Memory) {
    // SAFETY: as in `post`.
    let device =
        unsafe { Device::attach(memory.bench.state, Checked(memory)) }.expect("the state of this version");
    let check = device.channel(1, 0).check(shunt_device::Ticket(0), Deadline { at_ns: u64::MAX });
    assert!(matches!(check, CqCheck::Pending), "{check:?}");
}

/// An agent that is quick: the answer to the first request, path 0 fenced and nothing executed, is there at once.
fn answer_first_request(memory: &Memory) {
    use shunt_layout::state::Mailbox;
    let at = memory.bench.mailbox() as usize;
    let half = |offset: usize, value: u32| memory.half(at + offset).store(value, Ordering::SeqCst);
    half(offset_of!(Mailbox, answer_slot), 0);
    half(offset_of!(Mailbox, answer_incarnation), 1);
    half(offset_of!(Mailbox, answer_status), AnswerStatus::Truth as u32);
    half(offset_of!(Mailbox, answer_executed), 0);
    memory.word(at + offset_of!(Mailbox, answer)).store(1, Ordering::SeqCst);
}

#[test]
fn a_warp_posts_while_the_channel_switches() {
    explore(1, switch_and_post);
}
