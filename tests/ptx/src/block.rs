//! A block of threads: warps that split and join, barriers, calls.

use crate::code::{Arg, Function, Instruction, Module, Operation, Parameter, Scope, Space, Special};
use crate::counts::Counts;
use crate::memory::{Buffer, Cache, Chance, Gpu};
use crate::value::{binary, compare, convert, funnel, larger_magnitudes, low, negated, permute, to_fp8};
use std::cell::RefCell;
use std::rc::Rc;

/// Lanes of a warp.
const LANES: usize = 32;
/// Instructions that a converged group runs before others get a turn.
const TURN: usize = 48;
/// Shortest sleep, as a GPU's is never as short as it is asked for.
const NAP_NS: u64 = 100;

/// What a machine stops with: a defect of the code it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Function.
    pub function: String,
    /// Line of the PTX text, from 1.
    pub line: u32,
    /// Threads of the block.
    pub threads: Vec<usize>,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { function, line, threads, what } = self;
        write!(f, "{function}, PTX line {line}, threads {threads:?}: {what}")
    }
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There is more to do.
    Ran,
    /// The same, and a doorbell was rung: a NIC may be faster than what the thread does next.
    Rang,
    /// All threads that could run sleep, the first up to this time.
    Sleeps(u64),
    /// All threads have returned.
    Ended,
}

/// What a block lives in.
pub trait World {
    /// Nanoseconds.
    fn now_ns(&self) -> u64;
    /// A doorbell register was written, this one.
    fn doorbell(&self, register: u64);
}

/// What a lane asks the others of its warp for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The value of a lane.
    Lane(u32),
    /// A bit of each.
    Ballot,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Runs,
    Sleeps(u64),
    AtBlock { aligned: bool },
    AtWarp { mask: u32, shuffle: Option<(u64, Asked)> },
    Ended,
}

struct Frame {
    function: usize,
    at: usize,
    registers: Vec<u64>,
    own: Vec<Vec<u8>>,
    answer: Vec<u8>,
    theirs: Vec<Vec<u8>>,
    answered: Vec<u8>,
}

impl Frame {
    fn new(functions: &[Function], function: usize, mut own: Vec<Vec<u8>>) -> Self {
        let code = &functions[function];
        own.resize(code.params.len(), Vec::new());
        own.iter_mut().zip(&code.params).for_each(|(own, bytes)| own.resize(*bytes, 0));
        Self {
            function,
            at: 0,
            registers: vec![0; code.registers],
            own,
            answer: vec![0; 16],
            theirs: Vec::new(),
            answered: vec![0; 16],
        }
    }
}

struct Thread {
    frames: Vec<Frame>,
    state: State,
    carry: bool,
    buffer: Buffer,
}

/// A block that runs.
pub struct Block {
    module: Rc<Module>,
    gpu: Rc<RefCell<Gpu>>,
    threads: Vec<Thread>,
    cache: Cache,
    shared: [u64; 1],
    number: (u32, u32),
    chance: Chance,
    next_warp: usize,
    rang: bool,
    /// What was executed.
    pub counts: Counts,
}

/// Where a thread is.
type Place = (usize, usize, usize);

impl Block {
    /// Block `number.0` of `number.1`, of so many threads, at the start of a function with these parameters.
    pub fn new(
        module: Rc<Module>,
        gpu: Rc<RefCell<Gpu>>,
        (function, params): (usize, &[Vec<u8>]),
        threads: u32,
        number: (u32, u32),
        seed: u64,
    ) -> Self {
        let start = |_| Thread {
            frames: vec![Frame::new(&module.functions, function, params.to_vec())],
            state: State::Runs,
            carry: false,
            buffer: Buffer::new(),
        };
        let threads = (0..threads).map(start).collect();
        let (cache, chance, counts) = (Cache::new(), Chance::new(seed), Counts::default());
        Self { module, gpu, threads, cache, shared: [0], number, chance, next_warp: 0, rang: false, counts }
    }

    /// What the function answered to a thread: its first bytes.
    pub fn answer(&self, thread: usize) -> u64 {
        let frame = self.threads[thread].frames.first();
        frame.map_or(0, |frame| u64::from_le_bytes(frame.answer[..8].try_into().unwrap_or_default()))
    }

