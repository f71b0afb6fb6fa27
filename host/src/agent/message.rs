//! What agents tell each other: fixed layouts, checked before anything is believed.
//!
//! Every message names the pair it is about by (channel, slot, incarnation), so a late or doubled one is told by its
//! number and changes nothing (H8). A channel's index and a slot mean the same pair at both ends.

pub use shunt_recovery::truth::SideTruth;

use crate::connect::card::HalfCard;
use crate::error::CardError;

/// "SHMG", the first four bytes of every message.
const MAGIC: u32 = u32::from_be_bytes(*b"SHMG");
/// Bytes before the body.
const HEADER_BYTES: usize = 24;

/// Names one incarnation of one pair between two PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PairId {
    /// Index of the channel between the two.
    pub channel: u32,
    /// Path slot.
    pub slot: u32,
    /// Incarnation of the pair.
    pub incarnation: u32,
}

/// The home of a channel index at the PE that speaks of it (rule 16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its rail.
    pub rail: u32,
    /// How often it has moved: older words are void.
    pub version: u32,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Leave this pair; I am fencing my half, and somebody waits for it.
    Fence(PairId),
    /// My half is fenced (or cannot be); this is its truth.
    Truth(PairId, SideTruth),
    /// My direction has taken its cut and uses the pair no more.
    Left(PairId),
    /// I made a new half: make yours, on this rail of yours. And where the channel's home is at my end.
    Make(PairId, HalfCard, u32, Home),
    /// I made mine and connected it to yours. And where the channel's home is at my end.
    Made(PairId, HalfCard, Home),
    /// Mine is connected as well: probe. Said again, it asks whether the other's probes were answered.
    Up(PairId),
    /// My probes were answered.
    Proved(PairId),
    /// Leave this pair; I am fencing my half, because its port is down. Nobody waits yet.
    Leave(PairId),
    /// An operator takes this pair out: let your direction leave it, and do not recreate it. By its number, which is
    /// odd: orders that are older than one that is known are void.
    Retire(PairId, u32),
    /// An operator brings this pair back. Its number is even.
    Readmit(PairId, u32),
    /// I want the slot of this pair for another one: leave it by a drain, and fence it.
    Vacate(PairId),
    /// A rail of mine has another address, or takes datagrams under another number.
    Rail {
        /// Address, and the number of the datagram queue pair.
        card: HalfCard,
        /// When, on the sender's clock: what is older than what is known is void.
        at_ns: u64,
    },
    /// A port of mine changed.
    Port {
        /// Rail.
        rail: u32,
        /// True if it went down.
        down: bool,
        /// When, on the sender's clock: what is older than what is known is void.
        at_ns: u64,
    },
    /// The home of a channel index at my end.
    Home {
        /// Index of the channel.
        channel: u32,
        /// Where it is.
        home: Home,
    },
    /// My channel is bound to your home and has no path to it. Where is it?
    AskHome {
        /// Index of the channel.
        channel: u32,
        /// The version that I know.
        version: u32,
        /// Rails of yours that I have paths to, a bit each.
        rails: u32,
        /// I have waited for long: move it.
        pressing: bool,
    },
}

impl Message {
    const fn code(&self) -> u32 {
        match self {
            Self::Fence(_) => 1,
            Self::Truth(..) => 2,
            Self::Left(_) => 3,
            Self::Make(..) => 4,
            Self::Made(..) => 5,
            Self::Up(_) => 6,
            Self::Proved(_) => 7,
            Self::Port { .. } => 8,
            Self::Leave(_) => 9,
            Self::Rail { .. } => 10,
            Self::Retire(..) => 11,
            Self::Readmit(..) => 12,
            Self::Home { .. } => 13,
            Self::AskHome { .. } => 14,
            Self::Vacate(_) => 15,
        }
    }

