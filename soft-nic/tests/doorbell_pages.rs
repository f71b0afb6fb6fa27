//! Doorbell pages in memory of the caller's, as a driver maps them into a process.

use crate::rig::{Options, Rig, good};
use shunt_layout::mlx5::doorbell::UAR_PAGE_BYTES;
use shunt_layout::mlx5::wqe::{Opcode, inline8};
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(align(4096))]
struct Page([AtomicU64; UAR_PAGE_BYTES / 8]);

impl Page {
    fn new() -> Box<Self> {
        Box::new(Self([const { AtomicU64::new(0xdead) }; UAR_PAGE_BYTES / 8]))
    }

    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

#[test]
fn a_lent_page_is_rung_like_the_nics_own() {
    let page = Page::new();
    let mut rig = Rig::new(1);
    let nic = rig.hosts[0].nic;
    // SAFETY: the page outlives its use, and holds atomics only.
    let uar = unsafe { rig.fabric.nic(nic).alloc_uar_at(page.address()) };
    assert_eq!(uar.address, page.address());
    assert!(page.0.iter().all(|word| word.load(Ordering::Relaxed) == 0), "emptied before its first use");
    rig.hosts[0].uar = uar;
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 8), inline8(3)]);
    assert_eq!(rig.complete(&mut a, 1), [good(0, Opcode::RdmaWrite)]);
    rig.settle();
    assert_eq!(rig.hosts[1].heap.get64(8), 3);
}

#[test]
fn a_freed_page_is_its_owners_again() {
    let (first, second) = (Page::new(), Page::new());
    let mut rig = Rig::new(1);
    let nic = rig.hosts[0].nic;
    // SAFETY: the pages outlive the fabric's use of them, and hold atomics only.
    let lent = unsafe { rig.fabric.nic(nic).alloc_uar_at(first.address()) };
    rig.fabric.nic(nic).free_uar(lent.id);
    first.0.iter().for_each(|word| word.store(!0, Ordering::Relaxed));
    rig.run_for(100_000);
    assert!(first.0.iter().all(|word| word.load(Ordering::Relaxed) == !0), "no NIC looks at it any more");
    // A number is used again by pages of the same kind only: the NIC's own memory must outlive late doorbells.
    let own = rig.fabric.nic(nic).alloc_uar();
    assert_ne!(own.id, lent.id);
    // SAFETY: as above.
    let again = unsafe { rig.fabric.nic(nic).alloc_uar_at(second.address()) };
    assert_eq!((again.id, again.address), (lent.id, second.address()));
}
