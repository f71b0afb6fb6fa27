//! Requests that do not complete: does the network answer the queue pair that has them? Pure.
//!
//! A queue pair of which nothing completes for a third of `SHUNT_SUSPECT` is asked what was acknowledged
//! ([`AckWatch`]), and so again. Once nothing was for the rest of that time, it is left like a path that has failed.
//!
//! A message may wait for a receive: the network answers, and `last_acked_psn` stands still as well. So the other end
//! is asked how many receives its NIC was given since it was connected. None of as many messages waits for one.

use crate::settings::settings;
use shunt_mlx5::nic::qp::QpTruth;
use shunt_recovery::ack_watch::{AckWatch, Place};
use shunt_recovery::nanos::Nanos;

/// Requests that have not completed for so long are a reason to look, this often.
pub(super) fn quiet() -> Nanos {
    Nanos::new(settings().suspect_ns / 3)
}

/// The same of those that were all acknowledged: their NIC is asked whether it answers.
const ACKNOWLEDGED: Nanos = Nanos::millis(250);

/// A look that is under way.
#[derive(Clone, Copy)]
pub struct Look {
    /// The job's number.
    pub number: u64,
    /// The path.
    pub place: Place,
    /// The oldest request that was not complete, and the number behind the last one that a NIC had.
    pub requests: (u64, u64),
    /// Receives that they and all before them consume.
    pub consumed: u64,
}

/// What is known of a queue pair of which nothing completes.
#[derive(Default)]
pub struct Silence {
    watch: AckWatch,
    look: Option<Look>,
    /// When a look found all acknowledged, the number behind the last request; and so the look before it.
    acknowledged: [u64; 2],
    /// Receives that the other end's NIC has been given, by its last word; and when the look under way began.
    receives: [u64; 2],
    /// The path on which nothing was acknowledged.
    silent: Option<Place>,
}

impl Silence {
    /// Nothing is acknowledged on this path.
    pub fn is_on(&self, place: Place) -> bool {
        self.silent == Some(place)
    }

    /// The other end says how many receives its NIC was given.
    pub fn hear(&mut self, receives: u64) {
        self.receives[0] = receives;
    }

    /// No look is under way, and two have not found all acknowledged of what a NIC has, up to this number. One look
    /// may come before the NIC has fetched what was just posted.
    pub fn may_look(&self, next: u64) -> bool {
        self.look.is_none() && self.acknowledged != [next; 2]
    }

    /// How long nothing must have completed until the NIC is asked, which has the requests before this number.
    pub fn patience(&self, next: u64) -> Nanos {
        if self.acknowledged == [next; 2] { ACKNOWLEDGED } else { quiet() }
    }

    /// A look begins.
    pub fn begin(&mut self, look: Look) {
        self.receives[1] = self.receives[0];
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
    ///
    /// The receives must have been there when the look began: a message that has found none is sent again after a time
    /// of the receiver's, and is not acknowledged until then.
    pub fn looked(&mut self, now: Nanos, truth: &QpTruth, oldest: u64) -> bool {
        let Some(look) = self.look.take() else { return false };
        let stands = self.watch.look(now, look.place, truth, quiet() + quiet());
        if !self.watch.is_waiting() {
            self.acknowledged = [look.requests.1, self.acknowledged[0]];
        }
        let silent = stands && oldest == look.requests.0 && look.consumed <= self.receives[1];
        if silent {
            self.silent = Some(look.place);
        }
        silent
    }
}

/// IBA's codes of the time after which a message that found no receive is sent again, up to 30.72 ms. 0 is 655 ms.
const SHORT_TIMERS: core::ops::RangeInclusive<u8> = 1..=23;

/// How many receives a NIC was given, as an end tells: none where that says nothing. `shared`: from a queue that others
/// take from. `timer`: of the end that receives, `min_rnr_timer`.
pub fn receives(given: u64, shared: bool, timer: u8) -> u64 {
    if shared || !SHORT_TIMERS.contains(&timer) { 0 } else { given }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = (3, 1);

    fn truth(last_acked_psn: u32) -> QpTruth {
        let (state, next_send_psn) = (None, 20);
        QpTruth { state, rmsn: 0, next_rcv_psn: 0, next_send_psn, last_acked_psn, in_order: true, ece: 0 }
    }

    /// What a look finds that begins and ends at this time, in thirds of `SHUNT_SUSPECT`.
    fn look(silence: &mut Silence, thirds: u64, acked: u32, oldest: u64, consumed: u64) -> bool {
        silence.begin(Look { number: thirds, place: PLACE, requests: (oldest, 20), consumed });
        assert!(silence.is_look(thirds) && !silence.may_look(99));
        silence.looked(Nanos::secs(1) + Nanos::new(thirds * quiet().get()), &truth(acked), oldest)
    }

    #[test]
    fn what_stands_still_is_left_and_what_is_all_acknowledged_is_not_looked_at() {
        let mut silence = Silence::default();
        assert!(!look(&mut silence, 1, 9, 5, 0) && !look(&mut silence, 2, 9, 5, 0));
        assert!(look(&mut silence, 3, 9, 5, 0) && silence.is_on(PLACE) && !silence.is_on((3, 2)));
        let mut silence = Silence::default();
        assert!(!look(&mut silence, 1, 19, 5, 0));
        assert!(silence.may_look(20), "the NIC may not have fetched the last one");
        assert!(!look(&mut silence, 2, 19, 5, 0));
        assert!(!silence.may_look(20) && silence.may_look(21), "nothing was posted since, or something was");
        assert!(silence.patience(20) > silence.patience(21));
    }

    #[test]
    fn what_may_wait_for_a_receive_is_left_once_the_other_end_had_one_for_a_while() {
        let mut silence = Silence::default();
        assert!(![1, 2, 3, 4].iter().any(|at| look(&mut silence, *at, 9, 5, 7)));
        silence.hear(6);
        assert!(!look(&mut silence, 5, 9, 5, 7));
        silence.hear(7);
        assert!(look(&mut silence, 6, 9, 5, 7));
        let mut silence = Silence::default();
        look(&mut silence, 1, 9, 5, 7);
        silence.begin(Look { number: 9, place: PLACE, requests: (5, 20), consumed: 7 });
        silence.hear(7);
        assert!(!silence.looked(Nanos::secs(9), &truth(9), 5), "it may be sent again at any moment");
        assert_eq!(
            [(8, false, 12), (8, true, 12), (8, false, 0)].map(|(a, b, c)| receives(a, b, c)),
            [8, 0, 0]
        );
    }

    /// A look is old by the time that its answer comes.
    #[test]
    fn a_request_that_completed_since_the_look_speaks_against_silence() {
        let mut silence = Silence::default();
        look(&mut silence, 1, 9, 5, 0);
        silence.begin(Look { number: 2, place: PLACE, requests: (5, 20), consumed: 0 });
        assert!(!silence.looked(Nanos::secs(9), &truth(9), 6));
    }
}
