//! The receiver's judgement: every byte of every put at the moment its signal is seen, and every slot again
//! before its credit is returned.

use crate::pattern::{Salt, broken_poison, first_mismatch, poison};
use shunt_device::platform::host::World;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};

/// How long a put may come after its signal and still count as late, not lost.
pub const LATE_NS: u64 = 20_000_000;

/// The slots of one stream at its receiver or its sender.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'m> {
    memory: &'m [AtomicU64],
    words: usize,
}

impl<'m> Slots<'m> {
    /// `memory` cut into slots of `words` words; a rest that fills no slot is not used.
    pub fn new(memory: &'m [AtomicU64], words: usize) -> Self {
        let whole = memory.len() - memory.len() % words;
        Self { memory: &memory[..whole], words }
    }

    /// Number of slots.
    pub fn count(&self) -> u64 {
        (self.memory.len() / self.words) as u64
    }

    /// The slot of put `put`.
    pub fn of(&self, put: u64) -> &'m [AtomicU64] {
        let first = (put % self.count()) as usize * self.words;
        &self.memory[first..first + self.words]
    }
}

/// What a receiver found. All zero but `puts` is a clean stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Puts whose signal was seen.
    pub puts: u64,
    /// Puts whose bytes were wrong when their signal was seen and stayed wrong.
    pub lost: u64,
    /// Puts whose bytes were wrong when their signal was seen and came right later.
    pub late: u64,
    /// Slots that changed after they were checked and before their credit was returned.
    pub ghosts: u64,
    /// Times the signal word went backwards.
    pub backwards: u64,
    /// Signal values that nobody can have posted.
    pub wild: u64,
}

/// One receiver of one stream.
pub struct Check<'m> {
    slots: Slots<'m>,
    salt: Salt,
    /// False: signals alone are looked at.
    data: bool,
    credited: u64,
    last_wild: u64,
    findings: Findings,
}

impl<'m> Check<'m> {
    /// Poisons every slot. `data` is false where there is nothing but signals, or nothing shall be checked.
    pub fn new(slots: Slots<'m>, salt: Salt, data: bool) -> Self {
        if data {
            (0..slots.count()).for_each(|slot| poison(slots.of(slot)));
        }
        Self { slots, salt, data, credited: 0, last_wild: 0, findings: Findings::default() }
    }

    /// Puts whose signal was seen.
    pub fn seen(&self) -> u64 {
        self.findings.puts
    }

    /// What was found so far.
    pub fn findings(&self) -> Findings {
        self.findings
    }

    /// The signal word was read as `value`: checks what it newly covers, tells `delivered` after each put,
    /// and returns how many puts that is.
    pub fn cover(&mut self, value: u64, world: &dyn World, mut delivered: impl FnMut()) -> u64 {
        let seen = self.findings.puts;
        if value < seen {
            self.findings.backwards += 1;
            return 0;
        }
        // No sender is ahead of its credits by more than the window: a larger value was never posted.
        if value > self.credited + self.slots.count() {
            self.wild(value);
            return 0;
        }
        for put in seen..value {
            if self.data {
                self.check(put, world);
            }
            delivered();
        }
        self.findings.puts = value;
        value - seen
    }

    /// `value` was never posted. The same wild value seen again is one event.
    pub fn wild(&mut self, value: u64) {
        if self.last_wild != value {
            self.findings.wild += 1;
            self.last_wild = value;
        }
    }

    fn check(&mut self, put: u64, world: &dyn World) {
        let slot = self.slots.of(put);
        if first_mismatch(slot, self.salt, put).is_some() {
            if comes_right(slot, self.salt, put, world) {
                self.findings.late += 1;
            } else {
                self.findings.lost += 1;
            }
        }
        poison(slot);
    }

    /// The credit to return once half of the window was seen since the last one.
    pub fn credit_due(&mut self) -> Option<u64> {
        let due = self.findings.puts - self.credited >= self.slots.count().div_ceil(2);
        due.then(|| {
            self.look_for_ghosts(self.credited..self.findings.puts);
            self.credited = self.findings.puts;
            self.credited
        })
    }

    /// All is drained and no packet can live any more: every slot must be as it was left. Slots that were
    /// credited and never written again are looked at too.
    pub fn finish(&mut self) -> Findings {
        let puts = self.findings.puts;
        self.look_for_ghosts(puts..puts + self.slots.count());
        self.findings
    }

    fn look_for_ghosts(&mut self, puts: std::ops::Range<u64>) {
        if !self.data {
            return;
        }
        for put in puts {
            let slot = self.slots.of(put);
            if broken_poison(slot).is_some() {
                self.findings.ghosts += 1;
                poison(slot);
            }
        }
    }
}

