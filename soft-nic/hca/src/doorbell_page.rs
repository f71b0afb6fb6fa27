//! Doorbell pages: the registers that are polled, and who rings in which page.

use shunt_layout::mlx5::doorbell::{BLUEFLAME_OFFSET, CQ_ARM_OFFSET, UAR_PAGE_BYTES};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Registers of a page that are polled. The doorbell registers are the two ordinary ones, which libmlx5 gives to
/// different queue pairs, with both halves of each, which it takes in turn; the last register arms completion queues.
const REGISTERS: [usize; 5] = [
    BLUEFLAME_OFFSET,
    BLUEFLAME_OFFSET + 0x100,
    BLUEFLAME_OFFSET + 0x200,
    BLUEFLAME_OFFSET + 0x300,
    CQ_ARM_OFFSET,
];

/// How many registers of a page are polled.
pub(crate) const REGISTERS_POLLED: usize = REGISTERS.len();

/// The register that arms completion queues.
const ARM: usize = REGISTERS.len() - 1;

/// Which doorbell registers are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellLook {
    /// None.
    Nowhere,
    /// The first register of each page, and those that anything was ever written to. Each register is a cache line, and
    /// most programs use one of a page.
    Usual,
    /// All of them.
    Everywhere,
}

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

// SAFETY: the page is made of atomics only, and the one that lent it keeps it for whichever thread holds the NIC.
unsafe impl Send for PageMemory {}

/// A doorbell page and the queue pairs that ring in it.
struct UarSlot {
    memory: PageMemory,
    qpns: Vec<u32>,
    /// Completion queues that are armed here.
    cqns: Vec<u32>,
    used: bool,
    /// Registers that something was written to since the page was taken into use, and the first one: a bit each.
    known: u8,
    /// Doorbell records of the page still to look at, and where to go on.
    unread: usize,
    next: usize,
}

impl UarSlot {
    fn new(memory: PageMemory) -> Self {
        Self { memory, qpns: Vec::new(), cqns: Vec::new(), used: false, known: 1, unread: 0, next: 0 }
    }

    /// A page of the NIC's own memory.
    fn own() -> Self {
        Self::new(PageMemory::Own(Box::new(UarPage([const { AtomicU64::new(0) }; UAR_PAGE_BYTES / 8]))))
    }

    /// A place for a page of somebody else's memory.
    fn lent() -> Self {
        Self::new(PageMemory::Lent(std::ptr::null()))
    }

    fn is_lent(&self) -> bool {
        matches!(self.memory, PageMemory::Lent(_))
    }

    /// Takes a lent page into use.
    ///
    /// # Safety
    /// A page of [`UAR_PAGE_BYTES`] aligned bytes at `address` stays valid until [`Self::free`], and is accessed
    /// atomically or as a device's registers are.
    unsafe fn lend(&mut self, address: u64) {
        self.memory = PageMemory::Lent(address as *const UarPage);
    }

    /// Empties the registers of a page that is taken into use; returns its address.
    fn open(&mut self) -> u64 {
        (self.used, self.known) = (true, 1);
        let page = self.page();
        page.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        page.as_ptr() as u64
    }

    /// Nothing rings here any more.
    fn free(&mut self) {
        self.used = false;
        if let PageMemory::Lent(page) = &mut self.memory {
            *page = std::ptr::null();
        }
    }

    /// Something may be written to register `n` of [`REGISTERS`]: a queue pair rings in the page, or a completion queue
    /// is armed there. Most pages of a program that opens a device several times have neither.
    #[inline]
    fn is_watched(&self, n: usize) -> bool {
        let users = if n == ARM { &self.cqns } else { &self.qpns };
        self.used && !users.is_empty()
    }

    /// A queue pair rings in the page, or a completion queue is armed there, by one of these registers. What was
    /// written before the first came is of some that are gone.
    fn join(&mut self, registers: Range<usize>, number: u32) {
        if self.used && !self.is_watched(registers.start) {
            REGISTERS[registers.clone()].iter().for_each(|at| self.register(*at).store(0, Ordering::Relaxed));
        }
        let users = if registers.start == ARM { &mut self.cqns } else { &mut self.qpns };
        users.push(number);
    }

