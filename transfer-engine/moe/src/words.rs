//! The words between kernels and their proxy: one that the kernels write and the engine's thread looks at, and one that
//! the proxy writes back. On a GPU they would lie in memory that both reach.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What kernels ask for: three steps a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Rows are packed: send them. Answered once all rows of this rank's experts are there.
    Dispatch,
    /// What the experts made is packed: send it back. Answered once all of it that comes here is there.
    Combine,
    /// All of it was read. Answered once buffers may be used again, here and at the others.
    End,
}

/// The number of a step of a layer: both count from 1.
pub const fn number(layer: u64, step: Step) -> u64 {
    3 * (layer - 1) + step as u64 + 1
}

/// The layer and the step of a number, 1 or more.
pub const fn step(number: u64) -> (u64, Step) {
    let before = number.saturating_sub(1);
    let step = match before % 3 {
        0 => Step::Dispatch,
        1 => Step::Combine,
        _ => Step::End,
    };
    (before / 3 + 1, step)
}

/// The words of one rank. Both count steps and only grow.
#[derive(Debug, Default)]
pub struct Words {
    asked: AtomicU64,
    answered: AtomicU64,
    has_failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

/// A kernel on a processor looks so often; one on a GPU would not rest.
const NAP: Duration = Duration::from_micros(30);

impl Words {
    /// Asks for a step. What the kernel wrote before it is seen by the proxy.
    pub fn ask(&self, number: u64) {
        self.asked.store(number, Ordering::Release);
    }

    /// What was asked for last. The engine's thread fences after a change.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Answers a step. What the proxy saw before it is seen by the kernel.
    pub fn answer(&self, number: u64) {
        self.answered.store(number, Ordering::Release);
    }

    /// Nothing is answered any more. The first reason stays.
    pub fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Why nothing is answered any more.
    pub fn failure(&self) -> Option<Failure> {
        let failed = self.has_failed.load(Ordering::Acquire);
        failed.then(|| self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()).flatten()
    }

    /// Waits until a step is answered.
    ///
    /// # Errors
    /// Why it is not.
    pub fn wait(&self, number: u64, patience: Duration) -> Result<(), Failure> {
        let since = Instant::now();
        loop {
            if self.answered.load(Ordering::Acquire) >= number {
                return Ok(());
            }
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if since.elapsed() > patience {
                let (layer, step) = step(number);
                let why = format!("layer {layer}, {step:?}: expected the proxy's answer within {patience:?}");
                return Err(Failure::broken(why + ", got none"));
            }
            std::thread::sleep(NAP);
        }
    }
}
