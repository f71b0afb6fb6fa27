//! A request as the journal keeps it: the words of libibverbs' work request, without its pointers. Pure.
//!
//! What most requests are (one buffer, not inline, no atomic) is copied word by word when it is posted, and read when
//! it is posted again, which is never while all is well. Other buffers lie beside it, in memory that is used again.

use crate::request::{Data, Kind, Piece, Request};
use shunt_mlx5_sys::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_ATOMIC_CMP_AND_SWP,
    IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
    IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
};

/// Opcodes that consume a receive of the other end, as bits.
const TWO_SIDED: u32 = 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM | 1 << IBV_WR_RDMA_WRITE_WITH_IMM;
/// The same of those that need nothing said beside them.
const PLAIN: u32 = TWO_SIDED | 1 << IBV_WR_RDMA_WRITE | 1 << IBV_WR_RDMA_READ;
/// They are the first ones.
const LAST_PLAIN: u32 = IBV_WR_RDMA_READ;
const _: () = assert!(PLAIN == (1 << (LAST_PLAIN + 1)) - 1);
/// Those that change a word and answer.
const ATOMIC: u32 = 1 << IBV_WR_ATOMIC_CMP_AND_SWP | 1 << IBV_WR_ATOMIC_FETCH_AND_ADD;

/// What libibverbs' work request says of it, in a row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Words {
    /// Buffers.
    pub count: i32,
    /// What it does, by libibverbs.
    pub opcode: u32,
    /// How, by libibverbs.
    pub flags: u32,
    /// Immediate data as it lies in memory.
    pub immediate: u32,
    /// The other end's address; then its key, or an atomic's two operands and the key.
    pub target: [u64; 4],
}

/// A request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The program's number for it.
    pub wr_id: u64,
    /// What it says.
    pub words: Words,
    /// The first buffer.
    pub first: Piece,
}

/// What a record has no room for.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Buffers, if they are not one.
    pub pieces: Vec<Piece>,
    /// Inline data.
    pub bytes: Vec<u8>,
    /// Of an atomic, what [`Slot`] has no room for.
    pub target: [u64; 4],
}

/// What differs from one request to the next, as a rule: a record without its [`Shape`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// The program's number for it.
    pub wr_id: u64,
    /// Immediate data; the other end's address, in two parts as they lie in memory; its key.
    pub tail: [u32; 4],
    /// The first buffer.
    pub first: Piece,
}

/// What is the same of many requests in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Buffers.
    pub count: i32,
    /// What it does, by libibverbs.
    pub opcode: u32,
    /// How, by libibverbs.
    pub flags: u32,
}

impl Shape {
    /// All that such a request says has room in a slot.
    #[inline]
    pub const fn is_plain(self) -> bool {
        is_plain(self.count, self.opcode, self.flags)
    }

    /// Opcode and flags as they lie in memory.
    pub const fn word(self) -> u64 {
        let ([a, b, c, d], [e, f, g, h]) = (self.opcode.to_ne_bytes(), self.flags.to_ne_bytes());
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    }

    /// Such a request changes a word and answers.
    pub const fn is_atomic(self) -> bool {
        is_of(self.opcode, ATOMIC)
    }

    /// Such a request consumes a receive of the other end.
    pub const fn is_two_sided(self) -> bool {
        is_of(self.opcode, TWO_SIDED)
    }

    /// The program wants a completion of such a request.
    pub const fn is_signaled(self) -> bool {
        self.flags & IBV_SEND_SIGNALED != 0
    }
}

const fn is_of(opcode: u32, set: u32) -> bool {
    opcode <= IBV_WR_ATOMIC_FETCH_AND_ADD && set >> opcode & 1 != 0
}

/// A record has room for a request with so many buffers, that opcode and those flags.
#[inline]
pub const fn is_plain(count: i32, opcode: u32, flags: u32) -> bool {
    count == 1 && flags & IBV_SEND_INLINE == 0 && opcode <= LAST_PLAIN
}

/// The first half of a word in memory.
const fn first_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

impl Record {
    /// A request that does this, with nothing to carry.
    pub fn new(wr_id: u64, kind: Kind, (remote, rkey): (u64, u32)) -> Self {
        let [a, b, c, d] = rkey.to_ne_bytes();
        let key = u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
        let (opcode, immediate, target) = match kind {
            Kind::Send(None) => (IBV_WR_SEND, 0, [0; 4]),
            Kind::Send(Some(immediate)) => (IBV_WR_SEND_WITH_IMM, immediate, [0; 4]),
            Kind::Write(None) => (IBV_WR_RDMA_WRITE, 0, [remote, key, 0, 0]),
            Kind::Write(Some(immediate)) => (IBV_WR_RDMA_WRITE_WITH_IMM, immediate, [remote, key, 0, 0]),
            Kind::Read => (IBV_WR_RDMA_READ, 0, [remote, key, 0, 0]),
            Kind::FetchAdd(add) => (IBV_WR_ATOMIC_FETCH_AND_ADD, 0, [remote, add, 0, key]),
            Kind::CompareSwap(compare, swap) => (IBV_WR_ATOMIC_CMP_AND_SWP, 0, [remote, compare, swap, key]),
        };
        let words = Words { count: 0, opcode, flags: 0, immediate, target };
        Self { wr_id, words, first: Piece::default() }
    }

