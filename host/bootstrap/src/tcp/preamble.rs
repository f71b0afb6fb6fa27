//! The first bytes of a connection, in the clear: who speaks, which version, and what the connection is for.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `SHUNTNET` |
//! | 8..12 | version of the protocol |
//! | 12..16 | ABI version of the device state |
//! | 16 | what the connection is for |
//! | 17..24 | 0 |
//! | 24..28 | rank that connects (mesh) |
//! | 28..32 | rank it connects to (mesh) |
//!
//! Numbers are big-endian. The first 16 bytes keep their meaning in every version, so that versions can tell each
//! other apart. The side that connects speaks first; the other answers with its own preamble. Both preambles go into
//! the prologue of the key exchange: an attacker that changes one on the way makes the exchange fail.

use super::error::Refusal;

/// Version of the protocol between processes.
pub const PROTOCOL: u32 = 3;
/// Length of a preamble.
pub const LENGTH: usize = 32;
/// The part that keeps its meaning in every version.
pub const FIXED: usize = 16;
const MAGIC: &[u8; 8] = b"SHUNTNET";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A rank joins at the root.
    Join,
    /// Two ranks' agents and programs talk.
    Mesh {
        /// Who connects.
        from: u32,
        /// To whom.
        to: u32,
    },
}

/// The first bytes of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Version of the protocol.
    pub protocol: u32,
    /// ABI version of the device state.
    pub abi: u32,
    /// What the connection is for.
    pub purpose: Purpose,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Preamble {
    /// Its bytes.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.protocol.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.abi.to_be_bytes());
        if let Purpose::Mesh { from, to } = self.purpose {
            bytes[16] = 1;
            bytes[24..28].copy_from_slice(&from.to_be_bytes());
            bytes[28..32].copy_from_slice(&to.to_be_bytes());
        }
        bytes
    }

    /// Reads one, as far as `bytes` go: `None` if they are the beginning of one. `ours` are this side's versions.
    pub fn decode(bytes: &[u8], ours: (u32, u32)) -> Result<Option<Self>, Refusal> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(Refusal::Garbage);
        }
        if bytes.len() < FIXED {
            return Ok(None);
        }
        let (protocol, abi) = (word(bytes, 8), word(bytes, 12));
        if protocol != ours.0 {
            return Err(Refusal::Protocol { theirs: protocol, ours: ours.0 });
        }
        if abi != ours.1 {
            return Err(Refusal::Abi { theirs: abi, ours: ours.1 });
        }
        if bytes.len() < LENGTH {
            return Ok(None);
        }
        let (from, to) = (word(bytes, 24), word(bytes, 28));
        let purpose = match bytes[16] {
            0 if from == 0 && to == 0 => Purpose::Join,
            1 => Purpose::Mesh { from, to },
            _ => return Err(Refusal::Garbage),
        };
        if bytes[17..24] != [0; 7] {
            return Err(Refusal::Garbage);
        }
        Ok(Some(Self { protocol, abi, purpose }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: (u32, u32) = (PROTOCOL, 7);

    fn preamble(purpose: Purpose) -> Preamble {
        Preamble { protocol: PROTOCOL, abi: 7, purpose }
    }

    #[test]
    fn the_bytes_are_these() {
        let bytes = preamble(Purpose::Mesh { from: 3, to: 0x0102 }).encode();
        let want = b"SHUNTNET\0\0\0\x03\0\0\0\x07\x01\0\0\0\0\0\0\0\0\0\0\x03\0\0\x01\x02";
        assert_eq!(&bytes, want);
        assert_eq!(preamble(Purpose::Join).encode()[16..], [0; 16]);
    }

    #[test]
    fn other_versions_are_told_by_the_first_sixteen_bytes() {
        let bytes = preamble(Purpose::Join).encode();
        assert_eq!(Preamble::decode(&bytes[..16], (4, 7)), Err(Refusal::Protocol { theirs: 3, ours: 4 }));
        assert_eq!(Preamble::decode(&bytes[..16], (3, 8)), Err(Refusal::Abi { theirs: 7, ours: 8 }));
        assert_eq!(Preamble::decode(b"GET / HTTP/1.1\r\n", OURS), Err(Refusal::Garbage));
        assert_eq!(Preamble::decode(b"SHUNTNOT", OURS), Err(Refusal::Garbage));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_every_beginning_waits(from: u32, to: u32, mesh: bool, cut in 0..LENGTH) {
            let written = preamble(if mesh { Purpose::Mesh { from, to } } else { Purpose::Join });
            let bytes = written.encode();
            prop_assert_eq!(Preamble::decode(&bytes, OURS), Ok(Some(written)));
            prop_assert_eq!(Preamble::decode(&bytes[..cut], OURS), Ok(None));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), magic: bool) {
            let mut bytes = bytes;
            if magic {
                let head = preamble(Purpose::Join).encode();
                bytes.splice(0..0, head[..16].iter().copied());
            }
            if let Ok(Some(read)) = Preamble::decode(&bytes, OURS) {
                prop_assert_eq!(&read.encode()[..], &bytes[..LENGTH]);
            }
        }
    }
}
