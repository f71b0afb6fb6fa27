//! Messages between processes, inside the encrypted stream: a length, a kind, a body. Numbers are little-endian.
//!
//! | kind | who to whom | body |
//! | --- | --- | --- |
//! | 1 hello | rank to root | rank, world, port it listens on for the mesh, its address |
//! | 2 welcome | root to rank | job number (16 bytes) |
//! | 3 waiting | root to rank | ranks that are missing |
//! | 4 start | root to rank | addresses of all ranks |
//! | 5 refused | listener to the side that connects | code and two numbers |
//! | 6 give | rank to root | number of the all-gather, bytes |
//! | 7 piece | root to rank | number of the all-gather or exchange, rank, bytes |
//! | 8 gone | root to rank | rank, why |
//! | 9 ping | both | nothing |
//! | 10 datagram | mesh | topic, bytes |
//! | 11 bye | both | why the process leaves; nothing: in good order |
//! | 12 row | rank to root | number of the exchange, rank it is for, bytes |

use super::error::Refusal;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Longest body of a message from one who has shown that it has the secret.
pub const BODY_MAX: usize = 256 << 20;
/// Longest body of the first message.
pub const HELLO_MAX: usize = 64;
/// Bytes in front of a body: length and kind.
pub const HEAD: usize = 5;

/// Number of a job, drawn by its root. It is never sent in the clear.
pub type JobNumber = [u8; 16];

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A rank wants to join.
    Hello {
        /// Its number.
        rank: u32,
        /// Size of its job.
        world: u32,
        /// Where it listens for the mesh.
        mesh: SocketAddr,
    },
    /// It may.
    Welcome {
        /// Number of the job.
        job: JobNumber,
    },
    /// Whom all wait for.
    Waiting {
        /// Ranks that are missing.
        missing: Vec<u32>,
    },
    /// All are there.
    Start {
        /// Where each listens; rank 0 where it was reached.
        mesh: Vec<SocketAddr>,
    },
    /// It may not.
    Refused(Refusal),
    /// A rank's part of an all-gather.
    Give {
        /// Number of the all-gather.
        round: u64,
        /// Its bytes.
        bytes: Arc<Vec<u8>>,
    },
    /// A rank's row of an exchange, for one other.
    Row {
        /// Number of the exchange; it counts among the all-gathers.
        round: u64,
        /// For whom.
        to: u32,
        /// Its bytes.
        bytes: Arc<Vec<u8>>,
    },
    /// Another rank's part of an all-gather, or its row for this one.
    Piece {
        /// Number of the all-gather or exchange.
        round: u64,
        /// Whose.
        rank: u32,
        /// Its bytes.
        bytes: Arc<Vec<u8>>,
    },
    /// A rank is gone.
    Gone {
        /// Which.
        rank: u32,
        /// How its connection ended.
        why: String,
    },
    /// A sign of life.
    Ping,
    /// A message of an agent or a program.
    Datagram {
        /// Which of the two.
        topic: u8,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The process leaves.
    Bye {
        /// What went wrong there; empty: it leaves in good order.
        why: String,
    },
}

/// A message as it is sent: what is shared by several receivers is not copied.
#[derive(Clone, Debug)]
pub struct Encoded {
    /// Length, kind and the first part of the body.
    pub head: Vec<u8>,
    /// The rest of the body.
    pub tail: Option<Arc<Vec<u8>>>,
}

impl Encoded {
    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, |tail| tail.len())
    }
}

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    out.extend(address.port().to_le_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
}

/// Reads fields from the front.
struct Reader<'a>(&'a [u8]);

