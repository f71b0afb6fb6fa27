//! What goes round an agents' message on a rail: who says it, over which rails, its number, and a seal.
//!
//! Anybody on the rails' network may send a datagram to a queue pair whose number and key he guesses. So each is sealed
//! with a key that all PEs drew together at start (keyed BLAKE2s, 128 bits), and its number is taken once only.

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use shunt_bootstrap::bootstrap::DRAW_BYTES;
use shunt_mlx5::nic::datagram::MESSAGE_MAX;

/// "SHRL", the first four bytes.
const MAGIC: u32 = u32::from_be_bytes(*b"SHRL");
/// Bytes in front of the body.
const HEADER_BYTES: usize = 32;
/// Bytes of the seal, behind the body.
const TAG_BYTES: usize = 16;
/// Longest body.
pub const BODY_MAX: usize = MESSAGE_MAX - HEADER_BYTES - TAG_BYTES;
/// Numbers behind the newest that a receiver still tells apart: copies travel over several rails, some late.
const WINDOW: u64 = 4096;

/// The key that a PE's datagram queue pairs want to see: never 0, and below 2^31, where the sender's own would be sent.
pub fn qkey(draw: &[u8; DRAW_BYTES]) -> u32 {
    u32::from_be_bytes([draw[0], draw[1], draw[2], draw[3]]) >> 1 | 1
}

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A message of the agent; its sender doubts that the agents' own link carries it.
    Message = 1,
    /// Says that the sender lives, and asks the same.
    Ping = 2,
    /// The answer to a ping, over the same two rails, with its number as body.
    Pong = 3,
    /// A message that goes over both links whatever is thought of them.
    News = 4,
}

/// What stands in front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Rail of the sender.
    pub from_rail: u16,
    /// Rail of the receiver.
    pub to_rail: u16,
    /// Number: that of all copies of one message, and never used again.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
}

/// Why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// Not as long as it should be, or of another kind or version.
    Garbage,
    /// Not sealed by a PE of this job, or changed on its way.
    Seal,
    /// Meant for somebody else.
    Stray,
}

/// The job's key.
#[derive(Clone)]
pub struct Seal(Blake2sMac<U16>);

impl Seal {
    /// The key that follows from what everybody drew.
    pub fn new<'a>(draws: impl IntoIterator<Item = &'a [u8; DRAW_BYTES]>) -> Self {
        let mut key = Blake2s256::new();
        draws.into_iter().for_each(|draw| Digest::update(&mut key, draw));
        let key = Digest::finalize(key);
        Self(Blake2sMac::new_from_slice(&key).expect("a key of 32 bytes is accepted"))
    }

    fn tag(&self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut mac = self.0.clone();
        Update::update(&mut mac, bytes);
        mac.finalize_fixed().into()
    }

    /// Packs a body of at most [`BODY_MAX`] bytes; answers with the length. `None` if it is longer.
    pub fn close(&self, header: &Header, body: &[u8], out: &mut [u8; MESSAGE_MAX]) -> Option<usize> {
        let end = HEADER_BYTES + body.len();
        if body.len() > BODY_MAX {
            return None;
        }
        out[..4].copy_from_slice(&MAGIC.to_be_bytes());
        out[4..8].copy_from_slice(&shunt_layout::ABI_VERSION.to_be_bytes());
        out[8..12].copy_from_slice(&header.from.to_be_bytes());
        out[12..16].copy_from_slice(&header.to.to_be_bytes());
        out[16..24].copy_from_slice(&header.number.to_be_bytes());
        out[24..26].copy_from_slice(&header.from_rail.to_be_bytes());
        out[26..28].copy_from_slice(&header.to_rail.to_be_bytes());
        out[28..30].copy_from_slice(&(header.kind as u16).to_be_bytes());
        out[30..32].copy_from_slice(&(body.len() as u16).to_be_bytes());
        out[HEADER_BYTES..end].copy_from_slice(body);
        let tag = self.tag(&out[..end]);
        out[end..end + TAG_BYTES].copy_from_slice(&tag);
        Some(end + TAG_BYTES)
    }

    /// Unpacks what arrived at PE `me`.
    ///
    /// # Errors
    /// Whatever is not whole, not of this job, or not for this PE.
    pub fn open<'b>(&self, bytes: &'b [u8], me: u32) -> Result<(Header, &'b [u8]), Stranger> {
        let word = |at: usize| {
            let part: Option<[u8; 4]> = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
            part.map(u32::from_be_bytes).ok_or(Stranger::Garbage)
        };
        let end = (word(28)? as u16) as usize + HEADER_BYTES;
        if word(0)? != MAGIC || word(4)? != shunt_layout::ABI_VERSION || bytes.len() != end + TAG_BYTES {
            return Err(Stranger::Garbage);
        }
        // In constant time: how far a guess was right is nobody's to learn.
        let tag = self.tag(&bytes[..end]);
        if tag.iter().zip(&bytes[end..]).fold(0, |all, (a, b)| all | (a ^ b)) != 0 {
            return Err(Stranger::Seal);
        }
        let kind = match word(28)? >> 16 {
            1 => Kind::Message,
            2 => Kind::Ping,
            3 => Kind::Pong,
            4 => Kind::News,
            _ => return Err(Stranger::Garbage),
        };
        let rails = word(24)?;
        let header = Header {
            from: word(8)?,
            to: word(12)?,
            from_rail: (rails >> 16) as u16,
            to_rail: rails as u16,
            number: u64::from(word(16)?) << 32 | u64::from(word(20)?),
            kind,
        };
        if header.to != me || header.from == me {
            return Err(Stranger::Stray);
        }
        Ok((header, &bytes[HEADER_BYTES..end]))
    }
}