    /// The register at an offset of a page in use.
    #[inline]
    fn register(&self, offset: usize) -> &AtomicU64 {
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

/// The doorbell pages of a NIC, by number: a page is used again once it was freed.
#[derive(Default)]
pub(crate) struct DoorbellPages {
    slots: Vec<UarSlot>,
    /// Pages in use where a queue pair rings or a completion queue is armed, by number. The others are not looked at.
    watched: Vec<u32>,
    /// Some page has doorbell records that are still to be read.
    unread: bool,
}

/// Something that was written to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// A doorbell.
    Doorbell(u64),
    /// A request for an event.
    Arm(u64),
}

impl DoorbellPages {
    /// How many there ever were.
    pub(crate) fn made(&self) -> usize {
        self.slots.len()
    }

    /// How many are in use.
    pub(crate) fn live(&self) -> usize {
        self.slots.iter().filter(|slot| slot.used).count()
    }

    /// True if there are doorbell records still to be read.
    pub(crate) fn has_unread(&self) -> bool {
        self.unread
    }

    /// True if this page is in use.
    pub(crate) fn is_used(&self, id: u32) -> bool {
        self.slots.get((id as usize).wrapping_sub(1)).is_some_and(|slot| slot.used)
    }

    /// The number of one of the pages that have anybody who may write to them; none behind the last.
    pub(crate) fn watched(&self, at: usize) -> Option<u32> {
        self.watched.get(at).copied()
    }

    /// A page has changed hands, or its users have changed.
    fn see(&mut self, id: u32) {
        self.watched.retain(|other| *other != id);
        if self.slot_mut(id).is_some_and(|slot| slot.is_watched(0) || slot.is_watched(ARM)) {
            let at = self.watched.partition_point(|other| *other < id);
            self.watched.insert(at, id);
        }
    }

    /// A page of the NIC's own memory.
    pub(crate) fn open_own(&mut self) -> Uar {
        let free = self.slots.iter().position(|slot| !slot.used && !slot.is_lent());
        self.open(free, UarSlot::own, |_| {})
    }

    /// A page of somebody else's memory.
    ///
    /// # Safety
    /// As of [`UarSlot::lend`], until [`Self::free`].
    pub(crate) unsafe fn open_lent(&mut self, address: u64) -> Uar {
        let free = self.slots.iter().position(|slot| !slot.used && slot.is_lent());
        // SAFETY: the caller's promise is the one asked for.
        self.open(free, UarSlot::lent, |slot| unsafe { slot.lend(address) })
    }

    fn open(&mut self, free: Option<usize>, new: fn() -> UarSlot, fill: impl FnOnce(&mut UarSlot)) -> Uar {
        let at = free.unwrap_or_else(|| {
            self.slots.push(new());
            self.slots.len() - 1
        });
        fill(&mut self.slots[at]);
        let uar = Uar { id: at as u32 + 1, address: self.slots[at].open() };
        self.see(uar.id);
        uar
    }

    /// Nothing rings in this page any more.
    pub(crate) fn free(&mut self, id: u32) {
        if let Some(slot) = self.slot_mut(id) {
            slot.free();
        }
        self.see(id);
    }

    fn slot_mut(&mut self, id: u32) -> Option<&mut UarSlot> {
        self.slots.get_mut((id as usize).wrapping_sub(1))
    }

    /// A queue pair rings in this page, or no longer does.
    pub(crate) fn set_rings(&mut self, id: u32, qpn: u32, rings: bool) {
        match self.slot_mut(id) {
            Some(slot) if rings => slot.join(0..ARM, qpn),
            Some(slot) => slot.qpns.retain(|other| *other != qpn),
            None => {}
        }
        self.see(id);
    }

    /// A completion queue is armed in this page, or no longer is.
    pub(crate) fn set_arms(&mut self, id: u32, cqn: u32, arms: bool) {
        match self.slot_mut(id) {
            Some(slot) if arms => slot.join(ARM..ARM + 1, cqn),
            Some(slot) => slot.cqns.retain(|other| *other != cqn),
            None => {}
        }
        self.see(id);
    }

    /// The completion queues that are armed in a page.
    pub(crate) fn armed_in(&self, id: u32) -> &[u32] {
        self.slots.get((id as usize).wrapping_sub(1)).map_or(&[], |slot| &slot.cqns)
    }

    /// A look at all pages begins.
    pub(crate) fn begin_look(&mut self) {
        self.unread = false;
    }

