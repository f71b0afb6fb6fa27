//! An endpoint that is being closed.

use crate::endpoint::{Done, Endpoint};
use crate::error::FabricError;
use shunt_recovery::nanos::Nanos;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

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

fn lost() -> Closed {
    let (what, want) = ("a thread that closes an endpoint", "its answer");
    (Vec::new(), Err(FabricError::Unfit { what, want, met: "none".to_owned() }))
}

impl Closing {
    /// Begins; `late`: it may take seconds.
    pub fn of(endpoint: Endpoint, late: bool) -> Self {
        if !late {
            return Self::Done(Some(close(endpoint)));
        }
        let (send, closed) = channel();
        let thread = std::thread::Builder::new().name("fabric-close".to_owned());
        // Without a thread the channel has no sender: that is told as lost.
        drop(thread.spawn(move || drop(send.send(close(endpoint)))));
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

    /// Waits for its end, so long at most. False if it did not come.
    pub fn wait(&mut self, patience: Nanos) -> bool {
        let Self::Under(closed) = self else { return true };
        match closed.recv_timeout(Duration::from_nanos(patience.get())) {
            Err(RecvTimeoutError::Timeout) => false,
            closed => {
                *self = Self::Done(Some(closed.unwrap_or_else(|_| lost())));
                true
            }
        }
    }
}
