//! What keeps the thread of a [`TcpNet`](super::TcpNet) running: dropping the last handle ends it.

use super::state::Shared;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread, and what is shared with it.
pub(super) struct Handle {
    pub shared: Arc<Shared>,
    pub thread: Mutex<Option<JoinHandle<()>>>,
    pub root: SocketAddr,
    pub patience: Duration,
    /// Number of the next all-gather or exchange; locked while one is under way.
    pub round: Mutex<u64>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} at {}", self.shared.rank, self.shared.world, self.root)
    }
}

impl Handle {
    pub fn close(&self) {
        self.shared.update(|state| state.closing = true);
        self.shared.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It ends within its linger; a panic in it was printed by then.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}
