//! A lock whose waiters let the world go on: in a simulator the holder is a coroutine of the same thread.

use shunt_device::platform::host::World;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A mutex that is waited for through [`World::relax`].
pub(crate) struct WorldLock<T>(Mutex<T>);

impl<T> WorldLock<T> {
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Holders keep it for a bounded time (each wait under it has a deadline), so this ends, too.
    pub fn lock(&self, world: &dyn World) -> MutexGuard<'_, T> {
        loop {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                // What it guards is replaced whole after a failure: a holder's panic leaves no half state.
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => world.relax(),
            }
        }
    }
}
