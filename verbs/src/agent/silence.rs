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

/// The same once the same requests have been looked at for a time: they may wait for their peer's program, for as long
/// as that takes.
const SLOWER: [(Nanos, Nanos); 2] =
    [(Nanos::secs(4), Nanos::secs(2)), (Nanos::millis(250), Nanos::millis(250))];

/// A message that has found no receive is sent again after a time of the receiver's. It is not acknowledged until then.
/// Longer than [`SHORT_TIMERS`].
const RNR: Nanos = Nanos::millis(40);

/// A look that is under way.
#[derive(Clone, Copy)]
pub struct Look {
    /// The job's number.
    pub number: u64,
    /// When it began.
    pub asked: Nanos,
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
    /// Requests at the last look, and receives that they consume.
    requests: (u64, u64),
    consumed: u64,
    /// The first look at these requests, and the last.
    looks: [Nanos; 2],
    /// Receives that the other end's NIC has been given, by its last word, and since when those are enough.
    receives: u64,
    enough: Option<Nanos>,
    /// The path on which nothing was acknowledged.
    silent: Option<Place>,
}

impl Silence {
    /// Nothing is acknowledged on this path.
    pub fn is_on(&self, place: Place) -> bool {
        self.silent == Some(place)
    }

    /// The other end says how many receives its NIC was given.
    pub fn hear(&mut self, now: Nanos, receives: u64) {
        self.receives = receives;
        self.enough = (receives >= self.consumed).then(|| self.enough.unwrap_or(now));
    }

    /// How long nothing must have completed until a look, of the requests that are there.
    pub fn patience(&self, requests: (u64, u64)) -> Nanos {
        let [first, last] = self.looks;
        let same = SLOWER.iter().find(|(after, _)| requests == self.requests && last - first >= *after);
        same.map_or_else(quiet, |(_, patience)| (*patience).max(quiet()))
    }

    /// A look is under way.
    pub const fn is_looking(&self) -> bool {
        self.look.is_some()
    }

    /// A look begins.
    pub fn begin(&mut self, look: Look) {
        let first = if self.requests == look.requests { self.looks[0] } else { look.asked };
        self.looks = [first, look.asked];
        let other = self.requests.0 != look.requests.0;
        (self.requests, self.consumed) = (look.requests, look.consumed);
        if other || self.receives < look.consumed {
            self.enough = (self.receives >= look.consumed).then_some(look.asked);
        }
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
        let stands = self.watch.look((look.asked, now), look.place, truth, quiet() + quiet() / 2);
        let received = look.consumed == 0 || self.enough.is_some_and(|since| look.asked >= since + RNR);
        let silent = stands && received && oldest == look.requests.0;
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

    fn at(thirds: u64) -> Nanos {
        Nanos::secs(1) + Nanos::new(thirds * quiet().get())
    }

    /// What a look finds that begins and ends at this time, in thirds of `SHUNT_SUSPECT`.
    fn look(silence: &mut Silence, thirds: u64, acked: u32, oldest: u64, consumed: u64) -> bool {
        let asked = at(thirds);
        silence.begin(Look { number: thirds, asked, place: PLACE, requests: (oldest, 20), consumed });
        assert!(silence.is_look(thirds) && silence.is_looking());
        silence.looked(asked, &truth(acked), oldest)
    }

    #[test]
    fn what_stands_still_is_left_and_what_is_all_acknowledged_is_looked_at_less_and_less() {
        let mut silence = Silence::default();
        assert!(!look(&mut silence, 1, 9, 5, 0) && !look(&mut silence, 2, 9, 5, 0));
        assert!(look(&mut silence, 3, 9, 5, 0) && silence.is_on(PLACE) && !silence.is_on((3, 2)));
        let mut silence = Silence::default();
        let waits = [1, 2, 4, 9, 12, 60, 200].map(|at| {
            assert!(!look(&mut silence, at, 19, 5, 0));
            silence.patience((5, 20))
        });
        assert!(waits.is_sorted() && waits[0] == quiet() && waits[6] == SLOWER[0].1, "{waits:?}");
        assert_eq!(silence.patience((5, 21)), quiet(), "something was posted since");
    }

    #[test]
    fn what_may_wait_for_a_receive_is_left_once_the_other_end_had_one_for_a_while() {
        let mut silence = Silence::default();
        assert!(![1, 2, 3, 4].iter().any(|at| look(&mut silence, *at, 9, 5, 7)));
        silence.hear(at(4), 6);
        assert!(!look(&mut silence, 5, 9, 5, 7));
        silence.hear(at(5), 7);
        assert!(!look(&mut silence, 6, 9, 5, 7), "it may be sent again at any moment");
        silence.hear(at(6), 9);
        assert!(look(&mut silence, 7, 9, 5, 7));
        // What was enough for another message says nothing of this one.
        let mut silence = Silence::default();
        look(&mut silence, 1, 9, 5, 7);
        silence.hear(at(1), 9);
        assert!(!look(&mut silence, 4, 10, 6, 8) && !look(&mut silence, 5, 10, 6, 8));
        assert!(look(&mut silence, 6, 10, 6, 8));
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
        let asked = Nanos::secs(9);
        silence.begin(Look { number: 2, asked, place: PLACE, requests: (5, 20), consumed: 0 });
        assert!(!silence.looked(asked, &truth(9), 6));
    }
}
