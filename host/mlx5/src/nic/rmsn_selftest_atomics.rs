//! The start-up proof, as far as atomics go: is an atomic that was executed counted once, also when its answer was lost
//! and it was sent again, and is none counted that was not executed?
//!
//! An add that is repeated though it was executed counts twice, and one that is left out though it was not executed is
//! lost; unlike a write neither can be mended afterwards. So each rail shows on loopback pairs what its count says of
//! them (H2):
//!
//! * *Answers lost.* The responder's answers go to a queue pair in ERR. One atomic of each form is executed, sent again
//!   until the retries run out, and must be executed and counted once. Where the retries run out before all were
//!   executed, that is done again with more patience.
//! * *Under way.* A burst is posted and the responder moved to ERR at once; one more is posted behind that. What the
//!   words in memory show after the flush must be what the count says.

use super::loopback::{ATOMICS_BLOCKS, Pair, PrivateMemory};
use super::qp::{MASK_24, QpTruth};
use super::queue::Request;
use super::rmsn_selftest::{FIRST_PSN, TruthProof};
use crate::error::NicError;
use shunt_device::Amo;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::prm::qp::State;

/// Local ACK timeouts of the pairs whose answers are lost, one after the other: a quarter of a millisecond, as far as
/// the NIC goes along, since nothing is waited for that is further than the NIC itself; then eight times as long each
/// time. A requester that gives up before a busy host has posted everything shows nothing of the count.
pub(crate) const LOST_TIMEOUTS: [u32; 4] = [6, 9, 12, 15];
const VALUE: u64 = 0x5348_554e_5421_0001;
const FLIPPED: u64 = 0x00ff_00ff_00ff_00ff;

/// One of each form that device code posts, plain and masked, of 4 and of 8 bytes, on a word of its own that begins at
/// zero; and what the word is once it was executed once.
const FORMS: [(Amo, u64); 7] = [
    (Amo::Add64(1), 1),
    (Amo::CompareSwap64 { expect: 0, new: VALUE }, VALUE),
    (Amo::Add32(1), 1),
    (Amo::CompareSwap32 { expect: 0, new: 7 }, 7),
    (Amo::Xor64(FLIPPED), FLIPPED),
    (Amo::Xor32(FLIPPED as u32), FLIPPED as u32 as u64),
    (Amo::Set64(VALUE), VALUE),
];

/// Those of them that a NIC without masked atomics has.
const PLAIN: usize = 2;

/// A burst is made of rounds of these: four blocks.
const ROUND: u32 = 3;
const ROUND_BLOCKS: u64 = 4;

/// What a responder was seen to have done, and what it says of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Atomics that were posted.
    pub posted: u32,
    /// Of these, those that memory shows.
    pub executed: u32,
    /// QUERY_QP after 2ERR.
    pub after: QpTruth,
    /// The same after a flush.
    pub flushed: QpTruth,
}

/// What is wrong with a count, in one line. Pure.
pub(crate) fn wrong(counted: &Counted) -> Option<String> {
    let Counted { posted, executed, after, flushed } = counted;
    let psn = FIRST_PSN.wrapping_add(*executed) & MASK_24;
    if after.state != Some(State::Err) {
        return Some(format!("state is {:?} after 2ERR, not ERR", after.state));
    }
    if (flushed.rmsn, flushed.next_rcv_psn, flushed.state) != (after.rmsn, after.next_rcv_psn, after.state) {
        return Some(format!(
            "two queries after 2ERR differ: rmsn {} then {}, next_rcv_psn {:#x} then {:#x}",
            after.rmsn, flushed.rmsn, after.next_rcv_psn, flushed.next_rcv_psn
        ));
    }
    if executed > posted {
        return Some(format!("one was executed that was sent after 2ERR: {executed} of {posted}"));
    }
    if after.rmsn != *executed {
        let rmsn = after.rmsn;
        return Some(format!("rmsn counts {rmsn} atomics, {executed} of {posted} were executed"));
    }
    (after.next_rcv_psn != psn)
        .then(|| format!("next_rcv_psn is {:#x} after {executed} atomics, not {psn:#x}", after.next_rcv_psn))
}

