//! One ordered stream over a bad link ends in the memory that a serial execution gives.

use crate::rig::{Options, Rig};
use proptest::prelude::*;
use shunt_layout::mlx5::prm::qp::qpc;
use shunt_layout::mlx5::wqe::{CqeWhen, FENCE_BEFORE, Opcode, Segment, inline8};

const WORDS: usize = 64;

#[derive(Clone, Debug)]
enum Op {
    Set { word: usize, value: u64 },
    Copy { from: usize, to: usize, words: usize },
    Add { word: usize, value: u64 },
    Swap { word: usize, compare: u64, value: u64 },
    Read { from: usize, words: usize },
    Nothing,
}

fn any_op() -> impl Strategy<Value = Op> {
    let range = (0..WORDS, 0..WORDS, 1usize..WORDS)
        .prop_map(|(a, b, words)| (a, b, words.min(WORDS - a).min(WORDS - b)));
    prop_oneof![
        3 => (0..WORDS, 0u64..4).prop_map(|(word, value)| Op::Set { word, value }),
        3 => range.clone().prop_map(|(from, to, words)| Op::Copy { from, to, words }),
        2 => (0..WORDS, 0u64..4).prop_map(|(word, value)| Op::Add { word, value }),
        2 => (0..WORDS, 0u64..4, 0u64..4)
            .prop_map(|(word, compare, value)| Op::Swap { word, compare, value }),
        2 => range.prop_map(|(from, _, words)| Op::Read { from, words }),
        1 => Just(Op::Nothing),
    ]
}

fn any_faults() -> impl Strategy<Value = Vec<(usize, &'static str)>> {
    let faults = [
        "drop=0.05",
        "drop=0.15",
        "dup=0.2",
        "reorder=3",
        "reorder=11",
        "delay=7us",
        "placement-delay=13us",
        "late-cqe=9us",
        "drop-acks=200us",
        "blackhole-rx=300us",
        "blackhole-tx=200us",
        "down=400us",
        "slow=1",
        "nic-gone=300us",
        "flap=200us/3",
    ];
    proptest::collection::vec((0usize..2, proptest::sample::select(faults.to_vec())), 0..4)
}

fn operands(a: u64, b: u64) -> Segment {
    let half = |word: u64| [((word >> 32) as u32).to_be(), (word as u32).to_be()];
    [half(a)[0], half(a)[1], half(b)[0], half(b)[1]]
}

/// Local memory: source words, then a landing place for each operation's result.
const RESULTS: usize = 0x1000;

fn result_at(n: usize) -> usize {
    RESULTS + n * WORDS * 8
}

/// One end's PSN wraps soon, the other's may.
fn model_options(psn: u32, small_mtu: bool) -> Options {
    let psn = [psn & 0xff_ffff | 0xff_ff00, psn & 0xff_ffff];
    let mtu = if small_mtu { 1 } else { 5 };
    Options { psn, mtu, ack_timeout: 5, log_depth: 8, log_cq: 8, ..Options::default() }
}

/// Words of a host's heap.
fn words_at(rig: &Rig, host: usize, at: usize, count: usize) -> Vec<u64> {
    (0..count).map(|n| rig.hosts[host].heap.get64(at + n * 8)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn serial_memory(
        ops in proptest::collection::vec((any_op(), any::<bool>()), 1..80),
        faults in any_faults(),
        psn in any::<u32>(),
        small_mtu in any::<bool>(),
        burst in 1usize..20,
    ) {
        let mut rig = Rig::new(1);
        let (mut a, b) = rig.pair(0, 1, model_options(psn, small_mtu));
        (0..WORDS).for_each(|n| rig.hosts[0].heap.set64(n * 8, 1000 + n as u64));
        for (host, fault) in &faults {
            rig.inject(*host, fault);
        }
        let mut memory = [0u64; WORDS];
        let mut expected: Vec<(usize, Vec<u64>)> = Vec::new();
        let mut pending = 0;
        for (n, (op, fence)) in ops.iter().enumerate() {
            let flags = CqeWhen::Always as u8 | if *fence { FENCE_BEFORE } else { 0 };
            // What a READ saw is known only if the next operation waits for it.
            let settled = ops.get(n + 1).is_none_or(|(_, fence)| *fence);
            let local = |words: usize| rig.local(0, result_at(n), words as u32 * 8);
            match *op {
                Op::Set { word, value } => {
                    memory[word] = value;
                    let body = [rig.remote(1, word * 8), inline8(value)];
                    a.post_with(Opcode::RdmaWrite as u8, 0, flags, &body);
                }
                Op::Copy { from, to, words } => {
                    (0..words).for_each(|k| memory[to + k] = 1000 + (from + k) as u64);
                    let body = [rig.remote(1, to * 8), rig.local(0, from * 8, words as u32 * 8)];
                    a.post_with(Opcode::RdmaWrite as u8, 0, flags, &body);
                }
                Op::Add { word, value } => {
                    expected.push((result_at(n), vec![memory[word]]));
                    memory[word] = memory[word].wrapping_add(value);
                    let body = [rig.remote(1, word * 8), operands(value, 0), local(1)];
                    a.post_with(Opcode::AtomicFa as u8, 0, flags, &body);
                }
                Op::Swap { word, compare, value } => {
                    expected.push((result_at(n), vec![memory[word]]));
                    if memory[word] == compare {
                        memory[word] = value;
                    }
                    let body = [rig.remote(1, word * 8), operands(value, compare), local(1)];
                    a.post_with(Opcode::AtomicCs as u8, 0, flags, &body);
                }
                Op::Read { from, words } => {
                    if settled {
                        expected.push((result_at(n), memory[from..from + words].to_vec()));
                    }
                    a.post_with(Opcode::RdmaRead as u8, 0, flags, &[rig.remote(1, from * 8), local(words)]);
                }
                Op::Nothing => a.post_with(Opcode::Nop as u8, 0, flags, &[]),
            }
            pending += 1;
            if pending == burst || n + 1 == ops.len() {
                let done = rig.complete(&mut a, pending);
                prop_assert!(done.iter().all(|done| done.syndrome == 0), "{:?}", done);
                pending = 0;
            }
        }
        rig.settle();
        prop_assert_eq!(words_at(&rig, 1, 0, WORDS), memory);
        for (at, words) in expected {
            prop_assert_eq!(words_at(&rig, 0, at, words.len()), words, "result at {:#x}", at);
        }
        let messages = ops.iter().filter(|(op, _)| !matches!(op, Op::Nothing)).count();
        prop_assert_eq!(rig.query(&b, qpc::RMSN), messages as u32);
    }
}
