//! A lock that is free, and a sign that all is well, read by the same few instructions.
//!
//! Who has [`Gate::pass`]ed is alone inside, and all was well when it came in. One word says that somebody is inside;
//! it is taken by one read-modify-write, and freed by a store. The other says why not to pass: somebody who goes first
//! waits, or the gate is shut. Then one takes the way around, by [`Gate::wait`].
//!
//! | order | carries |
//! | --- | --- |
//! | acquire, when the first word is taken | all that was written inside before, and the other word as it was then |
//! | release, when it is freed | what was written inside, and that the gate was shut, by who leaves after that |
//! | relaxed, all of the other word | it asks others to wait, and no more: who shuts the gate goes inside after that |

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A word that threads share: that of the processor, or of a checker.
pub trait Word {
    /// A word of zero.
    fn zero() -> Self;
    /// Reads it.
    fn load(&self, order: Ordering) -> u32;
    /// Writes it.
    fn store(&self, value: u32, order: Ordering);
    /// Sets bits: what it was.
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32;
    /// Keeps only these bits: what it was.
    fn fetch_and(&self, bits: u32, order: Ordering) -> u32;
    /// Adds: what it was.
    fn fetch_add(&self, by: u32, order: Ordering) -> u32;
    /// Lets others go on; this is the pause of so many before it.
    fn pause(turn: u32);
}

/// Pauses that only spin, each twice as long as the one before.
const SPINS: u32 = 6;
/// Pauses before those that sleep: a thread that holds the processor by its priority would wait without end otherwise.
const YIELDS: u32 = 32;
/// How long one sleeps.
const SLEEP: Duration = Duration::from_micros(20);

impl Word for AtomicU32 {
    fn zero() -> Self {
        Self::new(0)
    }

    #[inline(always)]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline(always)]
    fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_or(bits, order)
    }

    fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_and(bits, order)
    }

    fn fetch_add(&self, by: u32, order: Ordering) -> u32 {
        self.fetch_add(by, order)
    }

    #[cold]
    fn pause(turn: u32) {
        match turn {
            ..SPINS => (0..1 << turn).for_each(|_| core::hint::spin_loop()),
            SPINS..YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(SLEEP),
        }
    }
}

/// Of the first word: somebody is inside.
const TAKEN: u32 = 1;
/// Of the other: it is shut. The rest of it counts who goes first and waits.
const SHUT: u32 = 1 << 31;

/// What only one thread changes at a time.
#[derive(Default)]
#[repr(C)]
pub struct Gate<T, W = AtomicU32> {
    taken: W,
    shut: W,
    inside: UnsafeCell<T>,
}

// SAFETY: what is inside is reached by `Inside` alone, of which one exists at a time: `taken` sees to that.
unsafe impl<T: Send, W: Sync> Sync for Gate<T, W> {}

/// The one who is inside.
pub struct Inside<'a, T, W: Word = AtomicU32>(&'a Gate<T, W>);

// SAFETY: shared, it gives `&T`, and nothing else.
unsafe impl<T: Sync, W: Word + Sync> Sync for Inside<'_, T, W> {}

impl<T, W: Word> Gate<T, W> {
    /// One that is open.
    pub fn new(inside: T) -> Self {
        Self { taken: W::zero(), shut: W::zero(), inside: UnsafeCell::new(inside) }
    }

    /// Goes inside if nobody is there, whether all is well or not.
    #[inline(always)]
    pub fn take(&self) -> Option<Inside<'_, T, W>> {
        let free = self.taken.fetch_or(TAKEN, Ordering::Acquire) & TAKEN == 0;
        // Made only if it is alone: to drop one is to leave.
        free.then(|| Inside(self))
    }

    /// Goes inside if all is well and nobody is there.
    #[inline(always)]
    pub fn pass(&self) -> Option<Inside<'_, T, W>> {
        let inside = self.take()?;
        (self.shut.load(Ordering::Relaxed) == 0).then_some(inside)
    }

    /// Goes inside, after those who go first, whether it is shut or not.
    #[cold]
    pub fn wait(&self) -> Inside<'_, T, W> {
        let mut turn = 0;
        loop {
            let first = self.shut.load(Ordering::Relaxed) & !SHUT;
            if first == 0
                && self.taken.load(Ordering::Relaxed) == 0
                && let Some(inside) = self.take()
            {
                return inside;
            }
            W::pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// Goes inside first: nobody passes until then.
    #[cold]
    pub fn enter_first(&self) -> Inside<'_, T, W> {
        self.shut.fetch_add(1, Ordering::Relaxed);
        let mut turn = 0;
        loop {
            if self.taken.load(Ordering::Relaxed) == 0
                && let Some(inside) = self.take()
            {
                // Adds all but one of 2^32: takes one away.
                self.shut.fetch_add(u32::MAX, Ordering::Relaxed);
                return inside;
            }
            W::pause(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// Shuts it, or opens it again. Once the caller has been inside after that, nobody passes one that is shut.
    pub fn set_shut(&self, shut: bool) {
        if shut != self.is_shut() {
            let _ = match shut {
                true => self.shut.fetch_or(SHUT, Ordering::Relaxed),
                false => self.shut.fetch_and(!SHUT, Ordering::Relaxed),
            };
        }
    }

    /// It is shut.
    pub fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Relaxed) & SHUT != 0
    }
}

impl<T, W: Word> Inside<'_, T, W> {
    /// See [`Gate::set_shut`]. A thread that comes in after this one sees it.
    pub fn set_shut(&self, shut: bool) {
        self.0.set_shut(shut);
    }
}

impl<T, W: Word> Deref for Inside<'_, T, W> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this one is alone inside, until it is dropped.
        unsafe { &*self.0.inside.get() }
    }
}

impl<T, W: Word> DerefMut for Inside<'_, T, W> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.inside.get() }
    }
}

impl<T, W: Word> Drop for Inside<'_, T, W> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.taken.store(0, Ordering::Release);
    }
}
