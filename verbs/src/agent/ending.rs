//! How the agent is done with a queue pair: lost, given back to the program, or without its other end.

use super::charge::{self, Charge};
use super::{Agent, waking};
use crate::pair_state::On;
use crate::settings::settings;
use crate::status;
use crate::words::Said;
use shunt_recovery::nanos::Nanos;
use std::sync::PoisonError;

/// Why a queue pair is not protected whose other end was destroyed, or stopped by its program.
pub(super) const ENDED: &str = "the other end has ended";

/// A NIC that answers lets go of a queue pair by then.
const LETS_GO: Nanos = Nanos::secs(2);

impl Agent {
    /// What is left to do without the other end: completions that are there may still be taken.
    pub(super) fn without_peer(&mut self, now: Nanos, charge: &mut Charge) {
        let mut state = charge.pair.state();
        if state.is_at_home() {
            state.pass(if charge.ended_there { ENDED } else { "the other end is not protected" });
            return;
        }
        let works = matches!((&state.send_on, &state.recv_on), (On::Spare(_), On::Spare(_)));
        let failed = state.spare_failed != [None; 2] || !works || state.closed;
        drop(state);
        if failed || charge.lost_there {
            self.drain(charge);
            self.lose(now, charge, ENDED);
        }
    }

    /// Without a path for too long the program gets its error.
    pub(super) fn mind_the_time(&mut self, now: Nanos, charge: &mut Charge) {
        let mut state = charge.pair.state();
        charge.pair.push_out(&mut state);
        let nowhere = matches!(state.send_on, On::Nowhere) || matches!(state.recv_on, On::Nowhere);
        let stuck = state.send_on.spare().is_some() && state.sends.first() == state.sends.next();
        let homeless = nowhere || state.closed || stuck && !state.sends.is_empty();
        drop(state);
        if !homeless {
            charge.homeless_since = None;
            return;
        }
        let since = *charge.homeless_since.get_or_insert(now);
        if now > since + Nanos::new(settings().give_up_ns) {
            self.lose(now, charge, "no path was ready within SHUNT_GIVE_UP");
        }
    }

    /// The program gets the error that it would have had.
    pub(super) fn lose(&mut self, now: Nanos, charge: &mut Charge, why: &'static str) {
        // Told before the program can see it, and end.
        let report = charge::report(&charge.pair, &self.chain(charge), why);
        status::tell(charge.pair.id, status::PairReport { state: "lost".into(), ..report });
        status::write();
        self.tell(charge, Said::Lost);
        {
            let mut state = charge.pair.state();
            (state.lost, state.lost_for) = (true, Some(why));
        }
        if let Some(shared) = &charge.pair.shared {
            shared.spoil();
        }
        self.mark(charge);
        waking::stop_own(&charge.pair);
        let (device, qpn) = (&charge.pair.context.device, charge.pair.qpn);
        charge::say(&format!("{device} QP {qpn:#x} is lost: {why}"));
        self.end(now, charge, why, true);
    }

    /// Nothing more is done for it.
    pub(super) fn end(&mut self, now: Nanos, charge: &mut Charge, why: &'static str, lost: bool) {
        charge.close(why, lost);
        charge.ended = lost.then_some(now);
        self.post.directory.remove(&charge.connection.gid, charge.pair.qpn);
        for key in std::mem::take(&mut charge.keys) {
            if lost {
                self.engine.remove(now, key);
            } else {
                self.forget(now, key);
            }
            self.owned.paths.remove(&key);
        }
        if status::tell(charge.pair.id, charge::report(&charge.pair, &self.chain(charge), why)) {
            status::write();
        }
    }

    /// What is left of queue pairs that are lost is told once no NIC uses its buffers any more: their halves are gone,
    /// and the program's own is in ERR.
    pub(super) fn release(&mut self, now: Nanos) {
        let silent = |rail: u32| !self.engine.rails[rail as usize].devx.responsive();
        for charge in &mut self.charges {
            let Some(since) = charge.ended else { continue };
            let spares = charge.pair.spares.lock().unwrap_or_else(PoisonError::into_inner);
            let halves = spares.iter().any(|spare| !silent(spare.lies.rail));
            drop(spares);
            let mut state = charge.pair.state();
            let own = !state.own_fenced && !state.own_stopped && !silent(charge.rails[0]);
            state.released = !halves && !own || now > since + LETS_GO;
            charge.ended = charge.ended.filter(|_| !state.released);
            drop(state);
            self.busy = true;
        }
    }

    /// Gives up a path whose half stays the program's, as it is.
    fn forget(&mut self, now: Nanos, key: usize) {
        if self.owned.paths.get(&key).is_some_and(|path| path.number == 0) {
            self.engine.forget(key);
        } else {
            self.engine.remove(now, key);
        }
    }

    /// Names of its backups, best first.
    fn chain(&self, charge: &Charge) -> String {
        let name = |rail: &u32| self.owned.devices[*rail as usize].name.as_str();
        charge.backups().iter().map(name).collect::<Vec<_>>().join(",")
    }

    /// Tells how it is. A queue pair is one, though it may be in charge twice.
    pub(super) fn report(&self, charge: &Charge) {
        if !charge.part.sends() {
            return;
        }
        let why = if charge.heard {
            ""
        } else {
            charge::awaits(charge.there.is_some(), self.post.directory.is_open())
        };
        if !charge.over
            && status::tell(charge.pair.id, charge::report(&charge.pair, &self.chain(charge), why))
        {
            status::write();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::completions::Member;
    use crate::idle_pair::pair;
    use shunt_mlx5_sys::IBV_WC_WR_FLUSH_ERR;
    use std::collections::VecDeque;

    /// A program had its buffers back, and a NIC still wrote into them what the other end sent.
    #[test]
    fn what_is_left_is_flushed_once_no_nic_uses_its_buffers() {
        let pair = pair();
        pair.state().receives.push(7, &[]);
        pair.state().stop("it is at home");
        pair.state().lost = true;
        let flushed = || {
            let mut to = VecDeque::new();
            pair.collect(&pair.recv_cq, &mut to);
            to.iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>()
        };
        assert_eq!(flushed(), []);
        pair.state().released = true;
        assert_eq!(flushed(), [(7, IBV_WC_WR_FLUSH_ERR)]);
        assert_eq!(flushed(), []);
    }
}
