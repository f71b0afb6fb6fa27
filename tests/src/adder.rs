//! Raw atomics beside the streams: fetch-and-adds on a path's queue pair, without the library. What a responder applied
//! whose answer got lost it must not apply again when the request is repeated.
//!
//! An adder is the only writer of its word, so each answer must be the number of adds before it. Its channel carries
//! nothing else and is marked dead, so that nobody looks at its completions.

use std::cell::Cell;
use std::mem::offset_of;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shunt_layout::mlx5::cqe::{CQE_BYTES, TAIL_OFFSET, Tail, opcode};
use shunt_layout::mlx5::doorbell;
use shunt_layout::mlx5::wqe::{CqeWhen, Opcode, WQEBB_BYTES, ctrl, data, remote};
use shunt_layout::state::{self, PathRow, PathState, Step, SwitchWord};

use crate::cluster::Cluster;
use crate::oracle::{Kind, load, store};
use crate::sim::{PeWorld, SimWorld, Task};

/// Words of the adders in the heap of whom they add at; results land as much further on.
const WORDS_AT: u64 = 64;
const RESULTS_AT: u64 = 2048;
/// An add without an answer for this long: the adder gives up.
const PATIENCE_NS: u64 = 400_000_000;
const LOOK_NS: u64 = 2_000;

fn word32(at: u64) -> &'static AtomicU32 {
    // SAFETY: callers pass aligned addresses in rings and state of a cluster whose memory outlives its actors.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

/// What an adder did.
#[derive(Debug, Default)]
struct Count {
    begun: Cell<u64>,
    answered: Cell<u64>,
}

/// An adder and the word it adds at.
pub struct Adder {
    task: Task<()>,
    count: Rc<Count>,
    from: u32,
    to: u32,
    word: u64,
}

/// One path, and what an add on it consists of.
struct Adding {
    row: PathRow,
    row_at: u64,
    lkey_be: u32,
    rkey_be: u32,
    target: u64,
    result: u64,
}

impl Adding {
    fn post(&self, index: u64, world: &PeWorld) {
        let row = &self.row;
        let segments = [
            ctrl(Opcode::AtomicFa, index as u16, row.qpn_shifted, 4, CqeWhen::Always as u8),
            remote(self.target, self.rkey_be),
            [0, 1u32.to_be(), 0, 0],
            data(self.result, self.lkey_be, 8),
        ];
        let block = row.send_queue + (index & ((1 << row.log_depth) - 1)) * WQEBB_BYTES as u64;
        for (word, at) in segments.iter().flatten().zip((block..).step_by(4)) {
            word32(at).store(*word, Ordering::Release);
        }
        word32(row.doorbell_record).store(doorbell::send_counter(index + 1), Ordering::Release);
        // SAFETY: as in `word32`.
        let register = unsafe { AtomicU64::from_ptr(row.doorbell_register as *mut u64) };
        register.store(doorbell::register(index + 1, row.qpn_shifted), Ordering::Release);
        shunt_device::platform::host::World::doorbell(world);
    }

    /// True if the add was answered, false if it failed or was given up.
    fn wait(&self, index: u64, world: &SimWorld) -> bool {
        let entry = self.row.completion_queue + (index & ((1 << self.row.log_depth) - 1)) * CQE_BYTES as u64;
        let until = world.now() + PATIENCE_NS;
        while world.now() < until {
            let tail = Tail::from_memory(word32(entry + TAIL_OFFSET as u64).load(Ordering::Acquire));
            if tail.belongs_to(index, self.row.log_depth) && tail.wqe_counter == index as u16 {
                return tail.opcode == opcode::REQ;
            }
            let state = word32(self.row_at + offset_of!(PathRow, state) as u64).load(Ordering::Acquire);
            if state != PathState::Ready as u32 {
                return false;
            }
            world.sleep(LOOK_NS + world.draw(LOOK_NS));
        }
        false
    }
}

