//! Packets as frames of a real network, for NICs that do not share a process.
//!
//! Two framings, by what is in front of the BTH ([`Outer`]): RoCE v1 has a GRH (ethertype 0x8915), RoCE v2 has IPv4 and
//! UDP. Behind it they are one: what extended headers the opcode asks for, payload padded to four bytes, ICRC.
//!
//! ```text
//! 14 Ethernet | 40 GRH           | 12 BTH | RETH 16, AETH 4, AtomicETH 28, AtomicAckETH 8 | payload, pad | 4 ICRC
//! 14 Ethernet | 20 IPv4 | 8 UDP  | 12 BTH | ...
//! ```
//!
//! | field | what is written | what is asked for |
//! | --- | --- | --- |
//! | GRH addresses | the ports' GIDs; on InfiniBand without a GRH, a LID as the GID `::LID` | nothing: others judge |
//! | GRH class, flow label, hop limit | 0, 0, 64 | nothing, as switches may change them and the ICRC leaves them out |
//! | IPv4 addresses | those of IPv4-mapped GIDs | nothing: others judge |
//! | IPv4 class, identification, flags, TTL | 0, 0, do not fragment, 64 | no fragment, no options |
//! | IPv4 checksum, UDP checksum | right, none (0) | nothing: the ICRC leaves them out |
//! | BTH partition key | 0xffff | 0xffff or 0x7fff: the default partition |
//! | BTH migration state | 1, migrated | nothing |
//!
//! Masked and 32-bit atomics of ConnectX have no opcode in the InfiniBand specification: NVIDIA's own are not
//! public. Frames of ours carry them under two of the opcodes that it leaves to manufacturers:
//!
//! | opcode | after the BTH, big-endian |
//! | --- | --- |
//! | 0xc0 masked compare and swap | address 8, rkey 4, operand bytes 4, compare 8, swap 8, their masks 8 and 8 |
//! | 0xc1 masked fetch and add | address 8, rkey 4, operand bytes 4, addend 8, field boundaries 8 |
//!
//! Neither is how a dynamically connected path (DC) is set up. Ours has one packet for it, before the first request
//! and in answer; requests and answers of the path are those of a reliable connection:
//!
//! | opcode | after the BTH, big-endian |
//! | --- | --- |
//! | 0xc2 setup | 0 connect, 1 accept, 2 refuse: 4; number of the path 4, sender's queue pair 4, MTU 4, key 8, MAC 8 |
//!
//! Atomics that have an opcode (8 bytes, no masks) are sent under it.

mod decode;
mod encode;
mod error;
mod icrc;
mod opcode;
mod outer;
mod parts;

pub use decode::{decode, decode_into};
pub use encode::encode;
pub use error::WireError;
pub use icrc::Icrc;
pub(crate) use outer::UDP_OUTER_BYTES;
pub use outer::{HOP_LIMIT, Outer, ipv4_header, mac_of, mapped};
pub use parts::Addresses;
use parts::{BTH_BYTES, EXTENDED_MAX, ICRC_BYTES};

use crate::packet::Packet;

/// The UDP port of RoCE v2.
pub const ROCE_PORT: u16 = 4791;

/// The longest frame.
pub const FRAME_MAX: usize =
    outer::OUTER_MAX + BTH_BYTES + EXTENDED_MAX + crate::packet::MTU_MAX + ICRC_BYTES;

/// A decoded frame. The packet's `from` and `to` are [`packet::ELSEWHERE`](crate::packet::ELSEWHERE): a frame knows no
/// numbers of NICs.
#[derive(Clone, Debug)]
pub struct Frame {
    /// From where to where.
    pub addresses: Addresses,
    /// In which framing.
    pub outer: Outer,
    /// What it carries.
    pub packet: Packet,
}
