//! Queue pair halves that wait to be destroyed. Each is kept until its NIC answers that it is destroyed. Until then
//! that NIC makes nothing on its rings. Rule 17.
//!
//! A half whose fence failed may still be retrying. If it were forgotten, it could send what was given up to the path
//! that got the other half's number meanwhile.

use crate::nanos::Nanos;

/// The longest pause before a NIC is asked again.
const PAUSE_MAX: Nanos = Nanos::secs(1);

/// A half that waits to be destroyed, by a handle `H`.
struct PendingDestroy<H> {
    /// Index of its path.
    path: usize,
    /// The rail it was made on.
    rail: u32,
    /// Where its completions are, of the path's memory.
    variant: u32,
    /// None while its NIC has the command.
    half: Option<H>,
    /// Number of the command that its NIC has.
    command: u64,
    tries: u32,
    next: Nanos,
}

/// All of them.
pub struct DestroyQueue<H>(Vec<PendingDestroy<H>>);

impl<H> Default for DestroyQueue<H> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<H> DestroyQueue<H> {
    /// Takes a half of a path; its NIC is told to destroy it in the next look.
    pub fn defer(&mut self, now: Nanos, path: usize, rail: u32, variant: u32, half: H) {
        let half = Some(half);
        self.0.push(PendingDestroy { path, rail, variant, half, command: 0, tries: 0, next: now });
    }

    /// True if nothing is left to destroy.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a rail's NIC may still have an old half of a path.
    pub fn holds(&self, path: usize, rail: u32) -> bool {
        self.of(path, rail).next().is_some()
    }

    /// True if any NIC may still have an old half of a path.
    pub fn has_any(&self, path: usize) -> bool {
        self.0.iter().any(|one| one.path == path)
    }

    /// True if a rail's NIC was asked in vain to destroy an old half of a path.
    pub fn was_refused(&self, path: usize, rail: u32) -> bool {
        self.of(path, rail).any(|one| one.tries > 0)
    }

    /// True if any NIC may still write completions of an old half of a path in a variant of its memory: an error among
    /// them would be taken for one of the new half.
    pub fn cq_buffer_in_use(&self, path: usize, variant: u32) -> bool {
        self.0.iter().any(|one| one.path == path && one.variant == variant)
    }

    /// Gives the halves whose turn has come to `submit`, which answers with the number of the command. True if there
    /// was one.
    pub fn poll(&mut self, now: Nanos, mut submit: impl FnMut(usize, H) -> u64) -> bool {
        let mut any = false;
        for one in self.0.iter_mut().filter(|one| now >= one.next) {
            if let Some(half) = one.half.take() {
                one.command = submit(one.path, half);
                any = true;
            }
        }
        any
    }

    /// A command has destroyed its half. Answers with the rail, if its NIC has nothing old of that path any more.
    pub fn destroyed(&mut self, command: u64) -> Option<u32> {
        let at = self.position(command)?;
        let PendingDestroy { path, rail, .. } = self.0.swap_remove(at);
        (!self.holds(path, rail)).then_some(rail)
    }

    /// A command failed: its half is kept, and destroyed later. Gives the half back if the command is none of this
    /// queue's.
    pub fn failed(&mut self, now: Nanos, command: u64, half: H, first_pause: Nanos) -> Option<H> {
        let Some(at) = self.position(command) else { return Some(half) };
        let one = &mut self.0[at];
        one.next = now + first_pause.doubled(one.tries).min(PAUSE_MAX);
        (one.half, one.tries) = (Some(half), one.tries + 1);
        None
    }

    fn of(&self, path: usize, rail: u32) -> impl Iterator<Item = &PendingDestroy<H>> {
        self.0.iter().filter(move |one| one.path == path && one.rail == rail)
    }

    fn position(&self, command: u64) -> Option<usize> {
        self.0.iter().position(|one| one.half.is_none() && one.command == command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Nanos = Nanos::millis(20);

    /// A queue with one half of path 3, variant 0, on rail 1, and the command 7 for it under way.
    fn asked() -> DestroyQueue<&'static str> {
        let mut queue = DestroyQueue::default();
        queue.defer(Nanos::ZERO, 3, 1, 0, "half");
        assert!(queue.poll(Nanos::ZERO, |path, half| {
            assert_eq!((path, half), (3, "half"));
            7
        }));
        queue
    }

    #[test]
    fn a_half_is_held_until_it_is_destroyed() {
        let mut queue = asked();
        assert!(queue.holds(3, 1) && !queue.holds(3, 0) && !queue.holds(2, 1));
        assert!(
            queue.cq_buffer_in_use(3, 0) && !queue.cq_buffer_in_use(3, 1) && !queue.cq_buffer_in_use(2, 0)
        );
        assert!(!queue.poll(Nanos::MAX, |_, _| unreachable!("its NIC has the command")));
        assert!(!queue.is_empty());
        assert_eq!(queue.destroyed(8), None, "another command");
        assert_eq!(queue.destroyed(7), Some(1));
        assert!(!queue.holds(3, 1) && queue.is_empty());
    }

    #[test]
    fn a_rail_is_clear_once_its_last_half_is_destroyed() {
        let mut queue = asked();
        queue.defer(Nanos::ZERO, 3, 1, 1, "the next");
        queue.poll(Nanos::ZERO, |_, _| 9);
        assert_eq!((queue.destroyed(7), queue.destroyed(9)), (None, Some(1)));
    }

    #[test]
    fn one_that_fails_is_tried_again_ever_later() {
        let mut queue = asked();
        assert_eq!(queue.failed(Nanos::ZERO, 8, "a stranger", PAUSE), Some("a stranger"));
        let mut now = Nanos::ZERO;
        for pause in [PAUSE, PAUSE * 2, PAUSE * 4] {
            assert_eq!(queue.failed(now, 7, "half", PAUSE), None);
            assert!(queue.was_refused(3, 1));
            now += pause;
            assert!(!queue.poll(now - Nanos::new(1), |_, _| unreachable!("too early")));
            assert!(queue.poll(now, |_, _| 7));
        }
    }
}