    /// The message as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let mut word = |value: u32| out.extend_from_slice(&value.to_be_bytes());
        word(MAGIC);
        word(shunt_layout::ABI_VERSION);
        word(self.code());
        let (first, second, third) = match *self {
            Self::Port { rail, down, .. } => (rail, down as u32, 0),
            Self::Rail { .. } => (0, 0, 0),
            Self::Home { channel, home } => (channel, home.rail, home.version),
            Self::AskHome { channel, version, rails, .. } => (channel, version, rails),
            Self::Fence(id)
            | Self::Truth(id, _)
            | Self::Left(id)
            | Self::Make(id, ..)
            | Self::Made(id, ..) => id.words(),
            Self::Up(id) | Self::Proved(id) | Self::Leave(id) | Self::Vacate(id) => id.words(),
            Self::Retire(id, _) | Self::Readmit(id, _) => id.words(),
        };
        word(first);
        word(second);
        word(third);
        match self {
            Self::Truth(_, truth) => {
                let (kind, executed, psn) = match *truth {
                    SideTruth::Exact { executed, next_rcv_psn } => (1, executed, next_rcv_psn),
                    SideTruth::Fenced => (2, 0, 0),
                    SideTruth::Dead => (3, 0, 0),
                    SideTruth::Unflushed => (4, 0, 0),
                    SideTruth::Unknown => (5, 0, 0),
                    SideTruth::Unused => (6, 0, 0),
                };
                word(kind);
                word(executed);
                word(psn);
            }
            Self::Make(_, card, rail, home) => {
                word(*rail);
                word(home.rail);
                word(home.version);
                out.extend_from_slice(&card.to_bytes());
            }
            Self::Made(_, card, home) => {
                word(home.rail);
                word(home.version);
                out.extend_from_slice(&card.to_bytes());
            }
            Self::Retire(_, order) | Self::Readmit(_, order) => word(*order),
            Self::AskHome { pressing, .. } => word(*pressing as u32),
            Self::Port { at_ns, .. } => out.extend_from_slice(&at_ns.to_be_bytes()),
            Self::Rail { card, at_ns } => {
                out.extend_from_slice(&at_ns.to_be_bytes());
                out.extend_from_slice(&card.to_bytes());
            }
            _ => {}
        }
        out
    }

    /// Reads a message; anything that is not one of this version is refused.
    ///
    /// # Errors
    /// [`CardError`] with what was met and what would be right.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CardError> {
        let word = |number: usize, field: &'static str| -> Result<u32, CardError> {
            let end = number * 4 + 4;
            let at = bytes.get(number * 4..end);
            let at = at.ok_or(CardError::Short { field, got: bytes.len(), want: end })?;
            Ok(u32::from_be_bytes([at[0], at[1], at[2], at[3]]))
        };
        let magic = word(0, "magic")?;
        if magic != MAGIC {
            return Err(CardError::Magic { kind: "agent message", met: magic, want: MAGIC });
        }
        let version = word(1, "abi_version")?;
        if version != shunt_layout::ABI_VERSION {
            return Err(CardError::Abi { met: version, want: shunt_layout::ABI_VERSION });
        }
        let code = word(2, "code")?;
        let words = (word(3, "first")?, word(4, "second")?, word(5, "third")?);
        let id = PairId { channel: words.0, slot: words.1, incarnation: words.2 };
        let message = match code {
            1 => Self::Fence(id),
            2 => Self::Truth(
                id,
                side_truth(word(6, "truth")?, word(7, "executed")?, word(8, "next_rcv_psn")?)?,
            ),
            3 => Self::Left(id),
            4 => {
                let rail = word(6, "rail")?;
                let home = Home { rail: word(7, "home")?, version: word(8, "home's version")? };
                Self::Make(id, HalfCard::from_bytes(&bytes[HEADER_BYTES + 12..])?, rail, home)
            }
            5 => {
                let home = Home { rail: word(6, "home")?, version: word(7, "home's version")? };
                Self::Made(id, HalfCard::from_bytes(&bytes[HEADER_BYTES + 8..])?, home)
            }
            6 => Self::Up(id),
            7 => Self::Proved(id),
            8 if words.1 < 2 => {
                let at_ns = u64::from(word(6, "at_ns")?) << 32 | u64::from(word(7, "at_ns")?);
                Self::Port { rail: words.0, down: words.1 == 1, at_ns }
            }
            9 => Self::Leave(id),
            11 => Self::Retire(id, order(word(6, "order")?, true)?),
            12 => Self::Readmit(id, order(word(6, "order")?, false)?),
            10 => {
                let at_ns = u64::from(word(6, "at_ns")?) << 32 | u64::from(word(7, "at_ns")?);
                Self::Rail { card: HalfCard::from_bytes(&bytes[HEADER_BYTES + 8..])?, at_ns }
            }
            8 => return Err(CardError::Value { field: "down", met: words.1 as u64, want: "0 or 1" }),
            13 => Self::Home { channel: words.0, home: Home { rail: words.1, version: words.2 } },
            14 => {
                let pressing = word(6, "pressing")?;
                if pressing > 1 {
                    let met = pressing as u64;
                    return Err(CardError::Value { field: "pressing", met, want: "0 or 1" });
                }
                let (channel, version, rails) = words;
                Self::AskHome { channel, version, rails, pressing: pressing == 1 }
            }
            15 => Self::Vacate(id),
            other => return Err(CardError::Value { field: "code", met: other as u64, want: "1 to 15" }),
        };
        message.in_its_form(bytes)
    }

    /// The message, if these bytes are how it is written: one message has one form, fields that it does not use are
    /// zero.
    fn in_its_form(self, bytes: &[u8]) -> Result<Self, CardError> {
        let written = self.to_bytes();
        if bytes.len() != written.len() {
            return Err(CardError::Long { extra: bytes.len() - written.len() });
        }
        match bytes.iter().zip(&written).find(|(met, right)| met != right) {
            Some((met, _)) => Err(CardError::Value { field: "unused", met: u64::from(*met), want: "0" }),
            None => Ok(self),
        }
    }
}

