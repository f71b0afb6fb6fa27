//! Objects that have no behaviour of their own: UAR pages and completion queues.

use crate::arm::Arming;
use crate::memory::Span;
use shunt_layout::mlx5::doorbell::UAR_PAGE_BYTES;
use std::sync::atomic::AtomicU64;

/// A doorbell page, as its user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uar {
    /// Number that queue contexts name it by.
    pub id: u32,
    /// Its first byte; stays where it is until freed.
    pub address: u64,
}

/// The page itself.
#[repr(C, align(4096))]
pub(crate) struct UarPage(pub(crate) [AtomicU64; UAR_PAGE_BYTES / 8]);

impl UarPage {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self([const { AtomicU64::new(0) }; UAR_PAGE_BYTES / 8]))
    }
}

/// A doorbell page and the queue pairs that ring in it.
pub(crate) struct UarSlot {
    pub(crate) page: Box<UarPage>,
    pub(crate) qpns: Vec<u32>,
    pub(crate) used: bool,
    /// Doorbell records of the page still to look at, and where to go on.
    pub(crate) unread: usize,
    pub(crate) next: usize,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub(crate) struct Cq {
    /// The entries.
    pub(crate) ring: Span,
    pub(crate) log_size: u32,
    /// Every CQE goes to entry 0.
    pub(crate) collapsed: bool,
    /// No consumer index is kept.
    pub(crate) overrun_ignore: bool,
    pub(crate) record: Span,
    /// CQEs written.
    pub(crate) produced: u64,
    /// It overran: nothing is written any more.
    pub(crate) failed: bool,
    /// Queue pairs that complete here.
    pub(crate) users: u32,
    pub(crate) umems: [u32; 2],
    /// Doorbell page it is armed through.
    pub(crate) uar: u32,
    pub(crate) arming: Arming,
    /// The context as created, for QUERY_CQ.
    pub(crate) context: [u8; 64],
}
