//! What happens in a simulated network, once its time has come.

use crate::domain::{Event, Op};

/// What a packet of a piece says.
#[derive(Clone, Copy)]
pub(super) struct Packet {
    pub op: Op,
    pub local: u64,
    pub remote: u64,
    /// Key of the peer's region on its rail.
    pub key: Option<u32>,
    pub len: u64,
}

/// A piece: its pair, the side that sends it, its number in this direction.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub pair: u64,
    pub side: usize,
    pub number: u64,
}

pub(super) enum Act {
    /// A piece of a pair's direction arrives; without bytes it was lost at its own end, whose memory is gone.
    Arrive(Way, Packet, Option<Vec<u8>>),
    /// An answer of the responder, and where what it brings goes.
    Ack(Way, Option<(u64, Vec<u8>)>),
    /// The answer that a piece was refused.
    Deny(Way),
    Tell(u32, Event),
    /// An end is told of an immediate.
    TellImm((u32, u32), Way, u32),
    /// What was executed with and before a piece comes to memory.
    Land(Way),
    /// A sender has waited long enough.
    TimeOut(u64, usize),
    /// The half of an end goes to ERR.
    Stop(u64, usize),
    /// An end has destroyed its halves of these pairs with a peer.
    Left(u32, u32, Vec<(u64, usize)>),
    Closed(u64),
    Open(u32, u32, u32),
    /// The rail of this fault works again.
    Up(usize),
}
