//! What stands in front of the base transport header: Ethernet, then a GRH, or IPv4 and UDP.

use super::WireError;
use super::parts::{Addresses, BTH_BYTES, ETHERNET_BYTES, GRH_BYTES, ICRC_BYTES};
use std::net::Ipv4Addr;

/// IPv4 header without options.
const IPV4_BYTES: usize = 20;
/// UDP header.
const UDP_BYTES: usize = 8;
/// Bytes in front of the base transport header of RoCE v2.
pub(crate) const UDP_OUTER_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;
/// Bytes in front of the base transport header of RoCE v1.
const GRH_OUTER_BYTES: usize = ETHERNET_BYTES + GRH_BYTES;
/// The larger of the two.
pub(crate) const OUTER_MAX: usize = GRH_OUTER_BYTES;
/// RoCE v1.
const ETHERTYPE_ROCE: u16 = 0x8915;
/// IPv4.
const ETHERTYPE_IPV4: u16 = 0x0800;
/// What follows a GRH: a base transport header.
const NEXT_BTH: u8 = 0x1b;
/// What follows an IP header: UDP.
const NEXT_UDP: u8 = 17;
/// Version 4, five words.
const VERSION_AND_LENGTH: u8 = 0x45;
/// Do not fragment. The identification of such a packet is zero, here as in Linux.
const DO_NOT_FRAGMENT: u16 = 0x4000;
/// Hop limit of what leaves a port.
pub const HOP_LIMIT: u8 = 64;

/// What stands in front of the base transport header, addresses aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outer {
    /// RoCE v1: Ethernet and a GRH.
    #[default]
    Grh,
    /// RoCE v2: Ethernet, IPv4 and UDP. GIDs are IPv4-mapped; what is encoded are their low 32 bits.
    Udp {
        /// Port it comes from.
        source_port: u16,
        /// Port it goes to; [`ROCE_PORT`](super::ROCE_PORT) is RoCE's.
        destination_port: u16,
    },
}

/// An IPv4-mapped GID.
pub fn mapped(address: Ipv4Addr) -> u128 {
    address.to_ipv6_mapped().to_bits()
}

/// The MAC of a NIC whose GID is this IPv4 address: locally administered, and known to all without asking.
pub fn mac_of(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x52, a, b, c, d]
}

/// The IPv4 header of a UDP datagram of `bytes`, UDP header included.
pub fn ipv4_header(source: Ipv4Addr, destination: Ipv4Addr, bytes: usize) -> [u8; 20] {
    let mut header = [0; IPV4_BYTES];
    header[0] = VERSION_AND_LENGTH;
    header[2..4].copy_from_slice(&((IPV4_BYTES + bytes) as u16).to_be_bytes());
    header[6..8].copy_from_slice(&DO_NOT_FRAGMENT.to_be_bytes());
    (header[8], header[9]) = (HOP_LIMIT, NEXT_UDP);
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let words = header.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]) as u32);
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !(folded + (folded >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

impl Outer {
    /// Bytes in front of the base transport header.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Grh => GRH_OUTER_BYTES,
            Self::Udp { .. } => UDP_OUTER_BYTES,
        }
    }

    /// Writes the headers of a packet of which `behind` bytes follow them.
    pub(crate) fn write(self, addresses: &Addresses, behind: usize) -> [u8; OUTER_MAX] {
        let mut head = [0; OUTER_MAX];
        head[..6].copy_from_slice(&addresses.destination_mac.to_be_bytes()[2..]);
        head[6..12].copy_from_slice(&addresses.source_mac.to_be_bytes()[2..]);
        match self {
            Self::Grh => {
                head[12..14].copy_from_slice(&ETHERTYPE_ROCE.to_be_bytes());
                head[14] = 0x60;
                head[18..20].copy_from_slice(&(behind as u16).to_be_bytes());
                (head[20], head[21]) = (NEXT_BTH, HOP_LIMIT);
                head[22..38].copy_from_slice(&addresses.source.to_be_bytes());
                head[38..54].copy_from_slice(&addresses.destination.to_be_bytes());
            }
            Self::Udp { source_port, destination_port } => {
                let [source, destination] =
                    [addresses.source, addresses.destination].map(|gid| Ipv4Addr::from_bits(gid as u32));
                head[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
                head[14..34].copy_from_slice(&ipv4_header(source, destination, UDP_BYTES + behind));
                head[34..36].copy_from_slice(&source_port.to_be_bytes());
                head[36..38].copy_from_slice(&destination_port.to_be_bytes());
                // The checksum stays zero: none. The invariant one is better.
                head[38..40].copy_from_slice(&((UDP_BYTES + behind) as u16).to_be_bytes());
            }
        }
        head
    }

    /// Reads and judges the headers: lengths first, so that a transport header and a checksum are behind them.
    pub(super) fn read(frame: &[u8]) -> Result<(Self, Addresses), WireError> {
        let ethertype = frame.get(12..14).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
        let outer_bytes = if ethertype == ETHERTYPE_IPV4 { UDP_OUTER_BYTES } else { GRH_OUTER_BYTES };
        let least = outer_bytes + BTH_BYTES + ICRC_BYTES;
        if frame.len() < least {
            return Err(WireError::Short { met: frame.len(), least });
        }
        let (outer, source, destination) = match ethertype {
            ETHERTYPE_ROCE => read_grh(&frame[ETHERNET_BYTES..])?,
            ETHERTYPE_IPV4 => read_udp(&frame[ETHERNET_BYTES..])?,
            other => return Err(WireError::EtherType(other)),
        };
        let mac = |at: usize| frame[at..at + 6].iter().fold(0, |mac, byte| mac << 8 | *byte as u64);
        Ok((outer, Addresses { source, destination, source_mac: mac(6), destination_mac: mac(0) }))
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// What is read of a header: itself, source and destination.
type Read = (Outer, u128, u128);

fn read_grh(packet: &[u8]) -> Result<Read, WireError> {
    let gid = |at: usize| packet[at..at + 16].iter().fold(0, |gid, byte| gid << 8 | *byte as u128);
    if packet[0] >> 4 != 6 {
        return Err(WireError::GrhVersion(packet[0] >> 4));
    }
    if packet[6] != NEXT_BTH {
        return Err(WireError::NextHeader(packet[6]));
    }
    let (said, met) = (word(packet, 4), packet.len() - GRH_BYTES);
    if said as usize != met {
        return Err(WireError::PayloadLength { said, met });
    }
    Ok((Outer::Grh, gid(8), gid(24)))
}

fn read_udp(packet: &[u8]) -> Result<Read, WireError> {
    let address =
        |at: usize| mapped(Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]));
    if packet[0] != VERSION_AND_LENGTH {
        return Err(WireError::IpVersion(packet[0]));
    }
    if packet[9] != NEXT_UDP {
        return Err(WireError::Protocol(packet[9]));
    }
    // More fragments, or not the first one.
    if word(packet, 6) & 0x3fff != 0 {
        return Err(WireError::Fragment(word(packet, 6)));
    }
    let (said, met) = (word(packet, 2), packet.len());
    if said as usize != met {
        return Err(WireError::TotalLength { said, met });
    }
    let (said, met) = (word(packet, IPV4_BYTES + 4), met - IPV4_BYTES);
    if said as usize != met {
        return Err(WireError::UdpLength { said, met });
    }
    let (source_port, destination_port) = (word(packet, IPV4_BYTES), word(packet, IPV4_BYTES + 2));
    Ok((Outer::Udp { source_port, destination_port }, address(12), address(16)))
}
