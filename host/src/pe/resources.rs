//! What bring-up makes and the agent takes over.

use crate::connect::card::HalfCard;
use crate::connect::oob::Oob;
use crate::nic::half::HalfPath;
use crate::nic::queue::RingSpan;

/// One path slot of a channel, as made at start: incarnation 1, connected, or left to the agents.
pub struct PathSlot {
    /// Rail of this end.
    pub local_rail: u32,
    /// Rail of the other end.
    pub remote_rail: u32,
    /// Memory for all incarnations.
    pub rings: RingSpan,
    /// This half.
    pub half: Option<HalfPath>,
    /// The other half.
    pub remote: Option<HalfCard>,
}

/// All paths of one channel; none towards this PE itself.
pub struct ChannelResources {
    /// Peer.
    pub peer: u32,
    /// Index of the channel at that peer.
    pub index: u32,
    /// Its paths, by slot.
    pub slots: Vec<PathSlot>,
}

/// What the agent takes over.
pub struct AgentResources {
    /// Channels, row (peer, channel), this PE's own row without slots.
    pub channels: Vec<ChannelResources>,
    /// The agents' own channel.
    pub oob: Box<dyn Oob>,
}
