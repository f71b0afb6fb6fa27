//! What the thread of the connections is asked for.

use rustix::fd::OwnedFd;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

/// What the thread is asked for.
pub(crate) enum Order {
    /// Something of this node's agent to a peer's.
    Say(u32, Vec<u8>),
    /// To know who is at an address, by a time: the answer is a peer's number, or why there is none. Who is told a
    /// number waits for lanes to that peer, until it says [`Order::Reached`] or [`Order::GaveUp`].
    Connect(SocketAddr, Instant, Sender<Result<u32, String>>),
    /// A peer was cut off.
    Cut(u32),
    /// One who waits has a lane: the peer stays.
    Reached(u32),
    /// One who waits gives up. A peer that joined meanwhile leaves, unless another one waits or has a lane. Who asks is
    /// told once no call finds it any more.
    GaveUp(u32, Sender<()>),
    /// To tell those who wait for a peer that none comes any more.
    Refuse,
    /// To end.
    Stop,
}

/// Wakes the thread.
#[derive(Clone)]
pub(super) struct Waker(pub Arc<OwnedFd>);

impl Waker {
    /// It looks at its orders.
    pub fn wake(&self) {
        // A counter that is full wakes as well.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}
