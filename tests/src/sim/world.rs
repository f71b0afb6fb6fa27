//! The world of a run, and its scheduler.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use corosensei::CoroutineResult;
use corosensei::stack::DefaultStack;
use shunt_device::platform::host::World;

use super::actor::{Actor, ActorOptions, ActorYielder, Body, Pause};
use super::config::{Clockwork, NoClockwork, SimConfig, Steps};
use crate::rng::{Rng, mix};

/// So often the fabric may claim to be due and then do nothing before that is called a bug.
const IDLE_STEPS_MAX: u32 = 1_000;
/// Fabric steps that one wait of a destructor may take while a run is torn down.
const CLOSING_STEPS_MAX: u32 = 100_000;
/// Number of the fabric in the trace; actors count from zero.
const FABRIC: u64 = u64::MAX;

/// A wake-up: instant, tie-break, actor, number.
type WakeUp = Reverse<(u64, u64, usize, u64)>;

struct Core {
    rng: Rng,
    actors: Vec<Actor>,
    wakeups: BinaryHeap<WakeUp>,
    last_wakeup: u64,
    trace: u64,
    steps: u64,
    idle_steps: u32,
}

impl Core {
    fn schedule(&mut self, id: usize, at: u64) {
        self.last_wakeup += 1;
        self.actors[id].wakeup = self.last_wakeup;
        let tie = self.rng.draw();
        self.wakeups.push(Reverse((at, tie, id, self.last_wakeup)));
    }

    /// The earliest wake-up that still counts.
    fn first(&mut self) -> Option<u64> {
        while let Some(Reverse((at, _, id, number))) = self.wakeups.peek() {
            if self.actors[*id].wakeup == *number {
                return Some(*at);
            }
            self.wakeups.pop();
        }
        None
    }

    fn trace(&mut self, now: u64, who: u64) {
        self.trace = mix(self.trace ^ mix(now ^ mix(who)));
    }
}

/// The world that actors, host code and NICs live in. One thread uses it; every access checks that.
pub struct SimWorld {
    config: SimConfig,
    thread: usize,
    now: Cell<u64>,
    /// When the fabric last did something or was rung.
    active_ns: Cell<u64>,
    rung: Cell<bool>,
    closing: Cell<bool>,
    current: Cell<Option<usize>>,
    /// The current actor is the host's, and there is memory that is not for it to touch.
    kept_out: Cell<bool>,
    yielder: Cell<*const ActorYielder>,
    clockwork: RefCell<Rc<dyn Clockwork>>,
    core: RefCell<Core>,
    cpu: RefCell<Option<CpuLog>>,
    /// Memory of devices.
    devices: RefCell<Vec<Range<u64>>>,
    /// If wanted: the instants at which anything happened, each once.
    instants: RefCell<Option<Vec<u64>>>,
    /// Who hears of every step, if anybody does.
    steps: RefCell<Option<Rc<dyn Steps>>>,
    /// Counts what others can tell of.
    stirs: Cell<u64>,
}

/// CPU time of the actors of one PE, by turn.
struct CpuLog {
    prefix: String,
    turns: Vec<(u64, u64)>,
}

/// CPU time of this thread so far.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

// SAFETY: every method that touches the inside calls `here`, which panics on any thread but the one that made
// the world, so nothing is ever shared. `World` demands the traits because other worlds are shared.
unsafe impl Send for SimWorld {}
// SAFETY: as above.
unsafe impl Sync for SimWorld {}

/// A number that no other live thread has.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

impl World for SimWorld {
    fn now_ns(&self) -> u64 {
        self.now()
    }

    fn relax(&self) {
        self.here();
        let now = self.now.get();
        let wait = match self.current.get() {
            Some(id) => {
                let actor = &mut self.core.borrow_mut().actors[id];
                actor.polls += 1;
                let patience_ns = ((now - actor.since_ns) / 16).min(actor.options.waited_max_ns);
                self.pause(actor.options.poll_ns, actor.options.poll_max_ns).max(patience_ns)
            }
            None => self.pause(ActorOptions::host().poll_ns, ActorOptions::host().poll_max_ns),
        };
        let jitter = self.draw(wait / 4 + 1);
        self.pause_until(now + wait + jitter);
    }

