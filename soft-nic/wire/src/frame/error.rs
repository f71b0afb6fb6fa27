//! Why bytes are no frame.

/// What a frame has that no frame of ours may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It ends inside a header.
    #[error("a frame of {met} bytes; its headers and checksum take {least}")]
    Short {
        /// Bytes there are.
        met: usize,
        /// Bytes the headers need.
        least: usize,
    },
    /// Neither RoCE v1 nor IPv4.
    #[error("ethertype {0:#06x}; 0x8915 is RoCE v1, 0x0800 is IPv4")]
    EtherType(u16),
    /// Not a GRH.
    #[error("IP version in the global route header: expected 6, got {0}")]
    GrhVersion(u8),
    /// Something else than a transport header follows.
    #[error("next header after the global route header: expected 0x1b, got {0:#04x}")]
    NextHeader(u8),
    /// The GRH counts other bytes than there are.
    #[error("the global route header says {said} bytes follow; {met} do")]
    PayloadLength {
        /// Bytes the header says.
        said: u16,
        /// Bytes there are.
        met: usize,
    },
    /// An IP version other than 4, or options behind the IP header.
    #[error("start of the IP header: expected 0x45, got {0:#04x}")]
    IpVersion(u8),
    /// Something else than UDP follows.
    #[error("IP protocol {0}; 17 is UDP")]
    Protocol(u8),
    /// A piece of a packet.
    #[error("a fragment: flags and offset {0:#06x}; only the bit 0x4000 may be set")]
    Fragment(u16),
    /// The IP header counts other bytes than there are.
    #[error("the IP header says the packet has {said} bytes; it has {met}")]
    TotalLength {
        /// Bytes the header says.
        said: u16,
        /// Bytes there are.
        met: usize,
    },
    /// The UDP header counts other bytes than there are.
    #[error("the UDP header says the datagram has {said} bytes; it has {met}")]
    UdpLength {
        /// Bytes the header says.
        said: u16,
        /// Bytes there are.
        met: usize,
    },
    /// The invariant checksum is another.
    #[error("invariant checksum: expected {right:#010x}, got {met:#010x}")]
    Icrc {
        /// The one in the frame.
        met: u32,
        /// The one of its bytes.
        right: u32,
    },
    /// A transport of the future.
    #[error("transport header version: expected 0, got {0}")]
    TransportVersion(u8),
    /// Another partition than the default one.
    #[error("partition key {0:#06x}; the default partition's are 0xffff and 0x7fff")]
    PartitionKey(u16),
    /// An opcode that no queue pair here understands.
    #[error("opcode {0:#04x} is none of RC, UD, the two extended atomics and the setup of DC")]
    Opcode(u8),
    /// More padding than payload, or padding where there is no payload.
    #[error("{pad} bytes of padding in {bytes} bytes behind the headers of opcode {opcode:#04x}")]
    Padding {
        /// The opcode.
        opcode: u8,
        /// Bytes of padding.
        pad: usize,
        /// Bytes behind the extended headers, padding included.
        bytes: usize,
    },
    /// Payload where the opcode has none.
    #[error("opcode {opcode:#04x} carries no payload; {bytes} bytes are there")]
    Unwanted {
        /// The opcode.
        opcode: u8,
        /// Bytes there are.
        bytes: usize,
    },
    /// More payload than the largest MTU, or payload and padding that do not end at a multiple of four.
    #[error("{0} bytes of payload and padding; at most 4096, a multiple of 4")]
    Payload(usize),
    /// A message longer than any may be.
    #[error("a message of {0} bytes; at most 2147483648")]
    MessageLength(u32),
    /// An acknowledgement that says nothing known.
    #[error("AETH syndrome {0:#04x} is reserved")]
    Syndrome(u8),
    /// A step of setting up a path that does not exist.
    #[error("step {0} of a dynamically connected path; 0 to 2 are known")]
    DcStep(u32),
    /// An extended atomic on a word that is none.
    #[error("an atomic on {0} bytes; 4 or 8")]
    AtomicBytes(u32),
}
