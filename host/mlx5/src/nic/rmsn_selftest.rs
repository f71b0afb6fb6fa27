//! The start-up proof: does this NIC's own count of executed messages survive 2ERR?
//!
//! That `rmsn` outlives 2ERR and counts executed messages is not documented. Each rail shows it on a loopback
//! pair before any channel relies on it; where it does not hold, the channel's ledger stands in.

use super::loopback::{Pair, PrivateMemory};
use super::qp::{MASK_24, QpTruth};
use super::queue::Request;
use crate::error::NicError;
use crate::memory::Span;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::prm::qp::State;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

/// Where the proof's PSNs start: they wrap in the middle of it.
pub(crate) const FIRST_PSN: u32 = 0xff_fffd;
const INLINE_VALUE: u64 = 0x5448_5255_5448_2121;
const SHORT: u64 = 64;
/// Data ahead of a flag: a few packets.
const ORDER_BYTES: u64 = 12 * 1024;

/// The result of a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruthProof {
    /// The NIC's count may be used as responder truth.
    pub holds: bool,
    /// What was seen, in one line.
    pub detail: String,
}

/// What the posted mix must add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub messages: u32,
    pub packets: u32,
}

/// The three answers of QUERY_QP on the responder: before 2ERR, after it, and once more after a flush.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answers {
    pub fresh: QpTruth,
    pub before: QpTruth,
    pub after: QpTruth,
    pub flushed: QpTruth,
}

/// Judges the answers. Pure.
pub(crate) fn judge(expected: Expected, answers: &Answers) -> TruthProof {
    let Expected { messages, packets } = expected;
    let psn = FIRST_PSN.wrapping_add(packets) & MASK_24;
    let Answers { fresh, before, after, flushed } = answers;
    let broken = |detail: String| TruthProof { holds: false, detail };
    if fresh.rmsn != 0 {
        return broken(format!("rmsn of a fresh QP is {}, not 0", fresh.rmsn));
    }
    if before.rmsn != messages {
        return broken(format!("rmsn is {} after {messages} executed messages", before.rmsn));
    }
    if before.next_rcv_psn != psn {
        return broken(format!(
            "next_rcv_psn is {:#x} after {packets} packets, not {psn:#x}",
            before.next_rcv_psn
        ));
    }
    if after.state != Some(State::Err) {
        return broken(format!("state is {:?} after 2ERR, not ERR", after.state));
    }
    if after.rmsn != messages {
        return broken(format!(
            "rmsn does not survive 2ERR: {messages} before, {} after, {messages} messages were executed",
            after.rmsn
        ));
    }
    if after.next_rcv_psn != psn {
        return broken(format!(
            "next_rcv_psn does not survive 2ERR: {psn:#x} before, {:#x} after",
            after.next_rcv_psn
        ));
    }
    if (flushed.rmsn, flushed.next_rcv_psn, flushed.state) != (after.rmsn, after.next_rcv_psn, after.state) {
        return broken(format!(
            "two queries after 2ERR differ: rmsn {} then {}, next_rcv_psn {:#x} then {:#x}",
            after.rmsn, flushed.rmsn, after.next_rcv_psn, flushed.next_rcv_psn
        ));
    }
    TruthProof {
        holds: true,
        detail: format!("rmsn counted {messages} messages of {packets} packets through 2ERR"),
    }
}

/// The mix: each request with the packets it takes. Writes and READs of each kind; atomics are
/// [proved](super::proof_atomics) by themselves.
fn mix(private: &PrivateMemory, mtu_bytes: u64) -> Vec<(Request, u32)> {
    let (key, from, to) = (private.key_be(), private.data(0), private.data(1));
    let write = |bytes, at| Request::Write {
        local: Span { bytes, ..from },
        lkey_be: key,
        remote: to.address + at,
        rkey_be: key,
    };
    let read = |bytes, at: u64| Request::Read {
        local: Span { address: from.address + at, bytes },
        lkey_be: key,
        remote: to.address,
        rkey_be: key,
    };
    let long = mtu_bytes * 3 + 5;
    vec![
        (write(SHORT, 0), 1),
        (write(long.min(to.bytes - 64), 64), 4),
        (Request::WriteInline { value: INLINE_VALUE, remote: to.address + 8, rkey_be: key }, 1),
        (Request::WriteNothing, 1),
        (read(SHORT, 128), 1),
        (read(mtu_bytes + 1, 256), 2),
    ]
}

