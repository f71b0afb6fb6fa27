//! Device code's platform in the simulator: every access to memory may be where another warp gets in between.

use std::cell::{Cell, RefCell};

use shunt_device::platform::host::Host;
use shunt_device::platform::{InMemory, Platform};
use shunt_layout::mlx5::wqe::Wqebb;

use super::PeWorld;

/// An access that device code is about to make.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The platform's method.
    pub method: &'static str,
    /// The address, or what else the method takes first.
    pub address: u64,
}

/// Answers for how many nanoseconds the access is held up.
pub type Hook = Box<dyn FnMut(Access) -> u64>;

/// How long a barrier takes, by its name.
type BarrierHook = Box<dyn FnMut(&'static str) -> u64>;

/// When device code is stopped between two of its instructions.
#[derive(Default)]
pub struct Interference {
    /// Give way before one access in this many, for a time drawn from the seed; 0: never.
    pub one_in: Cell<u64>,
    /// Stop once before access number `.0`, for `.1` nanoseconds.
    pub stop: Cell<Option<(u64, u64)>>,
    /// The stop after that one.
    pub then: Cell<Option<(u64, u64)>>,
    /// Accesses until it gives way next; 0: not drawn yet.
    pub countdown: Cell<u64>,
    /// Accesses so far.
    pub accesses: Cell<u64>,
    /// If wanted: when each access was made, so that a later run can be stopped at a chosen one.
    pub times: RefCell<Option<Vec<u64>>>,
    /// Somebody was held up by the hook.
    pub struck: Cell<bool>,
    /// If there: asked before each access.
    hook: RefCell<Option<Hook>>,
    /// The hook holds up one access, and is not asked again.
    once: Cell<bool>,
    /// If there: what each barrier of a post takes, by its name.
    barriers: RefCell<Option<BarrierHook>>,
}

impl Interference {
    /// Gives way before one access in `one_in`.
    pub fn random(one_in: u64) -> Self {
        Self { one_in: Cell::new(one_in), ..Self::default() }
    }

    /// Only notes when each access was made.
    pub fn recording() -> Self {
        Self { times: RefCell::new(Some(Vec::new())), ..Self::default() }
    }

    /// Stops once, before access `number`, for `ns`.
    pub fn stop_at(number: u64, ns: u64) -> Self {
        Self { stop: Cell::new(Some((number, ns))), ..Self::default() }
    }

    /// Stops before access `first`, and before access `second`, for `ns` each: the others run.
    pub fn stop_twice(first: u64, second: u64, ns: u64) -> Self {
        Self { then: Cell::new(Some((second, ns))), ..Self::stop_at(first, ns) }
    }

    /// Stops once for `ns`, before the first access that `chosen` picks.
    pub fn stop_when(mut chosen: impl FnMut(Access) -> bool + 'static, ns: u64) -> Self {
        let hook = move |access| if chosen(access) { ns } else { 0 };
        Self { hook: RefCell::new(Some(Box::new(hook))), once: Cell::new(true), ..Self::default() }
    }

    /// Asks `hook` before each access from now on.
    pub fn ask(&self, hook: impl FnMut(Access) -> u64 + 'static) {
        self.once.set(false);
        self.hook.replace(Some(Box::new(hook)));
    }

    /// Asks this how long each barrier of a post takes.
    pub fn ask_of_barriers(&self, hook: impl FnMut(&'static str) -> u64 + 'static) {
        self.barriers.replace(Some(Box::new(hook)));
    }
}

/// [`Host`] in a [`PeWorld`], with [`Interference`].
#[derive(Clone, Copy)]
pub struct SimPlatform<'w> {
    host: Host<'w>,
    world: &'w PeWorld,
    interference: &'w Interference,
}

impl<'w> SimPlatform<'w> {
    /// Device code that lives in `world` and is disturbed as `interference` says.
    pub fn new(world: &'w PeWorld, interference: &'w Interference) -> Self {
        Self { host: Host::new(world), world, interference }
    }

    #[inline]
    fn point(self, method: &'static str, address: u64) {
        let rules = self.interference;
        let number = rules.accesses.get();
        rules.accesses.set(number + 1);
        if rules.hook.borrow().is_some() || rules.times.borrow().is_some() || rules.stop.get().is_some() {
            self.ruled(Access { method, address }, number);
        }
        if rules.one_in.get() != 0 {
            match rules.countdown.get() {
                0 | 1 => self.give_way(),
                left => rules.countdown.set(left - 1),
            }
        }
    }

    /// What is done to this very access.
    #[inline(never)]
    fn ruled(self, access: Access, number: u64) {
        // Taken out while it is asked: an actor that it lets run asks nothing meanwhile.
        let hook = self.interference.hook.take();
        if let Some(mut hook) = hook {
            let ns = hook(access);
            if ns == 0 || !self.interference.once.get() {
                self.interference.hook.replace(Some(hook));
            }
            if ns > 0 {
                self.interference.struck.set(true);
                self.world.sleep(ns);
            }
        }
        if let Some(times) = &mut *self.interference.times.borrow_mut() {
            times.push(self.world.now());
        }
        if let Some((at, ns)) = self.interference.stop.get()
            && at == number
        {
            self.interference.stop.set(self.interference.then.take());
            self.world.sleep(ns);
        }
    }

    fn barrier(self, name: &'static str) {
        let hook = self.interference.barriers.take();
        if let Some(mut hook) = hook {
            let ns = hook(name);
            self.interference.barriers.replace(Some(hook));
            if ns > 0 {
                self.world.sleep(ns);
            }
        }
    }

    /// The countdown is over, or begins.
    #[inline(never)]
    fn give_way(self) {
        let first = self.interference.countdown.get() == 0;
        let one_in = self.interference.one_in.get();
        self.interference.countdown.set(1 + self.world.draw(2 * one_in - 1));
        if first {
            return;
        }
        // Mostly a few instructions of somebody else, sometimes a long absence.
        let ns = match self.world.draw(64) {
            0 => self.world.draw(200_000),
            1..=7 => self.world.draw(10_000),
            _ => self.world.draw(500),
        };
        self.world.sleep(ns);
    }
}

/// Methods that are their host's, after a point where others may get in.
macro_rules! forward {
    ($(unsafe fn $name:ident($first:ident: $first_type:ty $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        $(unsafe fn $name(self, $first: $first_type $(, $arg: $type)*) $(-> $result)? {
            self.point(stringify!($name), $first as u64);
            // SAFETY: the same contract, forwarded to the caller.
            unsafe { self.host.$name($first $(, $arg)*) }
        })*
    };
}

impl Platform for SimPlatform<'_> {
    type Root = InMemory;
    fn now_ns(self) -> u64 {
        self.host.now_ns()
    }
    fn relax(self) {
        self.host.relax();
    }
    forward! {
        unsafe fn load(address: *const u64) -> u64;
        unsafe fn load_acquire(address: *const u64) -> u64;
        unsafe fn store(address: *mut u64, value: u64);
        unsafe fn store_release(address: *mut u64, value: u64);
        unsafe fn fetch_add(address: *mut u64, value: u64) -> u64;
        unsafe fn fetch_or(address: *mut u64, value: u64) -> u64;
        unsafe fn fetch_and(address: *mut u64, value: u64) -> u64;
        unsafe fn compare_swap(address: *mut u64, expected: u64, new: u64) -> u64;
        unsafe fn try_lock(address: *mut u32) -> bool;
        unsafe fn unlock(address: *mut u32);
        unsafe fn load32(address: *const u32) -> u32;
        unsafe fn store32(address: *mut u32, value: u32);
        unsafe fn load_cqe(address: *const u32) -> u32;
        unsafe fn load_key(address: *const u32) -> u32;
        unsafe fn load_wqe(address: *const Wqebb) -> Wqebb;
        unsafe fn store_segment(address: *mut u32, segment: [u32; 4]);
        unsafe fn store_doorbell_record(address: *mut u32, value: u32);
        unsafe fn store_register(address: *mut u64, value: u64);
    }
    fn wqes_before_publish(self) {
        self.barrier("wqes_before_publish");
        self.host.wqes_before_publish();
    }
    fn own_stores_before_store(self) {
        self.barrier("own_stores_before_store");
        self.host.own_stores_before_store();
    }
    fn record_before_register(self) {
        self.barrier("record_before_register");
        self.host.record_before_register();
    }
    fn cqe_before_data(self) {
        self.host.cqe_before_data();
    }
    fn announce_before_recheck(self) {
        self.host.announce_before_recheck();
    }
}
