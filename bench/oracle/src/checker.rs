//! The receiver's judgement: every byte of every put at the moment its signal is seen, and every slot again
//! before its credit is returned.

use crate::amo_model::Model;
use crate::pattern::{Salt, broken_poison, first_mismatch, poison};
use shunt_device::platform::host::World;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

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
    /// Signals that were seen more than once: a word that is cleared or counts tells by its value.
    pub again: u64,
}

/// What the slots of a stream hold when their signal is seen.
#[derive(Clone, Debug)]
pub enum Content {
    /// Nothing that is looked at.
    Nothing,
    /// The pattern of the put; poison before and afterwards.
    Pattern(Salt),
    /// What the atomics of the script have made of it.
    Script(Model),
}

impl Content {
    /// Makes the slots ready.
    fn prepare(&self, slots: Slots<'_>) {
        for number in 0..slots.count() {
            match self {
                Self::Nothing => {}
                Self::Pattern(_) => poison(slots.of(number)),
                Self::Script(model) => slots.of(number)[0].store(model.holds(number), Release),
            }
        }
    }

    /// Whether a slot is whole now.
    fn is_whole(&self, slot: &[AtomicU64], put: u64) -> bool {
        match self {
            Self::Nothing => true,
            Self::Pattern(salt) => first_mismatch(slot, *salt, put).is_none(),
            Self::Script(model) => slot[0].load(Acquire) == model.holds(put),
        }
    }

    /// Whether a slot is no longer as it was left; it is left so again.
    fn was_touched(&self, slot: &[AtomicU64], put: u64) -> bool {
        match self {
            Self::Nothing => false,
            Self::Pattern(_) => {
                let broken = broken_poison(slot).is_some();
                if broken {
                    poison(slot);
                }
                broken
            }
            Self::Script(model) => slot[0].swap(model.holds(put), AcqRel) != model.holds(put),
        }
    }
}

/// A signal word of each slot, which the receiver clears when it has seen it: put `i` adds `i + 1`.
#[derive(Clone, Copy, Debug)]
pub struct Flags<'m>(pub &'m [AtomicU64]);

impl<'m> Flags<'m> {
    fn of(&self, put: u64) -> &'m AtomicU64 {
        &self.0[(put % self.0.len() as u64) as usize]
    }
}

/// One receiver of one stream.
pub struct Check<'m> {
    slots: Slots<'m>,
    content: Content,
    /// Where the receiver clears its signals.
    flags: Option<Flags<'m>>,
    credited: u64,
    last_wild: u64,
    findings: Findings,
}

impl<'m> Check<'m> {
    /// Makes every slot ready for what shall come.
    pub fn new(slots: Slots<'m>, content: Content, flags: Option<Flags<'m>>) -> Self {
        content.prepare(slots);
        Self { slots, content, flags, credited: 0, last_wild: 0, findings: Findings::default() }
    }

    /// Puts whose signal was seen.
    pub fn seen(&self) -> u64 {
        self.findings.puts
    }

