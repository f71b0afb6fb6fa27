//! Requests that do not complete: does the network answer the queue pair that has them? Pure.
//!
//! A queue pair of which nothing completes for a third of `SHUNT_SUSPECT` is asked what was acknowledged
//! ([`AckWatch`]), and so again. Once nothing was for the rest of that time, it is left like a path that has failed.
//!
//! A message may wait for a receive: the network answers, and `last_acked_psn` stands still as well. So the other end
//! is asked whether its queue pair has receives.

use crate::settings::settings;
use shunt_mlx5::nic::qp::QpTruth;
use shunt_recovery::ack_watch::{AckWatch, Place};
use shunt_recovery::nanos::Nanos;

/// Requests that have not completed for so long are a reason to look, this often.
pub(super) fn quiet() -> Nanos {
    Nanos::new(settings().suspect_ns / 3)
}

/// A look that is under way.
#[derive(Clone, Copy)]
pub struct Look {
    /// The job's number.
    pub number: u64,
    /// The path.
    pub place: Place,
    /// The oldest request that was not complete, and the number that the next one of the program got.
    pub requests: (u64, u64),
    /// Some of them may wait for a receive of the other end.
    pub needs_receives: bool,
}

/// What is known of a queue pair of which nothing completes.
#[derive(Default)]
pub struct Silence {
    watch: AckWatch,
    look: Option<Look>,
    /// All requests before this one were acknowledged when it was looked at.
    acknowledged: u64,
    /// The oldest request when it was looked at last.
    oldest: u64,
    /// The other end has receives: it said so since that one is the oldest.
    receives_there: bool,
    /// The path on which nothing was acknowledged.
    silent: Option<Place>,
}

impl Silence {
    /// Nothing is acknowledged on this path.
    pub fn is_on(&self, place: Place) -> bool {
        self.silent == Some(place)
    }

    /// The other end says whether it has receives.
    pub const fn hear(&mut self, receives: bool) {
        self.receives_there = receives;
    }

    /// It may be looked at: no look is under way, and something was posted since all was acknowledged. `end`: the
    /// number that the program's next request gets.
    pub fn may_look(&self, end: u64) -> bool {
        self.look.is_none() && self.acknowledged != end
    }

    /// A look begins.
    pub fn begin(&mut self, look: Look) {
        self.receives_there &= self.oldest == look.requests.0;
        self.oldest = look.requests.0;
        self.look = Some(look);
    }

    /// The look failed.
    pub fn failed(&mut self) {
        self.look = None;
    }

    /// Of the look under way this is the number.
    pub fn is_look(&self, number: u64) -> bool {
        self.look.is_some_and(|look| look.number == number)
    }

    /// What came of the look, while this is the oldest request. True if the path is to be left.
    pub fn looked(&mut self, now: Nanos, truth: &QpTruth, oldest: u64) -> bool {
        let Some(look) = self.look.take() else { return false };
        let stands = self.watch.look(now, look.place, truth, quiet() + quiet());
        if !self.watch.is_waiting() {
            self.acknowledged = look.requests.1;
        }
        let silent = stands && oldest == look.requests.0 && (self.receives_there || !look.needs_receives);
        if silent {
            self.silent = Some(look.place);
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = (3, 1);

    /// What a look finds that begins and ends at this time, in thirds of `SHUNT_SUSPECT`.
    fn look(silence: &mut Silence, thirds: u64, acked: u32, oldest: u64, needs_receives: bool) -> bool {
        silence.begin(Look { number: thirds, place: PLACE, requests: (oldest, 20), needs_receives });
        assert!(silence.is_look(thirds) && !silence.may_look(99));
        let (state, next_send_psn, last_acked_psn) = (None, 20, acked);
        let truth = QpTruth {
            state,
            rmsn: 0,
            next_rcv_psn: 0,
            next_send_psn,
            last_acked_psn,
            in_order: true,
            ece: 0,
        };
        silence.looked(Nanos::secs(1) + Nanos::new(thirds * quiet().get()), &truth, oldest)
    }

    #[test]
    fn what_stands_still_is_left_and_what_is_all_acknowledged_is_not_looked_at() {
        let mut silence = Silence::default();
        assert!(!look(&mut silence, 1, 9, 5, false) && !look(&mut silence, 2, 9, 5, false));
        assert!(look(&mut silence, 3, 9, 5, false) && silence.is_on(PLACE) && !silence.is_on((3, 2)));
        let mut silence = Silence::default();
        assert!(!look(&mut silence, 1, 19, 5, false));
        assert!(!silence.may_look(20) && silence.may_look(21), "nothing was posted since, or something was");
    }

    #[test]
    fn what_may_wait_for_a_receive_is_left_once_the_other_end_has_one() {
        let mut silence = Silence::default();
        assert!(![1, 2, 3, 4].iter().any(|at| look(&mut silence, *at, 9, 5, true)));
        silence.hear(true);
        assert!(look(&mut silence, 5, 9, 5, true));
        // An answer about what has completed since says nothing of what waits now.
        let mut silence = Silence::default();
        look(&mut silence, 1, 9, 5, true);
        silence.hear(true);
        assert!(![2, 5, 8].iter().any(|at| look(&mut silence, *at, 10, 6, true)));
    }

    /// A look is old by the time that its answer comes.
    #[test]
    fn a_request_that_completed_since_the_look_speaks_against_silence() {
        let mut silence = Silence::default();
        look(&mut silence, 1, 9, 5, false);
        silence.begin(Look { number: 2, place: PLACE, requests: (5, 20), needs_receives: false });
        let truth = QpTruth {
            state: None,
            rmsn: 0,
            next_rcv_psn: 0,
            next_send_psn: 20,
            last_acked_psn: 9,
            in_order: true,
            ece: 0,
        };
        assert!(!silence.looked(Nanos::secs(9), &truth, 6));
    }
}