/// True if put `put` is whole within [`LATE_NS`].
fn comes_right(slot: &[AtomicU64], salt: Salt, put: u64, world: &dyn World) -> bool {
    let until = world.now_ns() + LATE_NS;
    loop {
        // The last word again with acquire: what follows is not older than what was seen.
        let _ = slot[slot.len() - 1].load(Acquire);
        if first_mismatch(slot, salt, put).is_none() {
            return true;
        }
        if world.now_ns() >= until {
            return false;
        }
        world.relax();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::fill;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering::Relaxed;

    /// Each `relax` is a millisecond, and may do something.
    struct Steps<F>(AtomicU64, Mutex<F>);

    impl<F: FnMut(u64) + Send> World for Steps<F> {
        fn now_ns(&self) -> u64 {
            self.0.load(Relaxed)
        }
        fn relax(&self) {
            let now = self.0.fetch_add(1_000_000, Relaxed) + 1_000_000;
            (self.1.lock().unwrap())(now);
        }
        fn doorbell(&self) {}
    }

    fn still() -> Steps<impl FnMut(u64) + Send> {
        Steps(AtomicU64::new(0), Mutex::new(|_| {}))
    }

    const WORDS: usize = 128;
    const WINDOW: u64 = 4;

    fn memory() -> Vec<AtomicU64> {
        (0..WORDS * WINDOW as usize).map(|_| AtomicU64::new(0)).collect()
    }

    fn salt() -> Salt {
        Salt::new(9, 0, 0)
    }

    #[test]
    fn a_clean_stream_is_clean() {
        let memory = memory();
        let slots = Slots::new(&memory, WORDS);
        let mut check = Check::new(slots, salt(), true);
        for put in 0..40 {
            fill(slots.of(put), salt(), put);
            assert_eq!(check.cover(put + 1, &still(), || ()), 1);
            assert_eq!(check.credit_due(), (put % 2 == 1).then_some(put + 1));
        }
        assert_eq!(check.finish(), Findings { puts: 40, ..Findings::default() });
    }

    #[test]
    fn a_put_that_never_comes_is_lost_and_one_that_comes_late_breaks_the_order() {
        let memory = memory();
        let slots = Slots::new(&memory, WORDS);
        let mut check = Check::new(slots, salt(), true);
        check.cover(1, &still(), || ());
        assert_eq!((check.findings().lost, check.findings().late), (1, 0));
        let memory = &memory;
        let late = Steps(
            AtomicU64::new(0),
            Mutex::new(move |now| {
                if now == 5_000_000 {
                    fill(Slots::new(memory, WORDS).of(1), salt(), 1);
                }
            }),
        );
        check.cover(2, &late, || ());
        assert_eq!((check.findings().lost, check.findings().late), (1, 1));
    }

    #[test]
    fn one_wrong_bit_is_found() {
        let memory = memory();
        let slots = Slots::new(&memory, WORDS);
        let mut check = Check::new(slots, salt(), true);
        fill(slots.of(0), salt(), 0);
        memory[77].fetch_xor(1 << 13, Relaxed);
        check.cover(1, &still(), || ());
        assert_eq!(check.findings().lost, 1);
    }

    #[test]
    fn a_write_after_the_check_is_a_ghost() {
        let memory = memory();
        let slots = Slots::new(&memory, WORDS);
        let mut check = Check::new(slots, salt(), true);
        for put in 0..2 {
            fill(slots.of(put), salt(), put);
        }
        check.cover(2, &still(), || ());
        fill(slots.of(1), salt(), 1);
        assert_eq!(check.credit_due(), Some(2));
        assert_eq!(check.findings().ghosts, 1);
        fill(slots.of(3), salt(), 3);
        assert_eq!(check.finish().ghosts, 2);
    }

    #[test]
    fn a_signal_that_goes_back_or_too_far_is_seen() {
        let memory = memory();
        let mut check = Check::new(Slots::new(&memory, WORDS), salt(), false);
        assert_eq!(check.cover(3, &still(), || ()), 3);
        assert_eq!(check.cover(2, &still(), || ()), 0);
        assert_eq!(check.cover(5, &still(), || ()), 0);
        assert_eq!(check.credit_due(), Some(3));
        assert_eq!(check.cover(7, &still(), || ()), 4);
        let found = check.finish();
        assert_eq!((found.puts, found.backwards, found.wild, found.lost), (7, 1, 1, 0));
    }
}
