//! Real time: one thread that steps a fabric, and a lock that others get when they ask for it.

use crate::fabric::Fabric;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use shunt_soft_hca::DoorbellLook;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How far rate limits catch up after the thread was away.
const CATCH_UP_NS: u64 = 1_000_000;
/// How long an idle thread looks again before it parks. On few cores it would only be in the way of the thread that is
/// to give it work.
const SPIN_NS: u64 = 50_000;
/// A thread that yields and comes back later than that has waited for a core. For so long afterwards it sleeps in
/// place of spinning: who yields often is put behind all others, and packets wait for it.
const LATE_NS: u64 = 100_000;
const CROWDED_NS: u64 = 100_000_000;
/// Cores that are enough for everybody to spin: two processes, each with a poller and an engine, and some.
const ENOUGH_CORES: usize = 6;
/// How long it parks: doorbells written by a device come without a kick. A thread that had work a moment ago looks
/// again soon, one that has long been idle takes its time: a fraction of the time it has been idle, in these bounds.
const PARK_NS: std::ops::RangeInclusive<u64> = 20_000..=500_000;
/// The fraction, as a shift.
const PARK_SHIFT: u32 = 4;
/// How late a timer may be; the system's default of 50 us is longer than most parks.
const TIMER_SLACK_NS: u64 = 1_000;
/// Where doorbells are rung with a kick, which says that there is one.
const KICKED: Pages = Pages { at_once: 256, each_ns: 16_000 };
/// Where programs ring them by themselves, and nobody kicks.
const UNSAID: Pages = Pages { at_once: 4096, each_ns: 1_000 };
/// Yields by which it steps aside for others that want the fabric.
const ASIDE: u32 = 20;
/// How long it sleeps then, unless somebody who had the fabric wakes it.
const ASIDE_NAP: u64 = 100_000;
/// How long it steps aside at most: packets wait meanwhile.
const LONGEST_ASIDE: Duration = Duration::from_millis(5);

/// Monotonic nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that shows zero now.
    #[allow(clippy::new_without_default)] // a default clock would hide that its origin matters
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds since then.
    pub fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

/// When doorbell pages are looked at.
#[derive(Clone, Copy)]
struct Pages {
    /// So many are looked at whenever there is a round. Where there are more, a look takes longer than all else.
    at_once: u64,
    /// Then all are looked at once in so long for each of them: many times what reading its registers takes, some
    /// 100 ns where sixteen such threads share a cache.
    each_ns: u64,
}

impl Pages {
    /// Which doorbells are looked at, so long after the last look at all of them. Where a kick says that one was
    /// `rung`, the usual registers: one that is written to for the first time waits until it is time for all.
    fn look(self, since_ns: u64, pages: u64, rung: bool) -> DoorbellLook {
        if pages <= self.at_once || since_ns >= pages * self.each_ns {
            DoorbellLook::Everywhere
        } else if rung {
            DoorbellLook::Usual
        } else {
            DoorbellLook::Nowhere
        }
    }
}

/// What the thread of a fabric with an uplink sleeps on instead of being parked.
struct Bell {
    /// Rung by a kick.
    kick: OwnedFd,
    /// The uplink's descriptor, duplicated: the uplink itself is under the lock.
    uplink: OwnedFd,
}

impl Bell {
    /// The bell of a fabric; none if it has no uplink.
    ///
    /// # Panics
    /// If the system has no descriptors left.
    fn of(fabric: &Fabric) -> Option<Self> {
        let uplink = fabric.uplink_descriptor()?.try_clone_to_owned().expect("a descriptor");
        let kick = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor");
        Some(Self { kick, uplink })
    }

    fn ring(&self) {
        // It fails only when the count is about to overflow: then it has long been rung.
        let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
    }

    /// Sleeps until somebody rings, or something comes if that counts, or the time is over.
    fn sleep(&self, nanoseconds: u64, comes: bool) {
        let (tv_sec, tv_nsec) = ((nanoseconds / 1_000_000_000) as i64, (nanoseconds % 1_000_000_000) as i64);
        let mut on = [PollFd::new(&self.kick, PollFlags::IN), PollFd::new(&self.uplink, PollFlags::IN)];
        let on = &mut on[..1 + comes as usize];
        // Interrupted is as good as awake.
        let _ = poll(on, Some(&Timespec { tv_sec, tv_nsec }));
        if on[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.kick, &mut [0; 8]);
        }
    }
}

