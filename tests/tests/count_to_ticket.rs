//! From the responder's count of messages to the first WQE it did not execute: NOPs, READs, atomics, WQEs of two
//! blocks, the wrap at 24 bits. Against counting one by one, and against a NIC.

use proptest::prelude::*;
use shunt_device::cut::{Shape, Window, from_truth};
use shunt_device::journal;
use shunt_device::platform::host::World;
use shunt_host::agent::verdict::Sent;
use shunt_layout::mlx5::doorbell;
use shunt_layout::mlx5::wqe::{CqeWhen, Opcode, Segment, WQEBB_BYTES, Wqebb, ctrl, data, inline8, remote};
use shunt_layout::state::{AnswerStatus, DeviceState, Mailbox, PathRow};
use shunt_tests::cluster::Cluster;
use shunt_tests::oracle::{load, store};
use shunt_tests::rng::Rng;
use shunt_tests::spec::RunSpec;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let shape = (1u64..=4, any::<bool>()).prop_map(|(blocks, counts)| Shape { blocks, counts });
    proptest::collection::vec(shape, 0..200)
}

/// The first block of each WQE.
fn starts(done: u64, wqes: &[Shape]) -> Vec<u64> {
    let next = |at: &mut u64, wqe: &Shape| Some(std::mem::replace(at, *at + wqe.blocks));
    wqes.iter().scan(done, next).collect()
}

proptest! {
    /// Counts messages one by one, as the responder does.
    #[test]
    fn the_cut_is_the_first_message_that_was_not_counted(
        wqes in shapes(),
        // Around the wraps of 24 bits, and far from them.
        messages in prop_oneof![0u64..5, 0xff_ff00u64..0x100_0100, Just(u64::from(u32::MAX) - 3)],
        done in prop_oneof![0u64..5, 0xfff0u64..0x1_0010, Just((1u64 << 52) - 50)],
        executed in 0usize..220,
    ) {
        let starts = starts(done, &wqes);
        let rung = done + wqes.iter().map(|wqe| wqe.blocks).sum::<u64>();
        let mut counted = starts.iter().zip(&wqes).filter(|(_, wqe)| wqe.counts).map(|(at, _)| *at);
        let total = counted.clone().count();
        let expected = match executed {
            n if n < total => counted.nth(n),
            n if n == total => Some(rung),
            _ => None,
        };
        let shape = |at: u64| wqes[starts.binary_search(&at).expect("asked only where a WQE starts")];
        let count = ((messages + executed as u64) & 0xff_ffff) as u32;
        prop_assert_eq!(from_truth(Window { done, rung, messages }, count, shape), expected);
    }

    /// Whatever lies in the ring and whatever the count claims, the answer is inside the window or none.
    #[test]
    fn garbage_in_the_ring_is_survived(
        blocks in proptest::collection::vec(any::<[u32; 16]>(), 1..64),
        claimed in any::<u32>(),
        messages in any::<u32>(),
    ) {
        let window = Window { done: 7, rung: 7 + blocks.len() as u64, messages: messages.into() };
        let cut = from_truth(window, claimed, |at| journal::shape(&Wqebb(blocks[(at - 7) as usize])));
        prop_assert!(cut.is_none_or(|cut| (window.done..=window.rung).contains(&cut)));
    }
}

