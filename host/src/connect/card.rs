//! What peers exchange at start: a card a PE, behind a magic and the version.

pub use shunt_mlx5::descriptor::{HalfCard, RailCard, halves_from_bytes, halves_to_bytes};

use super::bootstrap::DRAW_BYTES;
use crate::error::CardError;
use shunt_wire::{Reader, Writer, number};

const PE_MAGIC: u32 = u32::from_le_bytes(*b"SHpe");
const KEYS_MAGIC: u32 = u32::from_le_bytes(*b"SHky");

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
    /// 1: there is room behind the heap for exact fetching atomics.
    pub fetch: u32,
    /// 1: one of its NICs has no masked atomics.
    pub plain_atomics: u32,
    /// 1: the count of one of its NICs proves nothing.
    pub uncounted: u32,
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
        let shape = [self.pe, self.channels_per_pe, self.backups, self.log_depth, self.log2_chunk];
        let shape = shape.into_iter().chain([self.ordering, self.fetch, self.plain_atomics, self.uncounted]);
        shape.for_each(|value| writer.u32(value));
        writer.u64(self.heap_base);
        writer.u64(self.heap_bytes);
        writer.bytes(&self.draw);
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
        writer.finish()
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
            fetch: reader.u32("fetch")?,
            plain_atomics: reader.u32("plain_atomics")?,
            uncounted: reader.u32("uncounted")?,
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

/// The keys of a PE's heap, row (rail, chunk): all of them, and those for the data of puts, empty where that goes under
/// the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRows {
    /// lkeys and rkeys at once; 0 where there is none yet.
    pub all: Vec<Vec<u32>>,
    /// For the data of puts.
    pub data: Vec<Vec<u32>>,
}

impl From<&PeCard> for KeyRows {
    fn from(card: &PeCard) -> Self {
        Self { all: card.rkeys.clone(), data: card.data_rkeys.clone() }
    }
}

impl KeyRows {
    /// The rows as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::header(KEYS_MAGIC);
        writer.u32(self.all.len() as u32);
        for keys in self.all.iter().zip(&self.data).flat_map(|(all, data)| [all, data]) {
            writer.u32(keys.len() as u32);
            keys.iter().for_each(|key| writer.u32(*key));
        }
        writer.finish()
    }

    /// Reads rows.
    ///
    /// # Errors
    /// They are no rows.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CardError> {
        let mut reader = Reader::header(bytes, "keys", KEYS_MAGIC)?;
        let mut rows = Self::default();
        for _ in 0..reader.count("rails", 8)? {
            for table in [&mut rows.all, &mut rows.data] {
                let keys = reader.count("keys", 4)?;
                table.push((0..keys).map(|_| reader.u32("key")).collect::<Result<_, _>>()?);
            }
        }
        reader.end()?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::caps::Link;

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

    #[test]
    fn rows_of_keys_come_back_whole_or_not_at_all() {
        let rows = KeyRows { all: vec![vec![1, 0], vec![3, 4]], data: vec![vec![5, 0], Vec::new()] };
        let bytes = rows.to_bytes();
        assert_eq!(KeyRows::from_bytes(&bytes), Ok(rows));
        assert!((0..bytes.len()).all(|length| KeyRows::from_bytes(&bytes[..length]).is_err()));
        assert!(KeyRows::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
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
            fetch: 1,
            plain_atomics: 1,
            uncounted: 0,
            heap_base: 0x1000,
            heap_bytes: 1 << 21,
            draw: *b"sixteen bytes...",
            rails: vec![rail(), rail()],
            datagrams: vec![0x12_3456, 0],
            rkeys: vec![vec![1, 2], vec![3, 4]],
            data_rkeys: vec![vec![5, 6], Vec::new()],
        };
        let bytes = pe.to_bytes();
        assert_eq!(PeCard::from_bytes(&bytes), Ok(pe));
        for length in 0..bytes.len() {
            let met = PeCard::from_bytes(&bytes[..length]);
            assert!(matches!(met, Err(CardError::Short { .. })), "{length} bytes");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(PeCard::from_bytes(&longer), Err(CardError::Long { extra: 1 }));
    }
}