    /// What was written to register `n` of a page since the last look, if this look goes there. A register is emptied
    /// as it is read, so that a doorbell written twice with one value is two doorbells.
    #[inline]
    pub(crate) fn take(&mut self, look: DoorbellLook, id: u32, n: usize) -> Option<Rung> {
        let slot = &mut self.slots[id as usize - 1];
        let unusual = look == DoorbellLook::Usual && slot.known >> n & 1 == 0;
        if unusual || !slot.is_watched(n) {
            return None;
        }
        let register = slot.register(REGISTERS[n]);
        if register.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let value = register.swap(0, Ordering::AcqRel);
        slot.known |= 1 << n;
        Some(if n == ARM { Rung::Arm(value) } else { Rung::Doorbell(value) })
    }

    /// The register holds only the last doorbell of all queue pairs of the page: a value overwritten before it was
    /// seen lives on in its doorbell record, so all records of the page are to be read.
    pub(crate) fn read_all_records(&mut self, id: u32) {
        if let Some(slot) = self.slot_mut(id) {
            slot.unread = if slot.qpns.len() > 1 { slot.qpns.len() } else { 0 };
        }
    }

    /// True if records of this page are to be read.
    #[inline]
    pub(crate) fn has_records(&self, id: u32) -> bool {
        self.slots[id as usize - 1].unread > 0
    }

    /// The next queue pair of the page whose record is to be read.
    pub(crate) fn next_record(&mut self, id: u32) -> Option<u32> {
        let slot = self.slot_mut(id)?;
        if slot.unread == 0 || slot.qpns.is_empty() {
            slot.unread = 0;
            return None;
        }
        slot.unread -= 1;
        slot.next = (slot.next + 1) % slot.qpns.len();
        Some(slot.qpns[slot.next])
    }

    /// The look at a page's records is over for now.
    pub(crate) fn end_records(&mut self, id: u32) {
        self.unread |= self.has_records(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at all five registers of hundreds of idle pages took longer than all else that a NIC did.
    #[test]
    fn a_usual_look_goes_to_the_first_register_and_to_those_that_were_ever_rung() {
        use DoorbellLook::{Everywhere, Usual};
        let mut pages = DoorbellPages::default();
        let id = pages.open_own().id;
        pages.set_rings(id, 1, true);
        let ring = |pages: &DoorbellPages, n: usize| {
            pages.slots[0].register(REGISTERS[n]).store(7, Ordering::Relaxed);
        };
        ring(&pages, 0);
        ring(&pages, 2);
        assert_eq!(pages.take(Usual, id, 0), Some(Rung::Doorbell(7)));
        assert_eq!(pages.take(Usual, id, 2), None, "no program is known to ring there");
        assert_eq!(pages.take(Everywhere, id, 2), Some(Rung::Doorbell(7)));
        ring(&pages, 2);
        assert_eq!(pages.take(Usual, id, 2), Some(Rung::Doorbell(7)), "now it is known");
        pages.free(id);
        assert_eq!(pages.open_own().id, id);
        ring(&pages, 2);
        assert_eq!(pages.take(Usual, id, 2), None, "it is another one's page");
    }

    /// `ib_write_bw` under `shunt verbs run` had 0.94 of its bandwidth: that opens each device twice more, and each
    /// round read all five registers of every page.
    #[test]
    fn registers_that_nobody_uses_are_not_read_and_are_empty_for_the_first_who_does() {
        let look = DoorbellLook::Everywhere;
        let mut pages = DoorbellPages::default();
        let id = pages.open_own().id;
        let write = |pages: &DoorbellPages| {
            REGISTERS.iter().for_each(|at| pages.slots[0].register(*at).store(7, Ordering::Relaxed));
        };
        let taken = |pages: &mut DoorbellPages| [0, ARM].map(|n| pages.take(look, id, n));
        write(&pages);
        assert!(pages.watched(0).is_none() && taken(&mut pages) == [None, None]);
        pages.set_rings(id, 1, true);
        assert!(pages.watched(0) == Some(id) && taken(&mut pages) == [None, None], "of one that is gone");
        write(&pages);
        pages.set_rings(id, 2, true);
        assert_eq!(taken(&mut pages), [Some(Rung::Doorbell(7)), None], "the first had rung");
        pages.set_arms(id, 1, true);
        write(&pages);
        assert_eq!(taken(&mut pages), [Some(Rung::Doorbell(7)), Some(Rung::Arm(7))]);
        pages.set_rings(id, 1, false);
        pages.set_rings(id, 2, false);
        write(&pages);
        assert_eq!(taken(&mut pages), [None, Some(Rung::Arm(7))]);
        pages.set_arms(id, 1, false);
        assert_eq!(pages.watched(0), None);
    }
}