    /// Runs some instructions.
    ///
    /// # Errors
    /// A defect of the code.
    pub fn run(&mut self, world: &dyn World, turns: usize) -> Result<Progress, Failure> {
        for _ in 0..turns {
            let now = world.now_ns();
            for thread in &mut self.threads {
                if matches!(thread.state, State::Sleeps(until) if until <= now) {
                    thread.state = State::Runs;
                }
            }
            let Some(group) = self.pick() else { return self.rest() };
            self.run_group(&group, world)?;
            let drifting = self.chance.below(self.threads.len() as u64) as usize;
            self.gpu.borrow_mut().drift(&mut self.threads[drifting].buffer, &mut self.cache);
            if std::mem::take(&mut self.rang) {
                return Ok(Progress::Rang);
            }
        }
        Ok(Progress::Ran)
    }

    /// Nobody runs: they sleep, have ended, or wait for what cannot come.
    fn rest(&mut self) -> Result<Progress, Failure> {
        let sleeping = self.threads.iter().filter_map(|thread| match thread.state {
            State::Sleeps(until) => Some(until),
            _ => None,
        });
        if let Some(first) = sleeping.min() {
            return Ok(Progress::Sleeps(first));
        }
        if self.threads.iter().all(|thread| thread.state == State::Ended) {
            let mut gpu = self.gpu.borrow_mut();
            self.threads.iter_mut().for_each(|thread| gpu.end(&mut thread.buffer, &mut self.cache));
            return Ok(Progress::Ended);
        }
        let waiting: Vec<usize> = self.those(|state| *state != State::Ended && *state != State::Runs);
        let mut at: Vec<String> = waiting.iter().map(|thread| self.line_of(*thread).to_string()).collect();
        at.dedup();
        let ended = self.those(|state| *state == State::Ended);
        let what =
            format!("deadlock: they wait in lines {}, of the others {ended:?} have returned", at.join(", "));
        Err(self.failure(&waiting, what))
    }

    fn those(&self, is: impl Fn(&State) -> bool) -> Vec<usize> {
        (0..self.threads.len()).filter(|thread| is(&self.threads[*thread].state)).collect()
    }

    /// The line that a thread is at, or waits in.
    fn line_of(&self, thread: usize) -> u32 {
        let thread = &self.threads[thread];
        let Some(frame) = thread.frames.last() else { return 0 };
        let waits = matches!(thread.state, State::AtBlock { .. } | State::AtWarp { .. });
        let at = frame.at.saturating_sub(usize::from(waits));
        self.module.functions[frame.function].code.get(at).map_or(0, |code| code.line)
    }

    fn failure(&self, threads: &[usize], what: impl Into<String>) -> Failure {
        let first = threads.first().copied().unwrap_or(0);
        let frame = self.threads[first].frames.last();
        let function =
            frame.map_or("?", |frame| self.module.functions[frame.function].name.as_str()).to_owned();
        Failure { function, line: self.line_of(first), threads: threads.to_vec(), what: what.into() }
    }

    fn place(&self, thread: usize) -> Option<Place> {
        let thread = &self.threads[thread];
        let frame = thread.frames.last()?;
        (thread.state == State::Runs).then_some((thread.frames.len(), frame.function, frame.at))
    }

    /// Lanes of one warp that are at one instruction. Mostly those furthest behind, so that lanes join again; one time
    /// in eight any others, so that nobody who waits for another lane keeps that one from running.
    fn pick(&mut self) -> Option<Vec<usize>> {
        let warps = self.threads.len().div_ceil(LANES);
        for turn in 0..warps {
            let warp = (self.next_warp + turn) % warps;
            let lanes = warp * LANES..((warp + 1) * LANES).min(self.threads.len());
            let mut places: Vec<Place> = lanes.clone().filter_map(|lane| self.place(lane)).collect();
            if places.is_empty() {
                continue;
            }
            places.sort_by_key(|(depth, function, at)| (std::cmp::Reverse(*depth), *function, *at));
            let any = self.chance.below(8) == 0;
            let which = if any { self.chance.below(places.len() as u64) as usize } else { 0 };
            let chosen = places[which];
            self.next_warp = if self.chance.below(3) == 0 { warp + 1 } else { warp };
            return Some(lanes.filter(|lane| self.place(*lane) == Some(chosen)).collect());
        }
        None
    }

