//! What comes of a request.

/// A completion as the library reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What its request was called.
    pub id: u64,
    /// `ibv_wc_status`.
    pub status: u32,
    /// `ibv_wc_opcode`; of no meaning if it failed.
    pub opcode: u32,
    /// Vendor's code of an error.
    pub vendor: u32,
    /// Bytes received.
    pub bytes: u32,
    /// Immediate data, a number, if there is some.
    pub imm: Option<u32>,
}
