//! The device code that ships, on shuttle's scheduler: eight threads, paths that die under them, many random schedules.
#![allow(missing_docs)]

use shunt_concurrency::{DEPTH, LOG_DEPTH, platform};
use shunt_device::{Deadline, Device, HeapOffset, Platform, Solo, journal};
use shunt_layout::mlx5::cqe::{TAIL_OFFSET, Tail, opcode};
use shunt_layout::mlx5::doorbell::Doorbell;
use shunt_layout::mlx5::wqe::Wqebb;
use shunt_layout::state::{AnswerStatus, Channel, Mailbox, PathRow, PathState, Word};
use std::mem::offset_of;

platform!(shuttle);

/// Warps that post.
const WARPS: u64 = 6;
/// Posts of each.
const POSTS: u64 = 3;
/// Paths; all but the last one die.
const PATHS: u32 = 3;

impl Memory {
    fn ring(&self, register: usize, value: u64) {
        let bell = Doorbell::from_register(value);
        let mut rung = self.rung.lock().expect("no panic under this lock");
        let before = rung.iter().rev().find(|bell| bell.0 == register).map_or(0, |bell| bell.1);
        assert!(u64::from(bell.next_index) > before, "one switcher: a doorbell goes back");
        rung.push((register, u64::from(bell.next_index)));
    }

    fn channel_word(&self, offset: usize) -> u64 {
        self.word(self.bench.channel() as usize + offset).load(Ordering::SeqCst)
    }
}

/// One path's NIC: executes what is rung, writes completions, dies after `left` messages.
struct Nic {
    slot: u32,
    executed: u64,
    left: u64,
}

impl Nic {
    /// One step; the heap word that was written, if a message was executed that moves something.
    fn step(&mut self, memory: &Memory) -> Option<u64> {
        // SAFETY: rows and the root stand still.
        let (row, heap) = unsafe { (&*memory.bench.path(self.slot), (*memory.bench.state).heap_base) };
        let rung = memory.word(row.doorbell_register as usize).load(Ordering::Acquire);
        if u64::from(Doorbell::from_register(rung).next_index) <= self.executed {
            return None;
        }
        let entry = row.completion_queue + self.executed % DEPTH as u64 * 64;
        let opcode = if self.left == 0 { opcode::REQ_ERR } else { opcode::REQ };
        let owner = self.executed >> LOG_DEPTH & 1 != 0;
        let tail = Tail { wqe_counter: self.executed as u16, opcode, owner }.to_memory();
        let tail_at = entry as usize + TAIL_OFFSET;
        if self.left == 0 {
            memory.half(tail_at - 8).store(0x15u32.to_be(), Ordering::Release);
            memory.half(tail_at).store(tail, Ordering::Release);
            return None;
        }
        let at = row.send_queue + self.executed % DEPTH as u64 * 64;
        // SAFETY: a block of the bench.
        let block = unsafe { Checked(memory).load_wqe(at as *const Wqebb) };
        let index = u32::from_be(block.0[0]) >> 8 & 0xffff;
        assert_eq!(u64::from(index), self.executed, "no loss: a NIC fetches a block of another index");
        let entry = journal::read(&block);
        self.executed += 1;
        self.left -= 1;
        memory.half(tail_at).store(tail, Ordering::Release);
        (!entry.moves_nothing).then(|| (entry.remote - heap) / 8)
    }
}