    fn run_group(&mut self, group: &[usize], world: &dyn World) -> Result<(), Failure> {
        let module = self.module.clone();
        for _ in 0..TURN {
            let Some(place) = self.place(group[0]) else { break };
            if group.iter().any(|lane| self.place(*lane) != Some(place)) {
                break;
            }
            let instruction = &module.functions[place.1].code[place.2];
            self.counts.issue(&instruction.operation);
            for lane in group {
                self.execute(*lane, instruction, world)?;
            }
            self.counts.end_of_issue(&instruction.operation);
            if matches!(instruction.operation, Operation::BlockBarrier { .. }) {
                self.try_block_barrier()?;
            }
            if matches!(
                instruction.operation,
                Operation::WarpBarrier { .. } | Operation::Shuffle { .. } | Operation::Ballot { .. }
            ) {
                self.try_warp(group[0] / LANES)?;
                // Lanes that had parted go on together from here, as they do on a GPU.
                break;
            }
            if self.rang {
                break;
            }
        }
        Ok(())
    }

    /// Lets the block go if all are there.
    fn try_block_barrier(&mut self) -> Result<(), Failure> {
        for warp in 0..self.threads.len().div_ceil(LANES) {
            let lanes: Vec<usize> = (warp * LANES..((warp + 1) * LANES).min(self.threads.len()))
                .filter(|lane| self.threads[*lane].state != State::Ended)
                .collect();
            let aligned =
                |lane: &usize| matches!(self.threads[*lane].state, State::AtBlock { aligned: true });
            if lanes.iter().all(aligned) {
                let apart: Vec<usize> = lanes
                    .iter()
                    .copied()
                    .filter(|lane| self.line_of(*lane) != self.line_of(lanes[0]))
                    .collect();
                if let Some(other) = apart.first() {
                    let what = format!(
                        "an aligned barrier: expected all lanes of the warp at one instruction, got threads {apart:?} \
                         in line {}",
                        self.line_of(*other)
                    );
                    return Err(self.failure(&lanes[..1], what));
                }
            }
        }
        if self.threads.iter().any(|thread| !matches!(thread.state, State::AtBlock { .. } | State::Ended)) {
            return Ok(());
        }
        let ended = self.those(|state| *state == State::Ended);
        if !ended.is_empty() {
            let waiting = self.those(|state| *state != State::Ended);
            return Err(self.failure(
                &waiting,
                format!("a barrier of the block that {ended:?} never reach: they returned"),
            ));
        }
        let mut gpu = self.gpu.borrow_mut();
        for thread in &mut self.threads {
            gpu.meet(&mut thread.buffer, &mut self.cache);
            thread.state = State::Runs;
        }
        self.counts.barriers += 1;
        Ok(())
    }

