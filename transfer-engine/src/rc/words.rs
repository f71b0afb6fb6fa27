//! What ends tell each other about their lanes. Pure. Numbers are big-endian words of 32 bits.

use shunt_mlx5::descriptor::HalfCard;
use shunt_recovery::path::{Word, WordParts};

/// First word of every message, with the version of what follows.
const MAGIC: u32 = 0x5445_0001;
const PATH: u32 = 1;
const PORT: u32 = 2;
const HOW_MANY: u32 = 3;
const CAME: u32 = 4;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Of a path, by its number, about an incarnation.
    Path(u32, u32, Word),
    /// A port of the sender is down, or up again; when, on its clock.
    Port(u32, bool, u64),
    /// How many receives of the sender's has this incarnation of a path taken? Both halves are fenced.
    HowMany(u32, u32),
    /// So many; none: that is not known any more.
    Came(u32, u32, Option<u64>),
}

/// A message as bytes.
pub(super) fn encode(said: Said) -> Vec<u8> {
    let (words, card) = match said {
        Said::Path(number, incarnation, word) => {
            let WordParts { numbers: [code, a, b], card } = word.into();
            (vec![MAGIC, PATH, number, incarnation, code, a, b], card)
        }
        Said::Port(rail, down, at_ns) => {
            (vec![MAGIC, PORT, rail, down.into(), (at_ns >> 32) as u32, at_ns as u32], None)
        }
        Said::HowMany(number, incarnation) => (vec![MAGIC, HOW_MANY, number, incarnation], None),
        Said::Came(number, incarnation, count) => {
            let (known, count) = (u32::from(count.is_some()), count.unwrap_or(0));
            (vec![MAGIC, CAME, number, incarnation, known, (count >> 32) as u32, count as u32], None)
        }
    };
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    card.iter().for_each(|card| bytes.extend(card.to_bytes()));
    bytes
}

/// Reads a message; none if it is not one.
pub(super) fn decode(bytes: &[u8]) -> Option<Said> {
    let word = |i: usize| Some(u32::from_be_bytes(bytes.get(4 * i..4 * i + 4)?.try_into().ok()?));
    let long = |i| Some(u64::from(word(i)?) << 32 | u64::from(word(i + 1)?));
    match (word(0)?, word(1)?) {
        (MAGIC, PATH) => {
            let card = || HalfCard::from_bytes(bytes.get(28..)?).ok();
            let said = Word::read([word(4)?, word(5)?, word(6)?], card)?;
            let whole = WordParts::from(said).card.is_some() || bytes.len() == 28;
            whole.then_some(Said::Path(word(2)?, word(3)?, said))
        }
        (MAGIC, PORT) if bytes.len() == 24 => Some(Said::Port(word(2)?, word(3)? != 0, long(4)?)),
        (MAGIC, HOW_MANY) if bytes.len() == 16 => Some(Said::HowMany(word(2)?, word(3)?)),
        (MAGIC, CAME) if bytes.len() == 28 => {
            let count = long(5)?;
            Some(Said::Came(word(2)?, word(3)?, (word(4)? != 0).then_some(count)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_mlx5::descriptor::RailCard;
    use shunt_mlx5::nic::caps::Link;
    use shunt_recovery::truth::SideTruth;

    #[test]
    fn what_is_said_is_read_and_what_is_cut_short_or_too_long_is_not() {
        let (mac, gid, name) = ([2; 6], [7; 16], *b"mlx5_1\0\0\0\0\0\0\0\0\0\0");
        let rail = RailCard { index: 1, link: Link::Ethernet, mtu: 3, lid: 0, mac, gid, name };
        let card = HalfCard { qpn: 0x123, psn: 9, incarnation: 2, ece: 0, rail };
        for said in [
            Said::Path(1, 2, Word::Truth(SideTruth::Exact { executed: 3, next_rcv_psn: 4 })),
            Said::Path(1, 2, Word::Make(card, 1)),
            Said::Port(1, true, 1 << 33),
            Said::HowMany(1, 2),
            Said::Came(1, 2, Some(1 << 33)),
            Said::Came(1, 2, None),
        ] {
            let bytes = encode(said);
            assert_eq!(decode(&bytes), Some(said));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
            assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        }
        assert_eq!(decode(b""), None);
        assert_eq!(decode(&[0; 64]), None, "not ours");
    }
}
