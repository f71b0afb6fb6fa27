//! Atomics that this NIC executes on its own host's memory, for requesters that must not lose the answer.
//!
//! They run on a loopback pair of the NIC, so they are atomic among all that comes through it from elsewhere.

use super::Rail;
use crate::error::NicError;
use crate::nic::loopback::{FetchPair, Pair, PairShape, PairUse};
use crate::nic::qp::{MASK_24, QpTruth, QpTuning};
use crate::nic::queue::Request;
use shunt_device::Amo;
use shunt_layout::mlx5::prm::qp::State;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// It was not executed and never will be.
    NotExecuted(NicError),
    /// It may have been executed. It will not be from here on.
    Unknown(NicError),
    /// There is no such word: no key covers it.
    NoWord,
    /// The NIC has no masked atomics, and what it has does not do instead.
    NoAtomic,
    /// Not executed: others changed the word before each of the comparisons that stand for a masked atomic.
    Contended,
}

/// How long an atomic without an answer is waited for.
#[derive(Clone, Copy, Debug)]
pub struct FetchPatience {
    /// How long a packet may live, ns.
    pub lifetime_ns: u64,
    /// A NIC that answers no command for so long, ns, is gone, and executes nothing any more.
    pub gone_ns: u64,
}

impl FetchPatience {
    /// With a packet lifetime and the time after which a peer is given up: what waited for a NIC that is gone still has
    /// half of that to be executed by another one. A give-up time of a moment leaves no time to tell sleep from death.
    pub const fn of(lifetime_ns: u64, give_up_ns: u64) -> Self {
        let half_ns = give_up_ns / 2;
        Self { lifetime_ns, gone_ns: if half_ns < GONE_LEAST_NS { GONE_LEAST_NS } else { half_ns } }
    }
}

/// No NIC is gone sooner.
const GONE_LEAST_NS: u64 = 500_000_000;
/// Between two commands to a NIC that answers none.
const BETWEEN_NS: u64 = 20_000_000;
/// Blocks of a mark and a wide atomic, and one to spare.
const BLOCKS_MAX: u64 = 4;
/// Retries that end while a caller still waits: nothing is further away than the NIC itself. Those after an RNR NAK
/// end, too: a requester that repeats without a limit has never given up.
const TUNING: QpTuning = QpTuning { ack_timeout: 12, retry: 3, rnr_retry: 6, ..QpTuning::DEFAULT };
const _: () = assert!(TUNING.rnr_retry < 7, "7 is without a limit");
/// Where in the answer's memory the mark of the last request lies.
const MARK_AT: u64 = 8;

/// Comparisons for one masked atomic, on a NIC that has none.
const COMPARISONS_MAX: u32 = 64;

/// What a word of 8 bytes becomes; none of an atomic of 4 bytes: a NIC that compares and swaps all 8 would undo what is
/// written to the other 4 meanwhile.
const fn replaced(amo: Amo, old: u64) -> Option<u64> {
    match amo {
        Amo::Set64(value) | Amo::Swap64(value) => Some(value),
        Amo::And64(bits) => Some(old & bits),
        Amo::Or64(bits) => Some(old | bits),
        Amo::Xor64(bits) => Some(old ^ bits),
        _ => None,
    }
}

/// True if a responder in ERR has executed `before` messages and at most the mark that follows them.
fn counts_to(truth: &QpTruth, before: u32) -> bool {
    truth.state == Some(State::Err) && truth.rmsn.wrapping_sub(before) & MASK_24 <= 1
}