/// The agent: the NIC of a path that is left executes nothing more, and its count is the truth.
fn answer(memory: &Memory, nics: &mut [Nic]) {
    let at = memory.bench.mailbox() as usize;
    let request = memory.word(at + offset_of!(Mailbox, request)).load(Ordering::Acquire);
    let answer = memory.word(at + offset_of!(Mailbox, answer));
    if request == answer.load(Ordering::Relaxed) {
        return;
    }
    let half = |offset: usize| memory.half(at + offset);
    let slot = half(offset_of!(Mailbox, request_slot)).load(Ordering::Acquire);
    let nic = &mut nics[slot as usize];
    nic.left = 0;
    let state = memory.bench.path(slot) as usize + offset_of!(PathRow, state);
    memory.half(state).store(PathState::Fenced as u32, Ordering::Release);
    answer.store(0, Ordering::Release);
    half(offset_of!(Mailbox, answer_slot)).store(slot, Ordering::Release);
    half(offset_of!(Mailbox, answer_incarnation)).store(1, Ordering::Release);
    half(offset_of!(Mailbox, answer_status)).store(AnswerStatus::Truth as u32, Ordering::Release);
    half(offset_of!(Mailbox, answer_executed)).store(nic.executed as u32, Ordering::Release);
    answer.store(request, Ordering::Release);
}

fn warp(memory: &Memory, number: u64) {
    // SAFETY: the bench wrote the state and outlives this.
    let device =
        unsafe { Device::attach(memory.bench.state, Checked(memory)) }.expect("the state of this version");
    let channel = device.channel(1, 0);
    for post in 0..POSTS {
        let word = number * POSTS + post;
        channel.p_nbi(Solo, HeapOffset(word * 8), word, 8).expect("a path is left");
    }
    channel.quiet(Solo, Deadline { at_ns: u64::MAX }).expect("a path is left");
}

/// Six warps post through two deaths of paths; a seventh thread looks after the channel, the eighth is NICs and agent.
fn six_warps(no_post_lock: bool) {
    let memory = Arc::new(Memory { no_post_lock, ..Memory::new(PATHS) });
    let total = WARPS * POSTS;
    let ended = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for number in 0..WARPS {
        let (memory, ended) = (memory.clone(), ended.clone());
        threads.push(shuttle::thread::spawn(move || {
            warp(&memory, number);
            ended.fetch_add(1, Ordering::SeqCst);
        }));
    }
    let (hardware, over) = (memory.clone(), ended.clone());
    let nic = shuttle::thread::spawn(move || {
        let left = |slot: u32| if slot + 1 == PATHS { u64::MAX } else { 3 + u64::from(slot) * 2 };
        let mut nics: Vec<Nic> = (0..PATHS).map(|slot| Nic { slot, executed: 0, left: left(slot) }).collect();
        let mut writes = vec![0u64; total as usize];
        while over.load(Ordering::SeqCst) < WARPS {
            for nic in &mut nics {
                if let Some(word) = nic.step(&hardware) {
                    writes[word as usize] += 1;
                }
            }
            answer(&hardware, &mut nics);
            shuttle::thread::yield_now();
        }
        writes
    });
    // The seventh: quiet while others post.
    warp_that_only_waits(&memory);
    threads.into_iter().for_each(|thread| thread.join().expect("a warp ends"));
    let writes = nic.join().expect("the NICs end");
    assert_eq!(writes, vec![1; total as usize], "each ticket executed once");
    let (ticket, done) = (offset_of!(Channel, ticket), offset_of!(Channel, done));
    let (ticket, done) = (Word(memory.channel_word(ticket)), Word(memory.channel_word(done)));
    assert_eq!((ticket.index(), done.index(), done.flag()), (total, total, false), "all is done");
    assert_eq!((ticket.generation(), done.slot()), (2, 2), "one switch for each path that died");
}

fn warp_that_only_waits(memory: &Memory) {
    // SAFETY: as in `warp`.
    let device =
        unsafe { Device::attach(memory.bench.state, Checked(memory)) }.expect("the state of this version");
    for _ in 0..3 {
        device.channel(1, 0).quiet(Solo, Deadline { at_ns: u64::MAX }).expect("a path is left");
    }
}

#[test]
fn six_warps_through_two_switches() {
    shuttle::check_random(|| six_warps(false), 300);
}

#[test]
fn six_warps_with_few_preemptions() {
    shuttle::check_pct(|| six_warps(false), 200, 3);
}

#[test]
#[should_panic(expected = "a doorbell goes back")]
fn without_the_post_lock_doorbells_go_back() {
    shuttle::check_random(|| six_warps(true), 300);
}