    /// Lets lanes of a warp go that are all there.
    fn try_warp(&mut self, warp: usize) -> Result<(), Failure> {
        let first = warp * LANES;
        let lanes = first..((warp + 1) * LANES).min(self.threads.len());
        for lane in lanes.clone() {
            let State::AtWarp { mask, shuffle } = self.threads[lane].state else { continue };
            let members: Vec<usize> =
                (0..LANES).filter(|bit| mask >> bit & 1 != 0).map(|bit| first + bit).collect();
            if let Some(gone) = members
                .iter()
                .find(|member| self.threads.get(**member).is_none_or(|thread| thread.state == State::Ended))
            {
                return Err(self.failure(
                    &[lane],
                    format!("a warp's operation that lane {} never reaches", gone - first),
                ));
            }
            let there = members.iter().all(|member| match &self.threads[*member].state {
                State::AtWarp { mask: theirs, shuffle: other } => {
                    let kind = |asked: &Option<(u64, Asked)>| asked.map(|(_, asked)| asked == Asked::Ballot);
                    *theirs == mask && kind(other) == kind(&shuffle)
                }
                _ => false,
            });
            if !there {
                continue;
            }
            let values: Vec<Option<(u64, Asked)>> = members
                .iter()
                .map(|member| match &self.threads[*member].state {
                    State::AtWarp { shuffle, .. } => *shuffle,
                    _ => None,
                })
                .collect();
            for (member, own) in members.iter().zip(&values) {
                if let Some((_, Asked::Ballot)) = own {
                    let yes = |(other, value): (&usize, &Option<(u64, Asked)>)| {
                        value.map_or(0, |(yes, _)| yes << (other - first))
                    };
                    self.shuffled(*member, members.iter().zip(&values).map(yes).sum());
                } else if let Some((_, Asked::Lane(from))) = own {
                    let from = *from as usize & 31;
                    let at = members.iter().position(|other| other - first == from);
                    let Some((value, _)) = at.and_then(|at| values[at]) else {
                        let what = format!("a shuffle from lane {from}, which its mask {mask:#x} leaves out");
                        return Err(self.failure(&[*member], what));
                    };
                    self.shuffled(*member, value);
                } else {
                    self.gpu.borrow_mut().meet(&mut self.threads[*member].buffer, &mut self.cache);
                }
                self.threads[*member].state = State::Runs;
            }
            return Ok(());
        }
        Ok(())
    }

    /// Gives a lane what it asked for in the shuffle that it is behind.
    fn shuffled(&mut self, lane: usize, value: u64) {
        let module = self.module.clone();
        let Some(frame) = self.threads[lane].frames.last_mut() else { return };
        let code = &module.functions[frame.function].code[frame.at - 1];
        if let Operation::Shuffle { to, .. } | Operation::Ballot { to, .. } = code.operation {
            frame.registers[to as usize] = value;
        }
    }

    fn get(&self, lane: usize, arg: Arg, world: &dyn World) -> u64 {
        match arg {
            Arg::Constant(value) => value,
            Arg::Register(at) => {
                self.threads[lane].frames.last().map_or(0, |frame| frame.registers[at as usize])
            }
            Arg::Table(at) => self.module.tables[at].as_ptr() as u64,
            Arg::Special(special) => match special {
                Special::Thread => lane as u64,
                Special::Threads => self.threads.len() as u64,
                Special::Block => self.number.0.into(),
                Special::Blocks => self.number.1.into(),
                Special::Lane => (lane % LANES) as u64,
                Special::Time => world.now_ns(),
            },
        }
    }

    /// The mask of an operation of a warp, which has to name the lane itself.
    fn mask(&self, lane: usize, arg: Arg, world: &dyn World) -> Result<u32, Failure> {
        let mask = self.get(lane, arg, world) as u32;
        if mask >> (lane % LANES) & 1 == 0 {
            return Err(
                self.failure_before(lane, format!("a warp's operation whose mask {mask:#x} leaves it out"))
            );
        }
        Ok(mask)
    }

    fn set(&mut self, lane: usize, register: u32, value: u64) {
        if let Some(frame) = self.threads[lane].frames.last_mut() {
            frame.registers[register as usize] = value;
        }
    }

    fn jump(&mut self, lane: usize, at: usize) {
        if let Some(frame) = self.threads[lane].frames.last_mut() {
            frame.at = at;
        }
    }

