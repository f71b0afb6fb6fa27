//! The process that made something. A child that it forks has the memory, and none of the threads.

use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

/// Sockets of a process that a child of it must not hold: of an address that is listened at and of a connection it
/// would keep what the parent lets go.
static SOCKETS: [AtomicI32; 1024] = [const { AtomicI32::new(NONE) }; 1024];
const NONE: RawFd = -1;

/// What has a socket that children do not hold. Of more than there is room for they do.
pub(crate) struct ParentsOwn<T> {
    /// Dropped first: once the socket is closed its number may be another file's.
    _listed: Listed,
    owner: T,
}

struct Listed(Option<&'static AtomicI32>);

impl<T> ParentsOwn<T> {
    /// Its owner, whose socket it is until it is dropped.
    pub fn new(socket: RawFd, owner: T) -> Self {
        static HOOK: Once = Once::new();
        // SAFETY: the function does what may be done in a child of a process with threads. Without it children hold the
        // sockets, as they do everywhere else.
        HOOK.call_once(|| _ = unsafe { libc::pthread_atfork(None, None, Some(close_in_a_child)) });
        let take = |slot: &&AtomicI32| {
            slot.compare_exchange(NONE, socket, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        Self { _listed: Listed(SOCKETS.iter().find(take)), owner }
    }
}

impl<T> Deref for ParentsOwn<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.owner
    }
}

impl<T> DerefMut for ParentsOwn<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.owner
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.into_iter().for_each(|slot| slot.store(NONE, Ordering::Release));
    }
}

extern "C" fn close_in_a_child() {
    for slot in &SOCKETS {
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
