//! Two-sided and one-sided messages over a bad link: one receive completion for each message, in order, and the
//! memory that a serial execution gives.

use crate::rig::{End, Got, Options, Rig, pattern};
use proptest::prelude::*;
use shunt_layout::mlx5::cqe::opcode::{RESP_SEND, RESP_SEND_IMM, RESP_WRITE_IMM};
use shunt_layout::mlx5::prm::qp::qpc;
use shunt_layout::mlx5::wqe::{CqeWhen, Opcode, SOLICITED_EVENT, inline8};

/// Bytes of a receive buffer: header room is not needed here.
const ROOM: usize = 4096;
const BUFFERS: usize = 0x10_0000;
const WORDS: usize = 16;

#[derive(Clone, Debug)]
enum Op {
    Send { bytes: u32, imm: Option<u32>, solicited: bool },
    WriteImm { words: usize, imm: u32 },
    Write { word: usize, value: u64 },
    Add { word: usize, value: u64 },
    Read { bytes: u32 },
    Nothing,
}

fn any_op() -> impl Strategy<Value = Op> {
    let bytes = prop_oneof![0u32..40, 0u32..=ROOM as u32];
    prop_oneof![
        5 => (bytes, any::<Option<u32>>(), any::<bool>())
            .prop_map(|(bytes, imm, solicited)| Op::Send { bytes, imm, solicited }),
        3 => (0..=WORDS, any::<u32>()).prop_map(|(words, imm)| Op::WriteImm { words, imm }),
        2 => (0..WORDS, any::<u64>()).prop_map(|(word, value)| Op::Write { word, value }),
        2 => (0..WORDS, 0u64..9).prop_map(|(word, value)| Op::Add { word, value }),
        1 => (0u32..3000).prop_map(|bytes| Op::Read { bytes }),
        1 => Just(Op::Nothing),
    ]
}

fn any_faults() -> impl Strategy<Value = Vec<(usize, &'static str)>> {
    let faults = [
        "drop=0.05",
        // More at both ends outlasts seven retries now and then, which is no fault of the NIC.
        "drop=0.08",
        "dup=0.2",
        "reorder=3",
        "reorder=11",
        "delay=7us",
        "placement-delay=13us",
        "late-cqe=9us",
        "drop-acks=200us",
        "blackhole-rx=300us",
        "down=400us",
        "slow=1",
        "nic-gone=300us",
        "rnr=150us",
    ];
    proptest::collection::vec((0usize..2, proptest::sample::select(faults.to_vec())), 0..4)
}

/// What a serial execution gives.
#[derive(Default)]
struct Model {
    words: [u64; WORDS],
    received: Vec<Got>,
    /// Result and the value it must hold.
    originals: Vec<(usize, u64)>,
    messages: u32,
}

fn result_at(n: usize) -> usize {
    0x4000 + n * 8
}