/// The number of an operator's order: odd where it takes a path out.
fn order(number: u32, out: bool) -> Result<u32, CardError> {
    if (number & 1 == 1) == out {
        return Ok(number);
    }
    let want = if out { "odd" } else { "even" };
    Err(CardError::Value { field: "order", met: number as u64, want })
}

fn side_truth(kind: u32, executed: u32, next_rcv_psn: u32) -> Result<SideTruth, CardError> {
    let counter = |field, value: u32| {
        if value < 1 << 24 {
            Ok(value)
        } else {
            Err(CardError::Value { field, met: value as u64, want: "below 2^24" })
        }
    };
    match kind {
        1 => Ok(SideTruth::Exact {
            executed: counter("executed", executed)?,
            next_rcv_psn: counter("next_rcv_psn", next_rcv_psn)?,
        }),
        2 => Ok(SideTruth::Fenced),
        3 => Ok(SideTruth::Dead),
        4 => Ok(SideTruth::Unflushed),
        5 => Ok(SideTruth::Unknown),
        6 => Ok(SideTruth::Unused),
        other => Err(CardError::Value { field: "truth", met: other as u64, want: "1 to 6" }),
    }
}

impl PairId {
    const fn words(self) -> (u32, u32, u32) {
        (self.channel, self.slot, self.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PairId = PairId { channel: 3, slot: 2, incarnation: 7 };

    fn all() -> Vec<Message> {
        vec![
            Message::Fence(ID),
            Message::Truth(ID, SideTruth::Exact { executed: 0xff_fffe, next_rcv_psn: 0x12_3456 }),
            Message::Truth(ID, SideTruth::Fenced),
            Message::Truth(ID, SideTruth::Dead),
            Message::Truth(ID, SideTruth::Unflushed),
            Message::Truth(ID, SideTruth::Unknown),
            Message::Truth(ID, SideTruth::Unused),
            Message::Left(ID),
            Message::Leave(ID),
            Message::Vacate(ID),
            Message::Retire(ID, 7),
            Message::Readmit(ID, 8),
            Message::Up(ID),
            Message::Proved(ID),
            Message::Port { rail: 1, down: true, at_ns: 0x1_0000_0002 },
            Message::Port { rail: 5, down: false, at_ns: u64::MAX },
            Message::Home { channel: 3, home: Home { rail: 1, version: u32::MAX } },
            Message::AskHome { channel: 3, version: 7, rails: 5, pressing: true },
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        for message in all() {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Ok(message));
        }
    }

    #[test]
    fn every_cut_and_every_stretch_is_refused() {
        for message in all() {
            let bytes = message.to_bytes();
            for length in 0..bytes.len() {
                assert!(Message::from_bytes(&bytes[..length]).is_err(), "{message:?} cut to {length}");
            }
            let mut long = bytes.clone();
            long.push(0);
            assert!(Message::from_bytes(&long).is_err(), "{message:?} with a byte too many");
        }
    }

    #[test]
    fn a_field_that_a_message_does_not_use_is_zero() {
        for (message, at) in [
            (Message::Truth(ID, SideTruth::Fenced), 30),
            (Message::Port { rail: 1, down: true, at_ns: 7 }, 23),
        ] {
            let mut bytes = message.to_bytes();
            bytes[at] = 4;
            let refused = CardError::Value { field: "unused", met: 4, want: "0" };
            assert_eq!(Message::from_bytes(&bytes), Err(refused), "{message:?}");
        }
    }

    #[test]
    fn an_order_of_the_other_kind_is_refused() {
        for message in [Message::Retire(ID, 2), Message::Readmit(ID, 3)] {
            assert!(Message::from_bytes(&message.to_bytes()).is_err(), "{message:?}");
        }
    }

    #[test]
    fn another_version_is_told_apart() {
        let mut bytes = Message::Fence(ID).to_bytes();
        bytes[7] ^= 0x40;
        let met = shunt_layout::ABI_VERSION ^ 0x40;
        assert_eq!(Message::from_bytes(&bytes), Err(CardError::Abi { met, want: shunt_layout::ABI_VERSION }));
    }
}
