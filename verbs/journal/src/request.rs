//! A work request with all that it takes to post it again on another queue pair. Pure.

/// A local buffer, laid out as libibverbs does.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The program's key for it.
    pub lkey: u32,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SEND, perhaps with immediate data as it lies in memory.
    Send(Option<u32>),
    /// RDMA WRITE, perhaps with such data.
    Write(Option<u32>),
    /// RDMA READ.
    Read,
    /// FETCH_ADD of this number.
    FetchAdd(u64),
    /// CMP_SWAP: what must be there, and what then is.
    CompareSwap(u64, u64),
}

impl Kind {
    /// True if it consumes a receive of the other end.
    pub const fn is_two_sided(self) -> bool {
        matches!(self, Self::Send(_) | Self::Write(Some(_)))
    }

    /// True if it changes a word and answers with what was there.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd(_) | Self::CompareSwap(..))
    }
}

/// What it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Buffers of the program, which may not touch them before the completion.
    Pieces(Vec<Piece>),
    /// A copy: the program may use its buffer again at once.
    Inline(Vec<u8>),
}

impl Data {
    /// Bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Pieces(pieces) => pieces.iter().map(|piece| u64::from(piece.length)).sum(),
        }
    }
}

/// A request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The program's number for it.
    pub wr_id: u64,
    /// What it does.
    pub kind: Kind,
    /// The program wants a completion.
    pub signaled: bool,
    /// It waits for READs before it.
    pub fence: bool,
    /// The receiver is to be woken.
    pub solicited: bool,
    /// Address at the other end.
    pub remote: u64,
    /// The other program's key for it.
    pub rkey: u32,
    /// What it carries.
    pub data: Data,
}

/// A buffer that waits for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The program's number for it.
    pub wr_id: u64,
    /// Where the message goes.
    pub pieces: Vec<Piece>,
}