    /// What it does; none if that is not carried elsewhere.
    pub const fn kind(&self) -> Option<Kind> {
        let [_, compare, swap, _] = self.words.target;
        Some(match self.words.opcode {
            IBV_WR_SEND => Kind::Send(None),
            IBV_WR_SEND_WITH_IMM => Kind::Send(Some(self.words.immediate)),
            IBV_WR_RDMA_WRITE => Kind::Write(None),
            IBV_WR_RDMA_WRITE_WITH_IMM => Kind::Write(Some(self.words.immediate)),
            IBV_WR_RDMA_READ => Kind::Read,
            IBV_WR_ATOMIC_FETCH_AND_ADD => Kind::FetchAdd(compare),
            IBV_WR_ATOMIC_CMP_AND_SWP => Kind::CompareSwap(compare, swap),
            _ => return None,
        })
    }

    /// All of it is in its own words.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        is_plain(self.words.count, self.words.opcode, self.words.flags)
    }

    /// It is carried elsewhere.
    pub const fn is_known(&self) -> bool {
        is_of(self.words.opcode, PLAIN | ATOMIC)
    }

    /// It changes a word and answers.
    pub const fn is_atomic(&self) -> bool {
        is_of(self.words.opcode, ATOMIC)
    }

    /// It is a READ.
    pub const fn is_read(&self) -> bool {
        self.words.opcode == IBV_WR_RDMA_READ
    }

    /// It consumes a receive of the other end.
    pub const fn is_two_sided(&self) -> bool {
        is_of(self.words.opcode, TWO_SIDED)
    }

    /// What is the same of many.
    pub const fn shape(&self) -> Shape {
        Shape { count: self.words.count, opcode: self.words.opcode, flags: self.words.flags }
    }

    /// The rest, but for what an atomic needs.
    pub const fn slot(&self) -> Slot {
        let [remote, key, ..] = self.words.target;
        let ([a, b, c, d, e, f, g, h], [i, j, k, l, ..]) = (remote.to_ne_bytes(), key.to_ne_bytes());
        let tail = [
            self.words.immediate,
            u32::from_ne_bytes([a, b, c, d]),
            u32::from_ne_bytes([e, f, g, h]),
            u32::from_ne_bytes([i, j, k, l]),
        ];
        Slot { wr_id: self.wr_id, tail, first: self.first }
    }

    /// The whole of both; `target` is that of an atomic.
    pub fn whole(shape: Shape, slot: &Slot, target: Option<[u64; 4]>) -> Self {
        let [immediate, low, high, key] = slot.tail;
        let of = |low: u32, high: u32| {
            let ([a, b, c, d], [e, f, g, h]) = (low.to_ne_bytes(), high.to_ne_bytes());
            u64::from_ne_bytes([a, b, c, d, e, f, g, h])
        };
        let target = target.unwrap_or([of(low, high), of(key, 0), 0, 0]);
        let Shape { count, opcode, flags } = shape;
        Self {
            wr_id: slot.wr_id,
            words: Words { count, opcode, flags, immediate, target },
            first: slot.first,
        }
    }

    /// The program wants a completion.
    pub const fn is_signaled(&self) -> bool {
        self.words.flags & IBV_SEND_SIGNALED != 0
    }

    /// Its data is a copy.
    pub const fn is_inline(&self) -> bool {
        self.words.flags & IBV_SEND_INLINE != 0
    }

    /// What it takes to post it again.
    pub fn request(&self, beside: Option<&Beside>) -> Option<Request> {
        let kind = self.kind()?;
        let data = match beside {
            Some(beside) if self.is_inline() => Data::Inline(beside.bytes.clone()),
            Some(beside) if self.words.count != 1 => Data::Pieces(beside.pieces.clone()),
            _ => Data::Pieces(vec![self.first]),
        };
        Some(Request {
            wr_id: self.wr_id,
            kind,
            signaled: self.is_signaled(),
            fence: self.words.flags & IBV_SEND_FENCE != 0,
            solicited: self.words.flags & IBV_SEND_SOLICITED != 0,
            remote: self.words.target[0],
            rkey: first_half(self.words.target[if self.is_atomic() { 3 } else { 1 }]),
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let kinds = [
            Kind::Send(None),
            Kind::Send(Some(7)),
            Kind::Write(None),
            Kind::Write(Some(8)),
            Kind::Read,
            Kind::FetchAdd(9),
            Kind::CompareSwap(10, 11),
        ];
        let beside = Beside { pieces: vec![Piece::default(); 2], bytes: vec![1, 2], target: [0; 4] };
        for kind in kinds {
            let mut record = Record::new(3, kind, (0x1000, 0x55));
            record.words.flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED;
            let target = kind.is_atomic().then_some(record.words.target);
            let record = Record::whole(record.shape(), &record.slot(), target);
            let read = record.request(Some(&beside)).unwrap();
            assert_eq!((read.kind, read.wr_id, read.signaled, read.fence), (kind, 3, true, true));
            assert!(matches!(kind, Kind::Send(_)) || (read.remote, read.rkey) == (0x1000, 0x55), "{kind:?}");
            assert_eq!(read.data, Data::Pieces(beside.pieces.clone()));
            assert_eq!((record.is_two_sided(), record.is_atomic()), (kind.is_two_sided(), kind.is_atomic()));
            assert!(!record.is_plain(), "no buffer");
            let mut record = record;
            record.words.count = 1;
            assert_eq!(record.is_plain(), !kind.is_atomic());
            record.words.flags = IBV_SEND_INLINE;
            assert!(!record.is_plain());
            assert_eq!(record.request(Some(&beside)).unwrap().data, Data::Inline(vec![1, 2]));
        }
        for opcode in [9, 77] {
            let words = Words { opcode, count: 1, ..Words::default() };
            let other = Record { words, ..Record::default() };
            assert!(!other.is_known() && !other.is_plain() && other.kind().is_none());
        }
    }
}
