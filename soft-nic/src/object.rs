//! Objects that have no behaviour of their own: UAR pages and completion queues.

use crate::arm::Arming;
use crate::memory::Span;
use shunt_layout::mlx5::doorbell::UAR_PAGE_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};

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
struct UarPage([AtomicU64; UAR_PAGE_BYTES / 8]);

const _: () = assert!(UAR_PAGE_BYTES == size_of::<UarPage>());

/// Whose memory a doorbell page is.
enum PageMemory {
    /// The NIC's: it stays for as long as the NIC, so that a late doorbell harms nobody.
    Own(Box<UarPage>),
    /// Somebody's who promised to keep it until the page is freed; null from then on.
    Lent(*const UarPage),
}

// SAFETY: the page is made of atomics only, and whoever lent it keeps it for whichever thread holds the NIC.
unsafe impl Send for PageMemory {}

/// A doorbell page and the queue pairs that ring in it.
pub(crate) struct UarSlot {
    memory: PageMemory,
    pub(crate) qpns: Vec<u32>,
    /// Completion queues that are armed here.
    pub(crate) cqns: Vec<u32>,
    pub(crate) used: bool,
    /// Doorbell records of the page still to look at, and where to go on.
    pub(crate) unread: usize,
    pub(crate) next: usize,
}

impl UarSlot {
    fn new(memory: PageMemory) -> Self {
        Self { memory, qpns: Vec::new(), cqns: Vec::new(), used: false, unread: 0, next: 0 }
    }

    /// A page of the NIC's own memory.
    pub(crate) fn own() -> Self {
        Self::new(PageMemory::Own(Box::new(UarPage([const { AtomicU64::new(0) }; UAR_PAGE_BYTES / 8]))))
    }

    /// A place for a page of somebody else's memory.
    pub(crate) fn lent() -> Self {
        Self::new(PageMemory::Lent(std::ptr::null()))
    }

    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.memory, PageMemory::Lent(_))
    }

    /// Takes a lent page into use.
    ///
    /// # Safety
    /// A page of [`UAR_PAGE_BYTES`] aligned bytes at `address` stays valid until [`Self::free`], and is accessed
    /// atomically or as a device's registers are.
    pub(crate) unsafe fn lend(&mut self, address: u64) {
        self.memory = PageMemory::Lent(address as *const UarPage);
    }

    /// Empties the registers of a page that is taken into use; returns its address.
    pub(crate) fn open(&mut self) -> u64 {
        self.used = true;
        let page = self.page();
        page.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        page.as_ptr() as u64
    }

    /// Nothing rings here any more.
    pub(crate) fn free(&mut self) {
        self.used = false;
        if let PageMemory::Lent(page) = &mut self.memory {
            *page = std::ptr::null();
        }
    }

    /// The register at an offset of a page in use.
    #[inline]
    pub(crate) fn register(&self, offset: usize) -> &AtomicU64 {
        &self.page()[offset / 8]
    }

    #[inline]
    fn page(&self) -> &[AtomicU64] {
        match &self.memory {
            PageMemory::Own(page) => &page.0,
            PageMemory::Lent(page) if page.is_null() => &[],
            // SAFETY: not freed yet, so its lender still keeps it.
            PageMemory::Lent(page) => unsafe { &(**page).0 },
        }
    }
}

impl crate::nic::SoftNic {
    /// Objects that were made on this NIC and not destroyed: domains, queues, pairs, doorbell pages, spans, keys.
    pub fn live_objects(&self) -> usize {
        let queues = self.cqs.iter().flatten().count() + self.qps.iter().flatten().count();
        let pages = self.uars.iter().filter(|page| page.used).count();
        let pools = self.pools.iter().flatten().count();
        self.pds.iter().filter(|live| **live).count() + queues + pools + pages + self.memory.live()
    }
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
