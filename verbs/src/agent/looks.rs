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
        let state = self.pair.state();
        let (given, timer) = (state.receives.all_given(), state.connection.attr.min_rnr_timer);
        drop(state);
        let count = receives(given, self.pair.shared.is_some(), timer);
        self.there.map(|there| Said::Receives(there.id, count))
    }
}

impl Agent {
    /// Looks at a queue pair whose requests do not complete. Not where the program needs the answers of atomics: one
    /// that is lost would end the connection, and the NIC may have it sent again.
    pub(super) fn mind_the_silence(&mut self, now: Nanos, charge: &mut Charge) {
        let [key, _] = charge.used(&charge.pair.state());
        let Some((key, path)) = key.and_then(|key| Some((key, self.engine.path(key)?))) else { return };
        let (rail, place) = (path.rails().local, (key, path.incarnation()));
        let half = path.half().filter(|_| path.is_usable()).cloned();
        // A look at a time: what is more urgent waits for one command at most.
        let free = self.engine.nics.queue(rail).is_none_or(|queue| queue.waiting() == 0);
        if !free || !charge.is_quiet(now) {
            return;
        }
        self.engine.nics.ask_port(now, rail as usize);
        let answers = charge.answers_here || charge.answers_there;
        let Some(half) = half.filter(|_| !answers && !charge.silence.is_looking()) else { return };
        let state = charge.pair.state();
        let (requests, consumed) = ((state.sends.first(), state.sends.next()), state.sends.consumes());
        drop(state);
        let number = self.engine.nics.submit(rail, Urgency::Idle, key, Job::Look(half));
        charge.silence.begin(Look { number, asked: now, place, requests, consumed });
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
