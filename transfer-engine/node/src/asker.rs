//! The way to an engine's thread.

use crate::error::CallError;
use crate::rails::Rails;
use shunt::host::nanos::Nanos;
use shunt_transfer_engine::engine::Engine;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

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
pub struct Asker(Sender<Told>);

impl Asker {
    /// Such a way, and what comes of it.
    pub fn new() -> (Self, Receiver<Told>) {
        let (tell, told) = channel();
        (Self(tell), told)
    }

    /// Has the thread end.
    pub fn stop(&self) {
        let _ = self.0.send(Told::Stop);
    }

    /// Work without an answer. It is lost where the thread has ended.
    pub fn tell(&self, work: impl FnOnce(&mut Engine<Rails>, Nanos) + Send + 'static) {
        let _ = self.0.send(Told::Work(Box::new(work)));
    }

    /// What the work comes to.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine<Rails>, Nanos) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (tell, heard) = channel();
        self.tell(move |engine, now| _ = tell.send(work(engine, now)));
        heard.recv().map_err(|_| CallError::Closed)
    }
}

/// So much later; never, where there is no such time.
pub fn until(now: Nanos, patience: Duration) -> Nanos {
    Nanos::new(now.get().saturating_add(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX)))
}
