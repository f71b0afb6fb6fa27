//! Looks at queue pairs whose requests do not complete: see [`super::silence`].

use super::Agent;
use super::charge::{self, Charge};
use super::silence::{Look, receives};
use crate::words::Said;
use shunt_mlx5::error::NicError;
use shunt_mlx5::nic::qp::QpTruth;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::nic_job::{Job, JobId, Urgency};

impl Charge {
    /// The answer to who asks how many receives this end's NIC was given.
    pub(super) fn says_receives(&self) -> Option<Said> {
        let given = self.pair.state().receives.all_given();
        let count = receives(given, self.pair.shared.is_some(), self.connection.attr.min_rnr_timer);
        self.there.map(|there| Said::Receives(there.id, count))
    }
}

impl Agent {
    /// Looks at a queue pair whose requests do not complete. Not where the program needs the answers of atomics: one
    /// that is lost would end the connection, and the NIC may have it sent again.
    pub(super) fn mind_the_silence(&mut self, now: Nanos, charge: &mut Charge) {
        if !charge.is_quiet(now) {
            return;
        }
        let state = charge.pair.state();
        let [key, _] = charge.used(&state);
        let (requests, consumed) = ((state.sends.first(), state.sends.next()), state.sends.consumes());
        drop(state);
        let Some((key, path)) = key.and_then(|key| Some((key, self.engine.path(key)?))) else { return };
        let (rail, place) = (path.rails().local, (key, path.incarnation()));
        let half = path.half().filter(|_| path.is_usable()).cloned();
        self.engine.nics.ask_port(now, rail as usize);
        let answers = charge.answers_here || charge.answers_there;
        let Some(half) = half.filter(|_| !answers && charge.silence.may_look(requests.1)) else { return };
        let number = self.engine.nics.submit(rail, Urgency::Idle, key, Job::Look(half));
        charge.silence.begin(Look { number, place, requests, consumed });
        if consumed > 0 {
            self.tell(charge, Said::Quiet);
        }
    }

    /// What QUERY_QP said, if it was asked for one of these looks.
    pub(super) fn looked(&mut self, now: Nanos, id: JobId, found: &Result<QpTruth, NicError>) -> bool {
        let Some(charge) = self.charges.iter_mut().find(|one| one.silence.is_look(id.number)) else {
            return false;
        };
        let oldest = charge.pair.state().sends.first();
        match found {
            Ok(truth) if charge.silence.looked(now, truth, oldest) => {
                let (device, qpn) = (&charge.pair.context.device, charge.pair.qpn);
                charge::say(&format!("{device} QP {qpn:#x}: nothing is acknowledged; it leaves this path"));
            }
            Ok(_) => {}
            Err(_) => charge.silence.failed(),
        }
        true
    }
}
