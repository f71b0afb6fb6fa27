//! Executed is not visible: order within a NIC, none between NICs, and what flushes.

use crate::rig;
use crate::rig::{Options, Rig, good};
use shunt_layout::mlx5::prm::qp::qpc;
use shunt_layout::mlx5::wqe::{Opcode, inline8};

const DELAY: u64 = 1_000_000;

/// Two rails a PE: hosts 0 and 1 are PE 0's, 2 and 3 PE 1's.
fn delayed() -> Rig {
    let mut rig = Rig::new(2);
    rig.inject(2, "placement-delay=1ms");
    rig
}

#[test]
fn acknowledged_and_counted_before_it_is_visible() {
    let mut rig = delayed();
    let (mut a, b) = rig.pair(0, 2, Options::default());
    rig.hosts[0].heap.fill(0, 5000, 1);
    a.post(Opcode::RdmaWrite, &[rig.remote(2, 0x100), rig.local(0, 0, 5000)]);
    a.post(Opcode::RdmaWrite, &[rig.remote(2, 0), inline8(1)]);
    assert_eq!(rig.complete(&mut a, 2), [good(0, Opcode::RdmaWrite), good(1, Opcode::RdmaWrite)]);
    assert_eq!(rig.hosts[2].heap.get64(0), 0);
    assert_eq!(rig.query(&b, qpc::RMSN), 2);
    rig.run_for(DELAY);
    assert_eq!(rig.hosts[2].heap.get64(0), 1);
    assert!(rig.hosts[2].heap.holds(0x100, 5000, 1));
    assert_eq!(rig.hits(), [3], "two packets of the one, one of the other");
}

#[test]
fn two_nics_place_in_no_order() {
    let mut rig = delayed();
    let (mut a, _b) = rig.pair(0, 2, Options::default());
    let (mut c, _d) = rig.pair(1, 3, Options::default());
    // Rails of one PE reach the same memory in life; here each host's heap stands for a part of it.
    a.post(Opcode::RdmaWrite, &[rig.remote(2, 0), inline8(1)]);
    rig.complete(&mut a, 1);
    c.post(Opcode::RdmaWrite, &[rig.remote(3, 0), inline8(2)]);
    rig.complete(&mut c, 1);
    assert_eq!(
        (rig.hosts[2].heap.get64(0), rig.hosts[3].heap.get64(0)),
        (0, 2),
        "the later one is seen first"
    );
    rig.settle();
    assert_eq!(rig.hosts[2].heap.get64(0), 1);
}

#[test]
fn order_within_a_nic_outlives_the_fault() {
    let mut rig = Rig::new(1);
    rig.inject(1, "placement-delay=1ms/10us");
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    // The fault is over by now: it lasted 10 us, and a pair takes longer to make.
    rig.inject(1, "placement-delay=1ms/10us");
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 0), inline8(1)]);
    rig.complete(&mut a, 1);
    rig.run_for(20_000);
    a.post(Opcode::RdmaWrite, &[rig.remote(1, 8), inline8(2)]);
    rig.complete(&mut a, 1);
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(8)), (0, 0), "behind the one that waits");
    rig.run_for(DELAY);
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(8)), (1, 2));
}

#[test]
fn a_loopback_read_flushes() {
    let mut rig = delayed();
    let (mut a, b) = rig.pair(0, 2, Options::default());
    let (mut flush, _peer) = rig.pair(2, 2, Options::default());
    rig.hosts[0].heap.fill(0, 20_000, 1);
    a.post(Opcode::RdmaWrite, &[rig.remote(2, 0x100), rig.local(0, 0, 20_000)]);
    rig.complete(&mut a, 1);
    rig.fence(&b);
    assert!(!rig.hosts[2].heap.holds(0x100, 20_000, 1), "2ERR does not flush");
    flush.post(Opcode::RdmaRead, &[rig.remote(2, 0), rig.local(2, 0x8000, 1)]);
    assert_eq!(rig.complete(&mut flush, 1), [good(0, Opcode::RdmaRead)]);
    assert!(rig.hosts[2].heap.holds(0x100, 20_000, 1), "the READ's completion is the proof");
}

#[test]
fn atomics_wait_and_are_applied_once_though_asked_again() {
    let mut rig = delayed();
    // The ACK timeout is a tenth of the delay: duplicates arrive while the atomic waits.
    let (mut a, b) = rig.pair(0, 2, Options { ack_timeout: 6, ..Options::default() });
    a.post(Opcode::RdmaWrite, &[rig.remote(2, 0), inline8(10)]);
    a.post(Opcode::AtomicFa, &[rig.remote(2, 0), [0, 1u32.to_be(), 0, 0], rig.local(0, 0, 8)]);
    assert!(rig.complete(&mut a, 2).iter().all(|done| done.syndrome == 0));
    assert_eq!((rig.hosts[2].heap.get64(0), rig.hosts[0].heap.get64(0)), (11, 10));
    assert_eq!(rig.query(&b, qpc::RMSN), 2);
    let nic = rig.hosts[2].nic;
    assert!(rig.fabric.nic(nic).counters().duplicates > 0);
}

#[test]
fn a_nics_own_results_are_delayed_with_its_completions() {
    let mut rig = delayed();
    let (mut a, _b) = rig.pair(2, 0, Options::default());
    rig.hosts[0].heap.set64(0, 77);
    a.post(Opcode::RdmaRead, &[rig.remote(0, 0), rig.local(2, 8, 8)]);
    rig.ring(&a);
    rig.run_for(DELAY / 2);
    assert!(a.poll().is_none() && rig.hosts[2].heap.get64(8) == 0);
    rig.run_for(DELAY);
    assert!(a.poll().is_some() && rig.hosts[2].heap.get64(8) == 77);
}

#[test]
fn deregistered_memory_is_not_written() {
    let mut rig = delayed();
    let (mut a, _b) = rig.pair(0, 2, Options::default());
    let spare = rig::Memory::new(4096);
    let nic = rig.hosts[2].nic;
    // SAFETY: `spare` outlives its registration, which ends below.
    let umem = unsafe { rig.fabric.nic(nic).register_umem(spare.address(), 4096) }.unwrap();
    let mut mailbox = rig::heap_key(&rig.hosts[2]);
    use shunt_layout::mlx5::prm::mkey::{MKC_OFFSET, create, mkc};
    create::MKEY_UMEM_ID.set(&mut mailbox, umem);
    mkc::START_ADDR.within(MKC_OFFSET).set(&mut mailbox, 0x1_0000);
    mkc::LEN.within(MKC_OFFSET).set(&mut mailbox, 4096);
    let out = rig.command(nic, &mailbox, 16);
    let index = shunt_layout::mlx5::prm::cmd::output::OBJECT.get(&out);
    let remote = shunt_layout::mlx5::wqe::remote(0x1_0008, (index << 8 | 0x5a).to_be());
    a.post(Opcode::RdmaWrite, &[remote, inline8(1)]);
    assert_eq!(rig.complete(&mut a, 1)[0].syndrome, 0, "a key's addresses need not be the memory's");
    assert!(rig.fabric.nic(nic).deregister_umem(umem).is_err(), "a key uses it");
    rig.command(nic, &rig::header(shunt_layout::mlx5::prm::cmd::Opcode::DestroyMkey, index), 16);
    rig.fabric.nic(nic).deregister_umem(umem).unwrap();
    rig.settle();
    assert_eq!(spare.get64(8), 0);
}
