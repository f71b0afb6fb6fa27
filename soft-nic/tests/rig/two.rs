//! Two fabrics that an uplink joins, stepped in turn.

use super::{Done, End, Options, Rig};
use shunt_layout::mlx5::wqe::{Opcode, Segment};
use shunt_soft_nic::NicConfig;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Steps of a run before it counts as hung.
const PATIENCE: u32 = 200_000;
/// The same by the clock: long enough for any machine; a test that waits so long fails.
const PATIENCE_BY_THE_CLOCK: Duration = Duration::from_secs(60);
/// Virtual time between two steps.
pub const STEP_NS: u64 = 5_000;

thread_local! {
    static ORIGIN: Cell<Option<Instant>> = const { Cell::new(None) };
}

pub fn config(rig: &mut Rig, host: usize) -> NicConfig {
    let nic = rig.hosts[host].nic;
    rig.fabric.nic(nic).config().clone()
}

/// A queue pair between host 0 of both.
pub fn join(a: &mut Rig, b: &mut Rig, options: Options) -> (End, End) {
    let mut left = a.end(0, options);
    let mut right = b.end(0, Options { psn: [options.psn[1], options.psn[0]], ..options });
    let (here, there) = (config(a, 0), config(b, 0));
    let [far, near] = [right.qpn, left.qpn];
    for (rig, end, remote, qpn) in [(&mut *a, &mut left, there, far), (b, &mut right, here, near)] {
        let nic = rig.hosts[0].nic;
        rig.command(nic, &super::rst2init(end), 16);
        rig.connect_to(end, &remote, qpn);
    }
    (left, right)
}

/// Takes a queue pair that needs no other end to RTS.
pub fn ready(rig: &mut Rig, end: &End) {
    let nic = rig.hosts[end.host].nic;
    for mailbox in [super::rst2init(end), super::init2rtr(end, 0), super::rtr2rts(end)] {
        rig.command(nic, &mailbox, 16);
    }
}

/// Has this test's fabrics run by the clock from now on: what the kernel carries takes real time.
pub fn run_by_the_clock() {
    ORIGIN.set(Some(Instant::now()));
}

/// Steps all until `done`.
pub fn run(rigs: &mut [&mut Rig], what: &str, mut done: impl FnMut() -> bool) {
    let mut steps = 0;
    let start = Instant::now();
    while !done() {
        let latest = rigs.iter().map(|rig| rig.now).max().unwrap_or(0);
        let now = match ORIGIN.get() {
            None => latest + STEP_NS,
            Some(origin) => latest.max(origin.elapsed().as_nanos() as u64),
        };
        rigs.iter_mut().for_each(|rig| rig.step_to(now));
        steps += 1;
        let patient = ORIGIN.get().map_or(steps < PATIENCE, |_| start.elapsed() < PATIENCE_BY_THE_CLOCK);
        assert!(patient, "{what} did not happen in {steps} steps");
    }
}

/// Rings, steps until `count` completions came, and gives them back.
pub fn complete(rigs: &mut [&mut Rig], end: &mut End, count: usize) -> Vec<Done> {
    rigs[0].ring(end);
    let mut found = Vec::new();
    run(rigs, "completions", || {
        found.extend(std::iter::from_fn(|| end.poll()));
        found.len() >= count
    });
    found
}

pub fn operands(words: [u64; 2]) -> Segment {
    let [a, b] = words.map(|word| [((word >> 32) as u32).to_be(), (word as u32).to_be()]);
    [a[0], a[1], b[0], b[1]]
}

/// Writes of many lengths, a READ and both plain atomics from `a` to `b`, data checked.
pub fn exchange(a: &mut Rig, b: &mut Rig, end: &mut End) {
    for bytes in [1usize, 5, 31, 33, 4096, 4097, 100_000, 1 << 20] {
        a.hosts[0].heap.fill(0, bytes, bytes as u8);
        end.post(Opcode::RdmaWrite, &[b.remote(0, 0x8_0003), a.local(0, 0, bytes as u32)]);
        assert_eq!(complete(&mut [a, b], end, 1)[0].syndrome, 0);
        assert!(b.hosts[0].heap.holds(0x8_0003, bytes, bytes as u8), "{bytes} bytes");
    }
    b.hosts[0].heap.fill(0x1000, 70_001, 9);
    end.post(Opcode::RdmaRead, &[b.remote(0, 0x1000), a.local(0, 0x2000, 70_001)]);
    assert_eq!(complete(&mut [a, b], end, 1)[0].syndrome, 0);
    assert!(a.hosts[0].heap.holds(0x2000, 70_001, 9));
    b.hosts[0].heap.set64(8, 40);
    end.post(Opcode::AtomicFa, &[b.remote(0, 8), operands([2, 0]), a.local(0, 0, 8)]);
    end.post(Opcode::AtomicCs, &[b.remote(0, 8), operands([77, 42]), a.local(0, 8, 8)]);
    assert!(complete(&mut [a, b], end, 2).iter().all(|done| done.syndrome == 0));
    assert_eq!((a.hosts[0].heap.get64(0), a.hosts[0].heap.get64(8)), (40, 42));
    assert_eq!(b.hosts[0].heap.get64(8), 77);
}