/// Runs the mix on a fresh pair and asks the NIC. `flush` is the placement flush, on another pair.
pub(crate) fn run(
    pair: &mut Pair,
    private: &PrivateMemory,
    mtu_bytes: u64,
    world: &dyn World,
    patience_ns: u64,
    flush: impl FnOnce() -> Result<(), NicError>,
) -> Result<TruthProof, NicError> {
    let pattern: Vec<u8> = (0..SHORT as u8).map(|i| i.wrapping_mul(7) ^ 0x5a).collect();
    private.memory().write(private.data(0).address, &pattern)?;
    private.memory().fill(private.data(1).part(0, SHORT), 0)?;
    let fresh = pair.responder.qp.query()?;
    let mut expected = Expected { messages: 0, packets: 0 };
    for (request, packets) in mix(private, mtu_bytes) {
        pair.producer.post(world, request);
        expected.messages += 1;
        expected.packets += packets;
    }
    pair.producer.wait_all(world, patience_ns)?;
    let before = pair.responder.qp.query()?;
    pair.responder.qp.to_error()?;
    let after = pair.responder.qp.query()?;
    flush()?;
    let flushed = pair.responder.qp.query()?;
    pair.requester.qp.to_error()?;
    let proof = judge(expected, &Answers { fresh, before, after, flushed });
    let mut want = pattern;
    want[8..16].copy_from_slice(&INLINE_VALUE.to_le_bytes());
    let mut placed = vec![0; SHORT as usize];
    private.memory().read(private.data(1).address, &mut placed)?;
    if proof.holds && placed != want {
        let detail = "messages were counted as executed, but their data is not visible after a flush".into();
        return Ok(TruthProof { holds: false, detail });
    }
    Ok(proof)
}

/// True if a flag was seen before the data that was written ahead of it on the same pair.
pub(crate) fn out_of_order(
    pair: &mut Pair,
    private: &PrivateMemory,
    world: &dyn World,
    patience_ns: u64,
    rounds: Range<u32>,
) -> Result<bool, NicError> {
    let (memory, key) = (private.memory(), private.key_be());
    let (from, to) = (private.data(0).part(0, ORDER_BYTES), private.data(1).part(0, ORDER_BYTES));
    let flag = to.address + ORDER_BYTES;
    let mut met = vec![0; ORDER_BYTES as usize];
    for round in rounds {
        let number = u64::from(round) + 1;
        let data = vec![number as u8 | 0x80; ORDER_BYTES as usize];
        memory.write(from.address, &data)?;
        pair.producer
            .post(world, Request::Write { local: from, lkey_be: key, remote: to.address, rkey_be: key });
        pair.producer.post(world, Request::WriteInline { value: number, remote: flag, rkey_be: key });
        let since = world.now_ns();
        let mut seen = [0; 8];
        while u64::from_le_bytes(seen) != number && world.now_ns().saturating_sub(since) <= patience_ns {
            world.relax();
            memory.read(flag, &mut seen)?;
        }
        fence(Ordering::Acquire);
        memory.read(to.address, &mut met)?;
        // Before the completions, which may be written after the data.
        let late = u64::from_le_bytes(seen) == number && met != data;
        pair.producer.wait_all(world, patience_ns)?;
        if late {
            return Ok(true);
        }
    }
    memory.fill(private.data(1), 0)?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected = Expected { messages: 6, packets: 10 };

    fn truth(state: State, rmsn: u32, next_rcv_psn: u32) -> QpTruth {
        QpTruth {
            state: Some(state),
            rmsn,
            next_rcv_psn,
            next_send_psn: 0,
            last_acked_psn: 0,
            in_order: true,
            ece: 0,
        }
    }

    fn good() -> Answers {
        Answers {
            fresh: truth(State::Rts, 0, FIRST_PSN),
            before: truth(State::Rts, 6, 7),
            after: truth(State::Err, 6, 7),
            flushed: truth(State::Err, 6, 7),
        }
    }

    #[test]
    fn an_honest_nic_is_trusted_across_the_psn_wrap() {
        assert!(judge(EXPECTED, &good()).holds);
    }

    #[test]
    fn every_lie_is_found() {
        type Lie = (fn(&mut Answers), &'static str);
        let lies: [Lie; 9] = [
            (|a| a.fresh.rmsn = 3, "fresh QP is 3"),
            (|a| a.before.rmsn = 5, "rmsn is 5 after 6"),
            (|a| a.before.next_rcv_psn = 8, "next_rcv_psn is 0x8 after 10 packets"),
            (|a| a.after.state = Some(State::Rts), "state is Some(Rts)"),
            (|a| a.after.rmsn = 0, "does not survive 2ERR: 6 before, 0 after"),
            (|a| a.after.rmsn = 7, "does not survive 2ERR: 6 before, 7 after"),
            (|a| a.after.next_rcv_psn = 0, "next_rcv_psn does not survive"),
            (|a| a.flushed.rmsn = 7, "two queries after 2ERR differ"),
            (|a| a.flushed.next_rcv_psn = 8, "two queries after 2ERR differ"),
        ];
        for (lie, words) in lies {
            let mut answers = good();
            lie(&mut answers);
            let proof = judge(EXPECTED, &answers);
            assert!(!proof.holds && proof.detail.contains(words), "{words}: {}", proof.detail);
        }
    }
}
