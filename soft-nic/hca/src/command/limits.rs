//! The largest objects there are, as log2; QUERY_HCA_CAP says so.

/// Entries of a completion queue.
pub(super) const LOG_MAX_CQ: u32 = 22;
/// Blocks of a send queue.
pub(super) const LOG_MAX_SQ: u32 = 15;
/// WQEs of a pool: their indices are 16 bits wide.
pub(super) const LOG_MAX_POOL: u32 = 15;
/// Outstanding READs and atomics.
pub(super) const LOG_MAX_READS: u32 = 4;
/// Bytes of a message.
pub(super) const LOG_MAX_MESSAGE: u32 = 30;
