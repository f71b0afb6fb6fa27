//! What soft EFAs send each other: a header of 64 bytes and data, in the payload of a datagram.
//!
//! How EFA does it is not public. This is for other soft EFAs only; all is big-endian:
//!
//! ```text
//! 0 magic 4 | 4 kind 1 | 5 status 1 | 6 immediate 1 | 7 zero 1 | 8 MAC of the sender 8 | 16 epoch 8 | 24 number 8
//! 32 floor 8 | 40 offset 4 | 44 bytes of the message 4 | 48 address 8 | 56 key 4 | 60 immediate data 4 | 64 data
//! ```

use crate::format::Status;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
const MAGIC: u32 = 0x5352_4431;

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A part of a reliable message.
    Send = 1,
    /// How a message or a read ended at the other side.
    Answer = 2,
    /// Asks for a piece of memory.
    ReadRequest = 3,
    /// A piece of memory.
    ReadResponse = 4,
    /// A part of an unreliable message.
    Datagram = 5,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// How it ended; counts in an answer.
    pub status: Status,
    /// MAC of the NIC that sends it.
    pub mac: u64,
    /// Which life of its queue pair it is of: later ones have larger numbers.
    pub epoch: u64,
    /// Number of the message or read; an answer has the question's epoch and number.
    pub number: u64,
    /// All smaller numbers are settled at the sender.
    pub floor: u64,
    /// Where the data stands in its message.
    pub offset: u32,
    /// Bytes of the message, or to be read.
    pub bytes: u32,
    /// Remote address to be read.
    pub address: u64,
    /// Its key.
    pub key: u32,
    /// Immediate data.
    pub imm: Option<u32>,
}

impl Header {
    /// A segment with this header and room for so much data.
    pub fn segment(&self, data: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + data];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.status as u8;
        bytes[6] = self.imm.is_some().into();
        for (at, word) in [(8, self.mac), (16, self.epoch), (24, self.number), (32, self.floor)] {
            bytes[at..at + 8].copy_from_slice(&word.to_be_bytes());
        }
        bytes[40..44].copy_from_slice(&self.offset.to_be_bytes());
        bytes[44..48].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[48..56].copy_from_slice(&self.address.to_be_bytes());
        bytes[56..60].copy_from_slice(&self.key.to_be_bytes());
        bytes[60..64].copy_from_slice(&self.imm.unwrap_or(0).to_be_bytes());
        bytes
    }

    /// Reads a segment: its header and its data. `None` for what is none.
    pub fn read(segment: &[u8]) -> Option<(Self, &[u8])> {
        let (header, data) = segment.split_first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        if word(0) != MAGIC || header[6] > 1 || header[7] != 0 {
            return None;
        }
        let kind = match header[4] {
            1 => Kind::Send,
            2 => Kind::Answer,
            3 => Kind::ReadRequest,
            4 => Kind::ReadResponse,
            5 => Kind::Datagram,
            _ => return None,
        };
        let this = Self {
            kind,
            status: Status::from_number(header[5])?,
            mac: long(8),
            epoch: long(16),
            number: long(24),
            floor: long(32),
            offset: word(40),
            bytes: word(44),
            address: long(48),
            key: word(56),
            imm: (header[6] == 1).then(|| word(60)),
        };
        Some((this, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        kind: Kind::Send,
        status: Status::Ok,
        mac: 0x0253_4800_0001,
        epoch: 1 << 60 | 5,
        number: 77,
        floor: 70,
        offset: 4032,
        bytes: 8000,
        address: 0x7f00_1234_5678,
        key: 9,
        imm: Some(0),
    };

    #[test]
    fn segments_are_read_as_they_were_written() {
        let mut segment = HEADER.segment(3);
        segment[HEADER_BYTES..].copy_from_slice(b"abc");
        assert_eq!(Header::read(&segment), Some((HEADER, &b"abc"[..])));
        let answer = Header { kind: Kind::Answer, status: Status::NotReady, imm: None, ..HEADER };
        assert_eq!(Header::read(&answer.segment(0)), Some((answer, &[][..])));
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let segment = HEADER.segment(0);
        for bytes in 0..HEADER_BYTES {
            assert_eq!(Header::read(&segment[..bytes]), None, "{bytes} bytes");
        }
        for (at, wrong) in [(0, 0), (4, 0), (4, 6), (5, 2), (5, 200), (6, 2), (7, 1)] {
            let mut broken = segment.clone();
            broken[at] = wrong;
            assert_eq!(Header::read(&broken), None, "byte {at} is {wrong}");
        }
    }
}