const SHORT: Refusal = Refusal::Broken("a message ends in the middle of a field");

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Refusal> {
        let (front, rest) = self.0.split_at_checked(bytes).ok_or(SHORT)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Refusal> {
        self.take(N)?.try_into().map_err(|_| SHORT)
    }

    fn u8(&mut self) -> Result<u8, Refusal> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, Refusal> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Refusal> {
        self.array().map(u64::from_le_bytes)
    }

    fn address(&mut self) -> Result<SocketAddr, Refusal> {
        let port = u16::from_le_bytes(self.array()?);
        let ip = match self.u8()? {
            4 => IpAddr::from(self.array::<4>()?),
            6 => IpAddr::from(self.array::<16>()?),
            _ => return Err(Refusal::Broken("an address of no known kind")),
        };
        Ok(SocketAddr::new(ip, port))
    }

    /// As many items as fill the rest.
    fn all<T>(&mut self, item: impl Fn(&mut Self) -> Result<T, Refusal>) -> Result<Vec<T>, Refusal> {
        let mut items = Vec::new();
        while !self.0.is_empty() {
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }

    fn text(&mut self) -> Result<String, Refusal> {
        String::from_utf8(self.rest()).map_err(|_| Refusal::Broken("text that is none"))
    }
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Welcome { .. } => 2,
            Self::Waiting { .. } => 3,
            Self::Start { .. } => 4,
            Self::Refused(_) => 5,
            Self::Give { .. } => 6,
            Self::Piece { .. } => 7,
            Self::Gone { .. } => 8,
            Self::Ping => 9,
            Self::Datagram { .. } => 10,
            Self::Bye { .. } => 11,
            Self::Row { .. } => 12,
        }
    }

    /// As it is sent.
    pub fn encode(&self) -> Encoded {
        let mut head = vec![0; HEAD];
        let mut tail = None;
        match self {
            Self::Hello { rank, world, mesh } => {
                head.extend(rank.to_le_bytes());
                head.extend(world.to_le_bytes());
                put_address(&mut head, *mesh);
            }
            Self::Welcome { job } => head.extend(job),
            Self::Waiting { missing } => head.extend(missing.iter().flat_map(|rank| rank.to_le_bytes())),
            Self::Start { mesh } => mesh.iter().for_each(|address| put_address(&mut head, *address)),
            Self::Refused(reason) => {
                let (code, a, b) = reason.to_wire();
                head.push(code);
                head.extend(a.to_le_bytes());
                head.extend(b.to_le_bytes());
            }
            Self::Give { round, bytes } => {
                head.extend(round.to_le_bytes());
                tail = Some(bytes.clone());
            }
            Self::Piece { round, rank, bytes } | Self::Row { round, to: rank, bytes } => {
                head.extend(round.to_le_bytes());
                head.extend(rank.to_le_bytes());
                tail = Some(bytes.clone());
            }
            Self::Gone { rank, why } => {
                head.extend(rank.to_le_bytes());
                head.extend(why.as_bytes());
            }
            Self::Ping => {}
            Self::Bye { why } => head.extend(why.as_bytes()),
            Self::Datagram { topic, bytes } => {
                head.push(*topic);
                head.extend(bytes);
            }
        }
        let mut encoded = Encoded { head, tail };
        let body = (encoded.bytes() - HEAD) as u32;
        encoded.head[..4].copy_from_slice(&body.to_le_bytes());
        encoded.head[4] = self.kind();
        encoded
    }

    /// Length of the body of the message that begins with `head`, if it is not longer than `max`.
    pub fn body_length(head: [u8; HEAD], max: usize) -> Result<usize, Refusal> {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > max { Err(Refusal::Broken("a message is too long")) } else { Ok(length) }
    }

    /// Reads a message of this kind.
    pub fn decode(kind: u8, body: &[u8]) -> Result<Self, Refusal> {
        let mut from = Reader(body);
        let frame = match kind {
            1 => Self::Hello { rank: from.u32()?, world: from.u32()?, mesh: from.address()? },
            2 => Self::Welcome { job: from.array()? },
            3 => Self::Waiting { missing: from.all(Reader::u32)? },
            4 => Self::Start { mesh: from.all(Reader::address)? },
            5 => {
                let reason = Refusal::from_wire(from.u8()?, from.u32()?, from.u32()?);
                Self::Refused(reason.ok_or(Refusal::Broken("a refusal of no known kind"))?)
            }
            6 => Self::Give { round: from.u64()?, bytes: Arc::new(from.rest()) },
            7 => Self::Piece { round: from.u64()?, rank: from.u32()?, bytes: Arc::new(from.rest()) },
            8 => Self::Gone { rank: from.u32()?, why: from.text()? },
            9 => Self::Ping,
            10 => Self::Datagram { topic: from.u8()?, bytes: from.rest() },
            11 => Self::Bye { why: from.text()? },
            12 => Self::Row { round: from.u64()?, to: from.u32()?, bytes: Arc::new(from.rest()) },
            _ => return Err(Refusal::Broken("a message of no known kind")),
        };
        match from.0.is_empty() {
            true => Ok(frame),
            false => Err(Refusal::Broken("a message has bytes behind its end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses() -> impl Strategy<Value = SocketAddr> {
        let ip =
            prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
        (ip, any::<u16>()).prop_map(SocketAddr::from)
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..200);
        let refusals = (1u8..14, any::<u32>(), any::<u32>()).prop_map(|(code, a, b)| {
            let (_, a, b) = Refusal::from_wire(code, a, b).unwrap().to_wire();
            Refusal::from_wire(code, a, b).unwrap()
        });
        prop_oneof![
            (any::<u32>(), any::<u32>(), addresses()).prop_map(|(rank, world, mesh)| Frame::Hello {
                rank,
                world,
                mesh
            }),
            any::<JobNumber>().prop_map(|job| Frame::Welcome { job }),
            prop::collection::vec(any::<u32>(), 0..9).prop_map(|missing| Frame::Waiting { missing }),
            prop::collection::vec(addresses(), 0..9).prop_map(|mesh| Frame::Start { mesh }),
            refusals.prop_map(Frame::Refused),
            (any::<u64>(), bytes()).prop_map(|(round, b)| Frame::Give { round, bytes: Arc::new(b) }),
            (any::<u64>(), any::<u32>(), bytes()).prop_map(|(round, rank, b)| Frame::Piece {
                round,
                rank,
                bytes: Arc::new(b)
            }),
            (any::<u64>(), any::<u32>(), bytes()).prop_map(|(round, to, b)| Frame::Row {
                round,
                to,
                bytes: Arc::new(b)
            }),
            (any::<u32>(), "\\PC{0,20}").prop_map(|(rank, why)| Frame::Gone { rank, why }),
            Just(Frame::Ping),
            (any::<u8>(), bytes()).prop_map(|(topic, bytes)| Frame::Datagram { topic, bytes }),
            "\\PC{0,20}".prop_map(|why| Frame::Bye { why }),
        ]
    }

    fn flat(frame: &Frame) -> Vec<u8> {
        let encoded = frame.encode();
        let tail = encoded.tail.iter().flat_map(|tail| tail.iter().copied());
        encoded.head.iter().copied().chain(tail).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(frame in frames()) {
            let bytes = flat(&frame);
            let head: [u8; HEAD] = bytes[..HEAD].try_into().unwrap();
            prop_assert_eq!(Frame::body_length(head, BODY_MAX), Ok(bytes.len() - HEAD));
            prop_assert_eq!(bytes.len(), frame.encode().bytes());
            prop_assert_eq!(Frame::decode(head[4], &bytes[HEAD..]), Ok(frame));
        }

        #[test]
        fn any_body_is_read_or_refused(kind in 0u8..15, body in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(frame) = Frame::decode(kind, &body) {
                let again = flat(&frame);
                // Numbers that a refusal does not use are not kept.
                if kind != 5 {
                    prop_assert_eq!(&again[HEAD..], &body[..]);
                }
            }
        }

        #[test]
        fn a_message_that_is_too_long_is_refused(head in any::<[u8; HEAD]>(), max in 0usize..1000) {
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            prop_assert_eq!(Frame::body_length(head, max).is_ok(), length <= max);
        }
    }
}
