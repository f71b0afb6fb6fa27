//! A packet of a reliable connection or a datagram, and the buffers its payload travels in.

/// Largest payload of one packet.
pub const MTU_MAX: usize = 4096;
/// Payload bytes a packet carries without a buffer of its own.
const SMALL: usize = 32;
/// Bytes of Ethernet, IPv4, UDP, BTH, ICRC, FCS, preamble and gap around a packet.
const OVERHEAD: u64 = 14 + 20 + 8 + 12 + 4 + 4 + 20;

/// The number of a NIC in another process: as the sender of a packet that arrived through an uplink.
pub const ELSEWHERE: u32 = u32::MAX - 1;

/// The number of no NIC: where a packet goes whose address nobody has.
pub const NO_ROUTE: u32 = u32::MAX;

/// AETH syndromes.
pub mod aeth {
    /// ACK, no credit information.
    pub const ACK: u8 = 0x1f;
    /// NAK: PSN sequence error.
    pub const NAK_SEQUENCE: u8 = 0x60;
    /// NAK: invalid request.
    pub const NAK_INVALID_REQUEST: u8 = 0x61;
    /// NAK: remote access error.
    pub const NAK_REMOTE_ACCESS: u8 = 0x62;
    /// NAK: remote operational error.
    pub const NAK_REMOTE_OPERATION: u8 = 0x63;

    /// Microseconds of the 32 RNR timers, as IBTA lists them.
    const RNR_US: [u32; 32] = [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
        5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760,
        327_680, 491_520,
    ];

    /// RNR NAK that asks the requester to wait for `timer`, a code of five bits.
    pub const fn rnr(timer: u8) -> u8 {
        0x20 | timer & 0x1f
    }

    /// The nanoseconds an RNR NAK asks for; nothing if the syndrome is another one.
    pub const fn rnr_ns(syndrome: u8) -> Option<u64> {
        if syndrome >> 5 == 1 { Some(RNR_US[syndrome as usize & 0x1f] as u64 * 1000) } else { None }
    }
}

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

impl Part {
    /// The part that packet `index` of `count` is.
    pub const fn of(index: u32, count: u32) -> Self {
        match (index == 0, index + 1 == count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    /// True if a message starts with it.
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// True if a message ends with it.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// RDMA extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Address at the responder.
    pub address: u64,
    /// Key at the responder.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub bytes: u32,
}

/// What an atomic does to its word. Operands are numbers, already out of big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// If `(old ^ compare) & compare_mask == 0`, the bits of `swap_mask` become those of `swap`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
        /// Bits compared.
        compare_mask: u64,
        /// Bits replaced.
        swap_mask: u64,
    },
    /// Addition whose carry is cut above every set bit of `boundary`.
    FetchAdd {
        /// Addend.
        add: u64,
        /// Most significant bits of the fields.
        boundary: u64,
    },
}

/// An atomic request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// Address at the responder.
    pub address: u64,
    /// Key at the responder.
    pub rkey: u32,
    /// Operand size: 4 or 8 bytes.
    pub bytes: u32,
    /// The operation.
    pub op: AtomicOp,
}

/// Payload bytes.
#[derive(Clone, Debug, Default)]
pub enum Payload {
    /// None.
    #[default]
    Empty,
    /// Up to 32 bytes, in place.
    Small([u8; SMALL], u8),
    /// Up to an MTU, in a buffer of the pool.
    Large(Box<[u8; MTU_MAX]>, u16),
}

impl Payload {
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Small(bytes, len) => &bytes[..*len as usize],
            Self::Large(bytes, len) => &bytes[..*len as usize],
        }
    }

    /// The bytes, to fill.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Empty => &mut [],
            Self::Small(bytes, len) => &mut bytes[..*len as usize],
            Self::Large(bytes, len) => &mut bytes[..*len as usize],
        }
    }
}

/// Free payload buffers.
#[derive(Default)]
pub struct Pool {
    free: Vec<Box<[u8; MTU_MAX]>>,
}