    fn doorbell(&self) {
        self.here();
        self.stir();
        self.rung.set(true);
    }

    fn touches(&self, address: u64) {
        self.check_domain(address);
    }
}

impl SimWorld {
    pub(super) fn new(config: SimConfig) -> Self {
        let core = Core {
            rng: Rng::new(config.seed),
            actors: Vec::new(),
            wakeups: BinaryHeap::new(),
            last_wakeup: 0,
            trace: config.seed,
            steps: 0,
            idle_steps: 0,
        };
        Self {
            config,
            thread: this_thread(),
            now: Cell::new(0),
            active_ns: Cell::new(0),
            rung: Cell::new(false),
            closing: Cell::new(false),
            current: Cell::new(None),
            kept_out: Cell::new(false),
            yielder: Cell::new(std::ptr::null()),
            clockwork: RefCell::new(Rc::new(NoClockwork)),
            core: RefCell::new(core),
            cpu: RefCell::new(None),
            devices: RefCell::default(),
            instants: RefCell::new(None),
            steps: RefCell::new(None),
            stirs: Cell::new(0),
        }
    }

    /// This one hears of every step from now on.
    pub fn watch(&self, steps: Rc<dyn Steps>) {
        self.here();
        *self.steps.borrow_mut() = Some(steps);
    }

    /// The current step is one that others can tell of.
    pub fn stir(&self) {
        self.stirs.set(self.stirs.get() + 1);
    }

    /// Notes every instant at which anything happens from now on: packets, timers, steps of actors.
    pub fn record_instants(&self) {
        self.here();
        *self.instants.borrow_mut() = Some(Vec::new());
    }

    /// The instants noted so far, in order, each once.
    pub fn instants(&self) -> Vec<u64> {
        self.here();
        self.instants.borrow().clone().unwrap_or_default()
    }

    /// From here on actors of the host that load or store there panic: they have copies.
    pub fn is_device_memory(&self, span: Range<u64>) {
        self.here();
        self.devices.borrow_mut().push(span);
        self.keep_out();
    }

    /// True if a device's memory is there.
    pub fn lies_on_a_device(&self, address: u64) -> bool {
        self.devices.borrow().iter().any(|span| span.contains(&address))
    }

    /// Actors are checked at each access, so it is looked up once for each turn which of them are kept out.
    fn keep_out(&self) {
        let of_host = self.current.get().is_some_and(|id| self.core.borrow().actors[id].options.of_host);
        self.kept_out.set(of_host && !self.devices.borrow().is_empty());
    }

    fn check_domain(&self, address: u64) {
        self.here();
        if self.kept_out.get() && self.lies_on_a_device(address) && !self.closing() {
            let name = self.current.get().map(|id| self.core.borrow().actors[id].name.clone());
            panic!(
                "{}: expected the host's memory, got {address:#x} in a device's, which the host copies to or from",
                name.unwrap_or_default()
            );
        }
    }

    fn here(&self) {
        assert_eq!(self.thread, this_thread(), "a simulated world is used from one thread only");
    }

