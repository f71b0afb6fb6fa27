//! A place of which each process has its own: a child does not go on with what its parent had when it was forked.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The place of one process.
struct Of<T> {
    process: u32,
    place: OnceLock<T>,
}

/// The places; what a child finds of its parent's stays where it is.
pub struct PerProcess<T>(AtomicPtr<Of<T>>);

impl<T> PerProcess<T> {
    /// Without any.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// That of this process. Takes no lock: one may have been held when the process was forked.
    pub fn get(&'static self) -> &'static OnceLock<T> {
        let process = std::process::id();
        loop {
            let known = self.0.load(Ordering::Acquire);
            // SAFETY: what is stored was leaked below, so it is whole and stays.
            if let Some(known) = unsafe { known.as_ref() }
                && known.process == process
            {
                return &known.place;
            }
            let fresh = Box::into_raw(Box::new(Of { process, place: OnceLock::new() }));
            if self.0.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
                // SAFETY: it came from `into_raw` above and nobody else saw it.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PLACE: PerProcess<u32> = PerProcess::new();

    #[test]
    fn a_process_has_one_and_another_process_another() {
        assert_eq!((PLACE.get().get_or_init(|| 7), PLACE.get().get()), (&7, Some(&7)));
        let known = PLACE.0.load(Ordering::Acquire);
        let place = OnceLock::from(9);
        PLACE.0.store(Box::into_raw(Box::new(Of { process: 0, place })), Ordering::Release);
        assert_eq!(PLACE.get().get(), None, "what another process left is not used");
        PLACE.0.store(known, Ordering::Release);
        assert_eq!(PLACE.get().get(), Some(&7));
    }
}
