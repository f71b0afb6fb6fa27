//! What processes tell each other about their queue pairs. Pure. Numbers are big-endian words of 32 bits.

use crate::chain::NICS_MAX;
use shunt_mlx5::descriptor::HalfCard;
use shunt_recovery::path::{Word, WordParts};

/// Version of what processes tell each other.
pub const VERSION: u16 = 4;
/// First word of every message, with the version of what follows.
const MAGIC: u32 = 0x5356_0000 | VERSION as u32;

/// Two ends of one connection introduce themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The sender's number for its queue pair.
    pub id: u64,
    /// Its queue pair: GID and number.
    pub from: ([u8; 16], u32),
    /// The queue pair that it is connected to.
    pub to: ([u8; 16], u32),
    /// The rail that it is on, and those of its backups, best first: 1 to [`NICS_MAX`] of them.
    pub rails: Vec<u32>,
    /// The first PSN that it sends.
    pub psn: u32,
    /// The sender has heard the other's, too.
    pub heard: bool,
    /// Cards of all rails of the sender, as halves of nothing.
    pub cards: Vec<HalfCard>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// See [`Hello`].
    Hello(Box<Hello>),
    /// About a path of the receiver's queue pair, by its number there, and an incarnation.
    Path(u64, u32, u32, Word),
    /// A port of the sender is down or up; when, on its clock.
    Port(u32, bool, u64),
    /// So many messages that consumed a receive were executed of all that were sent to the receiver's queue pair,
    /// whose direction has this epoch. Atomics were among them, and must stay on the NIC that the program chose.
    Cut(u64, u32, u64, bool),
    /// Receives are posted on a path (by its number) of this incarnation: the receiver may send there, in a new epoch.
    Ready(u64, u32, u32, u32),
    /// The queue pair that the receiver's is connected to is no longer protected; or it has ended.
    Parted(u64, bool),
    /// The same, and it has no path left.
    Lost(u64),
    /// The receiver's queue pair gets atomics, whose answers are needed: no path is left but for a fault.
    Atomics(u64),
    /// Nothing is acknowledged of what the receiver's queue pair is sent: how many receives was its NIC given?
    Quiet(u64),
    /// The answer: so many since it was connected; 0 where that says nothing.
    Receives(u64, u64),
    /// Keys of the sender's memory: rail, the program's key there, rail of a backup, key there. With the first of a set
    /// all others are void.
    Keys(bool, Vec<[u32; 4]>),
}

struct Out(Vec<u8>);

impl Out {
    fn word(&mut self, word: u32) -> &mut Self {
        self.0.extend(word.to_be_bytes());
        self
    }

    fn long(&mut self, long: u64) -> &mut Self {
        self.word((long >> 32) as u32).word(long as u32)
    }

    fn end(&mut self, (gid, qpn): &([u8; 16], u32)) -> &mut Self {
        self.0.extend(gid);
        self.word(*qpn)
    }
}

/// A message as bytes.
pub fn encode(said: &Said) -> Vec<u8> {
    let mut out = Out(Vec::new());
    out.word(MAGIC);
    match said {
        Said::Hello(hello) => {
            out.word(0).long(hello.id).end(&hello.from).end(&hello.to);
            out.word(hello.psn).word(hello.heard.into()).word(hello.rails.len() as u32);
            hello.rails.iter().for_each(|rail| _ = out.word(*rail));
            hello.cards.iter().for_each(|card| out.0.extend(card.to_bytes()));
        }
        Said::Path(id, number, incarnation, word) => {
            let WordParts { numbers: [code, a, b], card } = (*word).into();
            out.word(1).long(*id).word(*number).word(*incarnation).word(code).word(a).word(b);
            card.iter().for_each(|card| out.0.extend(card.to_bytes()));
        }
        Said::Port(rail, down, at_ns) => _ = out.word(2).word(*rail).word((*down).into()).long(*at_ns),
        Said::Cut(id, epoch, count, atomics) => {
            out.word(3).long(*id).word(*epoch).long(*count).word((*atomics).into());
        }
        Said::Ready(id, number, incarnation, epoch) => {
            out.word(4).long(*id).word(*number).word(*incarnation).word(*epoch);
        }
        Said::Parted(id, ended) => _ = out.word(5).long(*id).word((*ended).into()),
        Said::Lost(id) => _ = out.word(6).long(*id),
        Said::Atomics(id) => _ = out.word(8).long(*id),
        Said::Quiet(id) => _ = out.word(9).long(*id),
        Said::Receives(id, count) => _ = out.word(10).long(*id).long(*count),
        Said::Keys(first, keys) => {
            out.word(7).word((*first).into());
            keys.iter().flatten().for_each(|word| _ = out.word(*word));
        }
    }
    out.0
}

struct In<'a>(&'a [u8]);

