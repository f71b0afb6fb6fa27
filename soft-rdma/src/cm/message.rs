//! What connection managers of two processes say to each other: a packet of a Unix socket for each message.

use std::net::Ipv4Addr;

/// First bytes of each packet; the digit is the version.
const MAGIC: [u8; 4] = *b"SCM1";
/// Bytes before the private data.
const HEAD: usize = 48;
/// Bytes of private data at most.
const PRIVATE_MAX: usize = 256;
/// Bytes of a packet at most.
pub const PACKET_MAX: usize = HEAD + PRIVATE_MAX;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Asks for a connection.
    Request = 1,
    /// Accepts it.
    Reply = 2,
    /// The one that asked is ready.
    Ready = 3,
    /// Refuses.
    Reject = 4,
    /// Ends a connection.
    Disconnect = 5,
    /// Agrees to that.
    Disconnected = 6,
}

impl Kind {
    fn from_raw(raw: u8) -> Option<Self> {
        use Kind::{Disconnect, Disconnected, Ready, Reject, Reply, Request};
        [Request, Reply, Ready, Reject, Disconnect, Disconnected].into_iter().find(|kind| *kind as u8 == raw)
    }
}

/// What one end tells of its queue pair, and its wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Number of the queue pair.
    pub qp_num: u32,
    /// First packet number it sends.
    pub psn: u32,
    /// Bytes of a packet at most.
    pub mtu: u16,
    /// It has a shared receive queue.
    pub has_srq: bool,
    /// READs and atomics it answers at a time.
    pub responder_resources: u8,
    /// READs and atomics it asks for at a time.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: u8,
    /// Retries.
    pub retry_count: u8,
    /// Retries where the receiver is not ready.
    pub rnr_retry_count: u8,
    /// Options of enhanced connection establishment: vendor, bits.
    pub ece: [u32; 2],
    /// The program's own bytes.
    pub private: Vec<u8>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// Why, of a refusal.
    pub reason: u16,
    /// Address and port of the end that sends it.
    pub from: (Ipv4Addr, u16),
    /// The other end's, as the sender knows it.
    pub to: (Ipv4Addr, u16),
    /// Of a request and a reply.
    pub terms: Terms,
}

impl Message {
    /// One that says no more than what it is.
    pub fn plain(kind: Kind) -> Self {
        let nowhere = (Ipv4Addr::UNSPECIFIED, 0);
        Self { kind, reason: 0, from: nowhere, to: nowhere, terms: Terms::default() }
    }

    /// Its packet.
    pub fn write(&self) -> Vec<u8> {
        let terms = &self.terms;
        let mut packet = MAGIC.to_vec();
        packet.extend([self.kind as u8, terms.has_srq.into()]);
        packet.extend(self.reason.to_be_bytes());
        for (ip, port) in [self.from, self.to] {
            packet.extend(ip.octets());
            packet.extend(port.to_be_bytes());
        }
        packet.extend(terms.mtu.to_be_bytes());
        packet.extend([terms.responder_resources, terms.initiator_depth, terms.flow_control]);
        packet.extend([terms.retry_count, terms.rnr_retry_count, 0]);
        for number in [terms.qp_num, terms.psn, terms.ece[0], terms.ece[1]] {
            packet.extend(number.to_be_bytes());
        }
        packet.resize(HEAD, 0);
        packet.extend(&terms.private[..terms.private.len().min(PRIVATE_MAX)]);
        packet
    }

    /// The message in a packet; `None` if it is none.
    pub fn read(packet: &[u8]) -> Option<Self> {
        if packet.len() < HEAD || packet.len() > PACKET_MAX || packet[..4] != MAGIC {
            return None;
        }
        let short = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|byte| packet[at + byte]));
        let end = |at: usize| (Ipv4Addr::from(word(at)), short(at + 4));
        let terms = Terms {
            has_srq: packet[5] != 0,
            mtu: short(20),
            responder_resources: packet[22],
            initiator_depth: packet[23],
            flow_control: packet[24],
            retry_count: packet[25],
            rnr_retry_count: packet[26],
            qp_num: word(28),
            psn: word(32),
            ece: [word(36), word(40)],
            private: packet[HEAD..].to_vec(),
        };
        Some(Self { kind: Kind::from_raw(packet[4])?, reason: short(6), from: end(8), to: end(14), terms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_all_else_is_none() {
        let terms = Terms {
            qp_num: 0x1234,
            psn: 0xfe_dcba,
            mtu: 4096,
            has_srq: true,
            responder_resources: 1,
            initiator_depth: 2,
            flow_control: 3,
            retry_count: 4,
            rnr_retry_count: 5,
            ece: [6, 7],
            private: vec![8; PRIVATE_MAX],
        };
        let (from, to) = ((Ipv4Addr::new(10, 0, 0, 1), 40000), (Ipv4Addr::new(10, 1, 0, 2), 7174));
        let message = Message { kind: Kind::Reject, reason: 28, from, to, terms };
        let packet = message.write();
        assert_eq!(Message::read(&packet), Some(message));
        for kind in 0..=255u8 {
            let mut other = packet.clone();
            other[4] = kind;
            assert_eq!(Message::read(&other).is_some(), (1..=6).contains(&kind), "{kind}");
        }
        assert_eq!(Message::read(&packet[..HEAD - 1]), None);
        assert_eq!(Message::read(&[packet.clone(), vec![0]].concat()), None);
        assert_eq!(Message::read(&[b"SCM2", &packet[4..]].concat()), None);
        assert_eq!(Message::read(&[]), None);
    }
}
