//! Whether the network has stopped answering a queue pair: packets are on their way, and the PSN that was acknowledged
//! last stands still. Pure.
//!
//! A NIC tells of it once its retries run out, half a second to minutes later, as the program asked for. QUERY_QP tells
//! at any time: `next_send_psn` and `last_acked_psn` of the context (PRM, QP context entry).

use crate::nanos::Nanos;
use shunt_layout::mlx5::prm::qp::State;
use shunt_mlx5::nic::qp::{MASK_24, QpTruth};

/// A path, by its key, and its incarnation.
pub type Place = (usize, u32);

/// What was acknowledged when it was looked at.
#[derive(Clone, Copy, Debug)]
struct Seen {
    place: Place,
    acked: u32,
    since: Nanos,
}

/// What QUERY_QP has said of a queue pair so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckWatch {
    seen: Option<Seen>,
}

impl AckWatch {
    /// QUERY_QP says this of the queue pair of that path; it was asked at `asked`, and has answered by `now`. True if
    /// packets are on their way, and none was acknowledged from an answer to a question `patience` later.
    pub fn look(
        &mut self,
        (asked, now): (Nanos, Nanos),
        place: Place,
        truth: &QpTruth,
        patience: Nanos,
    ) -> bool {
        let acked = truth.last_acked_psn;
        let ended = truth.state.is_some_and(|state| state != State::Rts);
        if ended || truth.next_send_psn == acked.wrapping_add(1) & MASK_24 {
            self.seen = None;
            return false;
        }
        match self.seen.filter(|seen| (seen.place, seen.acked) == (place, acked)) {
            Some(seen) => asked >= seen.since + patience,
            None => {
                self.seen = Some(Seen { place, acked, since: now });
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(next_send_psn: u32, last_acked_psn: u32) -> QpTruth {
        let state = Some(State::Rts);
        QpTruth { state, rmsn: 0, next_rcv_psn: 0, next_send_psn, last_acked_psn, in_order: true, ece: 0 }
    }

    const PATIENCE: Nanos = Nanos::millis(50);
    const PLACE: Place = (3, 1);

    /// Asked at this time, and answered half a millisecond later.
    fn at(ms: u64) -> (Nanos, Nanos) {
        let asked = Nanos::secs(1) + Nanos::millis(ms);
        (asked, asked + Nanos::micros(500))
    }

    #[test]
    fn one_whose_acknowledgements_stand_still_is_silent_after_the_patience() {
        let mut watch = AckWatch::default();
        assert!(!watch.look(at(0), PLACE, &truth(20, 9), PATIENCE), "the first look");
        assert!(!watch.look(at(50), PLACE, &truth(25, 9), PATIENCE), "asked too early");
        assert!(watch.look(at(51), PLACE, &truth(25, 9), PATIENCE));
        assert!(!watch.look(at(60), PLACE, &truth(25, 10), PATIENCE), "one was acknowledged");
        assert!(!watch.look(at(111), (3, 2), &truth(25, 10), PATIENCE), "made again since");
        let err = QpTruth { state: Some(State::Err), ..truth(25, 10) };
        assert!(!watch.look(at(500), (3, 2), &err, PATIENCE), "it has failed, and says so");
    }

    #[test]
    fn one_that_has_nothing_on_its_way_is_not_silent_wherever_its_numbers_end() {
        let mut watch = AckWatch::default();
        for (next, acked) in [(10, 9), (0, MASK_24)] {
            assert!(!watch.look(at(0), PLACE, &truth(next, acked), PATIENCE));
            assert!(!watch.look(at(500), PLACE, &truth(next, acked), PATIENCE));
        }
        assert!(!watch.look(at(600), PLACE, &truth(5, MASK_24), PATIENCE));
        assert!(watch.look(at(700), PLACE, &truth(5, MASK_24), PATIENCE));
    }
}