impl In<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        self.word().filter(|word| *word < 2).map(|word| word == 1)
    }

    fn end(&mut self) -> Option<([u8; 16], u32)> {
        Some((self.take()?, self.word()?))
    }

    /// How many, and each.
    fn rails(&mut self) -> Option<Vec<u32>> {
        let count = self.word().filter(|count| (1..=NICS_MAX as u32).contains(count))?;
        (0..count).map(|_| self.word()).collect()
    }

    fn card(&mut self) -> Option<HalfCard> {
        let bytes: [u8; HalfCard::BYTES] = self.take()?;
        HalfCard::from_bytes(&bytes).ok()
    }

    fn until_end<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = Vec::new();
        while !self.0.is_empty() {
            all.push(one(self)?);
        }
        Some(all)
    }
}

/// The version that a message is of; none if it is no message of this library.
pub fn version(bytes: &[u8]) -> Option<u16> {
    let first = bytes.first_chunk::<4>().map(|word| u32::from_be_bytes(*word))?;
    (first >> 16 == MAGIC >> 16).then_some(first as u16)
}

/// Reads a message; none if it is not one.
pub fn decode(bytes: &[u8]) -> Option<Said> {
    let mut from = In(bytes);
    let known = from.word()? == MAGIC;
    let said = match from.word().filter(|_| known)? {
        0 => Said::Hello(Box::new(Hello {
            id: from.long()?,
            from: from.end()?,
            to: from.end()?,
            psn: from.word()?,
            heard: from.flag()?,
            rails: from.rails()?,
            cards: from.until_end(In::card)?,
        })),
        1 => Said::Path(from.long()?, from.word()?, from.word()?, read_path_word(&mut from)?),
        2 => Said::Port(from.word()?, from.flag()?, from.long()?),
        3 => Said::Cut(from.long()?, from.word()?, from.long()?, from.flag()?),
        4 => Said::Ready(from.long()?, from.word()?, from.word()?, from.word()?),
        5 => Said::Parted(from.long()?, from.flag()?),
        6 => Said::Lost(from.long()?),
        7 => {
            let key = |from: &mut In<'_>| Some([from.word()?, from.word()?, from.word()?, from.word()?]);
            Said::Keys(from.flag()?, from.until_end(key)?)
        }
        8 => Said::Atomics(from.long()?),
        9 => Said::Quiet(from.long()?),
        10 => Said::Receives(from.long()?, from.long()?),
        _ => return None,
    };
    from.0.is_empty().then_some(said)
}

fn read_path_word(from: &mut In<'_>) -> Option<Word> {
    let numbers = [from.word()?, from.word()?, from.word()?];
    Word::read(numbers, || from.card())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_mlx5::descriptor::RailCard;
    use shunt_mlx5::nic::caps::Link;
    use shunt_recovery::truth::SideTruth;

    fn card() -> HalfCard {
        let rail = RailCard {
            index: 1,
            link: Link::Ethernet,
            mtu: 3,
            lid: 0,
            mac: [2; 6],
            gid: [7; 16],
            name: *b"mlx5_1\0\0\0\0\0\0\0\0\0\0",
        };
        HalfCard { qpn: 0x123, psn: 9, incarnation: 2, ece: 0, rail }
    }

    #[test]
    fn what_is_said_is_read_and_what_is_cut_short_or_too_long_is_not() {
        let hello = Hello {
            id: 1 << 40,
            from: ([1; 16], 5),
            to: ([2; 16], 6),
            rails: vec![0, 2, 1],
            psn: 77,
            heard: true,
            cards: vec![card(), card()],
        };
        let truth = Word::Truth(SideTruth::Exact { executed: 3, next_rcv_psn: 4 });
        let all = [
            Said::Hello(Box::new(hello.clone())),
            Said::Path(3, 1, 2, truth),
            Said::Path(3, 1, 2, Word::Make(card(), 1)),
            Said::Port(1, true, 1 << 33),
            Said::Cut(3, 4, 1 << 34, true),
            Said::Ready(3, 1, 2, 9),
            Said::Parted(3, true),
            Said::Lost(4),
            Said::Atomics(5),
            Said::Quiet(6),
            Said::Receives(6, 1 << 40),
            Said::Keys(true, vec![[0, 0x1234, 1, 0x5678], [1, 2, 3, 4]]),
        ];
        for said in all {
            let bytes = encode(&said);
            assert_eq!(decode(&bytes).as_ref(), Some(&said));
            assert_ne!(decode(&bytes[..bytes.len() - 1]), Some(said.clone()));
            assert_eq!(decode(&[&bytes[..], &[0]].concat()), None);
        }
        for rails in [vec![], vec![0; NICS_MAX + 1]] {
            let said = Said::Hello(Box::new(Hello { rails, ..hello.clone() }));
            assert_eq!(decode(&encode(&said)), None, "{said:?}");
        }
        let mut newer = encode(&Said::Parted(3, false));
        assert_eq!(version(&newer), Some(VERSION));
        newer[3] += 1;
        assert_eq!((version(&newer), decode(&newer)), (Some(VERSION + 1), None));
        assert_eq!((version(b"SV"), version(b"HTTP/1.1")), (None, None));
        assert_eq!(decode(b""), None);
        assert_eq!(decode(&[0; 64]), None, "not ours");
    }
}
