//! What agents tell each other of the mask: fixed layouts, checked before anything is believed.

use crate::rank_set::RankSet;
use shunt_wire::CardError;

/// "SHRK", the first four bytes of every message.
const MAGIC: u32 = u32::from_be_bytes(*b"SHRK");
/// Bytes before the set.
const HEADER_BYTES: usize = 36;

/// Number of an attempt to decide an epoch. No rank uses one twice; the greater one is the newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot {
    /// Attempts so far, as far as was known.
    pub round: u32,
    /// Whose it is.
    pub rank: u32,
}

/// A message about the mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The last epoch that the sender knows; of what is about a decision to come: that one's.
    pub epoch: u64,
    /// What it says.
    pub word: Word,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// These peers are lost to me.
    Lost(RankSet),
    /// Take no older ballot than mine for this epoch, and say what you took so far.
    Ask(Ballot),
    /// I take none that is older. This is what I took so far, and under which ballot.
    Promise(Ballot, Option<(Ballot, RankSet)>),
    /// Take this: these ranks are left out from this epoch on.
    Propose(Ballot, RankSet),
    /// I took what was proposed under this ballot.
    Taken(Ballot),
    /// I promised a newer one.
    Newer(Ballot),
    /// It is decided: these ranks are left out from this epoch on.
    Decided(RankSet),
}

impl Message {
    /// True if bytes are a message about the mask, or would be one.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC.to_be_bytes())
    }

    const fn code(&self) -> u32 {
        match self.word {
            Word::Lost(_) => 1,
            Word::Ask(_) => 2,
            Word::Promise(_, None) => 3,
            Word::Promise(_, Some(_)) => 4,
            Word::Propose(..) => 5,
            Word::Taken(_) => 6,
            Word::Newer(_) => 7,
            Word::Decided(_) => 8,
        }
    }

    /// The message as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let none = Ballot::default();
        let (ballot, taken, set) = match &self.word {
            Word::Lost(set) | Word::Decided(set) => (none, none, Some(set)),
            Word::Ask(ballot) | Word::Taken(ballot) | Word::Newer(ballot) => (*ballot, none, None),
            Word::Promise(ballot, None) => (*ballot, none, None),
            Word::Promise(ballot, Some((taken, set))) => (*ballot, *taken, Some(set)),
            Word::Propose(ballot, set) => (*ballot, none, Some(set)),
        };
        let mut out = Vec::with_capacity(HEADER_BYTES + set.map_or(0, |set| 8 * set.words().len()));
        for word in [MAGIC, shunt_layout::ABI_VERSION, self.code()] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.epoch.to_be_bytes());
        for word in [ballot.round, ballot.rank, taken.round, taken.rank] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        if let Some(set) = set {
            set.write(&mut out);
        }
        out
    }

    /// Reads a message of a job of `ranks`; anything that is not one of this version is refused.
    ///
    /// # Errors
    /// [`CardError`] with what was met and what would be right.
    pub fn from_bytes(ranks: u32, bytes: &[u8]) -> Result<Self, CardError> {
        let Some((head, rest)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(CardError::Short { field: "head", got: bytes.len(), want: HEADER_BYTES });
        };
        let word = |number: usize| {
            head[4 * number..4 * number + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
        };
        if word(0) != MAGIC {
            return Err(CardError::Magic { kind: "message about the mask", met: word(0), want: MAGIC });
        }
        if word(1) != shunt_layout::ABI_VERSION {
            return Err(CardError::Abi { met: word(1), want: shunt_layout::ABI_VERSION });
        }
        let ballot = |number: usize| Ballot { round: word(number), rank: word(number + 1) };
        let (first, second) = (ballot(5), ballot(7));
        let set = || RankSet::read(ranks, rest);
        let word_said = match word(2) {
            1 => Word::Lost(set()?),
            2 => Word::Ask(first),
            3 => Word::Promise(first, None),
            4 => Word::Promise(first, Some((second, set()?))),
            5 => Word::Propose(first, set()?),
            6 => Word::Taken(first),
            7 => Word::Newer(first),
            8 => Word::Decided(set()?),
            other => return Err(CardError::Value { field: "code", met: other.into(), want: "1 to 8" }),
        };
        let message = Self { epoch: u64::from(word(3)) << 32 | u64::from(word(4)), word: word_said };
        let written = message.to_bytes();
        if bytes.len() > written.len() {
            return Err(CardError::Long { extra: bytes.len() - written.len() });
        }
        // Ballots that this word does not have are zero.
        match (5..9).find(|number| bytes[4 * number..4 * number + 4] != written[4 * number..4 * number + 4]) {
            Some(number) => Err(CardError::Value { field: "ballot", met: word(number).into(), want: "0" }),
            None => Ok(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let set = RankSet::of(70, |rank| rank % 23 == 0);
        let (old, new) = (Ballot { round: 3, rank: 1 }, Ballot { round: u32::MAX, rank: 69 });
        let words = [
            Word::Lost(set.clone()),
            Word::Ask(old),
            Word::Promise(new, None),
            Word::Promise(new, Some((old, set.clone()))),
            Word::Propose(new, set.clone()),
            Word::Taken(new),
            Word::Newer(old),
            Word::Decided(set),
        ];
        words.into_iter().map(|word| Message { epoch: 1 << 40 | 7, word }).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        for message in all() {
            assert!(Message::is_one(&message.to_bytes()));
            assert_eq!(Message::from_bytes(70, &message.to_bytes()), Ok(message));
        }
    }

    #[test]
    fn every_cut_and_every_stretch_is_refused_and_so_is_a_rank_that_is_none() {
        for message in all() {
            let bytes = message.to_bytes();
            for length in 0..bytes.len() {
                assert!(Message::from_bytes(70, &bytes[..length]).is_err(), "{message:?} cut to {length}");
            }
            let mut long = bytes.clone();
            long.push(0);
            assert!(Message::from_bytes(70, &long).is_err(), "{message:?} with a byte too many");
            let has_set = bytes.len() > HEADER_BYTES;
            assert_eq!(Message::from_bytes(69, &bytes).is_err(), has_set, "{message:?}: rank 69 of 69");
        }
    }

    #[test]
    fn a_ballot_that_a_word_does_not_have_is_refused() {
        let mut bytes = Message { epoch: 7, word: Word::Ask(Ballot { round: 3, rank: 1 }) }.to_bytes();
        bytes[28] = 0x34;
        let met = 0x3400_0000;
        assert_eq!(
            Message::from_bytes(70, &bytes),
            Err(CardError::Value { field: "ballot", met, want: "0" })
        );
    }

    #[test]
    fn another_version_is_told_apart() {
        let mut bytes = all()[0].to_bytes();
        bytes[7] ^= 0x40;
        let met = shunt_layout::ABI_VERSION ^ 0x40;
        let want = shunt_layout::ABI_VERSION;
        assert_eq!(Message::from_bytes(70, &bytes), Err(CardError::Abi { met, want }));
    }
}
