//! What is still in use, counted: memory that NICs may touch, threads that have not ended.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts tokens.
#[derive(Debug, Default)]
pub struct Tally {
    count: Mutex<usize>,
    changed: Condvar,
}

/// Counts until it is dropped.
#[derive(Debug)]
pub struct Token(Arc<Tally>);

impl Tally {
    /// One more.
    pub fn token(self: &Arc<Self>) -> Token {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Token(self.clone())
    }

    /// How many are left, once there are none or this time is over.
    pub fn left_after(&self, patience: Duration) -> usize {
        let until = Instant::now().checked_add(patience);
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            let left = left(until);
            if left.is_zero() {
                break;
            }
            count = self.changed.wait_timeout(count, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *count
    }
}

/// How long to wait now: what is left, and no longer than the standard library can add to its clock.
pub fn left(until: Option<Instant>) -> Duration {
    let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
    left.min(Duration::from_secs(3600))
}

impl Drop for Token {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_last_token_and_no_longer_than_it_may() {
        let tally = Arc::new(Tally::default());
        let (one, two) = (tally.token(), tally.token());
        drop(one);
        assert_eq!(tally.left_after(Duration::from_millis(1)), 1);
        let other = std::thread::spawn(move || drop(two));
        assert_eq!(tally.left_after(Duration::MAX), 0);
        other.join().expect("it ends");
    }
}