/// Writes of 1 GiB: 2^20 packets each at an MTU of 1024, 2^18 at 4096, with a DUMP, which is no message, behind every
/// third. The count cuts between any two of them, the PSNs of what was sent are believed, and those around are not,
/// wherever among them they wrap.
#[test]
fn writes_of_a_gibibyte_are_cut_by_message_and_checked_by_psn() {
    const MASK: u32 = 0xff_ffff;
    let block =
        |opcode: u32| Wqebb(std::array::from_fn(|word| [opcode, 4].get(word).map_or(0, |raw| raw.to_be())));
    // DUMP is 0x23; the device posts none, and takes what it does not know for no message.
    let (write, dump) = (block(Opcode::RdmaWrite as u32), block(0x23));
    for (mtu, writes) in [(1024, 12), (4096, 60)] {
        let packets = (1u32 << 30) / mtu;
        let ring: Vec<&Wqebb> =
            (0..writes).flat_map(|n| [Some(&write), (n % 3 == 2).then_some(&dump)]).flatten().collect();
        let window = Window { done: 0xfffa, rung: 0xfffa + ring.len() as u64, messages: 0xff_fffa };
        for oldest in [0, 5, MASK, 0x80_0000] {
            let psn = |packets: u32| oldest.wrapping_add(packets) & MASK;
            let sent = Sent { oldest, next: psn(writes * packets) };
            for executed in 0..=writes {
                let count = (window.messages as u32 + executed) & MASK;
                let cut = from_truth(window, count, |at| journal::shape(ring[(at - window.done) as usize]));
                let before = executed + executed / 3;
                // Behind the last message the window ends.
                let right = if executed == writes { ring.len() as u64 } else { before.into() };
                assert_eq!(cut, Some(window.done + right), "{executed} of {writes}");
                assert!(sent.allows(psn(executed * packets)), "{executed} whole");
                assert!(
                    executed == writes || sent.allows(psn(executed * packets + packets / 2)),
                    "half of the next"
                );
            }
            assert!(!sent.allows(psn(writes * packets + 1)) && !sent.allows(psn(MASK)), "never sent");
        }
    }
}

/// What the test posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Nop,
    Read,
    Write,
    Add,
    /// Masked compare and swap of eight bytes: five segments, two blocks.
    Swap,
}

const OPS: [Op; 5] = [Op::Nop, Op::Read, Op::Write, Op::Add, Op::Swap];
/// Where the words of the operations begin in the heap; one each.
const WORDS_AT: u64 = 4096;
/// Where results of READs and atomics land.
const RESULTS_AT: u64 = 64;

fn segment(words: [u32; 4]) -> Segment {
    words.map(u32::to_be)
}

/// The segments of operation `number`, which leaves `number + 1` in its word.
fn segments(
    op: Op,
    index: u64,
    number: u64,
    row: &PathRow,
    keys: (u32, u32),
    heaps: (u64, u64),
) -> Vec<Segment> {
    let (lkey, rkey) = keys;
    let target = remote(heaps.1 + WORDS_AT + number * 8, rkey);
    let result = data(heaps.0 + RESULTS_AT, lkey, 8);
    let value = number + 1;
    let (opcode, opmod, rest) = match op {
        Op::Nop => (Opcode::Nop, 0, vec![]),
        Op::Read => (Opcode::RdmaRead, 0, vec![target, result]),
        Op::Write => (Opcode::RdmaWrite, 0, vec![target, inline8(value)]),
        Op::Add => (Opcode::AtomicFa, 0, vec![target, segment([0, value as u32, 0, 0]), result]),
        Op::Swap => {
            let (operands, masks) = (segment([0, value as u32, 0, 0]), segment([u32::MAX, u32::MAX, 0, 0]));
            (Opcode::AtomicMaskedCs, 0x09u32, vec![target, operands, masks, result])
        }
    };
    let mut first = ctrl(opcode, index as u16, row.qpn_shifted, 1 + rest.len() as u8, CqeWhen::Always as u8);
    first[0] |= (opmod << 24).to_be();
    std::iter::once(first).chain(rest).collect()
}

fn store32(at: u64, value: u32) {
    // SAFETY: ring memory and doorbell records of a cluster that lives as long as the test.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }.store(value, Ordering::Release);
}

/// The block at `index` of the send queue.
fn block(row: &PathRow, index: u64) -> Wqebb {
    let at = row.send_queue + (index & ((1 << row.log_depth) - 1)) * WQEBB_BYTES as u64;
    let mut words = [0; 16];
    for (word, at) in words.iter_mut().zip((at..).step_by(4)) {
        // SAFETY: as in `store32`.
        *word = unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Ordering::Acquire);
    }
    Wqebb(words)
}