/// Numbers taken from one sender. Each is taken once; what is older than the window counts as taken.
#[derive(Clone, Debug)]
pub struct Taken {
    newest: u64,
    bits: Box<[u64; (WINDOW / 64) as usize]>,
}

impl Default for Taken {
    fn default() -> Self {
        Self { newest: 0, bits: Box::new([0; (WINDOW / 64) as usize]) }
    }
}

impl Taken {
    /// True if `number` is new; it is taken from now on. Numbers begin at 1.
    pub fn take(&mut self, number: u64) -> bool {
        let old = self.newest.checked_sub(number).is_some_and(|behind| behind >= WINDOW);
        if number == 0 || old {
            return false;
        }
        let place = |number: u64| ((number / 64 % (WINDOW / 64)) as usize, 1u64 << (number % 64));
        if number > self.newest {
            // What the window moves over begins empty.
            let steps = (number - self.newest).min(WINDOW);
            for passed in number - steps + 1..=number {
                let (word, bit) = place(passed);
                self.bits[word] &= !bit;
            }
            self.newest = number;
        }
        let (word, bit) = place(number);
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const fn drawn(byte: u8) -> [u8; DRAW_BYTES] {
        [byte; DRAW_BYTES]
    }

    const HEADER: Header =
        Header { from: 3, to: 9, from_rail: 1, to_rail: 2, number: 0x1_0000_0002, kind: Kind::Message };

    fn sealed(body: &[u8]) -> (Seal, Vec<u8>) {
        let seal = Seal::new(&[drawn(1), drawn(2)]);
        let mut out = [0; MESSAGE_MAX];
        let bytes = seal.close(&HEADER, body, &mut out).expect("short enough");
        (seal, out[..bytes].to_vec())
    }

    #[test]
    fn what_is_closed_opens() {
        for length in [0, 1, 90, BODY_MAX] {
            let body = vec![7; length];
            let (seal, bytes) = sealed(&body);
            assert_eq!(seal.open(&bytes, 9), Ok((HEADER, &body[..])));
            assert_eq!(seal.open(&bytes, 8), Err(Stranger::Stray));
        }
        let (seal, _) = sealed(&[]);
        assert_eq!(seal.close(&HEADER, &[0; BODY_MAX + 1], &mut [0; MESSAGE_MAX]), None);
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_refused() {
        let (seal, bytes) = sealed(&[1, 2, 3]);
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(seal.open(&other, 9).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(seal.open(&bytes[..length], 9), Err(Stranger::Garbage), "{length} bytes");
        }
    }

    #[test]
    fn another_job_has_another_key() {
        let (_, bytes) = sealed(&[1]);
        for draws in [vec![drawn(1)], vec![drawn(2), drawn(1)], vec![drawn(1), drawn(3)]] {
            assert_eq!(Seal::new(&draws).open(&bytes, 9), Err(Stranger::Seal));
        }
    }

    #[test]
    fn a_qkey_is_neither_nothing_nor_the_senders_own() {
        for draw in [[0; DRAW_BYTES], [0xff; DRAW_BYTES]] {
            assert!(qkey(&draw) != 0 && qkey(&draw) >> 31 == 0);
        }
    }

    proptest! {
        #[test]
        fn a_number_is_taken_once(start in 1u64..1 << 40, steps in prop::collection::vec(0u64..9000, 1..400)) {
            let (mut taken, mut seen, mut newest) = (Taken::default(), HashSet::new(), 0u64);
            for step in steps {
                let number = start + step;
                let late = number + WINDOW <= newest;
                prop_assert_eq!(taken.take(number), !late && seen.insert(number), "{}", number);
                newest = newest.max(number);
            }
        }
    }
}
