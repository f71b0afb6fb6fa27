//! Locks of a session's parts.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock that no panic leaves in a wrong state.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
