//! What ranks of a job must have alike: sizes once, terms of a call in each. Each rank holds what the others say
//! against its own; all of it is pure.

use super::NormalShape;
use super::words::OfRank;
use crate::moe::{RANKS_MAX, TOPK_MAX};

/// Of these words, and of all that lies behind them: another one has them elsewhere.
const VERSION: u32 = 1;

/// What two ranks do not have alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which of it.
    pub what: &'static str,
    /// What the other rank has.
    pub theirs: u64,
    /// What this one has.
    pub ours: u64,
}

impl Difference {
    const fn of(what: &'static str, theirs: u32, ours: u32) -> Self {
        Self { what, theirs: theirs as u64, ours: ours as u64 }
    }
}

/// What a rank says once, before anything else that it sends: sizes, and by which version they are meant.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Version of the exchange.
    pub version: u32,
    /// All sizes.
    pub shape: NormalShape,
    /// Zero.
    pub reserved: [u32; 5],
}

const _: () = assert!(size_of::<Terms>() as u64 == Terms::WORDS * 8 && align_of::<Terms>() == 4);
const _: () = assert!(OfRank::Told as u64 == Terms::WORDS);
const _: () =
    assert!(core::mem::offset_of!(Terms, shape) == 4 && core::mem::offset_of!(Terms, reserved) == 44);

impl Terms {
    /// Words of them.
    pub const WORDS: u64 = 8;

    /// A rank's own.
    #[inline(always)]
    pub const fn of(shape: NormalShape) -> Self {
        Self { version: VERSION, shape, reserved: [0; 5] }
    }

    /// As they are sent.
    #[inline(always)]
    pub const fn words(&self) -> [u64; 8] {
        let s = &self.shape;
        let [a, b, c, d, e] = self.reserved;
        [
            pair(self.version, s.nodes),
            pair(s.locals, s.local_experts),
            pair(s.tokens, s.hidden),
            pair(s.topk, s.channels),
            pair(s.chunk, s.slots),
            pair(s.near_slots, a),
            pair(b, c),
            pair(d, e),
        ]
    }

    /// As they came.
    pub const fn from_words(words: [u64; 8]) -> Self {
        let [v, l, t, k, c, n, r, q] = words;
        let shape = NormalShape {
            nodes: high(v),
            locals: l as u32,
            local_experts: high(l),
            tokens: t as u32,
            hidden: high(t),
            topk: k as u32,
            channels: high(k),
            chunk: c as u32,
            slots: high(c),
            near_slots: n as u32,
        };
        Self { version: v as u32, shape, reserved: [high(n), r as u32, high(r), q as u32, high(q)] }
    }

    /// What `theirs` have otherwise than these; the first of it.
    pub fn differ(&self, theirs: &Self) -> Option<Difference> {
        let (s, t) = (&self.shape, &theirs.shape);
        let all = [
            Difference::of("version of the exchange", theirs.version, self.version),
            Difference::of("nodes", t.nodes, s.nodes),
            Difference::of("ranks of a node", t.locals, s.locals),
            Difference::of("experts of a rank", t.local_experts, s.local_experts),
            Difference::of("tokens of a rank at most", t.tokens, s.tokens),
            Difference::of("hidden size", t.hidden, s.hidden),
            Difference::of("experts of a token at most", t.topk, s.topk),
            Difference::of("channels, one for two SMs", t.channels, s.channels),
            Difference::of("slots that one put brings", t.chunk, s.chunk),
            Difference::of("slots of a ring between nodes", t.slots, s.slots),
            Difference::of("slots of a ring inside a node", t.near_slots, s.near_slots),
        ];
        let reserved = self.reserved.into_iter().zip(theirs.reserved);
        let unknown = reserved.map(|(ours, theirs)| Difference::of("what no version says yet", theirs, ours));
        all.into_iter().chain(unknown).find(|one| one.theirs != one.ours)
    }
}

