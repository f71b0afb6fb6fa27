//! Where everything of a low-latency MoE exchange lies in the symmetric heap: the same offsets on every rank.
//!
//! Messages and areas are those of DeepEP's low-latency kernels. Different are the words: 8 bytes each, because that is
//! what signals are here, and counts and flags have arrays of their own, so that each word has one channel that writes
//! it, whichever call comes next. Two sets of all that messages arrive in: call `n` uses the set `n % 2`.
//!
//! A call is a dispatch or a combine; they are counted together, from 1.

/// Bytes of a message's header: four 32-bit words, of which the first is the token's index at its source.
pub const HEADER_BYTES: u64 = 16;
/// Channels of a token that have one scale.
pub const SCALE_GROUP: u64 = 128;
/// Bytes of a group's ten-bit codes in a combine message as LogFMT.
pub const LOG_GROUP_BYTES: u64 = SCALE_GROUP * 10 / 8;
/// The hidden size is a multiple of it: scales of a message are then whole 16-byte pieces.
pub const HIDDEN_STEP: u32 = 512;
/// Bytes of a counting word here.
pub const WORD_BYTES: u64 = 8;
/// Bytes of a counting word of DeepEP's.
pub const WORD_BYTES_DEEPEP: u64 = 4;
/// Areas begin at multiples of it.
pub const ALIGN: u64 = 128;
/// Experts of a token at most.
pub const TOPK_MAX: u32 = 11;
/// Ranks at most.
pub const RANKS_MAX: u32 = 1024;
/// Rows of an expert at most: their number is half a word.
pub const ROWS_MAX: u64 = u32::MAX as u64;
/// Sets of buffers: calls whose messages may be under way at the same time.
pub const SETS: u64 = 2;
/// The last number of a call, and of a meeting: half a word of those that hold either.
pub const CALLS_MAX: u64 = u32::MAX as u64;

/// The four numbers that all ranks agree on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Ranks; as many as PEs.
    pub ranks: u32,
    /// Experts of one rank.
    pub local_experts: u32,
    /// Tokens of one rank in one call, at most.
    pub tokens: u32,
    /// Channels of a token.
    pub hidden: u32,
}

/// What of a shape cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadShape {
    /// Ranks: 1 to [`RANKS_MAX`].
    Ranks(u32),
    /// Experts: a multiple of the ranks, at least one each. Both are given.
    Experts(u32, u32),
    /// Tokens: at least one.
    Tokens(u32),
    /// Hidden size: a multiple of [`HIDDEN_STEP`].
    Hidden(u32),
    /// Rows of an expert, experts, or bytes of the whole: more than a word of the exchange holds.
    TooLarge {
        /// What of it.
        what: &'static str,
        /// How many.
        met: u128,
        /// How many there may be.
        most: u64,
    },
}

impl core::fmt::Display for BadShape {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Ranks(met) => write!(f, "ranks: expected 1 to {RANKS_MAX}, got {met}"),
            Self::Experts(met, ranks) => {
                write!(f, "experts: expected a multiple of the {ranks} ranks, got {met}")
            }
            Self::Tokens(met) => write!(f, "tokens per rank: expected 1 or more, got {met}"),
            Self::Hidden(met) => {
                write!(f, "hidden size: expected a multiple of {HIDDEN_STEP}, got {met}")
            }
            Self::TooLarge { what, met, most } => write!(f, "{what}: expected at most {most}, got {met}"),
        }
    }
}

const fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGN) * ALIGN
}

