//! Proof of the count on real paths: of which, and when. The rules are in `path_proof.rs`.

use super::Agent;
use crate::agent::health::Health;
use crate::agent::nic_job::Fenced;
use crate::agent::pair::Pair;
use crate::agent::path_proof::judge;
use crate::events::Event;
use crate::nanos::Nanos;

impl Agent {
    /// A half was fenced: if nothing but probes crossed its path, its count is judged.
    pub(in crate::agent) fn judge_path(&mut self, now: Nanos, index: usize, fenced: &Fenced) {
        let peer = self.place(index).peer;
        let Some(pair) = &self.pairs[index] else { return };
        let (rails, local) = (pair.rails(), pair.local_rail);
        // Not a path of the start, which had no probes, and not one of an agent before this one.
        let probed = (pair.probed == pair.incarnation).then_some(pair.remote.as_ref()).flatten();
        let Some(first_psn) = probed.map(|remote| remote.psn) else { return };
        if !self.rails.get(local as usize).is_some_and(|rail| rail.truth_holds) {
            return;
        }
        let shown = judge(self.options.probes, first_psn, fenced);
        if let Some(why) = self.proofs.keep(peer, rails, shown) {
            let why = format!("on the path to rail {} of PE {peer}, unlike on loopback: {why}", rails.remote);
            self.report(now, Event::CountRefused { rail: local, why });
        }
    }

    /// Asks for the proof of an idle backup, one at a time.
    pub(in crate::agent) fn mind_proofs(&mut self, now: Nanos) -> bool {
        if let Some((index, in_time)) = self.proofs.asked(now) {
            if in_time && self.may_be_proved(index) {
                self.vacate(now, index);
            } else {
                self.proofs.end();
            }
            return false;
        }
        if self.awake.age_ns < self.options.prove_ns {
            return false;
        }
        let Some(index) = self.next_to_prove() else { return false };
        if let Some(pair) = &self.pairs[index] {
            self.proofs.ask(now, index, self.place(index).peer, pair.rails());
        }
        true
    }

    /// A backup whose pair of rails nothing was shown of yet.
    fn next_to_prove(&self) -> Option<usize> {
        let open = |index: &usize| {
            let pair = self.pairs[*index].as_ref();
            pair.is_some_and(|pair| self.proofs.is_open(self.place(*index).peer, pair.rails()))
        };
        (0..self.pairs.len()).filter(open).find(|index| self.may_be_proved(*index))
    }

    /// True once every path is ready whose ports are up, and no backup is waiting to be proved or being proved.
    pub fn is_settled(&self) -> bool {
        let ready = |pair: &Pair| pair.health == Health::Ready && pair.leaving_ns.is_none();
        let rests = |index: usize| {
            let Some(pair) = &self.pairs[index] else { return true };
            let up = self.ports.up(pair.local_rail, self.place(index).peer, pair.remote_rail);
            ready(pair) || pair.is_out() || !up
        };
        (0..self.pairs.len()).all(rests) && !self.proofs.is_asking() && self.next_to_prove().is_none()
    }

    /// True for a backup that was probed, that this direction does not use, and that its channel can spare: it has a
    /// path and a backup besides.
    fn may_be_proved(&self, index: usize) -> bool {
        let (at, slots) = (self.place(index), self.words.root().slots as usize);
        let probed = |pair: &Pair| {
            pair.health == Health::Ready && pair.probed == pair.incarnation && pair.leaving_ns.is_none()
        };
        let ready = |pair: &Pair| pair.health == Health::Ready && pair.leaving_ns.is_none();
        let first = index - index % slots;
        let others = (first..first + slots).filter(|other| *other != index);
        let spare = others.filter(|other| self.pairs[*other].as_ref().is_some_and(ready)).count() >= 2;
        self.leads(index)
            && spare
            && self.pairs[index].as_ref().is_some_and(probed)
            && self.words.has_left(at)
            && self.ports.all_up()
    }
}