/// Posts one operation at `a` and executes it on the model.
fn post(rig: &Rig, a: &mut End, model: &mut Model, n: usize, op: &Op) {
    let signalled = CqeWhen::Always as u8;
    let counter = model.received.len() as u16;
    model.messages += !matches!(op, Op::Nothing) as u32;
    match *op {
        Op::Send { bytes, imm, solicited } => {
            let flags = signalled | if solicited { SOLICITED_EVENT } else { 0 };
            let (opcode, seen) = match imm {
                Some(_) => (Opcode::SendImm, RESP_SEND_IMM),
                None => (Opcode::Send, RESP_SEND),
            };
            let body = [rig.local(0, 0, bytes)];
            a.post_all(opcode as u8, 0, flags, imm.unwrap_or(0), if bytes == 0 { &[] } else { &body });
            let imm = imm.unwrap_or(0);
            model.received.push(Got { opcode: seen, counter, bytes, imm, solicited, ..Got::default() });
        }
        Op::WriteImm { words, imm } => {
            (0..words).for_each(|k| model.words[k] = rig.hosts[0].heap.get64(k * 8));
            let body = [rig.remote(1, 0), rig.local(0, 0, words as u32 * 8)];
            a.post_imm(Opcode::RdmaWriteImm, imm, if words == 0 { &body[..1] } else { &body });
            let bytes = words as u32 * 8;
            model.received.push(Got { opcode: RESP_WRITE_IMM, counter, bytes, imm, ..Got::default() });
        }
        Op::Write { word, value } => {
            model.words[word] = value;
            a.post(Opcode::RdmaWrite, &[rig.remote(1, word * 8), inline8(value)]);
        }
        Op::Add { word, value } => {
            model.originals.push((result_at(n), model.words[word]));
            model.words[word] = model.words[word].wrapping_add(value);
            let operands = [0, (value as u32).to_be(), 0, 0];
            a.post(Opcode::AtomicFa, &[rig.remote(1, word * 8), operands, rig.local(0, result_at(n), 8)]);
        }
        Op::Read { bytes } => {
            let body = [rig.remote(1, 0x1000), rig.local(0, 0x8000, bytes)];
            a.post(Opcode::RdmaRead, if bytes == 0 { &body[..1] } else { &body });
        }
        Op::Nothing => a.post(Opcode::Nop, &[]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_completion_for_each_message(
        ops in proptest::collection::vec(any_op(), 1..60),
        faults in any_faults(),
        psn in any::<u32>(),
        small_mtu in any::<bool>(),
        eager in 0usize..8,
    ) {
        let mut rig = Rig::new(1);
        let options = Options {
            psn: [psn & 0xff_ffff | 0xff_ff00, psn & 0xff_ffff],
            mtu: if small_mtu { 1 } else { 5 },
            ack_timeout: 5,
            log_depth: 8,
            log_cq: 8,
            log_rq: Some(6),
            min_rnr: 1,
            ..Options::default()
        };
        let (mut a, mut b) = rig.pair(0, 1, options);
        rig.hosts[0].heap.fill(0, ROOM, 3);
        for (host, fault) in &faults {
            rig.inject(*host, fault);
        }
        let mut model = Model::default();
        for (n, op) in ops.iter().enumerate() {
            post(&rig, &mut a, &mut model, n, op);
        }
        // Buffers come a few at a time, some of them late.
        let (mut done, mut received, mut posted) = (vec![], vec![], 0);
        rig.ring(&a);
        for _ in 0..20_000 {
            let wanted = (received.len() + eager + 1).min(model.received.len());
            while posted < wanted {
                b.post_receive(&[rig.local(1, BUFFERS + posted * ROOM, ROOM as u32)]);
                posted += 1;
            }
            rig.run_for(30_000);
            done.extend(std::iter::from_fn(|| a.poll()));
            received.extend(b.poll_receives());
            if done.len() == ops.len() && received.len() == model.received.len() {
                break;
            }
        }
        rig.settle();
        received.extend(b.poll_receives());
        prop_assert!(done.iter().all(|done| done.syndrome == 0), "{:?}", done);
        prop_assert_eq!(done.len(), ops.len());
        prop_assert_eq!(&received, &model.received);
        for (n, got) in received.iter().enumerate().filter(|(_, got)| got.opcode != RESP_WRITE_IMM) {
            let at = BUFFERS + n * ROOM;
            let heap = &rig.hosts[1].heap;
            prop_assert!(heap.holds(at, got.bytes as usize, 3), "message {}", n);
            let behind = at + got.bytes as usize;
            prop_assert!(got.bytes as usize == ROOM || heap.get8(behind) == 0, "behind message {}", n);
        }
        let words: Vec<u64> = (0..WORDS).map(|n| rig.hosts[1].heap.get64(n * 8)).collect();
        prop_assert_eq!(&words[..], &model.words[..]);
        for (at, original) in &model.originals {
            prop_assert_eq!(rig.hosts[0].heap.get64(*at), *original);
        }
        prop_assert_eq!(rig.query(&b, qpc::RMSN), model.messages);
        prop_assert_eq!(pattern(3, 0), rig.hosts[0].heap.get8(0), "the source is only read");
    }
}