/// How many atomics of a burst the words show: adds of 8 and of 4 bytes, and the number of the round that was stored
/// last. `None` if no count of atomics in order leaves them so. Pure.
pub(crate) fn executed_of_burst([wide, narrow, round]: [u64; 3]) -> Option<u32> {
    let in_order = wide >= narrow && narrow >= round && wide - round <= 1;
    u32::try_from(wide + narrow + round).ok().filter(|_| in_order)
}

/// How many atomics, in order, the words show that would be `want` if each was executed once. `None` if no count of
/// them leaves the words so. Pure.
pub(crate) fn executed_of_forms(words: &[u64], want: &[u64]) -> Option<u32> {
    let executed = words.iter().zip(want).take_while(|(word, want)| word == want).count();
    words[executed..].iter().all(|word| *word == 0).then_some(executed as u32)
}

/// Where the proof of atomics runs.
pub(crate) struct Stage<'a> {
    pub private: &'a PrivateMemory,
    pub world: &'a dyn World,
    pub patience_ns: u64,
    /// The NIC has masked atomics: else device code posts none, and what it refuses proves nothing.
    pub masked: bool,
    /// The placement flush, on another pair.
    pub flush: &'a dyn Fn() -> Result<(), NicError>,
}

impl Stage<'_> {
    fn clear(&self) -> Result<(), NicError> {
        Ok(self.private.memory().fill(self.private.data(1).part(0, 8 * FORMS.len() as u64), 0)?)
    }

    fn words<const N: usize>(&self) -> Result<[u64; N], NicError> {
        let mut bytes = vec![0; 8 * N];
        self.private.memory().read(self.private.data(1).address, &mut bytes)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Ok(words)
    }

    fn post(&self, pair: &mut Pair, amo: Amo, word: u64) {
        let (key, answer) = (self.private.key_be(), self.private.data(0).address);
        let remote = self.private.data(1).address + 8 * word;
        pair.producer.post(self.world, Request::Atomic { amo, answer, lkey_be: key, remote, rkey_be: key });
    }

    /// The responder's two answers after 2ERR: before and after the flush.
    fn ask(&self, pair: &Pair) -> Result<(QpTruth, QpTruth), NicError> {
        let after = pair.responder.qp.query()?;
        (self.flush)()?;
        Ok((after, pair.responder.qp.query()?))
    }

    /// Atomics whose answers are lost, on a pair whose answers go elsewhere. `None` if the requester gave up before all
    /// of them were executed.
    pub fn answers_lost(&self, mut pair: Pair) -> Result<Option<TruthProof>, NicError> {
        self.clear()?;
        let forms = if self.masked { &FORMS[..] } else { &FORMS[..PLAIN] };
        for ((amo, _), word) in forms.iter().copied().zip(0..) {
            self.post(&mut pair, amo, word);
        }
        // They are sent again meanwhile; that the retries have run out is not needed.
        let met = pair.producer.wait_all(self.world, self.patience_ns);
        pair.requester.qp.to_error()?;
        pair.responder.qp.to_error()?;
        let (after, flushed) = self.ask(&pair)?;
        let all: [u64; FORMS.len()] = self.words()?;
        let want: Vec<u64> = forms.iter().map(|(_, word)| *word).collect();
        let words = &all[..want.len()];
        let broken = |detail| Ok(Some(TruthProof { holds: false, detail }));
        if met.is_ok() {
            return broken("answers of atomics arrived that were addressed to another queue pair".into());
        }
        let Some(executed) = executed_of_forms(words, &want) else {
            let detail = "atomics whose answers were lost were not executed once each";
            return broken(format!("{detail}: the words are {words:x?}, not {want:x?}"));
        };
        let posted = forms.len() as u32;
        match wrong(&Counted { posted, executed, after, flushed }) {
            Some(why) => broken(format!("atomics whose answers were lost: {why}")),
            None if executed < posted => Ok(None),
            None => Ok(Some(TruthProof {
                holds: true,
                detail: format!("{posted} atomics without answers counted once each"),
            })),
        }
    }

    /// About `most` atomics that are under way when the responder is moved to ERR, and one that comes later.
    pub fn under_way(&self, mut pair: Pair, most: u32) -> Result<TruthProof, NicError> {
        self.clear()?;
        let rounds = u64::from(most.div_ceil(ROUND)).clamp(1, ATOMICS_BLOCKS / ROUND_BLOCKS - 1);
        for round in 1..=rounds {
            self.post(&mut pair, Amo::Add64(1), 0);
            // Without masked atomics the words are the same, and the last one is counted up instead of stored.
            self.post(&mut pair, if self.masked { Amo::Add32(1) } else { Amo::Add64(1) }, 1);
            self.post(&mut pair, if self.masked { Amo::Set64(round) } else { Amo::Add64(1) }, 2);
        }
        // Some of them are executed by then, and the next ones on their way.
        let since = self.world.now_ns();
        while pair.producer.poll(self.world).transpose()?.is_none() {
            if self.world.now_ns().saturating_sub(since) > self.patience_ns {
                let detail = format!("none of {} atomics was answered", rounds * u64::from(ROUND));
                return Ok(TruthProof { holds: false, detail });
            }
            self.world.relax();
        }
        pair.responder.qp.to_error()?;
        self.post(&mut pair, Amo::Add64(1), 0);
        let (after, flushed) = self.ask(&pair)?;
        pair.requester.qp.to_error()?;
        let (words, posted) = (self.words()?, rounds as u32 * ROUND);
        let wrong = match executed_of_burst(words) {
            Some(executed) => wrong(&Counted { posted, executed, after, flushed }),
            None => Some(format!("the words are {words:?}, which no number of them leaves")),
        };
        Ok(match (wrong, posted - after.rmsn.min(posted)) {
            (Some(why), _) => TruthProof {
                holds: false,
                detail: format!("atomics under way when their responder is moved to ERR: {why}"),
            },
            (None, 0) => TruthProof {
                holds: true,
                detail: format!("{posted} atomics counted, none of them under way when 2ERR was done"),
            },
            (None, left) => TruthProof {
                holds: true,
                detail: format!("of {posted} atomics 2ERR left {left}, the others counted once each"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(rmsn: u32, next_rcv_psn: u32) -> QpTruth {
        let state = Some(State::Err);
        QpTruth { state, rmsn, next_rcv_psn, next_send_psn: 0, last_acked_psn: 0, in_order: true, ece: 0 }
    }

    fn counted() -> Counted {
        Counted { posted: 20, executed: 10, after: truth(10, 7), flushed: truth(10, 7) }
    }

    #[test]
    fn a_count_of_what_was_executed_is_right_across_the_psn_wrap() {
        assert_eq!(wrong(&counted()), None);
    }

    #[test]
    fn every_lie_about_atomics_is_found() {
        type Lie = (fn(&mut Counted), &'static str);
        let lies: [Lie; 7] = [
            (|it| it.posted = 9, "one was executed that was sent after 2ERR"),
            (|it| it.executed = 9, "rmsn counts 10 atomics, 9 of 20 were executed"),
            (|it| it.executed = 11, "rmsn counts 10 atomics, 11 of 20 were executed"),
            (|it| (it.after, it.flushed) = (truth(10, 8), truth(10, 8)), "next_rcv_psn is 0x8 after 10"),
            (|it| it.after.state = Some(State::Rts), "state is Some(Rts)"),
            (|it| it.flushed.rmsn = 11, "two queries after 2ERR differ"),
            (|it| it.flushed.next_rcv_psn = 8, "two queries after 2ERR differ"),
        ];
        for (lie, words) in lies {
            let mut counted = counted();
            lie(&mut counted);
            let said = wrong(&counted).unwrap_or_default();
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn words_of_the_forms_are_counted_in_order() {
        let want = [1, 7, 9];
        for (words, executed) in [([0, 0, 0], 0), ([1, 0, 0], 1), ([1, 7, 0], 2), ([1, 7, 9], 3)] {
            assert_eq!(executed_of_forms(&words, &want), Some(executed));
        }
        for words in [[2, 0, 0], [0, 7, 0], [1, 7, 8], [1, 0, 9]] {
            assert_eq!(executed_of_forms(&words, &want), None, "{words:?}");
        }
    }

    #[test]
    fn words_of_a_burst_are_counted_in_order() {
        let mut words = [0; 3];
        for executed in 0..100u32 {
            assert_eq!(executed_of_burst(words), Some(executed));
            words[executed as usize % 3] += 1;
        }
        for words in [[2, 0, 0], [0, 1, 0], [1, 1, 2], [3, 2, 1], [5, 5, 3], [u64::MAX / 2, u64::MAX / 2, 0]]
        {
            assert_eq!(executed_of_burst(words), None, "{words:?}");
        }
    }
}