#[inline(always)]
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// What a rank says of each call: in the record of a dispatch, and in the header of each message, so that one that
/// nobody was notified of is held as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTerms {
    /// Experts of a token; 0: none are sent, nor weights. Of a combine: 1 with weights, 0 without.
    pub topk: u32,
    /// Channels are FP8, with scales.
    pub fp8: bool,
    /// A combine; else a dispatch.
    pub combine: bool,
}

const TOPK_MASK: u64 = 0xf;
const FP8: u64 = 0x10;
const COMBINE: u64 = 0x20;
const _: () = assert!(TOPK_MAX as u64 <= TOPK_MASK);
const _: () = assert!((TOPK_MASK | FP8 | COMBINE) >> CALL_BITS == 0);

impl CallTerms {
    /// Those of a dispatch.
    pub const fn dispatch(topk: u32, fp8: bool) -> Self {
        Self { topk, fp8, combine: false }
    }

    /// Those of a combine, with or without weights of rows.
    #[inline(always)]
    pub const fn combine(weighs: bool) -> Self {
        Self { topk: weighs as u32, fp8: false, combine: true }
    }

    /// As they are sent: eight bits.
    #[inline(always)]
    pub const fn bits(self) -> u64 {
        let fp8 = if self.fp8 { FP8 } else { 0 };
        self.topk as u64 & TOPK_MASK | fp8 | if self.combine { COMBINE } else { 0 }
    }

    /// As they came.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self { topk: (bits & TOPK_MASK) as u32, fp8: bits & FP8 != 0, combine: bits & COMBINE != 0 }
    }

    /// What `theirs` have otherwise than these; the first of it.
    pub fn differ(self, theirs: Self) -> Option<Difference> {
        let kind = |terms: Self| if terms.combine { 2 } else { 1 };
        let width = |terms: Self| if terms.fp8 { 8 } else { 16 };
        let topk = if self.combine {
            "weights of rows (1: there are, 0: none)"
        } else {
            "experts and weights of a token (0: none)"
        };
        let all = [
            // No message says this today: another order of calls ends by the deadline.
            Difference::of("call (1: a dispatch, 2: a combine)", kind(theirs), kind(self)),
            Difference::of(topk, theirs.topk, self.topk),
            Difference::of("bits of a channel (8: FP8, 16: BF16)", width(theirs), width(self)),
        ];
        all.into_iter().find(|one| one.theirs != one.ours)
    }
}

/// Why a rank gave a call up that the others are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its terms of the call and those of a rank differ.
    Differs {
        /// The rank.
        rank: u32,
        /// The terms of that rank.
        theirs: CallTerms,
        /// Those of the rank that gave up.
        own: CallTerms,
    },
    /// More rows came than so many, for which it has room.
    Rows(u32),
    /// What no version says yet.
    Unknown(u32),
}

const CALL_BITS: u32 = 8;
const RANK_BITS: u32 = 12;
const KIND_SHIFT: u32 = 2 * CALL_BITS + RANK_BITS;
const ROWS_MAX: u32 = (1 << KIND_SHIFT) - 1;
const _: () = assert!(RANKS_MAX <= 1 << RANK_BITS && KIND_SHIFT == 28);