struct Shared {
    fabric: Mutex<Fabric>,
    bell: Option<Bell>,
    /// Callers that want the lock: the engine steps aside for them.
    waiting: AtomicU32,
    /// The engine is parked or about to park.
    parked: AtomicBool,
    /// It is for those who want the fabric.
    aside: AtomicBool,
    /// Something to look at came in.
    kicked: AtomicBool,
    /// A doorbell was rung by somebody who said so.
    rung: AtomicBool,
    stop: AtomicBool,
    /// Instant of the engine's last round; the largest number where none steps it.
    stepped: AtomicU64,
    thread: OnceLock<Thread>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Fabric> {
        // A panic under the lock is a failed assertion elsewhere; the fabric is still whole between steps.
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kick(&self) {
        self.kicked.store(true, Ordering::SeqCst);
        if !self.parked.load(Ordering::SeqCst) {
            return;
        }
        match (&self.bell, self.thread.get()) {
            (Some(bell), _) => bell.ring(),
            (None, Some(thread)) => thread.unpark(),
            (None, None) => {}
        }
    }
}

/// A fabric that an engine or a simulator steps and others use.
#[derive(Clone)]
pub struct SharedFabric(Arc<Shared>);

impl SharedFabric {
    /// Shares a fabric that the caller steps.
    ///
    /// # Panics
    /// If the fabric has an uplink and the system no descriptors left.
    pub fn new(fabric: Fabric) -> Self {
        Self(Arc::new(Shared {
            bell: Bell::of(&fabric),
            fabric: Mutex::new(fabric),
            waiting: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            aside: AtomicBool::new(false),
            kicked: AtomicBool::new(false),
            rung: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            stepped: AtomicU64::new(u64::MAX),
            thread: OnceLock::new(),
        }))
    }

    /// Runs `f` on the fabric, and has the engine look at what changed.
    pub fn with<R>(&self, f: impl FnOnce(&mut Fabric) -> R) -> R {
        let result = self.with_unseen(f);
        self.0.kick();
        result
    }

    /// Runs `f`, which gives the engine nothing to do: it takes what lies there, or reads. An engine that is parked
    /// stays so. Who asks often, and mostly in vain, would keep it awake otherwise.
    pub fn with_unseen<R>(&self, f: impl FnOnce(&mut Fabric) -> R) -> R {
        self.0.waiting.fetch_add(1, Ordering::AcqRel);
        let mut fabric = self.0.lock();
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        let result = f(&mut fabric);
        drop(fabric);
        if self.0.aside.load(Ordering::SeqCst) {
            self.0.kick();
        }
        result
    }

    /// Until when its NICs have done what was due, nanoseconds of the engine's clock. A NIC that owes an answer and was
    /// not stepped since is not silent: its thread had no core. The largest number where no engine steps the fabric.
    pub fn stepped_ns(&self) -> u64 {
        self.0.stepped.load(Ordering::Acquire)
    }

    /// True if somebody had the fabric since the last call of this, for a caller that steps it without an engine and
    /// keeps what it knows of it.
    pub fn was_had(&self) -> bool {
        self.0.kicked.load(Ordering::Relaxed) && self.0.kicked.swap(false, Ordering::AcqRel)
    }
}

/// The thread that steps a fabric in real time. It stops when this is dropped.
pub struct Engine {
    shared: SharedFabric,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the thread.
    ///
    /// # Panics
    /// If the system cannot start a thread, or has no descriptors left for one that sleeps on an uplink.
    pub fn spawn(fabric: Fabric, clock: Clock) -> Self {
        Self::spawn_with(fabric, clock, SPIN_NS, KICKED)
    }

    /// Starts the thread as [`Self::spawn`] does, for programs that ring doorbells without a kick, poll, and never
    /// sleep themselves: on few cores this thread then sleeps whenever there is nothing to do. One that only yields to
    /// a thread that spins comes back a time slice later, which is milliseconds; one that slept is let in soon.
    ///
    /// # Panics
    /// As [`Self::spawn`].
    pub fn spawn_beside_pollers(fabric: Fabric, clock: Clock) -> Self {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        Self::spawn_with(fabric, clock, if cores < ENOUGH_CORES { 0 } else { SPIN_NS }, UNSAID)
    }

    fn spawn_with(mut fabric: Fabric, clock: Clock, spin_ns: u64, pages: Pages) -> Self {
        fabric.set_catch_up(CATCH_UP_NS);
        let shared = SharedFabric::new(fabric);
        shared.0.stepped.store(0, Ordering::Release);
        let inner = shared.0.clone();
        let run = move || run(&inner, clock, spin_ns, pages);
        let thread = thread::Builder::new().name("soft-nic".into()).spawn(run).expect("a thread");
        // The first setter wins, and there is only this one.
        let _ = shared.0.thread.set(thread.thread().clone());
        Self { shared, thread: Some(thread) }
    }