    /// The virtual instant.
    pub fn now(&self) -> u64 {
        self.here();
        self.now.get()
    }

    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.config.seed
    }

    /// How long an actor that looks again and again waits between two looks: a sixteenth of the time the world has been
    /// quiet, in these bounds.
    pub fn pause(&self, shortest_ns: u64, longest_ns: u64) -> u64 {
        let quiet_ns = self.now.get() - self.active_ns.get();
        (quiet_ns / 16).clamp(shortest_ns, longest_ns.max(shortest_ns))
    }

    /// Says what the current actor waits for; a dump shows it.
    pub fn note(&self, what: impl FnOnce() -> String) {
        self.here();
        if let Some(id) = self.current.get() {
            let now = self.now.get();
            let actor = &mut self.core.borrow_mut().actors[id];
            actor.note = what();
            actor.since_ns = now;
        }
    }

    /// Lets the caller sleep for `ns`.
    pub fn sleep(&self, ns: u64) {
        self.pause_until(self.now().saturating_add(ns));
    }

    /// A draw below `bound` from the run's stream.
    pub fn draw(&self, bound: u64) -> u64 {
        self.here();
        self.core.borrow_mut().rng.below(bound)
    }

    /// The number of the actor that runs.
    pub fn current(&self) -> Option<usize> {
        self.current.get()
    }

    /// True while unfinished actors are unwound: nobody is scheduled any more.
    pub(crate) fn closing(&self) -> bool {
        self.closing.get() || std::thread::panicking()
    }

    /// Suspends the current actor until [`SimWorld::unpark`], until `deadline_ns` at the latest. True if unparked.
    pub(crate) fn park(&self, deadline_ns: u64) -> bool {
        self.here();
        let id = self.current.get().expect("only an actor can park");
        self.core.borrow_mut().actors[id].unparked = false;
        self.suspend(Pause::Parked(deadline_ns));
        self.core.borrow().actors[id].unparked
    }

    /// Wakes a parked actor now.
    pub(crate) fn unpark(&self, id: usize) {
        self.here();
        let mut core = self.core.borrow_mut();
        if core.actors[id].parked {
            self.stir();
            core.actors[id].parked = false;
            core.actors[id].unparked = true;
            core.schedule(id, self.now.get());
        }
    }

    fn pause_until(&self, at: u64) {
        self.here();
        if self.closing() {
            self.pass_time(at);
        } else if self.current.get().is_some() {
            self.suspend(Pause::Until(at));
        } else {
            self.run_to(at);
        }
    }

    fn suspend(&self, pause: Pause) {
        let yielder = self.yielder.get();
        assert!(!yielder.is_null(), "an actor runs, so it has a yielder");
        // SAFETY: the actor that executes this code set the pointer to its own yielder (no other body was the
        // last to run), and a yielder lives as long as the body runs.
        unsafe { (*yielder).suspend(pause) };
        self.yielder.set(yielder);
    }

    /// Runs everything up to `at`, from outside any actor.
    pub(super) fn run_to(&self, at: u64) {
        while self.next_instant().is_some_and(|next| next <= at) {
            self.turn();
        }
        self.now.set(self.now.get().max(at));
    }

    /// While unwinding: destructors still command their NIC and wait for it, but no actor runs any more.
    fn pass_time(&self, at: u64) {
        let clockwork = self.clockwork.borrow().clone();
        if self.rung.replace(false) {
            clockwork.step(self.now.get());
        }
        for _ in 0..CLOSING_STEPS_MAX {
            let Some(due) = clockwork.next_due().filter(|due| *due <= at) else { break };
            self.now.set(self.now.get().max(due));
            clockwork.step(self.now.get());
        }
        self.now.set(self.now.get().max(at));
    }

    pub(super) fn set_clockwork(&self, clockwork: Rc<dyn Clockwork>) {
        self.here();
        *self.clockwork.borrow_mut() = clockwork;
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.core.borrow().trace
    }

    pub(super) fn steps(&self) -> u64 {
        self.core.borrow().steps
    }

    pub(super) fn dump(&self) -> String {
        let core = self.core.borrow();
        let now = self.now.get();
        let head = format!("seed {}, at {:.1} us, step {}", self.config.seed, now as f64 / 1e3, core.steps);
        let lines = core.actors.iter().filter(|actor| !actor.done).map(|actor| actor.line(now));
        std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
    }

    /// Stops an actor for good, wherever it is: it is never resumed, and unwound when the run is torn down.
    pub fn kill(&self, id: usize) {
        self.here();
        assert_ne!(self.current.get(), Some(id), "an actor cannot kill itself");
        let mut core = self.core.borrow_mut();
        let actor = &mut core.actors[id];
        actor.done = true;
        actor.parked = false;
        actor.wakeup = 0;
    }

    /// Stops an actor, wherever it is, until an instant.
    pub fn hold(&self, id: usize, until_ns: u64) {
        self.here();
        let now = self.now.get();
        let actor = &mut self.core.borrow_mut().actors[id];
        let more_ns = until_ns.saturating_sub(actor.held_ns.max(now));
        actor.stopped_ns += more_ns;
        actor.held_ns = actor.held_ns.max(until_ns);
    }

    /// True once an actor has returned.
    pub(crate) fn is_done(&self, id: usize) -> bool {
        self.core.borrow().actors[id].done
    }

    /// How long the current actor was stopped so far.
    pub fn stopped_ns(&self) -> u64 {
        self.here();
        self.current.get().map_or(0, |id| self.core.borrow().actors[id].stopped_ns)
    }

    pub(crate) fn spawn(&self, name: String, options: ActorOptions, body: Box<dyn FnOnce()>) -> usize {
        self.here();
        let world: *const SimWorld = self;
        let stack = DefaultStack::new(options.stack_bytes).expect("memory for a coroutine's stack");
        let body = Body::with_stack(stack, move |yielder, ()| {
            // SAFETY: coroutines live in the world's own actor table, and the world is not dropped while one
            // of them runs: `Sim` holds it, and `close` has ended them all before.
            unsafe { (*world).yielder.set(yielder) };
            body();
        });
        let mut core = self.core.borrow_mut();
        let id = core.actors.len();
        core.actors.push(Actor {
            name,
            options,
            body: Some(body),
            done: false,
            wakeup: 0,
            parked: false,
            unparked: false,
            polls: 0,
            held_ns: 0,
            stopped_ns: 0,
            since_ns: self.now.get(),
            note: String::new(),
        });
        core.schedule(id, self.now.get());
        id
    }

    /// When the next thing happens.
    fn next_instant(&self) -> Option<u64> {
        let fabric = self.fabric_instant();
        let actor = self.core.borrow_mut().first();
        [fabric, actor].into_iter().flatten().min().map(|at| at.max(self.now.get()))
    }

    fn fabric_instant(&self) -> Option<u64> {
        if self.rung.get() {
            return Some(self.now.get());
        }
        self.clockwork.borrow().next_due().map(|due| due.max(self.now.get()))
    }

    /// One step of the scheduler: the earliest of an actor's wake-up and the fabric's next event.
    pub(super) fn turn(&self) {
        self.here();
        let fabric = self.fabric_instant();
        let (actor, coin) = {
            let mut core = self.core.borrow_mut();
            core.steps += 1;
            let actor = core.first().map(|at| at.max(self.now.get()));
            // A tie is broken by the seed: either order is real.
            let coin = actor == fabric && actor.is_some() && core.rng.one_in(2);
            (actor, coin)
        };
        let fabric_first = match (fabric, actor) {
            (None, None) => panic!("nothing will ever happen again\n{}", self.dump()),
            (Some(fabric), Some(actor)) => fabric < actor || fabric == actor && coin,
            (fabric, _) => fabric.is_some(),
        };
        let at = if fabric_first { fabric } else { actor }.expect("the earlier one exists");
        self.advance(at);
        if fabric_first {
            self.step_fabric();
        } else {
            self.resume();
        }
    }

    fn advance(&self, at: u64) {
        let steps = self.core.borrow().steps;
        if at > self.config.time_limit_ns || steps > self.config.step_limit {
            panic!("runaway: virtual time or step limit passed\n{}", self.dump());
        }
        self.now.set(at);
        if let Some(instants) = &mut *self.instants.borrow_mut()
            && instants.last() != Some(&at)
        {
            instants.push(at);
        }
    }

    fn step_fabric(&self) {
        let now = self.now.get();
        let clockwork = self.clockwork.borrow().clone();
        let rung = self.rung.replace(false);
        let happened = clockwork.step(now);
        if happened || rung {
            self.active_ns.set(now);
        }
        if let Some(steps) = &*self.steps.borrow() {
            steps.after(None, now, happened);
        }
        // A timer that no longer matters is let go, and then the fabric is due later: that is an answer, too.
        let stuck = !happened && !rung && clockwork.next_due().is_some_and(|due| due <= now);
        let mut core = self.core.borrow_mut();
        core.trace(now, FABRIC);
        core.idle_steps = if stuck { core.idle_steps + 1 } else { 0 };
        if core.idle_steps > IDLE_STEPS_MAX {
            drop(core);
            panic!(
                "the fabric says it is due at {:?} and does nothing\n{}",
                clockwork.next_due(),
                self.dump()
            );
        }
    }

    /// From now on the CPU time of each turn of the actors with this prefix is written down.
    pub(super) fn count_cpu(&self, prefix: &str) {
        *self.cpu.borrow_mut() = Some(CpuLog { prefix: prefix.into(), turns: Vec::new() });
    }

    /// What was written down: instant and CPU time of each turn.
    pub(super) fn cpu_turns(&self) -> Vec<(u64, u64)> {
        self.cpu.borrow_mut().as_mut().map(|log| std::mem::take(&mut log.turns)).unwrap_or_default()
    }

    fn log_cpu(&self, actor: usize, spent_ns: u64) {
        if let Some(log) = self.cpu.borrow_mut().as_mut()
            && self.core.borrow().actors[actor].name.starts_with(&log.prefix)
        {
            log.turns.push((self.now.get(), spent_ns));
        }
    }

    /// Resumes the actor whose wake-up is first.
    fn resume(&self) {
        let steps = self.steps.borrow().clone();
        let (id, mut body) = {
            let mut core = self.core.borrow_mut();
            let Reverse((_, _, id, _)) = core.wakeups.pop().expect("`first` found a wake-up");
            let held_ns = core.actors[id].held_ns;
            if held_ns > self.now.get() {
                return core.schedule(id, held_ns);
            }
            if let Some(ns) =
                steps.as_ref().map(|steps| steps.before(id, self.now.get())).filter(|ns| *ns > 0)
            {
                let until_ns = self.now.get() + ns;
                core.actors[id].held_ns = until_ns;
                return core.schedule(id, until_ns);
            }
            core.trace(self.now.get(), id as u64);
            let actor = &mut core.actors[id];
            actor.parked = false;
            actor.wakeup = 0;
            (id, actor.body.take().expect("a scheduled actor is suspended"))
        };
        // Only `turn` resumes and no actor calls `turn`, so resuming never nests.
        self.current.set(Some(id));
        self.keep_out();
        let (began_ns, stirs) = (self.cpu.borrow().is_some().then(thread_cpu_ns), self.stirs.get());
        let result = catch_unwind(AssertUnwindSafe(|| body.resume(())));
        self.current.set(None);
        self.keep_out();
        if let Some(began_ns) = began_ns {
            self.log_cpu(id, thread_cpu_ns() - began_ns);
        }
        self.yielder.set(std::ptr::null());
        if let Some(steps) = steps {
            steps.after(Some(id), self.now.get(), self.stirs.get() > stirs);
        }
        match result {
            Ok(CoroutineResult::Yield(pause)) => {
                let mut core = self.core.borrow_mut();
                let (at, parked) = match pause {
                    Pause::Until(at) => (at, false),
                    Pause::Parked(deadline) => (deadline, true),
                };
                core.actors[id].body = Some(body);
                core.actors[id].parked = parked;
                core.schedule(id, at.max(self.now.get()));
            }
            Ok(CoroutineResult::Return(())) => self.core.borrow_mut().actors[id].done = true,
            Err(panic) => {
                eprintln!("actor {} failed\n{}", self.core.borrow().actors[id].name, self.dump());
                self.core.borrow_mut().actors[id].done = true;
                resume_unwind(panic);
            }
        }
    }

    /// Unwinds every unfinished actor, the youngest first.
    pub(super) fn close(&self) {
        self.closing.set(true);
        loop {
            let body = {
                let mut core = self.core.borrow_mut();
                let Some(mut actor) = core.actors.pop() else { break };
                actor.body.take()
            };
            // Dropped outside the borrow: destructors on its stack use the world.
            drop(body);
        }
        *self.clockwork.borrow_mut() = Rc::new(NoClockwork);
    }
}
