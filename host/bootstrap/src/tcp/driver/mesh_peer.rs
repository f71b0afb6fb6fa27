//! A peer of the mesh.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A peer, as the thread sees it.
#[derive(Default)]
pub struct MeshPeer {
    pub(super) address: Option<SocketAddr>,
    pub(super) token: Option<usize>,
    /// When to connect; only to lower ranks.
    pub(super) try_at: Option<Instant>,
    pub(super) backoff: Duration,
    /// It has left; nobody will answer there.
    pub(super) left: bool,
}
