//! What peers exchange: fixed layouts of little-endian bytes, each with a magic and [`ABI_VERSION`].

use super::bootstrap::DRAW_BYTES;
use crate::error::CardError;
use crate::nic::caps::Link;
use crate::nic::half::link_code;
use shunt_layout::ABI_VERSION;

const HALF_MAGIC: u32 = u32::from_le_bytes(*b"SHhf");
const PE_MAGIC: u32 = u32::from_le_bytes(*b"SHpe");
const HALVES_MAGIC: u32 = u32::from_le_bytes(*b"SHhs");

/// Appends little-endian fields.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn header(magic: u32) -> Self {
        let mut writer = Self::default();
        writer.u32(magic);
        writer.u32(ABI_VERSION);
        writer
    }
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }
    fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
}

/// Reads them back, and says which field the bytes end in.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Magic and version come first, so that a card of another build is refused before it is read.
    fn header(bytes: &'a [u8], kind: &'static str, magic: u32) -> Result<Self, CardError> {
        let mut reader = Self { bytes, at: 0 };
        let met = reader.u32("magic")?;
        if met != magic {
            return Err(CardError::Magic { kind, met, want: magic });
        }
        let met = reader.u32("abi_version")?;
        if met != ABI_VERSION {
            return Err(CardError::Abi { met, want: ABI_VERSION });
        }
        Ok(reader)
    }
    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], CardError> {
        let want = self.at + N;
        let slice = self.bytes.get(self.at..want);
        let slice = slice.ok_or(CardError::Short { field, got: self.bytes.len(), want })?;
        self.at = want;
        Ok(slice.try_into().expect("N bytes"))
    }
    fn u8(&mut self, field: &'static str) -> Result<u8, CardError> {
        Ok(self.take::<1>(field)?[0])
    }
    fn u16(&mut self, field: &'static str) -> Result<u16, CardError> {
        Ok(u16::from_le_bytes(self.take(field)?))
    }
    fn u32(&mut self, field: &'static str) -> Result<u32, CardError> {
        Ok(u32::from_le_bytes(self.take(field)?))
    }
    fn u64(&mut self, field: &'static str) -> Result<u64, CardError> {
        Ok(u64::from_le_bytes(self.take(field)?))
    }
    /// A count of items that follow: never trusted beyond the bytes there are.
    fn count(&mut self, field: &'static str, item_bytes: usize) -> Result<usize, CardError> {
        let count = self.u32(field)? as usize;
        let want = count.saturating_mul(item_bytes).saturating_add(self.at);
        if want > self.bytes.len() {
            return Err(CardError::Short { field, got: self.bytes.len(), want });
        }
        Ok(count)
    }
    fn end(self) -> Result<(), CardError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            extra => Err(CardError::Long { extra }),
        }
    }
}

/// A QPN or PSN.
fn number(field: &'static str, value: u32) -> Result<u32, CardError> {
    if value >> 24 == 0 {
        Ok(value)
    } else {
        Err(CardError::Value { field, met: value.into(), want: "24 bits" })
    }
}