    /// The fabric.
    pub fn fabric(&self) -> SharedFabric {
        self.shared.clone()
    }

    /// A doorbell was rung: look now.
    #[inline]
    pub fn kick(&self) {
        self.shared.0.rung.store(true, Ordering::SeqCst);
        self.shared.0.kick();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.0.stop.store(true, Ordering::SeqCst);
        self.shared.0.kick();
        if let Some(thread) = self.thread.take() {
            // Its panic was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, clock: Clock, spin_ns: u64, pages: Pages) {
    // Without it parks are longer, not wrong.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(TIMER_SLACK_NS));
    let mut idle_since = clock.now_ns();
    let (mut looked, mut crowded_until) = (idle_since, 0);
    while !shared.stop.load(Ordering::Acquire) {
        step_aside(shared, if clock.now_ns() < crowded_until { 0 } else { ASIDE });
        shared.kicked.store(false, Ordering::SeqCst);
        let (busy, next_due) = {
            let mut fabric = shared.lock();
            let now = clock.now_ns();
            let rung = shared.rung.swap(false, Ordering::AcqRel);
            let look = pages.look(now - looked, fabric.pages(), rung);
            let busy = fabric.round_with(now, look);
            shared.stepped.store(now, Ordering::Release);
            if look == DoorbellLook::Everywhere {
                looked = clock.now_ns();
            }
            (busy, if busy { None } else { fabric.next_due() })
        };
        let now = clock.now_ns();
        if busy {
            idle_since = now;
            continue;
        }
        let idle = now - idle_since;
        let park = (idle >> PARK_SHIFT).clamp(*PARK_NS.start(), *PARK_NS.end());
        let due_in = next_due.map_or(park, |due| due.saturating_sub(now)).min(park);
        let spin_ns = if now < crowded_until { 0 } else { spin_ns };
        if idle < spin_ns || due_in < *PARK_NS.start().min(&spin_ns) {
            thread::yield_now();
            if clock.now_ns() > now + LATE_NS {
                crowded_until = now + CROWDED_NS;
            }
            continue;
        }
        shared.parked.store(true, Ordering::SeqCst);
        if !shared.kicked.load(Ordering::SeqCst) && !shared.stop.load(Ordering::SeqCst) {
            match &shared.bell {
                Some(bell) => bell.sleep(due_in, true),
                None => thread::park_timeout(Duration::from_nanos(due_in)),
            }
        }
        shared.parked.store(false, Ordering::SeqCst);
        if shared.kicked.load(Ordering::SeqCst) {
            idle_since = clock.now_ns();
        }
    }
}

/// Lets others have the lock first: the standard mutex goes to the thread that comes back soonest, which would be this
/// thread every time. Where somebody waits for longer than a few yields he has no core to run on: only a sleep gives
/// him this one's, and his kick ends it.
fn step_aside(shared: &Shared, yields: u32) {
    for _ in 0..yields {
        if shared.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        thread::yield_now();
    }
    let since = Instant::now();
    shared.aside.store(true, Ordering::SeqCst);
    while shared.waiting.load(Ordering::Acquire) > 0 && since.elapsed() < LONGEST_ASIDE {
        shared.kicked.store(false, Ordering::SeqCst);
        shared.parked.store(true, Ordering::SeqCst);
        if !shared.kicked.load(Ordering::SeqCst) && !shared.stop.load(Ordering::SeqCst) {
            match &shared.bell {
                Some(bell) => bell.sleep(ASIDE_NAP, false),
                None => thread::park_timeout(Duration::from_nanos(ASIDE_NAP)),
            }
        }
        shared.parked.store(false, Ordering::SeqCst);
    }
    shared.aside.store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pages_are_always_looked_at_and_many_once_in_a_while() {
        use DoorbellLook::{Everywhere, Nowhere, Usual};
        for rule in [KICKED, UNSAID] {
            let look = |since, pages| [false, true].map(|rung| rule.look(since, pages, rung));
            assert_eq!((look(0, 0), look(0, rule.at_once)), ([Everywhere; 2], [Everywhere; 2]));
            let many = 100 * rule.at_once;
            let time = many * rule.each_ns;
            assert_eq!((look(0, many), look(time - 1, many)), ([Nowhere, Usual], [Nowhere, Usual]));
            assert_eq!(look(time, many), [Everywhere; 2]);
        }
    }
}
