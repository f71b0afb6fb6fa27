//! Queue pairs that have just been connected. What is made for them takes the firmware that the program's own calls
//! take, and so waits until the program pauses. Pure.

use shunt_recovery::nanos::Nanos;

/// A program that has connected nothing for so long has paused. A look once in this time is all that is in its way.
const PAUSE: Nanos = Nanos::millis(8);
/// The first waits no longer than this: 64 are connected in 50 to 70 ms on soft NICs.
const MOST: Nanos = Nanos::millis(100);

/// Those that wait.
pub struct Fresh<T> {
    waiting: Vec<T>,
    first: Nanos,
    last: Nanos,
}

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), first: Nanos::ZERO, last: Nanos::ZERO }
    }
}

impl<T> Fresh<T> {
    /// One more.
    pub fn add(&mut self, now: Nanos, one: T) {
        if self.waiting.is_empty() {
            self.first = now;
        }
        self.last = now;
        self.waiting.push(one);
    }

    /// Those that are so wait no more.
    pub fn remove(&mut self, is_so: impl Fn(&T) -> bool) {
        self.waiting.retain(|one| !is_so(one));
    }

    /// When they have waited long enough, if there are any.
    pub fn due_at(&self) -> Option<Nanos> {
        (!self.waiting.is_empty()).then(|| (self.last + PAUSE).min(self.first + MOST))
    }

    /// When changes of memory are told that were seen now, or were to be told then: not before those that wait have
    /// their backups. None: now.
    pub fn after(&self, now: Nanos, then: Option<Nanos>) -> Option<Nanos> {
        then.max(self.due_at()).or(Some(now + PAUSE)).filter(|at| *at > now)
    }

    /// All that wait, if they have waited long enough.
    pub fn due(&mut self, now: Nanos) -> Vec<T> {
        self.due_at().filter(|due| now >= *due).map_or(Vec::new(), |_| std::mem::take(&mut self.waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program registered memory for each queue pair that it connected, and the agent registered it on backups at the
    /// same time: `ibv_modify_qp` took twice as long.
    #[test]
    fn changes_of_memory_wait_for_a_pause_and_for_those_that_are_connected_meanwhile() {
        let mut fresh = Fresh::default();
        let at = |ms| Nanos::secs(2) + Nanos::millis(ms);
        assert_eq!(fresh.after(at(0), None), Some(at(8)));
        assert_eq!((fresh.after(at(2), Some(at(8))), fresh.after(at(8), Some(at(8)))), (Some(at(8)), None));
        fresh.add(at(2), 0);
        assert_eq!(fresh.after(at(8), Some(at(8))), Some(at(10)), "one is connected for it");
        assert_eq!(fresh.due(at(10)).len(), 1);
        assert_eq!(fresh.after(at(10), Some(at(10))), None);
    }

    #[test]
    fn they_wait_for_a_pause_and_no_longer_than_they_may() {
        let mut fresh = Fresh::default();
        assert!(fresh.due(Nanos::secs(1)).is_empty());
        let at = |ms| Nanos::secs(2) + Nanos::millis(ms);
        fresh.add(at(0), 0);
        fresh.add(at(2), 1);
        assert!(fresh.due(at(9)).is_empty());
        fresh.remove(|one| *one == 0);
        assert_eq!((fresh.due_at(), fresh.due(at(10))), (Some(at(10)), vec![1]));
        assert_eq!(fresh.due_at(), None);
        assert!(fresh.due(at(10)).is_empty());
        (0..=50).for_each(|turn| fresh.add(at(20 + 2 * turn), turn));
        assert!(fresh.due(at(119)).is_empty());
        assert_eq!(fresh.due(at(120)).len(), 51, "100 ms after the first");
    }
}