    /// No sender is ahead of its credits by more than the window: a larger value was never posted.
    pub fn reach(&self) -> u64 {
        self.credited + self.slots.count()
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
        if value > self.reach() {
            self.wild(value);
            return 0;
        }
        for put in seen..value {
            self.check(put, world);
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

    /// The next put's own signal word was read as something: clears it, then checks the put.
    pub fn flag(&mut self, world: &dyn World, delivered: impl FnMut()) {
        let (Some(flags), put) = (self.flags, self.findings.puts) else { return };
        let (value, want) = (flags.of(put).swap(0, AcqRel), put + 1);
        match value {
            0 => return,
            _ if value.is_multiple_of(want) => self.findings.again += value / want - 1,
            _ => return self.wild(value),
        }
        self.cover(want, world, delivered);
    }

    /// A word that counts stands this far above what was posted.
    pub fn again(&mut self, signals: u64) {
        self.findings.again = self.findings.again.max(signals);
    }

    fn check(&mut self, put: u64, world: &dyn World) {
        let slot = self.slots.of(put);
        if let Content::Script(model) = &mut self.content {
            model.next(put);
        }
        if !self.content.is_whole(slot, put) {
            if comes_right(&self.content, slot, put, world) {
                self.findings.late += 1;
            } else {
                self.findings.lost += 1;
            }
        }
        match &self.content {
            Content::Pattern(_) => poison(slot),
            // What is wrong now is not wrong again.
            Content::Script(model) => slot[0].store(model.holds(put), Release),
            Content::Nothing => {}
        }
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
        for put in puts {
            self.findings.ghosts += self.content.was_touched(self.slots.of(put), put) as u64;
            if let Some(flags) = self.flags {
                // It was seen and cleared, and nobody may write it before its credit.
                self.findings.again += (flags.of(put).swap(0, AcqRel) != 0) as u64;
            }
        }
    }
}

/// True if put `put` is whole within [`LATE_NS`].
fn comes_right(content: &Content, slot: &[AtomicU64], put: u64, world: &dyn World) -> bool {
    let until = world.now_ns() + LATE_NS;
    loop {
        // The last word again with acquire: what follows is not older than what was seen.
        let _ = slot[slot.len() - 1].load(Acquire);
        if content.is_whole(slot, put) {
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
        let mut check = Check::new(slots, Content::Pattern(salt()), None);
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
        let mut check = Check::new(slots, Content::Pattern(salt()), None);
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
        let mut check = Check::new(slots, Content::Pattern(salt()), None);
        fill(slots.of(0), salt(), 0);
        memory[77].fetch_xor(1 << 13, Relaxed);
        check.cover(1, &still(), || ());
        assert_eq!(check.findings().lost, 1);
    }

    #[test]
    fn a_write_after_the_check_is_a_ghost() {
        let memory = memory();
        let slots = Slots::new(&memory, WORDS);
        let mut check = Check::new(slots, Content::Pattern(salt()), None);
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
        let mut check = Check::new(Slots::new(&memory, WORDS), Content::Nothing, None);
        assert_eq!(check.cover(3, &still(), || ()), 3);
        assert_eq!(check.cover(2, &still(), || ()), 0);
        assert_eq!(check.cover(5, &still(), || ()), 0);
        assert_eq!(check.credit_due(), Some(3));
        assert_eq!(check.cover(7, &still(), || ()), 4);
        let found = check.finish();
        assert_eq!((found.puts, found.backwards, found.wild, found.lost), (7, 1, 1, 0));
    }

    #[test]
    fn a_flag_that_comes_again_before_or_after_it_was_seen_is_counted() {
        let (memory, flags) = (memory(), [0, 0, 0, 0].map(AtomicU64::new));
        let mut check = Check::new(Slots::new(&memory, WORDS), Content::Nothing, Some(Flags(&flags)));
        let mut seen = 0;
        for put in 0..6u64 {
            check.flag(&still(), || seen += 1);
            assert_eq!(check.seen(), put, "nothing is there yet");
            // Put 2 twice at once.
            flags[put as usize % 4].store((put + 1) * if put == 2 { 2 } else { 1 }, Release);
            check.flag(&still(), || seen += 1);
            if put == 3 {
                flags[3].store(4, Release);
            }
            check.credit_due();
        }
        assert_eq!((seen, check.findings().again, check.findings().puts), (6, 2, 6));
        flags[2].store(13, Release);
        check.flag(&still(), || ());
        assert_eq!((check.findings().wild, check.seen()), (1, 6), "put 6 adds 7");
    }

    #[test]
    fn a_word_is_what_the_script_made_of_it_and_nothing_else() {
        let memory: Vec<AtomicU64> = (0..WINDOW).map(|_| AtomicU64::new(99)).collect();
        let (mut model, slots) = (Model::new(salt(), WINDOW), Slots::new(&memory, 1));
        let mut check = Check::new(slots, Content::Script(model.clone()), None);
        for put in 0..40 {
            slots.of(put)[0].store(model.next(put).after, Release);
            check.cover(put + 1, &still(), || ());
            check.credit_due();
        }
        assert_eq!(check.finish(), Findings { puts: 40, ..Findings::default() });
        memory[1].fetch_xor(1, Release);
        assert_eq!(check.finish().ghosts, 1);
        memory[40 % WINDOW as usize].store(model.next(40).after ^ 1, Release);
        check.cover(41, &still(), || ());
        assert_eq!(check.findings().lost, 1);
    }
}
