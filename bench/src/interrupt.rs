//! Ctrl-C: the first ends the stream in good order, a second one ends the process.

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// While it lives, SIGINT and SIGTERM are requests.
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    handlers: Vec<SigId>,
}

impl Interrupt {
    /// Catches both from now on. Where that cannot be had, they do what they always do.
    pub fn catch() -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        let mut handlers = Vec::new();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the second signal finds the flag that the first has set.
            handlers.extend(signal_hook::flag::register_conditional_default(signal, asked.clone()));
            handlers.extend(signal_hook::flag::register(signal, asked.clone()));
        }
        Self { asked, handlers }
    }

    /// True once one has come.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            signal_hook::low_level::unregister(handler);
        }
    }
}
