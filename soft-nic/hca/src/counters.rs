//! What a NIC counts about itself.

/// Counters of one NIC, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that left a queue pair, loopback included.
    pub packets_tx: u64,
    /// Those of them that stay in the NIC.
    pub packets_looped: u64,
    /// Packets that reached the NIC.
    pub packets_rx: u64,
    /// Payload bytes sent.
    pub bytes_tx: u64,
    /// Payload bytes received.
    pub bytes_rx: u64,
    /// Request packets sent again.
    pub retransmits: u64,
    /// Times a retry timer expired.
    pub timeouts: u64,
    /// NAKs sent.
    pub naks: u64,
    /// NAKs sent because a receiver was not ready.
    pub rnr_naks: u64,
    /// Requests received again.
    pub duplicates: u64,
    /// Packets dropped: by a fault, an unknown or unready queue pair, a missing route, for want of a receive buffer.
    pub dropped: u64,
    /// Dropped packets that had no route: no NIC has that GID, or its MAC is another.
    pub unroutable: u64,
    /// Firmware commands executed.
    pub commands: u64,
    /// Doorbells seen.
    pub doorbells: u64,
    /// Doorbells whose index made no sense for their queue.
    pub bad_doorbells: u64,
    /// WQEs fetched.
    pub wqes: u64,
    /// CQEs written.
    pub cqes: u64,
    /// Messages executed as responder.
    pub messages: u64,
    /// Events raised.
    pub events: u64,
    /// Messages that came behind a newer one of their sender; a device that keeps the order has none.
    pub reordered: u64,
}

impl Counters {
    /// Packets that left the port.
    pub fn packets_out(&self) -> u64 {
        self.packets_tx - self.packets_looped
    }
}
