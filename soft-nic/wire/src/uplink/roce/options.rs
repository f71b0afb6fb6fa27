//! What an uplink of RoCE v2 is opened with.

use crate::frame::ROCE_PORT;
use std::net::Ipv4Addr;
use std::time::Duration;

/// What a socket is asked to hold. The system grants less without the right to more than its limit.
const RECEIVE_BUFFER: usize = 32 << 20;
/// How long a datagram may lie in a socket.
const LIFETIME: Duration = Duration::from_millis(250);

/// What a [`RoceUplink`](super::RoceUplink) is opened with.
#[derive(Clone, Debug)]
pub struct RoceOptions {
    /// Addresses of the NICs of this process, each on an interface of this machine.
    pub addresses: Vec<Ipv4Addr>,
    /// UDP port, here and at all others: 4791 is RoCE's.
    pub port: u16,
    /// Rate at which each NIC sends, in Gb/s; unlimited if absent.
    pub pace_gbps: Option<f64>,
    /// Packets that may be in flight to one destination; found from the sockets' buffers if absent.
    pub window: Option<u32>,
    /// Bytes of kernel memory that each socket is to hold.
    pub receive_buffer: usize,
    /// How long a datagram may lie in a socket before it counts as lost.
    pub lifetime: Duration,
}

impl RoceOptions {
    /// For NICs at these addresses, everything else as usual.
    pub fn new(addresses: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        Self {
            addresses: addresses.into_iter().collect(),
            port: ROCE_PORT,
            pace_gbps: None,
            window: None,
            receive_buffer: RECEIVE_BUFFER,
            lifetime: LIFETIME,
        }
    }
}