/// One rail, as a peer addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    const BYTES: usize = 4 + 1 + 1 + 2 + 6 + 16 + 16;

    /// The name as text.
    pub fn name_text(&self) -> String {
        String::from_utf8_lossy(&self.name).trim_end_matches('\0').to_string()
    }

    fn write(&self, writer: &mut Writer) {
        writer.u32(self.index);
        writer.u8(link_code(self.link));
        writer.u8(self.mtu as u8);
        writer.u16(self.lid);
        writer.0.extend(self.mac);
        writer.0.extend(self.gid);
        writer.0.extend(self.name);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CardError> {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfCard {
    /// QPN.
    pub qpn: u32,
    /// First PSN it sends.
    pub psn: u32,
    /// Incarnation of the pair.
    pub incarnation: u32,
    /// Its rail.
    pub rail: RailCard,
}

impl HalfCard {
    /// Bytes of a card on its own.
    pub const BYTES: usize = 8 + Self::BODY_BYTES;
    const BODY_BYTES: usize = 12 + RailCard::BYTES;

    /// The card as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::header(HALF_MAGIC);
        self.write(&mut writer);
        writer.0
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
        self.rail.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CardError> {
        Ok(Self {
            qpn: number("qpn", reader.u32("qpn")?)?,
            psn: number("psn", reader.u32("psn")?)?,
            incarnation: reader.u32("incarnation")?,
            rail: RailCard::read(reader)?,
        })
    }
}

/// What every PE tells every other before paths are made: shape, heap and keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeCard {
    /// The PE.
    pub pe: u32,
    /// Channels to each peer.
    pub channels_per_pe: u32,
    /// Backups wanted for each channel.
    pub backups: u32,
    /// log2 of the rings' depth.
    pub log_depth: u32,
    /// log2 of the bytes one key covers.
    pub log2_chunk: u32,
    /// In which order writes may land: [`Stance`](crate::nic::order::Stance).
    pub ordering: u32,
    /// First address of the heap.
    pub heap_base: u64,
    /// Its length.
    pub heap_bytes: u64,
    /// Its part of the key of the agents' datagrams.
    pub draw: [u8; DRAW_BYTES],
    /// Its rails, by rank.
    pub rails: Vec<RailCard>,
    /// QPNs of the rails' datagram queue pairs; 0 where there is none.
    pub datagrams: Vec<u32>,
    /// rkeys as numbers, row (rail, chunk).
    pub rkeys: Vec<Vec<u32>>,
    /// The same for the data of puts; empty rows where it goes under the other keys.
    pub data_rkeys: Vec<Vec<u32>>,
}

impl PeCard {
    /// The card as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::header(PE_MAGIC);
        let shape =
            [self.pe, self.channels_per_pe, self.backups, self.log_depth, self.log2_chunk, self.ordering];
        shape.into_iter().for_each(|value| writer.u32(value));
        writer.u64(self.heap_base);
        writer.u64(self.heap_bytes);
        writer.0.extend(self.draw);
        writer.u32(self.rails.len() as u32);
        let keys = self.rkeys.iter().zip(&self.data_rkeys);
        for ((rail, qpn), (keys, data)) in self.rails.iter().zip(&self.datagrams).zip(keys) {
            rail.write(&mut writer);
            writer.u32(*qpn);
            for keys in [keys, data] {
                writer.u32(keys.len() as u32);
                keys.iter().for_each(|key| writer.u32(*key));
            }
        }
        writer.0
    }

    /// Reads a card.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CardError> {
        let mut reader = Reader::header(bytes, "PE card", PE_MAGIC)?;
        let mut card = Self {
            pe: reader.u32("pe")?,
            channels_per_pe: reader.u32("channels_per_pe")?,
            backups: reader.u32("backups")?,
            log_depth: reader.u32("log_depth")?,
            log2_chunk: reader.u32("log2_chunk")?,
            ordering: reader.u32("ordering")?,
            heap_base: reader.u64("heap_base")?,
            heap_bytes: reader.u64("heap_bytes")?,
            draw: reader.take("draw")?,
            rails: Vec::new(),
            datagrams: Vec::new(),
            rkeys: Vec::new(),
            data_rkeys: Vec::new(),
        };
        for _ in 0..reader.count("rails", RailCard::BYTES)? {
            card.rails.push(RailCard::read(&mut reader)?);
            card.datagrams.push(number("datagrams", reader.u32("datagrams")?)?);
            for table in [&mut card.rkeys, &mut card.data_rkeys] {
                let keys = reader.count("rkeys", 4)?;
                table.push((0..keys).map(|_| reader.u32("rkey")).collect::<Result<_, _>>()?);
            }
        }
        reader.end()?;
        Ok(card)
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
    writer.0
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

#[cfg(test)]
mod tests {
    use super::*;

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
        HalfCard { qpn: 0xabc, psn: 0xfffffe, incarnation: 7, rail: rail() }
    }

    #[test]
    fn a_half_card_is_these_bytes() {
        let bytes = half().to_bytes();
        assert_eq!(bytes.len(), HalfCard::BYTES);
        let mut want = b"SHhf".to_vec();
        want.extend(ABI_VERSION.to_le_bytes());
        want.extend([0xbc, 0x0a, 0, 0, 0xfe, 0xff, 0xff, 0, 7, 0, 0, 0, 3, 0, 0, 0, 1, 5, 0x34, 0x12]);
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
        let pe = PeCard {
            pe: 1,
            channels_per_pe: 2,
            backups: 1,
            log_depth: 7,
            log2_chunk: 20,
            ordering: 1,
            heap_base: 0x1000,
            heap_bytes: 1 << 21,
            draw: *b"sixteen bytes...",
            rails: vec![rail(), rail()],
            datagrams: vec![0x12_3456, 0],
            rkeys: vec![vec![1, 2], vec![3, 4]],
            data_rkeys: vec![vec![5, 6], Vec::new()],
        };
        let halves = [None, Some(half()), None];
        type Parse = fn(&[u8]) -> Result<(), CardError>;
        let cards: [(Vec<u8>, Parse); 3] = [
            (half().to_bytes(), |b| HalfCard::from_bytes(b).map(drop)),
            (pe.to_bytes(), |b| PeCard::from_bytes(b).map(drop)),
            (halves_to_bytes(&halves), |b| halves_from_bytes(b).map(drop)),
        ];
        assert_eq!(PeCard::from_bytes(&cards[1].0), Ok(pe));
        assert_eq!(halves_from_bytes(&cards[2].0), Ok(halves.to_vec()));
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
