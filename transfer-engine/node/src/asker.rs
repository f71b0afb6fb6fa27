//! The way to an engine's thread.

use crate::error::CallError;
use crate::process::Process;
use crate::rails::Rails;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::Engine;
use shunt_transfer_engine::error::TransferError;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

thread_local! {
    /// The engine that this thread drives.
    static DRIVES: Cell<Option<u64>> = const { Cell::new(None) };
}

/// What is done for a caller.
pub type Work = Box<dyn FnOnce(&mut Engine<Rails>, Nanos) + Send>;

/// What the thread is told.
pub enum Told {
    /// To do this for a caller.
    Work(Work),
    /// To end.
    Stop,
}

/// Gives work to an engine's thread.
#[derive(Clone)]
pub struct Asker {
    tell: Sender<Told>,
    /// Of this engine in its process.
    engine: u64,
    process: Process,
}

/// Whether the thread that calls drives an engine: it answers others, and waits for nobody.
pub fn is_an_engines() -> bool {
    DRIVES.get().is_some()
}

/// A callback waits for what its own thread does.
pub fn refused() -> CallError {
    let (what, want) = ("a call", "a thread of the program's");
    let met = "the engine's own, in a callback: it would wait for itself".to_owned();
    TransferError::Refused { what, want, met }.into()
}

impl Asker {
    /// Such a way, and what comes of it.
    pub fn new() -> (Self, Receiver<Told>) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (tell, told) = channel();
        (Self { tell, engine: NEXT.fetch_add(1, Ordering::Relaxed), process: Process::own() }, told)
    }

    /// The thread that calls drives the engine from now on.
    pub fn drive(&self) {
        DRIVES.set(Some(self.engine));
    }

    /// Whether the thread that calls drives the engine.
    pub fn is_here(&self) -> bool {
        DRIVES.get() == Some(self.engine)
    }

    /// The process that has the thread.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Has the thread end.
    pub fn stop(&self) {
        let _ = self.tell.send(Told::Stop);
    }

    /// Work without an answer. It is lost where the thread has ended.
    pub fn tell(&self, work: impl FnOnce(&mut Engine<Rails>, Nanos) + Send + 'static) {
        let _ = self.tell.send(Told::Work(Box::new(work)));
    }

    /// What the work comes to.
    ///
    /// # Errors
    /// The engine is closed, its own thread asks, or it is another process's: a child of that one asks.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine<Rails>, Nanos) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        if self.is_here() {
            return Err(refused());
        }
        if !self.process.is_here() {
            return Err(CallError::Closed);
        }
        let (tell, heard) = channel();
        self.tell(move |engine, now| _ = tell.send(work(engine, now)));
        heard.recv().map_err(|_| CallError::Closed)
    }
}

/// So much later; never, where there is no such time.
pub fn until(now: Nanos, patience: Duration) -> Nanos {
    Nanos::new(now.get().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)))
}
