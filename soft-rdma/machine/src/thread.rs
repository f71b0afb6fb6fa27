//! Threads of ours in the midst of a program.

use nix::sys::signal::SigSet;
use std::{io, thread};

/// Starts a thread: it gets no signals, those are the program's own.
pub fn in_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _quiet = Quiet::new();
    thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

/// Threads started while it lives get no signals: those are the program's own.
pub(crate) struct Quiet {
    before: Option<SigSet>,
}

impl Quiet {
    pub(crate) fn new() -> Self {
        Self { before: SigSet::all().thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK).ok() }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was this thread's mask a moment ago: it is a valid one.
            let _ = before.thread_set_mask();
        }
    }
}