impl Why {
    /// Low half of a word; never zero. More than 2^28 rows are told as fewer.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Differs { rank, theirs, own } => {
                let terms = (theirs.bits() | own.bits() << CALL_BITS) as u32;
                1 << KIND_SHIFT | rank << (2 * CALL_BITS) | terms
            }
            Self::Rows(rows) => 2 << KIND_SHIFT | if rows < ROWS_MAX { rows } else { ROWS_MAX },
            Self::Unknown(bits) => bits,
        }
    }

    /// From there.
    pub const fn from_bits(bits: u32) -> Self {
        match bits >> KIND_SHIFT {
            1 => Self::Differs {
                rank: bits >> (2 * CALL_BITS) & ((1 << RANK_BITS) - 1),
                theirs: CallTerms::from_bits(bits as u64),
                own: CallTerms::from_bits((bits >> CALL_BITS) as u64),
            },
            2 => Self::Rows(bits & ROWS_MAX),
            _ => Self::Unknown(bits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const SHAPE: NormalShape = NormalShape {
        nodes: 2,
        locals: 3,
        local_experts: 4,
        tokens: 5,
        hidden: 512,
        topk: 6,
        channels: 7,
        chunk: 8,
        slots: 16,
        near_slots: 9,
    };

    /// Each word and its half says what it always said: who has another version reads these words as well.
    #[test]
    fn words_of_terms_are_where_they_were() {
        let words = Terms::of(SHAPE).words();
        let right = [0x2_0000_0001, 0x4_0000_0003, 0x200_0000_0005, 0x7_0000_0006, 0x10_0000_0008, 9, 0, 0];
        assert_eq!(words, right);
        assert_eq!(Terms::from_words(words), Terms::of(SHAPE));
        let all = Terms { reserved: [1, 2, 3, 4, 5], ..Terms::of(SHAPE) };
        assert_eq!(Terms::from_words(all.words()), all);
    }

    /// Whichever half of a word changes, it is found, and both values are told; each under a name of its own.
    #[test]
    fn every_field_of_terms_is_held() {
        let (ours, mut names) = (Terms::of(SHAPE), Vec::new());
        assert_eq!(ours.differ(&ours), None);
        for half in 0..16 {
            let mut words = ours.words();
            let (word, shift) = (half / 2, 32 * (half % 2));
            let before = words[word] >> shift & 0xffff_ffff;
            words[word] ^= 1 << (shift + 31);
            let found = ours.differ(&Terms::from_words(words)).unwrap_or_else(|| panic!("half {half}"));
            assert_eq!((found.theirs, found.ours), (before ^ 1 << 31, before), "{found:?}");
            names.push(found.what);
        }
        names.sort_unstable();
        names.dedup();
        // Eleven fields, and what is reserved.
        assert_eq!(names.len(), 12, "{names:?}");
    }

    fn calls() -> impl Iterator<Item = CallTerms> {
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        let of = move |topk| flags.map(|(fp8, combine)| CallTerms { topk, fp8, combine });
        (0..=TOPK_MAX).flat_map(of)
    }

    #[test]
    fn terms_of_calls_differ_where_they_do() {
        for ours in calls() {
            assert_eq!(CallTerms::from_bits(ours.bits()), ours);
            for theirs in calls() {
                let found = ours.differ(theirs);
                assert_eq!(found.is_none(), ours == theirs, "{ours:?}, {theirs:?}");
                assert_eq!(ours.bits() == theirs.bits(), ours == theirs);
                assert!(found.is_none_or(|one| one.theirs != one.ours));
            }
        }
        let of = CallTerms::dispatch;
        let found = of(8, true).differ(of(6, true)).expect("another width");
        assert_eq!((found.theirs, found.ours), (6, 8));
        let found = of(8, true).differ(of(8, false)).expect("another format");
        assert_eq!((found.theirs, found.ours), (16, 8));
        let found = CallTerms::combine(true).differ(CallTerms::combine(false)).expect("no weights");
        assert_eq!((found.theirs, found.ours), (0, 1));
    }

    #[test]
    fn why_a_rank_gave_up_is_half_a_word_and_never_none() {
        for theirs in calls() {
            for own in calls() {
                for rank in [0, 1, RANKS_MAX - 1] {
                    let why = Why::Differs { rank, theirs, own };
                    assert!(why.bits() != 0 && Why::from_bits(why.bits()) == why, "{why:?}");
                }
            }
        }
        for rows in [0, 1, ROWS_MAX - 1, ROWS_MAX, u32::MAX] {
            assert_eq!(Why::from_bits(Why::Rows(rows).bits()), Why::Rows(rows.min(ROWS_MAX)));
        }
        assert_eq!(Why::from_bits(0xf000_0001), Why::Unknown(0xf000_0001));
    }
}