const fn larger(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

impl Shape {
    /// A shape that can be.
    ///
    /// # Errors
    /// What cannot, and what would be right.
    pub const fn new(ranks: u32, experts: u32, tokens: u32, hidden: u32) -> Result<Self, BadShape> {
        if ranks == 0 || ranks > RANKS_MAX {
            return Err(BadShape::Ranks(ranks));
        }
        if experts == 0 || !experts.is_multiple_of(ranks) {
            return Err(BadShape::Experts(experts, ranks));
        }
        if tokens == 0 {
            return Err(BadShape::Tokens(tokens));
        }
        if hidden == 0 || !hidden.is_multiple_of(HIDDEN_STEP) {
            return Err(BadShape::Hidden(hidden));
        }
        let shape = Self { ranks, local_experts: experts / ranks, tokens, hidden };
        match shape.too_large() {
            Some(bad) => Err(bad),
            None => Ok(shape),
        }
    }

    /// What of it is more than words hold: rows and their number travel in halves of a word, heaps have offsets of 48
    /// bits, and no sum of those below may wrap.
    const fn too_large(&self) -> Option<BadShape> {
        let rows = self.ranks as u128 * self.tokens as u128;
        if rows > ROWS_MAX as u128 {
            return Some(BadShape::TooLarge { what: "rows of an expert", met: rows, most: ROWS_MAX });
        }
        let experts = self.ranks as u128 * self.local_experts as u128;
        // More than any buffer of this shape takes: both kinds of messages, of all experts, and the words.
        let slot = 32 * self.hidden as u128 + 1024;
        let bytes = slot * (experts + 8) * (self.tokens as u128 + 8);
        if bytes > u64::MAX as u128 {
            return Some(BadShape::TooLarge { what: "bytes", met: bytes, most: u64::MAX });
        }
        None
    }

    /// Experts of all ranks.
    #[inline(always)]
    pub const fn experts(&self) -> u64 {
        self.ranks as u64 * self.local_experts as u64
    }

    /// Scales of a token.
    #[inline(always)]
    pub const fn scales(&self) -> u64 {
        self.hidden as u64 / SCALE_GROUP
    }

    /// Bytes of a token as BF16.
    #[inline(always)]
    pub const fn bf16_bytes(&self) -> u64 {
        2 * self.hidden as u64
    }

    /// Bytes of a dispatch message: header, FP8 channels, their scales; or header and BF16 channels.
    #[inline(always)]
    pub const fn dispatch_message(&self, fp8: bool) -> u64 {
        HEADER_BYTES + if fp8 { self.hidden as u64 + 4 * self.scales() } else { self.bf16_bytes() }
    }

    /// Distance of dispatch messages: room for either.
    #[inline(always)]
    pub const fn dispatch_stride(&self) -> u64 {
        larger(self.dispatch_message(true), self.dispatch_message(false))
    }

    /// Distance of combine messages, which are `bf16_bytes` long, or as LogFMT [`Shape::log_rest`] at most.
    #[inline(always)]
    pub const fn combine_stride(&self) -> u64 {
        4 * self.scales() + self.bf16_bytes()
    }

    /// LogFMT, from where a message begins: codes of a group, behind a 32-bit word for each.
    #[inline(always)]
    pub const fn log_group(&self, group: u64) -> At {
        At(4 * self.scales()).plus(group, LOG_GROUP_BYTES)
    }

    /// LogFMT: what is left of the `number`-th group that travels as BF16. Behind all of them the message ends.
    #[inline(always)]
    pub const fn log_rest(&self, number: u64) -> At {
        self.log_group(self.scales()).plus(number, 2 * SCALE_GROUP - LOG_GROUP_BYTES)
    }

    /// Rows that one expert of a rank may get.
    #[inline(always)]
    pub const fn rows(&self) -> u64 {
        self.ranks as u64 * self.tokens as u64
    }

    /// Bytes of one array of counting words.
    #[inline(always)]
    pub const fn words_bytes(&self, word_bytes: u64) -> u64 {
        aligned(word_bytes * self.experts())
    }

    /// Bytes of one send buffer.
    #[inline(always)]
    pub const fn send_bytes(&self) -> u64 {
        let combine = self.experts() * self.tokens as u64 * self.combine_stride();
        larger(self.tokens as u64 * self.dispatch_stride(), combine)
    }

    /// Bytes of one receive buffer.
    #[inline(always)]
    pub const fn receive_bytes(&self) -> u64 {
        self.experts() * self.tokens as u64 * self.slot_stride()
    }

    /// What DeepEP would ask for: two arrays of words, two send and two receive buffers.
    pub const fn deepep_bytes(&self) -> u64 {
        SETS * (self.words_bytes(WORD_BYTES_DEEPEP) + self.send_bytes() + self.receive_bytes())
    }

    /// Words of this rank alone, and those that peers write once a call and never clear.
    const fn own_words(&self) -> u64 {
        3 * self.ranks as u64 + self.tokens as u64 + self.local_experts as u64 + self.ranks as u64 + 1
    }

    /// Bytes of all that an exchange needs.
    #[inline(always)]
    pub const fn bytes(&self) -> u64 {
        self.receive(1).0 + self.receive_bytes()
    }
}

/// An offset from where the exchange's part of the heap begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub u64);

impl At {
    /// Element `number`, `bytes` apart.
    #[inline(always)]
    pub const fn plus(self, number: u64, bytes: u64) -> Self {
        Self(self.0 + number * bytes)
    }
}

/// Words. All begin at zero.
impl Shape {
    /// Kind 1: how many calls `rank` has taken from here: it may be sent call `n` once it took call `n - 2`.
    #[inline(always)]
    pub const fn credit(&self, rank: u32) -> At {
        At(0).plus(rank as u64, WORD_BYTES)
    }

    /// Kind 1: where `rank` stands in the meetings that clean the buffer.
    #[inline(always)]
    pub const fn meeting(&self, rank: u32) -> At {
        At(0).plus(self.ranks as u64 + rank as u64, WORD_BYTES)
    }

    /// Own: not zero where `rank` is left out.
    #[inline(always)]
    pub const fn mask(&self, rank: u32) -> At {
        At(0).plus(2 * self.ranks as u64 + rank as u64, WORD_BYTES)
    }

    /// Own: which block makes the message of `token`: twice the call, and one more when it is made.
    #[inline(always)]
    pub const fn claim(&self, token: u32) -> At {
        At(0).plus(3 * self.ranks as u64 + token as u64, WORD_BYTES)
    }

    /// Own: sources that an expert has heard (high half), rows taken (low half).
    #[inline(always)]
    pub const fn taken(&self, local_expert: u32) -> At {
        At(0).plus(3 * self.ranks as u64 + self.tokens as u64 + local_expert as u64, WORD_BYTES)
    }

    /// Own: experts that have taken what `rank` sent them.
    #[inline(always)]
    pub const fn heard(&self, rank: u32) -> At {
        let before = 3 * self.ranks as u64 + self.tokens as u64 + self.local_experts as u64;
        At(0).plus(before + rank as u64, WORD_BYTES)
    }

    /// Own: blocks that have ended.
    #[inline(always)]
    pub const fn ended(&self) -> At {
        self.heard(self.ranks)
    }

    /// Kind 2, by `(rank, local expert)`: minus tokens sent, minus one.
    #[inline(always)]
    pub const fn count(&self, set: u64, local_expert: u32, rank: u32) -> At {
        let begin = aligned(self.own_words() * WORD_BYTES) + set * self.words_bytes(WORD_BYTES);
        At(begin).plus(local_expert as u64 * self.ranks as u64 + rank as u64, WORD_BYTES)
    }

    /// Kind 2, by expert of all ranks: one when what it made is there.
    #[inline(always)]
    pub const fn flag(&self, set: u64, expert: u64) -> At {
        let begin = aligned(self.own_words() * WORD_BYTES) + (SETS + set) * self.words_bytes(WORD_BYTES);
        At(begin).plus(expert, WORD_BYTES)
    }
}

/// Buffers.
impl Shape {
    /// Where messages are sent from.
    #[inline(always)]
    pub const fn send(&self, set: u64) -> At {
        let words = aligned(self.own_words() * WORD_BYTES) + 2 * SETS * self.words_bytes(WORD_BYTES);
        At(words + set * aligned(self.send_bytes()))
    }

    /// Where messages arrive.
    #[inline(always)]
    pub const fn receive(&self, set: u64) -> At {
        let sends = self.send(0).0 + SETS * aligned(self.send_bytes());
        At(sends + set * aligned(self.receive_bytes()))
    }

    /// The dispatch message of `token`, to whatever experts.
    #[inline(always)]
    pub const fn dispatch_source(&self, set: u64, token: u32) -> At {
        self.send(set).plus(token as u64, self.dispatch_stride())
    }

    /// Distance of slots in a receive buffer: room for a message of either kind.
    #[inline(always)]
    const fn slot_stride(&self) -> u64 {
        larger(self.dispatch_stride(), self.combine_stride())
    }

    /// Slot of a receive buffer. Each rank writes slots of its own, those of its experts' numbers, whichever call it
    /// is: what a rank may write again is told by what was taken from that rank, and says nothing of another's.
    #[inline(always)]
    const fn slot(&self, set: u64, rank: u32, local_expert: u32, number: u64) -> At {
        let area = rank as u64 * self.local_experts as u64 + local_expert as u64;
        self.receive(set).plus(area * self.tokens as u64 + number, self.slot_stride())
    }

    /// Message `slot` from `rank` to a local expert.
    #[inline(always)]
    pub const fn dispatch_slot(&self, set: u64, local_expert: u32, rank: u32, slot: u64) -> At {
        self.slot(set, rank, local_expert, slot)
    }

    /// What a local expert made of its row.
    #[inline(always)]
    pub const fn combine_source(&self, set: u64, local_expert: u32, row: u64) -> At {
        self.send(set).plus(local_expert as u64 * self.rows() + row, self.combine_stride())
    }

    /// What an expert made of `token`.
    #[inline(always)]
    pub const fn combine_slot(&self, set: u64, expert: u64, token: u32) -> At {
        self.receive(set).plus(expert * self.tokens as u64 + token as u64, self.slot_stride())
    }
}

const PUBLISHED: Shape = Shape { ranks: 8, local_experts: 32, tokens: 128, hidden: 7168 };
const _: () = assert!(PUBLISHED.dispatch_message(true) == 7408);
const _: () = assert!(PUBLISHED.dispatch_message(false) == 14352);
const _: () = assert!(PUBLISHED.dispatch_stride() == 14352);
const _: () = assert!(PUBLISHED.bf16_bytes() == 14336 && PUBLISHED.combine_stride() == 14560);
const _: () =
    assert!(PUBLISHED.log_rest(0).0 == 9184 && PUBLISHED.log_rest(56).0 == PUBLISHED.combine_stride());
const _: () = assert!(size_of::<Shape>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_are_published() {
        let gigabytes = |experts: u32| {
            let shape = Shape::new(8, experts, 128, 7168).unwrap();
            (shape.deepep_bytes() as f64 / 1e6).round() / 1e3
        };
        assert_eq!((gigabytes(256), gigabytes(288)), (1.908, 2.147));
    }

    #[test]
    fn here_is_a_little_more_than_there_for_words_alone() {
        for (ranks, experts) in [(2, 8), (8, 256), (16, 288), (64, 256)] {
            let shape = Shape::new(ranks, experts, 128, 7168).unwrap();
            let more = shape.bytes() - shape.deepep_bytes();
            // Counts and flags apart, each word twice as wide, and the words of this rank alone.
            let words = 4 * shape.words_bytes(8) - 2 * shape.words_bytes(4) + 8 * shape.own_words();
            assert!((words..words + 8 * ALIGN).contains(&more), "{shape:?}: {more}, words take {words}");
        }
    }

    #[test]
    fn no_two_things_share_a_byte() {
        for (ranks, experts, tokens) in [(1, 1, 1), (2, 4, 3), (4, 4, 7), (3, 9, 2)] {
            let s = Shape::new(ranks, experts, tokens, 512).unwrap();
            let mut spans = std::vec![(s.ended().0, 8)];
            let ranks_of = || 0..ranks;
            spans.extend(
                ranks_of()
                    .flat_map(|r| [s.credit(r), s.meeting(r), s.mask(r), s.heard(r)].map(|at| (at.0, 8))),
            );
            spans.extend((0..tokens).map(|token| (s.claim(token).0, 8)));
            spans.extend((0..s.local_experts).map(|expert| (s.taken(expert).0, 8)));
            for set in 0..SETS {
                let pairs = || (0..s.local_experts).flat_map(|e| ranks_of().map(move |r| (e, r)));
                spans.extend(pairs().map(|(e, r)| (s.count(set, e, r).0, 8)));
                spans.extend((0..s.experts()).map(|e| (s.flag(set, e).0, 8)));
                spans.push((s.send(set).0, s.send_bytes()));
                spans.push((s.receive(set).0, s.receive_bytes()));
            }
            spans.sort_unstable();
            for two in spans.windows(2) {
                assert!(two[0].0 + two[0].1 <= two[1].0, "{s:?}: {two:?}");
            }
            let last = spans[spans.len() - 1];
            assert_eq!(last.0 + last.1, s.bytes());
        }
    }

    #[test]
    fn slots_fill_their_buffers_and_are_whole_pieces() {
        let s = Shape::new(4, 12, 5, 1024).unwrap();
        for set in 0..SETS {
            let end = s.receive(set).0 + s.receive_bytes();
            assert!(s.dispatch_slot(set, 2, 3, 4).0 + s.dispatch_stride() <= end);
            assert!(s.combine_slot(set, 11, 4).0 + s.combine_stride() <= end);
            let end = s.send(set).0 + s.send_bytes();
            assert!(s.dispatch_source(set, 4).0 + s.dispatch_stride() <= end);
            assert!(s.combine_source(set, 2, s.rows() - 1).0 + s.combine_stride() <= end);
        }
        assert_eq!(s.dispatch_slot(0, 1, 2, 3).0 - s.receive(0).0, ((2 * 3 + 1) * 5 + 3) * s.slot_stride());
        for bytes in [s.dispatch_stride(), s.combine_stride(), s.dispatch_message(true), s.receive(1).0] {
            assert!(bytes.is_multiple_of(16), "{bytes}");
        }
    }

    /// Two calls may be under way, and a rank that was thanked for one sends the next but one: it must not hit what
    /// another, whose fail-over takes longer, still has to write.
    #[test]
    fn no_rank_writes_where_another_does_in_either_kind_of_call() {
        for (ranks, experts, tokens, hidden) in [(3, 6, 4, 512), (2, 4, 3, 7168), (4, 4, 2, 1024)] {
            let s = Shape::new(ranks, experts, tokens, hidden).unwrap();
            let locals = || 0..s.local_experts;
            let writes = |rank: u32| -> std::vec::Vec<(u64, u64)> {
                let dispatched = locals().flat_map(|local| {
                    (0..u64::from(tokens)).map(move |slot| s.dispatch_slot(0, local, rank, slot).0)
                });
                let combined = locals().flat_map(|local| {
                    let expert = u64::from(rank * s.local_experts + local);
                    (0..tokens).map(move |token| s.combine_slot(0, expert, token).0)
                });
                let dispatched = dispatched.map(|at| (at, at + s.dispatch_stride()));
                dispatched.chain(combined.map(|at| (at, at + s.combine_stride()))).collect()
            };
            for one in 0..ranks {
                for other in (0..ranks).filter(|other| *other != one) {
                    for (a, b) in
                        writes(one).into_iter().flat_map(|a| writes(other).into_iter().map(move |b| (a, b)))
                    {
                        assert!(a.1 <= b.0 || b.1 <= a.0, "{s:?}: rank {one} {a:?}, rank {other} {b:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_says_what_is_expected() {
        let wrong = |ranks, experts, tokens, hidden| {
            std::string::ToString::to_string(&Shape::new(ranks, experts, tokens, hidden).unwrap_err())
        };
        assert!(wrong(0, 8, 8, 512).contains("1 to 1024"));
        assert!(wrong(3, 8, 8, 512).contains("a multiple of the 3 ranks"));
        assert!(wrong(2, 0, 8, 512).contains("multiple of the 2 ranks, got 0"));
        assert!(wrong(2, 8, 0, 512).contains("1 or more"));
        assert!(wrong(2, 8, 8, 7000).contains("multiple of 512"));
        assert!(
            wrong(1024, 1024, 1 << 22, 512)
                .contains("rows of an expert: expected at most 4294967295, got 4294967296")
        );
        assert!(wrong(2, u32::MAX - 1, u32::MAX / 2, 1 << 30).contains("bytes: expected at most"));
        assert!(Shape::new(1024, 1024, (1 << 22) - 1, 512).is_ok());
        assert!(Shape::new(1024, 32768, 4096, 16384).is_ok());
    }
}