    fn execute(&mut self, lane: usize, instruction: &Instruction, world: &dyn World) -> Result<(), Failure> {
        if let Some(frame) = self.threads[lane].frames.last_mut() {
            frame.at += 1;
        }
        if let Some((guard, not)) = instruction.guard
            && (self.get(lane, Arg::Register(guard), world) & 1 != 0) == not
        {
            return Ok(());
        }
        self.counts.instructions += 1;
        let get = |block: &Self, arg| block.get(lane, arg, world);
        match &instruction.operation {
            Operation::Branch { to } => self.jump(lane, *to),
            Operation::BranchIndexed { by, to } => {
                let by = get(self, *by) as u32 as usize;
                let Some(to) = to.get(by) else {
                    return Err(
                        self.failure(&[lane], format!("an indexed branch by {by}, of {} targets", to.len()))
                    );
                };
                self.jump(lane, *to);
            }
            Operation::Call { function } => {
                let module = self.module.clone();
                if let Some(frame) = self.threads[lane].frames.last_mut() {
                    let theirs = std::mem::take(&mut frame.theirs);
                    self.threads[lane].frames.push(Frame::new(&module.functions, *function, theirs));
                }
            }
            Operation::Return => {
                let frames = &mut self.threads[lane].frames;
                if frames.len() == 1 {
                    self.threads[lane].state = State::Ended;
                } else if let Some(frame) = frames.pop()
                    && let Some(caller) = frames.last_mut()
                {
                    caller.answered = frame.answer;
                }
            }
            Operation::Trap => return Err(self.failure_before(lane, "trap")),
            Operation::Sleep { ns } => {
                let ns = (get(self, *ns) as u32 as u64).max(NAP_NS);
                self.threads[lane].state = State::Sleeps(world.now_ns() + ns);
            }
            Operation::BlockBarrier { aligned } => {
                self.threads[lane].state = State::AtBlock { aligned: *aligned }
            }
            Operation::WarpBarrier { .. } | Operation::Shuffle { .. } | Operation::Ballot { .. } => {
                self.meet(lane, &instruction.operation, world)?;
            }
            Operation::Load { .. } | Operation::Store { .. } | Operation::Fence { .. } => {
                self.access(lane, &instruction.operation, world)?;
            }
            Operation::Atomic { .. } => self.modify(lane, &instruction.operation, world)?,
            Operation::LoadParameter { .. } | Operation::StoreParameter { .. } => {
                self.pass(lane, &instruction.operation, world)?;
            }
            other => self.compute(lane, other, world),
        }
        Ok(())
    }

    /// A lane comes to where the lanes of its warp meet.
    fn meet(&mut self, lane: usize, operation: &Operation, world: &dyn World) -> Result<(), Failure> {
        let get = |block: &Self, arg| block.get(lane, arg, world);
        let (mask, shuffle) = match operation {
            Operation::Shuffle { from, lane: source, mask, butterfly, .. } => {
                let own = if *butterfly { (lane % LANES) as u32 } else { 0 };
                let asked = Asked::Lane(own ^ get(self, *source) as u32);
                (mask, Some((low(get(self, *from), 32), asked)))
            }
            Operation::Ballot { from, mask, .. } => (mask, Some((get(self, *from) & 1, Asked::Ballot))),
            Operation::WarpBarrier { mask } => (mask, None),
            _ => return Ok(()),
        };
        let mask = self.mask(lane, *mask, world)?;
        self.threads[lane].state = State::AtWarp { mask, shuffle };
        Ok(())
    }

    fn failure_before(&self, lane: usize, what: impl Into<String>) -> Failure {
        let mut failure = self.failure(&[lane], what);
        if let Some(frame) = self.threads[lane].frames.last() {
            let code = &self.module.functions[frame.function].code;
            failure.line = code.get(frame.at.saturating_sub(1)).map_or(0, |code| code.line);
        }
        failure
    }

