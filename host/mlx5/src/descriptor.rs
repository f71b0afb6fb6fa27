//! What the two ends of a path tell each other: rails and halves, in fixed layouts of little-endian bytes.

use crate::nic::caps::Link;
use shunt_wire::{CardError, Reader, Writer, number};

const HALF_MAGIC: u32 = u32::from_le_bytes(*b"SHhf");
const HALVES_MAGIC: u32 = u32::from_le_bytes(*b"SHhs");

/// One rail, as a peer addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RailCard {
    /// Rank of the rail at its PE.
    pub index: u32,
    /// Link layer.
    pub link: Link,
    /// Path MTU code.
    pub mtu: u32,
    /// LID; 0 on RoCE.
    pub lid: u16,
    /// MAC; zero on InfiniBand.
    pub mac: [u8; 6],
    /// GID.
    pub gid: [u8; 16],
    /// Name, zero padded.
    pub name: [u8; 16],
}

impl RailCard {
    /// Bytes of it within another card.
    pub const BYTES: usize = 4 + 1 + 1 + 2 + 6 + 16 + 16;

    /// The name as text.
    pub fn name_text(&self) -> String {
        String::from_utf8_lossy(&self.name).trim_end_matches('\0').to_string()
    }

    /// Writes it into another card.
    pub fn write(&self, writer: &mut Writer) {
        writer.u32(self.index);
        writer.u8(link_code(self.link));
        writer.u8(self.mtu as u8);
        writer.u16(self.lid);
        writer.bytes(&self.mac);
        writer.bytes(&self.gid);
        writer.bytes(&self.name);
    }

    /// Reads it from another card.
    ///
    /// # Errors
    /// A field that it cannot have.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, CardError> {
        let index = reader.u32("rail.index")?;
        let link = match reader.u8("rail.link")? {
            0 => Link::InfiniBand,
            1 => Link::Ethernet,
            met => {
                return Err(CardError::Value {
                    field: "rail.link",
                    met: met.into(),
                    want: "0 (InfiniBand) or 1 (Ethernet)",
                });
            }
        };
        let mtu = u32::from(reader.u8("rail.mtu")?);
        if !(1..=5).contains(&mtu) {
            return Err(CardError::Value { field: "rail.mtu", met: mtu.into(), want: "1 to 5" });
        }
        Ok(Self {
            index,
            link,
            mtu,
            lid: reader.u16("rail.lid")?,
            mac: reader.take("rail.mac")?,
            gid: reader.take("rail.gid")?,
            name: reader.take("rail.name")?,
        })
    }
}

/// One half of a path, as the other end connects to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HalfCard {
    /// QPN.
    pub qpn: u32,
    /// First PSN it sends.
    pub psn: u32,
    /// Incarnation of the pair.
    pub incarnation: u32,
    /// Options of enhanced connection establishment that it can have; 0: none.
    pub ece: u32,
    /// Its rail.
    pub rail: RailCard,
}

impl HalfCard {
    /// Bytes of a card on its own.
    pub const BYTES: usize = 8 + Self::BODY_BYTES;
    const BODY_BYTES: usize = 16 + RailCard::BYTES;

    /// The card as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::header(HALF_MAGIC);
        self.write(&mut writer);
        writer.finish()
    }

    /// Reads a card.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CardError> {
        let mut reader = Reader::header(bytes, "half card", HALF_MAGIC)?;
        let card = Self::read(&mut reader)?;
        reader.end()?;
        Ok(card)
    }

    fn write(&self, writer: &mut Writer) {
        writer.u32(self.qpn);
        writer.u32(self.psn);
        writer.u32(self.incarnation);
        writer.u32(self.ece);
        self.rail.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CardError> {
        Ok(Self {
            qpn: number("qpn", reader.u32("qpn")?)?,
            psn: number("psn", reader.u32("psn")?)?,
            incarnation: reader.u32("incarnation")?,
            ece: reader.u32("ece")?,
            rail: RailCard::read(reader)?,
        })
    }
}

