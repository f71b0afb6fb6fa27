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
}

/// Blocks of a mark and a wide atomic, and one to spare.
const BLOCKS_MAX: u64 = 4;
/// Retries that end while a caller still waits: nothing is further away than the NIC itself.
const TUNING: QpTuning = QpTuning { ack_timeout: 12, retry: 3, ..QpTuning::DEFAULT };
/// When a requester has given up for certain: each try may take four times its time-out, which is 4.096 us doubled
/// `ack_timeout` times (IBTA volume 1, 9.7.6.1.3).
const GIVEN_UP_NS: u64 = (4096 << TUNING.ack_timeout) * 4 * (TUNING.retry as u64 + 1);
/// Where in the answer's memory the mark of the last request lies.
const MARK_AT: u64 = 8;

/// True if a responder in ERR has executed `before` messages and at most the mark that follows them.
fn counts_to(truth: &QpTruth, before: u32) -> bool {
    truth.state == Some(State::Err) && truth.rmsn.wrapping_sub(before) & MASK_24 <= 1
}

impl Rail {
    /// Executes an atomic on the word at a heap offset, where a key covers `1 << log2_chunk` bytes; answers with what
    /// the word was. Ends by its deadline. One that fails is fenced: its pair is in ERR or `lifetime_ns` has passed.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn fetch(&self, amo: Amo, at: u64, log2_chunk: u32, lifetime_ns: u64) -> Result<u64, FetchError> {
        let mut guard = self.fetch.lock(&*self.world);
        let key_be = self.heap.as_ref();
        let key_be = key_be.and_then(|heap| Some((heap.address(), heap.key_be(at >> log2_chunk)?)));
        let Some((heap, rkey_be)) = key_be else {
            let nic = self.name.clone();
            let cure = "register_heap comes before the first fetch";
            let error =
                NicError::Unfit { nic, what: "key of the word", met: "none".into(), want: "one", cure };
            return Err(FetchError::NotExecuted(error));
        };
        guard.number += 1;
        let number = guard.number;
        let pair = self.fetch_pair(&mut guard).map_err(FetchError::NotExecuted)?;
        let answer = self.private.answer().address;
        let (lkey_be, remote) = (self.private.key_be(), heap + at);
        // Executed before the atomic: while it is not there, that was not executed either.
        let mark = Request::WriteInline { value: number, remote: answer + MARK_AT, rkey_be: lkey_be };
        pair.producer.post(&*self.world, mark);
        pair.producer.post(&*self.world, Request::Atomic { amo, answer, lkey_be, remote, rkey_be });
        let before = guard.posted;
        guard.posted += 2;
        if let Err(error) = self.wait_fetched(&mut guard, self.options.flush_ns) {
            self.stop_fetch(&mut guard, before, lifetime_ns, error)?;
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
        if fetch.pair.as_ref().is_some_and(|pair| !pair.producer.has_room_for(BLOCKS_MAX)) {
            fetch.pair = None;
        }
        if fetch.pair.is_none() {
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

    fn wait_fetched(&self, fetch: &mut FetchPair, patience_ns: u64) -> Result<(), NicError> {
        match &mut fetch.pair {
            Some(pair) => pair.producer.wait_all(&*self.world, patience_ns),
            None => Ok(()),
        }
    }

    /// Has one without an answer end: the responder is moved to ERR, and its count says whether it was executed, or the
    /// mark before it. An answer that comes meanwhile counts. What was executed is in memory before the mark is read,
    /// and nothing is executed later: the NIC was flushed, or the requester has given up and the lifetime has passed.
    fn stop_fetch(
        &self,
        fetch: &mut FetchPair,
        before: u32,
        lifetime_ns: u64,
        error: NicError,
    ) -> Result<(), FetchError> {
        let Some(pair) = &fetch.pair else { return Err(FetchError::NotExecuted(error)) };
        let (responder, since) = (&pair.responder.qp, self.world.now_ns());
        let late = matches!(error, NicError::Overdue { .. });
        let stopped = responder.to_error().and_then(|()| responder.query());
        let patience_ns = if stopped.is_ok() { lifetime_ns } else { GIVEN_UP_NS };
        if late && self.wait_fetched(fetch, patience_ns).is_ok() {
            fetch.pair = None;
            return Ok(());
        }
        if stopped.is_err() || self.flush().is_err() {
            while self.world.now_ns().saturating_sub(since) < GIVEN_UP_NS + lifetime_ns {
                self.world.relax();
            }
        }
        fetch.pair = None;
        let mark = self.word(self.private.answer().address + MARK_AT);
        let unmarked = mark.is_ok_and(|mark| mark != fetch.number);
        match stopped {
            Ok(truth) if self.truth_holds && counts_to(&truth, before) => Err(FetchError::NotExecuted(error)),
            _ if unmarked => Err(FetchError::NotExecuted(error)),
            _ => Err(FetchError::Unknown(error)),
        }
    }
}
