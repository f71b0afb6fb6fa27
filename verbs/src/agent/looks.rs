//! Looks at queue pairs whose requests do not complete: see [`super::silence`].

use super::Agent;
use super::charge::{self, Charge};
use super::silence::Look;
use crate::hooks::poll;
use crate::words::Said;
use shunt_mlx5::error::NicError;
use shunt_mlx5::nic::qp::QpTruth;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::nic_job::{Job, JobId, Urgency};
use std::sync::PoisonError;

impl Charge {
    /// The answer to who asks whether a message finds a receive. What came and was not polled is taken first: it is
    /// known then.
    pub(super) fn says_receives(&self) -> Option<Said> {
        let pair = &self.pair;
        {
            // While the program has the queue pair, its completion queues are alive.
            let raw = pair.raw.read().unwrap_or_else(PoisonError::into_inner);
            raw.is_some().then(|| poll::take_ahead(&pair.recv_cq));
        }
        let state = pair.state();
        let shares = pair.shared.as_ref().is_some_and(|shared| state.recv_on.is_own() && shared.has_own());
        let any = shares || !state.receives.is_empty();
        drop(state);
        self.there.map(|there| Said::Receives(there.id, any))
    }
}

impl Agent {
    /// Looks at a queue pair whose requests do not complete.
    pub(super) fn mind_the_silence(&mut self, now: Nanos, charge: &mut Charge) {
        if !charge.is_quiet(now) {
            return;
        }
        let state = charge.pair.state();
        let [key, _] = charge.used(&state);
        let (requests, needs_receives) =
            ((state.sends.first(), state.sends.end()), state.sends.waits_for_receives());
        drop(state);
        let found = key.and_then(|key| Some((key, self.engine.path(key)?)));
        let Some((key, path)) = found.filter(|_| charge.silence.may_look(requests.1)) else { return };
        let (rail, place) = (path.rails().local, (key, path.incarnation()));
        let (half, usable) = (path.half().cloned(), path.is_usable());
        self.engine.nics.ask_port(now, rail as usize);
        let Some(half) = half.filter(|_| usable) else { return };
        let number = self.engine.nics.submit(rail, Urgency::Idle, key, Job::Look(half));
        charge.silence.begin(Look { number, place, requests, needs_receives });
        if needs_receives {
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
