//! A set of ranks, a bit each.

use shunt_wire::CardError;

/// Ranks of a job, some of them in the set. Sets of one job are equally long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSet {
    words: Vec<u64>,
}

impl RankSet {
    /// None of `ranks` ranks.
    pub fn none(ranks: u32) -> Self {
        Self { words: vec![0; ranks.div_ceil(64) as usize] }
    }

    /// Those of `ranks` ranks that `holds` says.
    pub fn of(ranks: u32, holds: impl Fn(u32) -> bool) -> Self {
        let mut set = Self::none(ranks);
        (0..ranks).filter(|rank| holds(*rank)).for_each(|rank| {
            set.add(rank);
        });
        set
    }

    /// True if `rank` is in it.
    pub fn has(&self, rank: u32) -> bool {
        self.words.get((rank / 64) as usize).is_some_and(|word| word >> (rank % 64) & 1 == 1)
    }

    /// Adds a rank; false if it was there, or is none of the job's.
    pub fn add(&mut self, rank: u32) -> bool {
        let Some(word) = self.words.get_mut((rank / 64) as usize) else { return false };
        let before = *word;
        *word |= 1 << (rank % 64);
        *word != before
    }

    /// Adds all of another set; true if one of them was not there.
    pub fn add_all(&mut self, other: &Self) -> bool {
        let mut more = false;
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            more |= *other & !*word != 0;
            *word |= other;
        }
        more
    }

    /// True if all of `other` is in it.
    pub fn holds(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(word, other)| other & !word == 0)
    }

    /// True if one rank is in both.
    pub fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(word, other)| word & other != 0)
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Its ranks, the lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.words.iter().zip(0u32..);
        words.flat_map(|(word, at)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * at + bit)
        })
    }

    /// Its words, rank 0 in the lowest bit of the first.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    }

    /// Reads the set of a job of `ranks` from bytes that hold nothing else.
    pub(crate) fn read(ranks: u32, bytes: &[u8]) -> Result<Self, CardError> {
        let want = ranks.div_ceil(64) as usize * 8;
        if bytes.len() < want {
            return Err(CardError::Short { field: "ranks", got: bytes.len(), want });
        }
        if bytes.len() > want {
            return Err(CardError::Long { extra: bytes.len() - want });
        }
        let word = |eight: &[u8]| eight.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let set = Self { words: bytes.chunks_exact(8).map(word).collect() };
        let stranger = set.iter().find(|rank| *rank >= ranks);
        match stranger {
            Some(rank) => {
                Err(CardError::Value { field: "rank", met: rank.into(), want: "a rank of the job" })
            }
            None => Ok(set),
        }
    }
}
