//! How the direction that sends is moved: what is kept back, the cut, and where it goes on. The agent says when.

use crate::completions::Completions;
use crate::pair_state::{On, State, Track};
use crate::queue_pair::QueuePair;
use crate::spare::Spare;
use shunt_layout::state::AnswerStatus;
use shunt_recovery::verdict::Verdict;
use std::sync::Arc;

impl QueuePair {
    /// Where it sends is fenced, and so it sends nowhere: what the other end has executed is complete. Answers with the
    /// number of requests that are to be posted again. The queue is that of what it sends, drained. The state is its
    /// own.
    ///
    /// # Errors
    /// Why it is lost: the cut cannot be known.
    pub fn cut_sends(
        &self,
        queue: &mut Completions,
        state: &mut State,
        verdict: Verdict,
    ) -> Result<u64, &'static str> {
        let (number, index) = match &state.send_on {
            On::Spare(track) => (track.first_number, track.first_index),
            _ => (0, 0),
        };
        let given = state.sends.next();
        let idle = state.sends.first() == given;
        let cut = match verdict.status {
            // Nothing is under way, so there is nothing to know: a program that only receives has sent nothing.
            AnswerStatus::Truth | AnswerStatus::FencedNoTruth if idle => Some(Vec::new()),
            AnswerStatus::Truth if self.fits(state, false) => {
                state.sends.cut(verdict.executed, number, index).ok()
            }
            _ => None,
        };
        let Some(done) = cut else {
            return Err(match verdict.status {
                AnswerStatus::Truth => "the other NIC's count fits nothing that was posted",
                _ => "what the other NIC has executed cannot be known",
            });
        };
        queue.fresh |= !done.is_empty();
        queue.ready.extend(done.into_iter().map(|one| self.completion(one, 0)));
        state.send_on = On::Nowhere;
        state.switches += 1;
        let again = given.saturating_sub(state.sends.first());
        state.replayed += again;
        Ok(again)
    }

    /// It goes on sending over a queue pair that stands in, from the first request that is not complete.
    pub fn send_over(&self, key: usize, queue: Arc<Spare>) {
        let mut state = self.state();
        let (first_number, first_index) = (state.sends.first(), queue.sent());
        state.send_on = On::Spare(Track { key, queue, first_number, first_index });
        state.closed = false;
        self.push_out(&mut state);
    }
}
