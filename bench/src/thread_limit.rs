//! Whether a process may start the threads that a run takes: asked before anything is up, where a refusal is an error
//! and nothing has to be taken down.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};

/// The stack that threads get where nobody says otherwise.
pub const STACK_BYTES: usize = 2 << 20;

/// A thread that a run needs cannot be started. Exit status 1.
#[derive(Debug, thiserror::Error)]
#[error(
    "this process needs {needed} more threads and one cannot be started: {met}; raise the limit (ulimit -u), or give \
     fewer PEs or fewer blocks (-c)"
)]
pub struct NoRoom {
    /// All that the process is about to start.
    pub needed: u32,
    /// What the system said.
    pub met: io::Error,
}

/// Starts `needed` threads with this stack at once, and ends them again.
///
/// # Errors
/// One of them could not be started.
pub fn try_threads(needed: u32, stack_bytes: usize) -> Result<(), NoRoom> {
    let start = |_| -> io::Result<(Sender<()>, JoinHandle<()>)> {
        let (held, over) = channel::<()>();
        let wait = move || {
            // It ends when the other half is dropped.
            let _ = over.recv();
        };
        Ok((held, Builder::new().stack_size(stack_bytes).spawn(wait)?))
    };
    let mut threads = Vec::new();
    let mut result = Ok(());
    for started in (0..needed).map(start) {
        match started {
            Ok(thread) => threads.push(thread),
            Err(met) => {
                result = Err(NoRoom { needed, met });
                break;
            }
        }
    }
    for (held, thread) in threads {
        drop(held);
        // It does nothing that could fail.
        let _ = thread.join();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_cannot_be_had_are_an_error_that_says_how_many() {
        try_threads(3, STACK_BYTES).unwrap();
        // More than an address space holds.
        let error = try_threads(7, 1 << 60).unwrap_err().to_string();
        assert!(error.contains("needs 7 more threads") && error.contains("ulimit -u"), "{error}");
    }
}
