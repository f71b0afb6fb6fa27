//! Words between the two ends of a path as numbers, for owners whose messages are their own.

use super::Word;
use crate::truth::SideTruth;
use shunt_mlx5::descriptor::HalfCard;

/// A word as three numbers and, with some, a card. The first number says which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordParts {
    /// Which word, and what it says.
    pub numbers: [u32; 3],
    /// The half that it tells of.
    pub card: Option<HalfCard>,
}

impl From<Word> for WordParts {
    fn from(word: Word) -> Self {
        let (numbers, card) = match word {
            Word::Fence => ([0, 0, 0], None),
            Word::Leave => ([1, 0, 0], None),
            Word::Truth(SideTruth::Exact { executed, next_rcv_psn }) => ([2, executed, next_rcv_psn], None),
            Word::Truth(SideTruth::Fenced) => ([3, 0, 0], None),
            Word::Truth(SideTruth::Unflushed) => ([4, 0, 0], None),
            Word::Truth(SideTruth::Unknown) => ([5, 0, 0], None),
            Word::Truth(SideTruth::Dead) => ([6, 0, 0], None),
            Word::Left => ([7, 0, 0], None),
            Word::Make(card, rail) => ([8, rail, 0], Some(card)),
            Word::Made(card) => ([9, 0, 0], Some(card)),
            Word::Up => ([10, 0, 0], None),
            Word::Proved => ([11, 0, 0], None),
            Word::Order(order) => ([12, order, 0], None),
            Word::Vacate => ([13, 0, 0], None),
            Word::Truth(SideTruth::Unused) => ([14, 0, 0], None),
        };
        Self { numbers, card }
    }
}

impl Word {
    /// The word of three numbers. `card` reads the card that follows them, if it has one. `None`: there is no such
    /// word, or its card cannot be read.
    pub fn read([which, a, b]: [u32; 3], card: impl FnOnce() -> Option<HalfCard>) -> Option<Self> {
        Some(match which {
            0 => Self::Fence,
            1 => Self::Leave,
            2 => Self::Truth(SideTruth::Exact { executed: a, next_rcv_psn: b }),
            3 => Self::Truth(SideTruth::Fenced),
            4 => Self::Truth(SideTruth::Unflushed),
            5 => Self::Truth(SideTruth::Unknown),
            6 => Self::Truth(SideTruth::Dead),
            7 => Self::Left,
            8 => Self::Make(card()?, a),
            9 => Self::Made(card()?),
            10 => Self::Up,
            11 => Self::Proved,
            12 => Self::Order(a),
            13 => Self::Vacate,
            14 => Self::Truth(SideTruth::Unused),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_without_a_card_come_back_as_they_were() {
        let exact = SideTruth::Exact { executed: 7, next_rcv_psn: 9 };
        let truths = [
            exact,
            SideTruth::Fenced,
            SideTruth::Unflushed,
            SideTruth::Unknown,
            SideTruth::Dead,
            SideTruth::Unused,
        ];
        let rest =
            [Word::Fence, Word::Leave, Word::Left, Word::Up, Word::Proved, Word::Order(5), Word::Vacate];
        for word in truths.map(Word::Truth).into_iter().chain(rest) {
            assert_eq!(Word::read(WordParts::from(word).numbers, || None), Some(word));
        }
    }

    #[test]
    fn what_is_no_word_is_refused() {
        assert_eq!(Word::read([15, 0, 0], || None), None);
        assert_eq!(Word::read([8, 1, 0], || None), None, "a card is missing");
    }
}