    fn compute(&mut self, lane: usize, operation: &Operation, world: &dyn World) {
        let get = |arg: Arg| self.get(lane, arg, world);
        let (to, value) = match operation {
            Operation::Move { to, from } => (*to, get(*from)),
            Operation::Unpack { to, from, bits } => {
                let (value, width) = (get(*from), bits / to.len() as u32);
                for (at, to) in to.iter().enumerate() {
                    if let Some(to) = to {
                        self.set(lane, *to, low(value >> (width * at as u32), width));
                    }
                }
                return;
            }
            Operation::Pack { to, from, bits } => {
                let width = bits / from.len() as u32;
                let whole = from.iter().enumerate();
                (*to, whole.fold(0, |all, (at, arg)| all | low(get(*arg), width) << (width * at as u32)))
            }
            Operation::Binary { operation, kind, to, a, b } => {
                (*to, binary(*operation, *kind, get(*a), get(*b)))
            }
            Operation::AddCarry { to, a, b, takes } => {
                let carry = u64::from(*takes && self.threads[lane].carry);
                let (sum, first) = get(*a).overflowing_add(get(*b));
                let (sum, second) = sum.overflowing_add(carry);
                self.threads[lane].carry = first || second;
                (*to, sum)
            }
            Operation::MultiplyAdd { kind, to, a, b, c } => {
                (*to, low(get(*a).wrapping_mul(get(*b)).wrapping_add(get(*c)), kind.bits()))
            }
            Operation::Not { kind, to, from } => (*to, low(!get(*from), kind.bits())),
            Operation::Negate { kind, to, from } => (*to, negated(get(*from), *kind)),
            Operation::Convert { to, from, into, out_of } => (*to, convert(get(*from), *into, *out_of)),
            Operation::LeadingZeros { to, from, bits } => {
                let value = low(get(*from), *bits);
                (*to, u64::from(value.leading_zeros() - (64 - bits)))
            }
            Operation::Ones { to, from, bits } => (*to, low(get(*from), *bits).count_ones().into()),
            Operation::LargerMagnitudes { to, a, b } => {
                (*to, larger_magnitudes(get(*a) as u32, get(*b) as u32).into())
            }
            Operation::ToFp8 { to, high, low: second } => {
                (*to, to_fp8(get(*high)) << 8 | to_fp8(get(*second)))
            }
            Operation::Select { to, kind, yes, no, by } => {
                let chosen = if get(*by) & 1 != 0 { yes } else { no };
                (*to, low(get(*chosen), kind.bits()))
            }
            Operation::Compare { to, compare: how, kind, a, b, with } => {
                let holds = compare(*how, *kind, get(*a), get(*b));
                (*to, u64::from(holds && with.is_none_or(|with| get(with) & 1 != 0)))
            }
            Operation::Funnel { to, low, high, by, left } => {
                (*to, funnel(get(*low) as u32, get(*high) as u32, get(*by) as u32, *left))
            }
            Operation::Permute { to, a, b, selector } => (*to, permute(get(*a), get(*b), get(*selector))),
            Operation::Extract { to, from, at, count, bits } => {
                let (at, count) = ((get(*at) as u32).min(63), (get(*count) as u32).min(*bits));
                (*to, low(low(get(*from), *bits) >> at, count))
            }
            _ => return,
        };
        self.set(lane, to, value);
    }