/// Posts random operations on the first path of PE 0 to PE 1; answers with each one's first block.
fn post(cluster: &Cluster, row: &PathRow, ops: &[Op]) -> Vec<u64> {
    let (heap, peer_heap) = (cluster.pe(0).heap().address, cluster.pe(1).heap().address);
    let keys = cluster.pe(0).keys();
    let lkey = keys.lkey(row.local_rail, 0).expect("a key").to_be();
    let rkey = keys.rkey(1, row.remote_rail, 0).expect("a key").to_be();
    let (mut index, mut starts) = (0, Vec::new());
    for (op, number) in ops.iter().zip(0..) {
        starts.push(index);
        let segments = segments(*op, index, number, row, (lkey, rkey), (heap, peer_heap));
        let base = row.send_queue + index * WQEBB_BYTES as u64;
        for (word, at) in segments.iter().flatten().zip((base..).step_by(4)) {
            store32(at, *word);
        }
        index += segments.len().div_ceil(4) as u64;
    }
    assert!(index <= 1 << row.log_depth, "the ring holds them all");
    starts.push(index);
    store32(row.doorbell_record, doorbell::send_counter(index));
    // SAFETY: as in `store32`.
    let register = unsafe { AtomicU64::from_ptr(row.doorbell_register as *mut u64) };
    register.store(doorbell::register(index, row.qpn_shifted), Ordering::Release);
    cluster.clock(0).doorbell();
    starts
}

/// Asks the agent of PE 0 for the fence of the first path, as a switcher does; answers with the receiver's count.
fn fence(cluster: &Cluster, root: &DeviceState, row: &PathRow) -> u32 {
    let mailbox = root.mailboxes + size_of::<Mailbox>() as u64 * u64::from(root.channels_per_pe);
    store32(mailbox + offset_of!(Mailbox, request_slot) as u64, 0);
    store32(mailbox + offset_of!(Mailbox, request_incarnation) as u64, row.incarnation);
    store(mailbox + offset_of!(Mailbox, request) as u64, 1);
    store(root.wake, load(root.wake) + 1);
    cluster.sim.run_for(200_000_000);
    assert_eq!(load(mailbox + offset_of!(Mailbox, answer) as u64), 1, "the agent answered");
    let status = load(mailbox + offset_of!(Mailbox, answer_status) as u64);
    assert_eq!(status as u32, AnswerStatus::Truth as u32, "both agents answer and the NIC counts");
    (status >> 32) as u32
}

/// One run: operations, a cut of the network somewhere in the middle, the count, the memory.
fn one(seed: u64) -> (usize, usize) {
    let mut rng = Rng::new(seed);
    let ops: Vec<Op> = (0..60).map(|_| OPS[rng.below(OPS.len() as u64) as usize]).collect();
    // Nobody but this test looks after the channel.
    let mut spec = RunSpec { seed, ..RunSpec::default() };
    spec.agent.looks = 0;
    let cluster = Cluster::start(&spec);
    let root = *cluster.pe(0).root();
    let at = root.paths + size_of::<PathRow>() as u64 * u64::from(root.channels_per_pe * root.slots);
    // SAFETY: the first slot of the only channel to PE 1, mapped while the cluster lives; nobody writes it now.
    let row = unsafe { (at as *const PathRow).read() };
    let down =
        format!("{}ns:1.0:blackhole-rx", cluster.sim.now() - cluster.began_ns() + 2_000 + rng.below(8_000));
    cluster.inject(&down.parse().expect("a fault"));
    let starts = post(&cluster, &row, &ops);
    cluster.sim.run_for(100_000);
    let count = fence(&cluster, &root, &row);
    let window = Window { done: 0, rung: *starts.last().expect("an end"), messages: 0 };
    let cut = from_truth(window, count, |index| journal::shape(&block(&row, index))).expect("a truth");
    let peer = cluster.pe(1).heap().address;
    let mut executed = 0;
    for ((op, start), number) in ops.iter().zip(&starts).zip(0u64..) {
        let word = load(peer + WORDS_AT + number * 8);
        if matches!(op, Op::Nop | Op::Read) {
            continue; // they leave no trace
        }
        let expected = if *start < cut { number + 1 } else { 0 };
        assert_eq!(word, expected, "seed {seed}: {op:?} {number} at block {start}, cut {cut}, count {count}");
        executed += usize::from(*start < cut);
    }
    (executed, ops.iter().filter(|op| !matches!(op, Op::Nop | Op::Read)).count())
}

#[test]
fn a_nic_counts_as_the_map_does() {
    let runs: Vec<_> = (0..24).map(one).collect();
    let partly = runs.iter().filter(|(executed, all)| *executed > 0 && executed < all).count();
    assert!(partly >= 8, "too few runs were cut in the middle: {runs:?}");
}
