//! The engine's end of the connections: what its agent says goes to their thread, what comes is taken from it.

use super::order::{Order, Waker};
use shunt::host::connect::Oob;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

/// Peers without a connection.
pub(super) type Broken = Arc<Mutex<BTreeSet<u32>>>;

/// The engine's end.
pub(crate) struct Link {
    pub(super) orders: Sender<Order>,
    pub(super) waker: Waker,
    pub(super) came: Receiver<(u32, Vec<u8>)>,
    pub(super) broken: Broken,
}

impl Oob for Link {
    fn send(&self, to_pe: u32, bytes: Vec<u8>) {
        if self.orders.send(Order::Say(to_pe, bytes)).is_ok() {
            self.waker.wake();
        }
    }

    fn try_recv(&self) -> Option<(u32, Vec<u8>)> {
        self.came.try_recv().ok()
    }

    fn reachable(&self, pe: u32) -> bool {
        !self.broken.lock().unwrap_or_else(PoisonError::into_inner).contains(&pe)
    }
}
