//! An endpoint that is being closed.

use crate::endpoint::{Done, Endpoint};
use crate::error::FabricError;
use crate::fabric::Rail;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// A gate that nobody opens.
const GATE: Duration = Duration::from_secs(60);

/// What had happened on it before, and whether the provider let go of it.
type Closed = (Vec<Done>, Result<(), FabricError>);

/// It. Where a NIC has to answer first that takes a thread: nobody waits for it.
pub(crate) enum Closing {
    Done(Option<Closed>),
    Under(Receiver<Closed>),
}

fn close(mut endpoint: Endpoint) -> Closed {
    let mut done = Vec::new();
    let result = endpoint.close(&mut done);
    if result.is_err() {
        // The provider may still use all that belongs to it.
        std::mem::forget(endpoint);
    }
    (done, result)
}

/// Waits until a gate is open, or for as long as any close may take.
fn pass(gate: Option<&AtomicBool>) {
    let until = Instant::now() + GATE;
    while gate.is_some_and(|gate| !gate.load(Ordering::Acquire)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn lost() -> Closed {
    let (what, want) = ("a thread that closes an endpoint", "its answer");
    (Vec::new(), Err(FabricError::Unfit { what, want, met: "none".to_owned() }))
}

impl Closing {
    /// Begins. On a rail where it may take seconds a thread does it.
    pub fn of(endpoint: Endpoint, rail: &Rail) -> Self {
        if !rail.closes_late() {
            return Self::Done(Some(close(endpoint)));
        }
        let ((send, closed), gate) = (channel(), rail.gate().cloned());
        let thread = std::thread::Builder::new().name("fabric-close".to_owned());
        let body = move || {
            pass(gate.as_deref());
            drop(send.send(close(endpoint)));
        };
        // Without a thread the channel has no sender: that is told as lost.
        drop(thread.spawn(body));
        Self::Under(closed)
    }

    /// How it ended, once it did; what had happened before comes to `out`.
    pub fn take(&mut self, out: &mut Vec<Done>) -> Option<Result<(), FabricError>> {
        let closed = match self {
            Self::Done(closed) => closed.take(),
            Self::Under(closed) => match closed.try_recv() {
                Err(TryRecvError::Empty) => None,
                closed => Some(closed.unwrap_or_else(|_| lost())),
            },
        };
        let (done, result) = closed?;
        out.extend(done);
        Some(result)
    }
}
