//! The sleep of a verbs program's agent, and those who wake it, on loom's words: every interleaving, weak memory. What
//! is new lies in loom's cells and words, and a sleep that nobody ends is a deadlock, which loom finds by itself.
#![allow(missing_docs)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use shunt_verbs_near::gate::Word;
use shunt_verbs_near::rest::Rest;

struct Checked(AtomicU32);

impl Word for Checked {
    fn zero() -> Self {
        Self(AtomicU32::new(0))
    }

    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }

    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_or(bits, order)
    }

    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.0.fetch_and(bits, order)
    }

    fn fetch_add(&self, by: u32, order: Ordering) -> u32 {
        self.0.fetch_add(by, order)
    }

    fn pause(_: u32) {
        thread::yield_now();
    }
}

/// A program's threads and the agent, with what an eventfd is: it is ready from a ring until it is read.
struct Both {
    rest: Rest<Checked>,
    ready: Mutex<bool>,
    rung: Condvar,
    /// What is new. Relaxed: the word alone carries it.
    written: [AtomicU32; 2],
    rings: AtomicU32,
}

impl Both {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rest: Rest::new(),
            ready: Mutex::new(false),
            rung: Condvar::new(),
            written: [AtomicU32::new(0), AtomicU32::new(0)],
            rings: AtomicU32::new(0),
        })
    }

    /// A thread of the program has something new.
    fn tell(&self, which: usize, later: bool) {
        self.written[which].store(1, Ordering::Relaxed);
        let rings = if later { self.rest.tell_later() } else { self.rest.tell() };
        if rings {
            self.rings.fetch_add(1, Ordering::Relaxed);
            *self.ready.lock().expect("no panic") = true;
            self.rung.notify_all();
        }
    }

    /// The agent, until it has seen all that is `wanted`. Its sleep has no end but a ring.
    fn agent(&self, wanted: u32, long: bool) {
        loop {
            self.rest.take();
            if self.written.iter().map(|one| one.load(Ordering::Relaxed)).sum::<u32>() == wanted {
                return;
            }
            if self.rest.lie_down(long) {
                let mut ready = self.ready.lock().expect("no panic");
                while !*ready {
                    ready = self.rung.wait(ready).expect("no panic");
                }
                *ready = false;
            }
        }
    }
}

fn check(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(run);
}

#[test]
fn nothing_that_was_told_is_slept_on() {
    check(3, || {
        let both = Both::new();
        let other = both.clone();
        let program = thread::spawn(move || {
            other.tell(0, false);
            other.tell(1, false);
        });
        both.agent(2, false);
        program.join().expect("no panic");
    });
}

#[test]
fn neither_of_two_threads_is_overlooked_whoever_has_time() {
    check(2, || {
        let both = Both::new();
        let programs = [(0, false), (1, true)].map(|(which, later)| {
            let other = both.clone();
            thread::spawn(move || other.tell(which, later))
        });
        both.agent(2, true);
        programs.into_iter().for_each(|one| one.join().expect("no panic"));
        assert!(both.rings.load(Ordering::Relaxed) <= 2);
    });
}

/// What has time does not break a short sleep, and does not keep what has none from it.
#[test]
fn what_has_time_does_not_stand_before_what_has_none() {
    check(3, || {
        let both = Both::new();
        let other = both.clone();
        let program = thread::spawn(move || {
            other.tell(0, true);
            other.tell(1, false);
        });
        both.agent(2, false);
        program.join().expect("no panic");
    });
}