/// The halves of one PE that lead to one other, row (channel, slot); `None` where that PE has no such path.
pub fn halves_to_bytes(halves: &[Option<HalfCard>]) -> Vec<u8> {
    let mut writer = Writer::header(HALVES_MAGIC);
    writer.u32(halves.len() as u32);
    for half in halves {
        writer.u8(half.is_some() as u8);
        if let Some(half) = half {
            half.write(&mut writer);
        }
    }
    writer.finish()
}

/// Reads them back.
pub fn halves_from_bytes(bytes: &[u8]) -> Result<Vec<Option<HalfCard>>, CardError> {
    let mut reader = Reader::header(bytes, "table of halves", HALVES_MAGIC)?;
    let mut halves = Vec::new();
    for _ in 0..reader.count("halves", 1)? {
        halves.push(match reader.u8("half.present")? {
            0 => None,
            1 => Some(HalfCard::read(&mut reader)?),
            met => {
                return Err(CardError::Value { field: "half.present", met: met.into(), want: "0 or 1" });
            }
        });
    }
    reader.end()?;
    Ok(halves)
}

/// Link layers as a card holds them.
pub(crate) fn link_code(link: Link) -> u8 {
    match link {
        Link::InfiniBand => 0,
        Link::Ethernet => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_layout::ABI_VERSION;

    fn rail() -> RailCard {
        let mut name = [0; 16];
        name[..6].copy_from_slice(b"mlx5_3");
        RailCard {
            index: 3,
            link: Link::Ethernet,
            mtu: 5,
            lid: 0x1234,
            mac: [2, 0, 0, 0, 0, 9],
            gid: *b"0123456789abcdef",
            name,
        }
    }

    fn half() -> HalfCard {
        HalfCard { qpn: 0xabc, psn: 0xfffffe, incarnation: 7, ece: 0x3000_0005, rail: rail() }
    }

    #[test]
    fn a_half_card_is_these_bytes() {
        let bytes = half().to_bytes();
        assert_eq!(bytes.len(), HalfCard::BYTES);
        let mut want = b"SHhf".to_vec();
        want.extend(ABI_VERSION.to_le_bytes());
        want.extend([
            0xbc, 0x0a, 0, 0, 0xfe, 0xff, 0xff, 0, 7, 0, 0, 0, 5, 0, 0, 0x30, 3, 0, 0, 0, 1, 5, 0x34, 0x12,
        ]);
        want.extend([2, 0, 0, 0, 0, 9]);
        want.extend(b"0123456789abcdefmlx5_3\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(bytes, want);
        assert_eq!(HalfCard::from_bytes(&bytes), Ok(half()));
        assert_eq!(half().rail.name_text(), "mlx5_3");
    }

    #[test]
    fn another_abi_is_refused() {
        let mut bytes = half().to_bytes();
        bytes[4] += 1;
        assert_eq!(
            HalfCard::from_bytes(&bytes),
            Err(CardError::Abi { met: ABI_VERSION + 1, want: ABI_VERSION })
        );
        bytes[0] = 0;
        assert!(matches!(HalfCard::from_bytes(&bytes), Err(CardError::Magic { .. })));
    }

    #[test]
    fn every_truncation_and_every_tail_is_refused() {
        let halves = [None, Some(half()), None];
        assert_eq!(halves_from_bytes(&halves_to_bytes(&halves)), Ok(halves.to_vec()));
        type Parse = fn(&[u8]) -> Result<(), CardError>;
        let cards: [(Vec<u8>, Parse); 2] = [
            (half().to_bytes(), |b| HalfCard::from_bytes(b).map(drop)),
            (halves_to_bytes(&halves), |b| halves_from_bytes(b).map(drop)),
        ];
        for (bytes, parse) in cards {
            assert_eq!(parse(&bytes), Ok(()));
            for length in 0..bytes.len() {
                assert!(matches!(parse(&bytes[..length]), Err(CardError::Short { .. })), "{length} bytes");
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            assert_eq!(parse(&longer), Err(CardError::Long { extra: 1 }));
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_allocates_nothing() {
        let mut bytes = halves_to_bytes(&[]);
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(halves_from_bytes(&bytes), Err(CardError::Short { field: "halves", .. })));
    }
}
