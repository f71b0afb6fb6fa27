//! The process that made something. A child that it forks has the memory, and none of the threads.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// Sockets that a process listens at and a child of it must not: whoever of the two lives longer has the address.
static LISTENED: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];
const NONE: RawFd = -1;

/// A socket that children do not keep. One more than there is room for they keep.
pub(crate) struct OwnSocket(Option<&'static AtomicI32>);

impl OwnSocket {
    /// Dropped before the socket is closed: its number may be another file's then.
    pub fn of(socket: BorrowedFd<'_>) -> Self {
        static HOOK: Once = Once::new();
        // SAFETY: the function does what may be done in a child of a process with threads. Without it children keep
        // the sockets, which harms nothing here.
        HOOK.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(close_in_a_child)) });
        let take = |slot: &&AtomicI32| {
            let taken = slot.compare_exchange(NONE, socket.as_raw_fd(), Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        Self(LISTENED.iter().find(take))
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        self.0.into_iter().for_each(|slot| slot.store(NONE, Ordering::Release));
    }
}

extern "C" fn close_in_a_child() {
    for slot in &LISTENED {
        let socket = slot.swap(NONE, Ordering::AcqRel);
        if socket != NONE {
            // SAFETY: a socket of the parent's thread, which a child does not have: nothing here uses it or closes it.
            unsafe { libc::close(socket) };
        }
    }
}

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// This one.
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// Whether it is this one, whose threads are there.
    pub fn is_here(self) -> bool {
        self == Self::own()
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::own()
    }
}
