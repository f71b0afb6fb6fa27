//! An atomic is atomic among those of its NIC, and of no other.

use crate::rig::{End, Options, Rig};
use shunt_layout::mlx5::wqe::{self, Opcode, Segment};

const GAP_NS: u32 = 5_000;
const ADDS: u64 = 40;

/// Two requesters add to one word of PE 1, through its NICs 2 and `second`: what the word holds in the end.
fn both_add(gap_ns: u32, second: usize) -> u64 {
    let mut rig = Rig::with(2, |config| config.quirks.atomic_gap_ns = gap_ns);
    let (mut a, _b) = rig.pair(0, 2, Options::default());
    let (mut c, _d) = rig.pair(1, second, Options::default());
    let key = if second == 2 { rig.hosts[2].key } else { rig.shared_key(second, 2) };
    let there = wqe::remote(rig.hosts[2].heap.address(), key.to_be());
    let add = |rig: &Rig, end: &mut End, target: Segment, host: usize, n: u64| {
        end.post(Opcode::AtomicFa, &[target, [0, 1u32.to_be(), 0, 0], rig.local(host, n as usize * 8, 8)]);
        rig.ring(end);
    };
    for n in 0..ADDS {
        let here = rig.remote(2, 0);
        add(&rig, &mut a, here, 0, n);
        add(&rig, &mut c, there, 1, n);
        for end in [&mut a, &mut c] {
            assert_eq!(rig.complete(end, 1)[0].syndrome, 0);
        }
    }
    rig.hosts[2].heap.get64(0)
}

#[test]
fn one_nic_loses_nothing() {
    for gap_ns in [0, GAP_NS] {
        assert_eq!(both_add(gap_ns, 2), 2 * ADDS, "gap {gap_ns}");
    }
}

#[test]
fn two_nics_lose_adds_between_reading_and_writing() {
    assert_eq!(both_add(0, 3), 2 * ADDS, "read and written in one instant");
    let met = both_add(GAP_NS, 3);
    assert!((ADDS..2 * ADDS).contains(&met), "{met} of {} adds are left", 2 * ADDS);
}

/// What is behind an atomic waits for it: a write, a READ, and the next atomic of another queue pair.
#[test]
fn what_is_behind_it_waits() {
    let mut rig = Rig::with(1, |config| config.quirks.atomic_gap_ns = 1_000_000);
    let (mut a, _b) = rig.pair(0, 1, Options::default());
    let (mut c, _d) = rig.pair(0, 1, Options::default());
    let one = [0, 1u32.to_be(), 0, 0];
    a.post(Opcode::AtomicFa, &[rig.remote(1, 0), one, rig.local(0, 0, 8)]);
    a.post(Opcode::RdmaRead, &[rig.remote(1, 0), rig.local(0, 8, 8)]);
    rig.ring(&a);
    rig.run_for(100_000);
    c.post(Opcode::AtomicFa, &[rig.remote(1, 0), one, rig.local(0, 16, 8)]);
    c.post(Opcode::RdmaWrite, &[rig.remote(1, 64), wqe::inline8(7)]);
    rig.ring(&c);
    rig.run_for(100_000);
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(64)), (0, 0), "nothing is written yet");
    rig.complete(&mut a, 2);
    rig.complete(&mut c, 2);
    rig.settle();
    let heap = &rig.hosts[0].heap;
    assert_eq!([heap.get64(0), heap.get64(8), heap.get64(16)], [0, 1, 1], "each saw what was before it");
    assert_eq!((rig.hosts[1].heap.get64(0), rig.hosts[1].heap.get64(64)), (2, 7));
}
