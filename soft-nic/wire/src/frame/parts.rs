//! Lengths of a frame's headers, and where it comes from and goes to.

/// Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;
/// Global route header.
pub(super) const GRH_BYTES: usize = 40;
/// Base transport header.
pub(super) const BTH_BYTES: usize = 12;
/// Invariant checksum.
pub(super) const ICRC_BYTES: usize = 4;
/// Default partition, full member.
pub(super) const PARTITION: u16 = 0xffff;
/// Longest message the specification allows.
pub(super) const MESSAGE_MAX: u32 = 1 << 31;
/// The longest extended header: a masked compare and swap.
pub(super) const EXTENDED_MAX: usize = 48;

/// Where a frame comes from and goes to. MACs are the low 48 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// GID of the sending port.
    pub source: u128,
    /// GID of the port it is meant for.
    pub destination: u128,
    /// MAC of the sending port.
    pub source_mac: u64,
    /// MAC of the next hop.
    pub destination_mac: u64,
}
