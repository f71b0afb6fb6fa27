//! The lock of what each call of a verbs program looks at, on loom's words: every interleaving, weak memory. What is
//! inside is one of loom's cells, which finds two at once in it by itself.
#![allow(missing_docs)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use shunt_verbs_near::gate::{Gate, Inside, Word};

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

    /// One that changes nothing writes nothing here. Loom would leave its write, and the store that frees the word, in
    /// no order, though a read-modify-write comes right behind what it read.
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        let mut was = self.0.load(Ordering::Relaxed) & !bits;
        loop {
            match self.0.compare_exchange(was, was | bits, order, Ordering::Relaxed) {
                Ok(was) => return was,
                Err(now) if now & bits == bits => return now,
                Err(now) => was = now,
            }
        }
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

/// How often somebody was inside, and whether one who goes first has come in and shut it.
#[derive(Default)]
struct Seen {
    times: u32,
    moved: bool,
}

type Tried = Gate<UnsafeCell<Seen>, Checked>;

fn enter(inside: &Inside<'_, UnsafeCell<Seen>, Checked>, act: impl FnOnce(&mut Seen)) {
    // SAFETY: one is alone inside, which loom checks.
    inside.with_mut(|seen| act(unsafe { &mut *seen }));
}

fn gate() -> Arc<Tried> {
    Arc::new(Gate::new(UnsafeCell::new(Seen::default())))
}

/// The program's call: straight if all is well, around otherwise.
fn call(gate: &Tried) {
    if let Some(inside) = gate.pass() {
        return enter(&inside, |seen| {
            assert!(!seen.moved, "a gate that was shut from inside lets no caller pass");
            seen.times += 1;
        });
    }
    enter(&gate.wait(), |seen| seen.times += 1);
}

fn check(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(run);
}

#[test]
fn one_is_inside_at_a_time_and_nobody_passes_once_it_is_shut() {
    check(2, || {
        let gate = gate();
        let other = gate.clone();
        let agent = thread::spawn(move || {
            other.set_shut(true);
            enter(&other.enter_first(), |seen| (seen.times, seen.moved) = (seen.times + 1, true));
        });
        call(&gate);
        call(&gate);
        agent.join().expect("no panic");
        assert!(gate.pass().is_none() && gate.is_shut());
        enter(&gate.wait(), |seen| assert_eq!(seen.times, 3));
    });
}

#[test]
fn two_callers_one_of_whom_goes_first_are_both_served() {
    check(2, || {
        let gate = gate();
        let other = gate.clone();
        let caller = thread::spawn(move || {
            call(&other);
            call(&other);
        });
        enter(&gate.enter_first(), |seen| seen.times += 1);
        call(&gate);
        caller.join().expect("no panic");
        enter(&gate.pass().expect("all is well again"), |seen| assert_eq!(seen.times, 4));
    });
}

/// A queue pair's journal does without the sign: what says that it has moved lies inside.
#[test]
fn who_only_takes_it_sees_what_the_last_one_left_inside() {
    check(2, || {
        let gate = gate();
        let other = gate.clone();
        let agent = thread::spawn(move || {
            enter(&other.enter_first(), |seen| (seen.times, seen.moved) = (seen.times + 1, true));
        });
        if let Some(inside) = gate.take() {
            enter(&inside, |seen| assert_eq!(seen.times, u32::from(seen.moved)));
        }
        agent.join().expect("no panic");
        enter(&gate.take().expect("it is free"), |seen| assert!(seen.moved));
    });
}