impl Pool {
    /// A payload of `bytes`, at most [`MTU_MAX`]; what is in it is undefined (old payload or zero).
    #[inline]
    pub fn take(&mut self, bytes: usize) -> Payload {
        match bytes {
            0 => Payload::Empty,
            1..=SMALL => Payload::Small([0; SMALL], bytes as u8),
            _ => {
                let buffer = self.free.pop().unwrap_or_else(|| Box::new([0; MTU_MAX]));
                Payload::Large(buffer, bytes as u16)
            }
        }
    }

    /// Takes a payload's buffer back.
    #[inline]
    pub fn give(&mut self, payload: Payload) {
        if let Payload::Large(buffer, _) = payload
            && self.free.len() < 4096
        {
            self.free.push(buffer);
        }
    }
}

/// SEND of an unreliable datagram: a whole message.
#[derive(Clone, Debug, Default)]
pub struct Datagram {
    /// Address it goes to: GID, or LID on InfiniBand without a GRH.
    pub destination: u128,
    /// Queue pair that sent it (DETH).
    pub source_qpn: u32,
    /// Key the receiving queue pair must have (DETH).
    pub qkey: u32,
    /// Immediate data, as a number.
    pub imm: Option<u32>,
    /// Data.
    pub payload: Payload,
}

/// What a packet says that sets up a dynamically connected path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DcStep {
    /// An initiator asks a target for a path.
    Connect,
    /// There is one: from now on the initiator sends to the queue pair of [`DcSetup::qpn`].
    Accept,
    /// There is none: the key is another, or the target cannot.
    Refuse,
}

/// A packet that sets up a dynamically connected path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcSetup {
    /// What it says.
    pub step: DcStep,
    /// Which of the initiator's paths it is about; an answer has the question's.
    pub number: u32,
    /// Queue pair of the sender: the initiator, or the responder of this path.
    pub qpn: u32,
    /// Largest payload of a packet of the path.
    pub mtu: u32,
    /// Key of the target.
    pub key: u64,
    /// MAC of the sender.
    pub mac: u64,
}

/// What a packet says.
#[derive(Clone, Debug)]
pub enum Body {
    /// RDMA WRITE, or the parts before the last of one with immediate: on the wire they are the same. The header
    /// counts only in a part that starts a message.
    Write {
        /// Place in the message.
        part: Part,
        /// Target.
        reth: Reth,
        /// Data.
        payload: Payload,
    },
    /// Last or only part of an RDMA WRITE with immediate. The header counts only in an only part.
    WriteImm {
        /// Place in the message; only a part that ends one is sound.
        part: Part,
        /// Target.
        reth: Reth,
        /// Immediate data, as a number.
        imm: u32,
        /// Data.
        payload: Payload,
    },
    /// SEND.
    Send {
        /// Place in the message.
        part: Part,
        /// Immediate data, as a number; only a part that ends a message has any.
        imm: Option<u32>,
        /// Data.
        payload: Payload,
    },
    /// SEND of an unreliable datagram.
    Datagram(Box<Datagram>),
    /// A dynamically connected path is set up; its first request has this packet's number.
    Dc(Box<DcSetup>),
    /// RDMA READ request.
    ReadRequest(Reth),
    /// Atomic request.
    Atomic(AtomicRequest),
    /// RDMA READ response.
    ReadResponse {
        /// Place in the message.
        part: Part,
        /// Messages executed.
        msn: u32,
        /// Data.
        payload: Payload,
    },
    /// ACK or NAK.
    Ack {
        /// AETH syndrome.
        syndrome: u8,
        /// Messages executed.
        msn: u32,
    },
    /// Answer to an atomic.
    AtomicAck {
        /// Messages executed.
        msn: u32,
        /// Value before the operation.
        original: u64,
    },
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Packet {
    /// NIC it leaves, by its number in the fabric.
    pub from: u32,
    /// NIC it goes to.
    pub to: u32,
    /// Source address, checked by the receiving queue pair.
    pub source: u128,
    /// Destination queue pair.
    pub qpn: u32,
    /// Packet sequence number.
    pub psn: u32,
    /// The sender wants an acknowledgement.
    pub ack_request: bool,
    /// Solicited event: the receiver's completion may wake it. Counts in a part that ends a message.
    pub solicited: bool,
    /// Contents.
    pub body: Body,
}

impl Packet {
    /// Payload bytes.
    #[inline(always)]
    pub fn payload_bytes(&self) -> u64 {
        match &self.body {
            // Asked first: it is what most packets are.
            Body::Write { payload, .. } => payload.bytes().len() as u64,
            other => other.payload().map_or(0, |payload| payload.bytes().len() as u64),
        }
    }

