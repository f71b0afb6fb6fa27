//! A node of the network: its memory, and what its end was not told yet.

use super::act::Packet;
use super::config::key;
use super::memory::Memory;
use crate::domain::{Event, Fence, Op};
use crate::ids::LaneId;

/// The node.
pub(super) struct Node {
    pub memory: Memory,
    pub events: Vec<Event>,
}

impl Node {
    /// With so many bytes of memory.
    pub fn new(memory: usize) -> Self {
        Self { memory: Memory::new(memory), events: Vec::new() }
    }

    /// Does what a piece asks of this node, which has this number, on a rail. What a read brings; none if it is
    /// refused. A write that is late is not in memory yet.
    pub fn execute(&mut self, at: (u32, u32), piece: Packet, bytes: &[u8], late: bool) -> Option<Vec<u8>> {
        let (node, rail) = at;
        let is_known = piece.op == Op::Send || piece.key == Some(key(node, rail));
        match piece.op {
            _ if !is_known => None,
            Op::Send => Some(Vec::new()),
            Op::Write(_) if late => self.memory.fetch(piece.remote, piece.len).map(|_| Vec::new()),
            Op::Write(_) => self.memory.place(piece.remote, bytes).then(Vec::new),
            Op::Read | Op::Flush => self.memory.fetch(piece.remote, piece.len),
        }
    }

    /// An immediate was posted on a lane that its end will be told to be closed: it is missing.
    pub fn posted_late(&mut self, of: LaneId, imm: u32) {
        for event in &mut self.events {
            if let Event::Closed(lane, Fence::Counted(counts)) = event
                && *lane == of
            {
                counts.entry(imm).or_default().missing += 1;
            }
        }
    }
}
