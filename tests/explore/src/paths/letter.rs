//! The network between the agents: words in flight, in no order.

use super::half::Half;
use shunt_recovery::path::{Handle, Word};
use shunt_recovery::truth::SideTruth;

/// Words that may be in flight.
pub const ROOM: usize = 6;

/// A word to one end, about an incarnation, packed: a state holds several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Letter(u64);

const NONE: Letter = Letter(u64::MAX);
const BITS_24: u64 = (1 << 24) - 1;

impl Letter {
    /// Packs a word.
    pub fn new(to: usize, incarnation: u32, word: Word) -> Self {
        let (kind, a, b) = match word {
            Word::Fence => (0, 0, 0),
            Word::Leave => (1, 0, 0),
            Word::Left => (2, 0, 0),
            Word::Make(card, _) => (3, card.psn, 0),
            Word::Made(card) => (4, card.psn, 0),
            Word::Up => (5, 0, 0),
            Word::Proved => (6, 0, 0),
            Word::Vacate => (7, 0, 0),
            Word::Order(order) => (8, order, 0),
            Word::Truth(SideTruth::Exact { executed, next_rcv_psn }) => (9, executed, next_rcv_psn),
            Word::Truth(SideTruth::Fenced) => (10, 0, 0),
            Word::Truth(SideTruth::Unflushed) => (11, 0, 0),
            Word::Truth(SideTruth::Unknown) => (12, 0, 0),
            Word::Truth(SideTruth::Dead) => (13, 0, 0),
            Word::Truth(SideTruth::Unused) => (14, 0, 0),
        };
        let head = (to as u64) << 11 | u64::from(incarnation) << 4 | kind;
        Self(head << 48 | u64::from(a) << 24 | u64::from(b))
    }

    /// What it says.
    pub fn in_words(self) -> String {
        match self.word() {
            Word::Make(..) => format!("Make {}", self.incarnation()),
            Word::Made(_) => format!("Made {}", self.incarnation()),
            word => format!("{word:?} of {}", self.incarnation()),
        }
    }

    /// The end that it goes to.
    pub fn to(self) -> usize {
        (self.0 >> 59 & 1) as usize
    }

    /// The incarnation that it is about.
    pub fn incarnation(self) -> u32 {
        (self.0 >> 52 & 0x7f) as u32
    }

    /// The word.
    pub fn word(self) -> Word {
        let (a, b) = ((self.0 >> 24 & BITS_24) as u32, (self.0 & BITS_24) as u32);
        let card = || Half { incarnation: self.incarnation(), psn: a }.card();
        match self.0 >> 48 & 15 {
            0 => Word::Fence,
            1 => Word::Leave,
            2 => Word::Left,
            3 => Word::Make(card(), 0),
            4 => Word::Made(card()),
            5 => Word::Up,
            6 => Word::Proved,
            7 => Word::Vacate,
            8 => Word::Order(a),
            9 => Word::Truth(SideTruth::Exact { executed: a, next_rcv_psn: b }),
            10 => Word::Truth(SideTruth::Fenced),
            11 => Word::Truth(SideTruth::Unflushed),
            12 => Word::Truth(SideTruth::Unknown),
            13 => Word::Truth(SideTruth::Dead),
            _ => Word::Truth(SideTruth::Unused),
        }
    }
}

/// The words in flight, sorted: their order means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wire([Letter; ROOM]);

impl Wire {
    /// Nothing in flight.
    pub const EMPTY: Self = Self([NONE; ROOM]);

    /// The words in flight.
    pub fn letters(&self) -> impl Iterator<Item = Letter> + '_ {
        self.0.iter().copied().filter(|letter| *letter != NONE)
    }

    /// One more, where there is room for it. The same word twice is the same word.
    pub fn send(&mut self, letter: Letter, room: usize) {
        if self.letters().any(|one| one == letter) {
            return;
        }
        if let Some(place) = self.0[..room].iter_mut().find(|place| **place == NONE) {
            *place = letter;
            self.0.sort_unstable();
        }
    }

    /// One arrives, or is lost.
    pub fn take(&mut self, letter: Letter) {
        self.0.iter_mut().filter(|one| **one == letter).for_each(|one| *one = NONE);
        self.0.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_comes_out_as_it_went_in() {
        let card = Half { incarnation: 3, psn: 0x80_0001 }.card();
        let exact = SideTruth::Exact { executed: 2, next_rcv_psn: 0xff_ffff };
        let exact = [exact, SideTruth::Fenced, SideTruth::Unflushed];
        let truths = [SideTruth::Unknown, SideTruth::Dead, SideTruth::Unused].into_iter().chain(exact);
        let mut words = vec![Word::Fence, Word::Leave, Word::Left, Word::Make(card, 0), Word::Made(card)];
        words.extend([Word::Up, Word::Proved, Word::Vacate, Word::Order(7)]);
        words.extend(truths.map(Word::Truth));
        for (to, word) in [0, 1].into_iter().flat_map(|to| words.iter().map(move |word| (to, *word))) {
            let letter = Letter::new(to, 3, word);
            assert_eq!((letter.to(), letter.incarnation(), letter.word()), (to, 3, word));
        }
    }
}