impl Cluster {
    /// Starts an adder for each rail of each PE, at the next PE, if the spec wants them.
    pub fn start_adders(&self) -> Vec<Adder> {
        if !self.spec.adders {
            return Vec::new();
        }
        let channel = self.spec.channels - 1;
        assert!((1..=channel).contains(&self.spec.stream_channels), "the last channel carries no streams");
        let mut adders = Vec::new();
        for from in 0..self.spec.pes {
            let to = (from + 1) % self.spec.pes;
            let root = self.pe(from).root();
            let row = u64::from(to * root.channels_per_pe + channel);
            let words = root.channels + row * size_of::<state::Channel>() as u64;
            let dead = SwitchWord::START.at_step(Step::Dead).passed().0;
            store(words + offset_of!(state::Channel, switch.word) as u64, dead);
            store(root.mirrors + row * size_of::<state::Mirror>() as u64, dead);
            let slots = self.slots((from, to, channel));
            for rail in 0..self.spec.rails {
                let Some(slot) = slots.iter().position(|(local, _)| *local == rail) else { continue };
                let paths = root.paths + row * u64::from(root.slots) * size_of::<PathRow>() as u64;
                adders.push(self.start_adder((from, to, rail), paths + (slot * size_of::<PathRow>()) as u64));
            }
        }
        adders
    }

    fn start_adder(&self, (from, to, rail): (u32, u32, u32), row_at: u64) -> Adder {
        // SAFETY: a row of the PE's path table, mapped while the cluster lives; its agent writes it only once the
        // path was left.
        let row = unsafe { (row_at as *const PathRow).read() };
        let number = u64::from(from * self.spec.rails + rail) * 8;
        let keys = self.pe(from).keys();
        let adding = Adding {
            row_at,
            lkey_be: keys.lkey(row.local_rail, 0).expect("the heap has keys").to_be(),
            rkey_be: keys.rkey(to, row.remote_rail, 0).expect("the heap has keys").to_be(),
            target: self.pe(to).heap().address + WORDS_AT + number,
            result: self.pe(from).heap().address + RESULTS_AT + number,
            row,
        };
        let (count, word) = (Rc::new(Count::default()), WORDS_AT + number);
        let (done, adds, pace_ns) = (count.clone(), self.spec.traffic.messages, self.spec.traffic.pace_ns);
        let task = self.spawn(&format!("add{rail}"), from, move |kernel| {
            let world = kernel.world.sim();
            for index in 0..adds {
                done.begun.set(index + 1);
                adding.post(index, &kernel.world);
                if !adding.wait(index, world) {
                    return;
                }
                let before = load(adding.result);
                if before != index {
                    let what = format!("adder {from}.{rail} to {to}: add {index} found {before}");
                    kernel.oracle.report(Kind::Duplicate, world.now(), what);
                }
                done.answered.set(index + 1);
                world.sleep(pace_ns + world.draw(5_000));
            }
        });
        Adder { task, count, from, to, word }
    }

    /// Waits for adders whose PE lives, and checks their words: what was answered is there, what was not begun is not.
    pub fn judge_adders(&self, adders: &[Adder]) {
        let lives = |pe: u32| self.pe_faults.killed_ns(pe).is_none();
        self.sim.run_until(|| adders.iter().all(|adder| adder.task.is_done() || !lives(adder.from)));
        for adder in adders.iter().filter(|adder| lives(adder.to)) {
            let (begun, answered) = (adder.count.begun.get(), adder.count.answered.get());
            let met = load(self.pe(adder.to).heap().address + adder.word);
            let what =
                format!("adder of PE {}: {begun} started, {answered} answered, {met} applied", adder.from);
            if met < answered {
                self.oracle.report(Kind::Lost, self.sim.now(), what);
            } else if met > begun {
                self.oracle.report(Kind::Duplicate, self.sim.now(), what);
            }
        }
    }
}