    /// Bytes of the program's that it carries: payload, or the operand of an atomic.
    #[inline(always)]
    pub fn data_bytes(&self) -> u64 {
        match &self.body {
            Body::Atomic(request) => request.bytes.into(),
            _ => self.payload_bytes(),
        }
    }

    /// Bytes it takes on the wire, gaps included.
    pub fn wire_bytes(&self) -> u64 {
        let header = match &self.body {
            Body::Write { part, .. } => 16 * part.starts() as u64,
            Body::WriteImm { part, .. } => 4 + 16 * part.starts() as u64,
            Body::Send { imm, .. } => 4 * imm.is_some() as u64,
            Body::Datagram(datagram) => 8 + 4 * datagram.imm.is_some() as u64,
            Body::Dc(_) => 32,
            Body::ReadRequest(_) => 16,
            Body::Atomic(_) => 28,
            Body::ReadResponse { .. } | Body::Ack { .. } => 4,
            Body::AtomicAck { .. } => 12,
        };
        OVERHEAD + header + self.payload_bytes()
    }

    /// True for what a responder sends: ACK, NAK, READ response, atomic answer, the answer of a target.
    pub fn is_response(&self) -> bool {
        match &self.body {
            Body::ReadResponse { .. } | Body::Ack { .. } | Body::AtomicAck { .. } => true,
            Body::Dc(setup) => setup.step != DcStep::Connect,
            _ => false,
        }
    }

    /// Gives its buffer back.
    pub fn recycle(self, pool: &mut Pool) {
        self.body.recycle(pool);
    }
}

impl Body {
    /// The data it carries, if its kind carries any.
    #[inline(never)]
    pub fn payload(&self) -> Option<&Payload> {
        match self {
            Self::Write { payload, .. }
            | Self::WriteImm { payload, .. }
            | Self::Send { payload, .. }
            | Self::ReadResponse { payload, .. } => Some(payload),
            Self::Datagram(datagram) => Some(&datagram.payload),
            Self::ReadRequest(_) | Self::Atomic(_) | Self::Ack { .. } | Self::AtomicAck { .. } => None,
            Self::Dc(_) => None,
        }
    }

    /// Gives its buffer back.
    pub fn recycle(self, pool: &mut Pool) {
        match self {
            Self::Write { payload, .. }
            | Self::WriteImm { payload, .. }
            | Self::Send { payload, .. }
            | Self::ReadResponse { payload, .. } => pool.give(payload),
            Self::Datagram(datagram) => pool.give(datagram.payload),
            Self::ReadRequest(_) | Self::Atomic(_) | Self::Ack { .. } | Self::AtomicAck { .. } => {}
            Self::Dc(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets are moved through links and queues: what a rare body needs must not make all of them larger.
    const _: () = assert!(size_of::<Packet>() <= 112 && size_of::<Body>() <= 64);

    #[test]
    fn rnr_timers_are_those_of_ibta() {
        assert_eq!(aeth::rnr(12), 0x2c);
        assert_eq!(aeth::rnr_ns(0x2c), Some(640_000));
        assert_eq!((aeth::rnr_ns(0x20), aeth::rnr_ns(0x21)), (Some(655_360_000), Some(10_000)));
        assert_eq!(aeth::rnr_ns(0x3f), Some(491_520_000));
        assert_eq!((aeth::rnr_ns(aeth::ACK), aeth::rnr_ns(aeth::NAK_SEQUENCE)), (None, None));
    }
}
