//! Exact fetching atomics: a request in the word owner's memory, and a reply beside it that the requester reads.
//!
//! Each row (PE, channel) has one [`FetchSlot`] and one number behind the heap. At the owner the row is that of the
//! requester, at the requester that of the owner. The requester writes a [`FetchRequest`] and then, as a kind 1 signal,
//! its number; the owner's agent executes it and writes a [`FetchReply`] with that number; the requester READs it.

/// What an atomic does, as it lies in a request.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmoForm {
    /// Adds, four bytes.
    Add32 = 1,
    /// Adds, eight bytes.
    Add64 = 2,
    /// Stores, four bytes.
    Set32 = 3,
    /// Stores, eight bytes.
    Set64 = 4,
    /// Keeps the bits of the operand, four bytes.
    And32 = 5,
    /// Keeps the bits of the operand, eight bytes.
    And64 = 6,
    /// Sets the bits of the operand, four bytes.
    Or32 = 7,
    /// Sets the bits of the operand, eight bytes.
    Or64 = 8,
    /// Flips the bits of the operand, four bytes.
    Xor32 = 9,
    /// Flips the bits of the operand, eight bytes.
    Xor64 = 10,
    /// Stores where the word is as expected, four bytes.
    CompareSwap32 = 11,
    /// Stores where the word is as expected, eight bytes.
    CompareSwap64 = 12,
}

impl AmoForm {
    /// The form of a raw word; none if it is unknown.
    pub const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::Add32,
            2 => Self::Add64,
            3 => Self::Set32,
            4 => Self::Set64,
            5 => Self::And32,
            6 => Self::And64,
            7 => Self::Or32,
            8 => Self::Or64,
            9 => Self::Xor32,
            10 => Self::Xor64,
            11 => Self::CompareSwap32,
            12 => Self::CompareSwap64,
            _ => return None,
        })
    }
}

/// What the requester asks for. Valid once the row's number is `number`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchRequest {
    /// Counts the requests of a row, from 1.
    pub number: u64,
    /// Heap offset of the word at its owner.
    pub word: u64,
    /// What is added, stored, or combined with the word.
    pub operand: u64,
    /// What the word must be, for a compare-and-swap.
    pub expect: u64,
    /// [`AmoForm`].
    pub form: u32,
    /// Unused, zero.
    pub reserved: u32,
}

/// What became of a request.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchStatus {
    /// Executed; the value is what the word was.
    Done = 1,
    /// Nobody can know whether it was executed: the NIC failed in the middle of it.
    Unknown = 2,
    /// Not executed: no such word or form.
    Refused = 3,
    /// Not executed: for too long the home's NIC answered nothing, and the home could not move.
    Unserved = 4,
}

impl FetchStatus {
    /// The status of a raw word; none if it is unknown.
    pub const fn from_raw(raw: u64) -> Option<Self> {
        Some(match raw {
            1 => Self::Done,
            2 => Self::Unknown,
            3 => Self::Refused,
            4 => Self::Unserved,
            _ => return None,
        })
    }
}

/// The answer to the request of that number. A READ may see it half written: `check` tells.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchReply {
    /// The request's.
    pub number: u64,
    /// What the word was, if `status` is [`FetchStatus::Done`].
    pub value: u64,
    /// [`FetchStatus`].
    pub status: u64,
    /// [`FetchReply::check_of`] the other three.
    pub check: u64,
}

impl FetchReply {
    /// A whole reply.
    pub const fn new(number: u64, value: u64, status: FetchStatus) -> Self {
        let status = status as u64;
        Self { number, value, status, check: Self::check_of(number, value, status) }
    }

    /// The last word of a reply: each of the others changes it in bits of its own.
    #[inline]
    pub const fn check_of(number: u64, value: u64, status: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
            ^ value
            ^ status.rotate_right(8)
            ^ 0x5348_554e_5446
    }

    /// True if these words are one reply, to the request `number`.
    #[inline]
    pub const fn answers(self, number: u64) -> bool {
        self.number == number && self.check == Self::check_of(self.number, self.value, self.status)
    }
}

/// The memory of one row. Lines are apart by writer.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct FetchSlot {
    /// At the owner: written by the requester.
    pub request: FetchRequest,
    /// Unused, zero.
    pub pad0: [u64; 3],
    /// At the owner: written by its agent, READ by the requester.
    pub reply: FetchReply,
    /// Unused, zero.
    pub pad1: [u64; 4],
    /// At the requester: what the request is written from.
    pub draft: FetchRequest,
    /// Unused, zero.
    pub pad2: [u64; 3],
    /// At the requester: where the reply lands.
    pub landing: FetchReply,
    /// At the requester: number of its last request.
    pub asked: u64,
    /// At the requester: number of the last request whose reply it has seen.
    pub answered: u64,
    /// At the requester: 0 free, 1 held by the caller whose request is under way.
    pub lock: u32,
    /// Unused, zero.
    pub reserved: u32,
    /// Unused, zero.
    pub pad3: [u64; 1],
}

const _: () = {
    assert!(size_of::<FetchRequest>() == 40 && size_of::<FetchReply>() == 32);
    assert!(size_of::<FetchSlot>() == 256 && align_of::<FetchSlot>() == 64);
    assert!(core::mem::offset_of!(FetchSlot, reply) == 64);
    assert!(core::mem::offset_of!(FetchSlot, draft) == 128);
    assert!(core::mem::offset_of!(FetchSlot, landing) == 192);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// A READ that passes a write may bring words of two replies.
    #[test]
    fn words_of_two_replies_answer_nothing() {
        let (old, new) =
            (FetchReply::new(7, 40, FetchStatus::Done), FetchReply::new(8, 41, FetchStatus::Done));
        assert!(new.answers(8) && !new.answers(7) && !old.answers(8));
        let words = |reply: FetchReply| [reply.number, reply.value, reply.status, reply.check];
        for torn in 1..15u32 {
            let pick = |i: usize| if torn >> i & 1 == 1 { words(new)[i] } else { words(old)[i] };
            let reply = FetchReply { number: pick(0), value: pick(1), status: pick(2), check: pick(3) };
            // The status is the same in both.
            let whole = torn & 0b1011 == 0b1011;
            assert_eq!(reply.answers(8), whole, "{torn:04b}");
        }
    }

    #[test]
    fn forms_and_statuses_are_their_numbers() {
        let forms = (0..20).filter_map(AmoForm::from_raw).map(|form| form as u32);
        assert!(forms.eq(1..=12));
        let statuses = (0..9).filter_map(FetchStatus::from_raw).map(|status| status as u64);
        assert!(statuses.eq(1..=4));
    }
}