impl Rail {
    /// Executes an atomic on the word at a heap offset, where a key covers `1 << log2_chunk` bytes; answers with what
    /// the word was. A masked one of 8 bytes is a comparison and a swap where the NIC has none. Ends by its deadline.
    /// One that fails is fenced: its pair is in ERR, or its NIC is gone.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn fetch(
        &self,
        amo: Amo,
        at: u64,
        log2_chunk: u32,
        patience: FetchPatience,
    ) -> Result<u64, FetchError> {
        let mut guard = self.fetch.lock(&*self.world);
        let mut execute = |amo| self.fetch_by_nic(&mut guard, amo, at, log2_chunk, patience);
        if self.caps.atomics.masked || !amo.is_masked() {
            return execute(amo);
        }
        replaced(amo, 0).ok_or(FetchError::NoAtomic)?;
        let mut old = execute(Amo::Add64(0))?;
        for _ in 0..COMPARISONS_MAX {
            let Some(new) = replaced(amo, old) else { break };
            match execute(Amo::CompareSwap64 { expect: old, new })? {
                met if met == old => return Ok(old),
                met => old = met,
            }
        }
        Err(FetchError::Contended)
    }

    /// Has the NIC execute what it has.
    fn fetch_by_nic(
        &self,
        guard: &mut FetchPair,
        amo: Amo,
        at: u64,
        log2_chunk: u32,
        patience: FetchPatience,
    ) -> Result<u64, FetchError> {
        let Some(heap) = self.heap.as_ref() else {
            let nic = self.name.clone();
            let cure = "register_heap comes before the first fetch";
            let error =
                NicError::Unfit { nic, what: "key of the word", met: "none".into(), want: "one", cure };
            return Err(FetchError::NotExecuted(error));
        };
        let rkey_be = heap.key_be(at >> log2_chunk).ok_or(FetchError::NoWord)?;
        guard.number += 1;
        let number = guard.number;
        let pair = self.fetch_pair(guard).map_err(FetchError::NotExecuted)?;
        let answer = self.private.answer().address;
        let (lkey_be, remote) = (self.private.key_be(), heap.address() + at);
        // Executed before the atomic: while it is not there, that was not executed either.
        let mark = Request::WriteInline { value: number, remote: answer + MARK_AT, rkey_be: lkey_be };
        pair.producer.post(&*self.world, mark);
        pair.producer.post(&*self.world, Request::Atomic { amo, answer, lkey_be, remote, rkey_be });
        let before = guard.posted;
        guard.posted += 2;
        if let Err(error) = self.wait_fetched(guard, self.options.flush_ns) {
            self.stop_fetch(guard, before, patience, error)?;
        }
        let word = self.word(answer).map_err(FetchError::Unknown)?;
        // A NIC writes answers of four bytes big-endian.
        Ok(if amo.bytes() == 4 { u64::from(u32::from_be(word as u32)) } else { word })
    }

    /// A word of this rail's private memory.
    fn word(&self, address: u64) -> Result<u64, NicError> {
        let mut bytes = [0; 8];
        self.private.memory().read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn fetch_pair<'a>(&self, fetch: &'a mut FetchPair) -> Result<&'a mut Pair, NicError> {
        // Second blocks of wide atomics are never given back.
        if fetch.pair.as_ref().is_none_or(|pair| !pair.producer.has_room_for(BLOCKS_MAX)) {
            self.retire(fetch)?;
            fetch.incarnation = fetch.incarnation.wrapping_add(1);
            let psn = (fetch.incarnation << 12) & MASK_24;
            // The address may have moved while the port was down. One that is not told is as it was.
            let _ = self.refresh_address();
            let which = PairUse::Fetch;
            let shape = PairShape { which, incarnation: fetch.incarnation, psn, answers_to: None };
            fetch.pair = Some(self.pair_of(shape, &TUNING)?);
            fetch.posted = 0;
        }
        Ok(fetch.pair.as_mut().expect("made above"))
    }

    /// Has the NIC destroy the pair. Until it says so the pair is kept: the next one has the same rings, mark and
    /// answer.
    fn retire(&self, fetch: &mut FetchPair) -> Result<(), NicError> {
        if let Some(pair) = fetch.pair.take() {
            fetch.retired = Some(pair);
        }
        if let Some(pair) = &fetch.retired {
            for queue in [&pair.requester, &pair.responder] {
                queue.qp.destroy(queue.cq.number())?;
            }
            fetch.retired = None;
        }
        Ok(())
    }

    fn wait_fetched(&self, fetch: &mut FetchPair, patience_ns: u64) -> Result<(), NicError> {
        match &mut fetch.pair {
            Some(pair) => pair.producer.wait_all(&*self.world, patience_ns),
            None => Ok(()),
        }
    }

    /// Has one without an answer end: the responder is moved to ERR, and its count says whether it was executed, or the
    /// mark before it. An answer that comes meanwhile counts. What was executed is in memory before the mark is read:
    /// the NIC was flushed, or the lifetime has passed. Nothing is executed later, because the responder is in ERR, the
    /// requester has said that it gave up, or the NIC has answered nothing for so long that it is gone. One that only
    /// slept would go on where it stopped: no shorter time proves anything.
    fn stop_fetch(
        &self,
        fetch: &mut FetchPair,
        before: u32,
        patience: FetchPatience,
        error: NicError,
    ) -> Result<(), FetchError> {
        let mut late = matches!(error, NicError::Overdue { .. });
        let since = self.world.now_ns();
        let mut stopped = Self::stop(fetch);
        while late {
            let span_ns = if stopped.is_ok() { patience.lifetime_ns } else { BETWEEN_NS };
            match self.wait_fetched(fetch, span_ns) {
                Ok(()) => {
                    let _ = self.retire(fetch);
                    return Ok(());
                }
                Err(again) => late = matches!(again, NicError::Overdue { .. }),
            }
            if stopped.is_ok() || self.world.now_ns().saturating_sub(since) > patience.gone_ns {
                break;
            }
            stopped = Self::stop(fetch);
        }
        let _ = self.retire(fetch);
        if self.flush().is_err() {
            let since = self.world.now_ns();
            while self.world.now_ns().saturating_sub(since) < patience.lifetime_ns {
                self.world.relax();
            }
        }
        let mark = self.word(self.private.answer().address + MARK_AT);
        let unmarked = mark.is_ok_and(|mark| mark != fetch.number);
        match stopped {
            Ok(truth) if self.truth_holds && counts_to(&truth, before) => Err(FetchError::NotExecuted(error)),
            _ if unmarked => Err(FetchError::NotExecuted(error)),
            _ => Err(FetchError::Unknown(error)),
        }
    }

    /// Moves the responder to ERR, and asks it what it has executed.
    fn stop(fetch: &FetchPair) -> Result<QpTruth, NicError> {
        let responder = &fetch.pair.as_ref().expect("fetches were posted on it").responder.qp;
        responder.to_error().and_then(|()| responder.query())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `SHUNT_GIVE_UP=0` a NIC that only slept was gone at once, and another one executed what it then executed.
    #[test]
    fn no_nic_is_gone_at_once() {
        let gone = |give_up_ns| FetchPatience::of(50_000_000, give_up_ns).gone_ns;
        assert_eq!(
            [gone(0), gone(1_000_000_000), gone(10_000_000_000)],
            [500_000_000, 500_000_000, 5_000_000_000]
        );
    }
}