    fn access(&mut self, lane: usize, operation: &Operation, world: &dyn World) -> Result<(), Failure> {
        match operation {
            Operation::Fence { order } => {
                self.counts.fence(order.scope);
                let own = (&mut self.threads[lane].buffer, &mut self.cache);
                self.gpu.borrow_mut().fence(*order, own);
            }
            Operation::Load { space, order, bytes, to, base, offset } => {
                let at = self.get(lane, *base, world).wrapping_add(*offset as u64);
                for (number, to) in to.iter().enumerate() {
                    let at = at + u64::from(*bytes) * number as u64;
                    let value = match space {
                        Space::Shared => self.shared[0],
                        Space::Root => self.root(lane, at, *bytes)?,
                        _ => {
                            self.check(lane, at, *bytes, false)?;
                            let memory = self.gpu.borrow().memory_of(at);
                            self.counts.touch(at, memory);
                            let plain = order.scope == Scope::Thread;
                            let own = (&self.threads[lane].buffer, &mut self.cache);
                            self.gpu.borrow_mut().load(at, *bytes, *order, plain, own)
                        }
                    };
                    if let Some(to) = to {
                        self.set(lane, *to, value);
                    }
                }
            }
            Operation::Store { space, order, bytes, from, base, offset } => {
                let at = self.get(lane, *base, world).wrapping_add(*offset as u64);
                for (number, from) in from.iter().enumerate() {
                    let at = at + u64::from(*bytes) * number as u64;
                    let value = self.get(lane, *from, world);
                    if *space == Space::Shared {
                        self.shared[0] = value;
                        continue;
                    }
                    self.check(lane, at, *bytes, *space == Space::Mmio)?;
                    if *space == Space::Mmio {
                        self.gpu.borrow().store_register(at, *bytes, value);
                        world.doorbell(at);
                        self.rang = self.gpu.borrow().is_relaxed();
                        continue;
                    }
                    let memory = self.gpu.borrow().memory_of(at);
                    self.counts.touch(at, memory);
                    let own = (&mut self.threads[lane].buffer, &mut self.cache);
                    self.gpu.borrow_mut().store((at, *bytes), value, *order, own);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn modify(&mut self, lane: usize, operation: &Operation, world: &dyn World) -> Result<(), Failure> {
        let Operation::Atomic { atomic, order, bytes, to, base, offset, a, b } = operation else {
            return Ok(());
        };
        use crate::code::Atomic;
        let at = self.get(lane, *base, world).wrapping_add(*offset as u64);
        self.check(lane, at, *bytes, false)?;
        let memory = self.gpu.borrow().memory_of(at);
        self.counts.touch(at, memory);
        let a = low(self.get(lane, *a, world), 8 * bytes);
        let b = b.map_or(0, |b| low(self.get(lane, b, world), 8 * bytes));
        let change = |old: u64| match atomic {
            Atomic::Add => old.wrapping_add(a),
            Atomic::And => old & a,
            Atomic::Or => old | a,
            Atomic::CompareSwap => {
                if old == a {
                    b
                } else {
                    old
                }
            }
        };
        let own = (&mut self.threads[lane].buffer, &mut self.cache);
        let old = self.gpu.borrow_mut().modify((at, *bytes), *order, change, own);
        self.set(lane, *to, old);
        Ok(())
    }

    fn pass(&mut self, lane: usize, operation: &Operation, world: &dyn World) -> Result<(), Failure> {
        match operation {
            Operation::LoadParameter { which, bytes, to, offset } => {
                for (number, to) in to.iter().enumerate() {
                    let at = offset + *bytes as usize * number;
                    let value = self.parameter(lane, *which, |known| {
                        let mut value = [0; 8];
                        value[..*bytes as usize].copy_from_slice(known.get(at..at + *bytes as usize)?);
                        Some(u64::from_le_bytes(value))
                    });
                    let Some(value) = value else {
                        return Err(
                            self.failure_before(lane, format!("a parameter that is shorter than {at}"))
                        );
                    };
                    if let Some(to) = to {
                        self.set(lane, *to, value);
                    }
                }
            }
            Operation::StoreParameter { which, bytes, from, offset } => {
                for (number, from) in from.iter().enumerate() {
                    let (at, count) = (offset + *bytes as usize * number, *bytes as usize);
                    let value = self.get(lane, *from, world).to_le_bytes();
                    self.parameter(lane, *which, |known| {
                        known.resize(known.len().max(at + count), 0);
                        known[at..at + count].copy_from_slice(&value[..count]);
                        Some(0)
                    });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn parameter(
        &mut self,
        lane: usize,
        which: Parameter,
        with: impl FnOnce(&mut Vec<u8>) -> Option<u64>,
    ) -> Option<u64> {
        let frame = self.threads[lane].frames.last_mut()?;
        with(match which {
            Parameter::Own(at) => frame.own.get_mut(at)?,
            Parameter::Answer => &mut frame.answer,
            Parameter::Answered => &mut frame.answered,
            Parameter::Theirs(at) => {
                frame.theirs.resize(frame.theirs.len().max(at + 1), Vec::new());
                &mut frame.theirs[at]
            }
        })
    }

    fn root(&self, lane: usize, at: u64, bytes: u32) -> Result<u64, Failure> {
        let (at, bytes) = (at as usize, bytes as usize);
        let gpu = self.gpu.borrow();
        let Some(known) = gpu.root.get(at..at + bytes) else {
            return Err(
                self.failure_before(lane, format!("byte {at} of the root, which has {}", gpu.root.len()))
            );
        };
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(known);
        Ok(u64::from_le_bytes(value))
    }

    fn check(&self, lane: usize, at: u64, bytes: u32, register: bool) -> Result<(), Failure> {
        let table = |table: &Vec<u64>| {
            let start = table.as_ptr() as u64;
            start <= at && at + u64::from(bytes) <= start + 8 * table.len() as u64
        };
        match self.gpu.borrow().refused(at, bytes, register) {
            Some(why) if !self.module.tables.iter().any(table) => Err(self.failure_before(lane, why)),
            _ => Ok(()),
        }
    }
}
