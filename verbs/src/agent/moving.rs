//! Moves queue pairs: who notices, what is asked, and what follows from the answers.

use super::charge::{self, Charge, Fence};
use super::ending::ENDED;
use super::{Agent, required};
use crate::hooks::poll;
use crate::pair_state::{NOT_POSTED, On, SHARES, STOPPED, Track};
use crate::queue_pair::QueuePair;
use crate::settings::{Atomics, settings};
use crate::spare::Spare;
use crate::words::{Said, encode};
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{AnswerStatus, PathState};
use shunt_recovery::endpoint::Half;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::path::{PathMachine, Step};
use shunt_recovery::verdict::Verdict;
use std::sync::{Arc, PoisonError};

/// Completions that the other end counts must be there by then.
const COMPLETIONS: Nanos = Nanos::secs(2);

impl Agent {
    /// Carries all queue pairs on.
    pub(super) fn carry_charges(&mut self) {
        let mut at = 0;
        while at < self.charges.len() {
            let mut charge = self.charges.swap_remove(at);
            if !charge.over {
                self.carry(&mut charge);
            }
            self.charges.push(charge);
            let last = self.charges.len() - 1;
            self.charges.swap(at, last);
            at += 1;
        }
    }

    fn carry(&mut self, charge: &mut Charge) {
        let now = self.now();
        if let Some((why, moved)) = charge.pair.over() {
            self.tell(charge, |id| Said::Parted(id, why == STOPPED));
            if !moved && why != STOPPED && why != ENDED {
                required::refuse(&charge.pair, why);
            }
            return self.end(now, charge, why, moved);
        }
        if charge.starves(now) {
            return self.lose(now, charge, SHARES);
        }
        let lost = {
            let state = charge.pair.state();
            state.lost.then_some(state.lost_for)
        };
        if let Some(why) = lost {
            self.tell(charge, Said::Lost);
            return self.end(now, charge, why.unwrap_or("the program's own error"), true);
        }
        if charge.parted || charge.lost_there {
            return self.without_peer(now, charge);
        }
        if !charge.heard {
            return self.introduce(now, charge);
        }
        if charge.part.sends() && !charge.answers_here && charge.pair.state().sends.needs_answers() {
            charge.answers_here = true;
            self.tell(charge, Said::Atomics);
        }
        self.notice(now, charge);
        self.take_answers(now, charge);
        if charge.pair.state().sends.answer_is_lost() {
            return self.lose(now, charge, "the answer of an atomic that was executed is lost");
        }
        self.free_receives(now, charge);
        self.place_receives(charge);
        charge.mind_the_buffers(now);
        self.mind_the_silence(now, charge);
        self.open_sends(charge);
        self.note_use(charge);
        self.mind_the_time(now, charge);
        self.report(charge);
    }

    /// Asks for the fence of whatever path is used and has failed, and of the backup once it is to be left.
    fn notice(&mut self, now: Nanos, charge: &mut Charge) {
        let (used, own_failed, spare_failed, misplaced) = {
            let mut state = charge.pair.state();
            let used = charge.used(&state);
            // An atomic waits, and may not go where this direction goes.
            let track = state.send_on.spare().filter(|track| !track.queue.takes_atomics());
            let misplaced = track.filter(|_| state.sends.has_atomics()).map(|track| track.key);
            (used, std::mem::take(&mut state.own_failed), charge.take_failed(&mut state), misplaced)
        };
        let goes_back = self.may_go_back(now, charge, used);
        for key in used.into_iter().flatten() {
            let Some((peer, path)) = self.engine.paths().peer(key).zip(self.engine.path(key)) else {
                continue;
            };
            let (incarnation, rails) = (path.incarnation(), path.rails());
            let is = |fence: &Fence| (fence.key, fence.incarnation) == (key, incarnation);
            if charge.fences.iter().any(is) {
                continue;
            }
            let ready = self.owned.paths.get(&key).is_some_and(|path| path.state == PathState::Ready);
            let up = self.engine.ports.up(rails.local, peer, rails.remote);
            let own = own_failed && charge.first() == Some(key) && incarnation == 1;
            // A NIC that answers nothing completes nothing either: no completion will say so.
            let silent = !self.engine.rails[rails.local as usize].devx.responsive();
            let answers = charge.answers_here || charge.answers_there;
            let silent = silent || charge.silence.is_on((key, incarnation)) && !answers;
            let failed = own || silent || spare_failed.contains(&Some((key, incarnation)));
            let unfit = misplaced == Some(key);
            // What no message came into is known once all have left the queue that they share.
            let home = charge.first() == Some(key) && incarnation == 1;
            let shared = charge.pair.shared.as_ref();
            let follows = home && shared.is_some_and(|shared| shared.is_left());
            let called = used[1] == Some(key) && shared.is_some_and(|one| one.is_called_back(charge.pair.id));
            if goes_back && Mutant::ReturnUnfenced.on() && charge.fences.is_empty() {
                self.return_unfenced(now, charge, Fence { key, incarnation, request: 0 });
            } else if !ready || !up || failed || unfit || follows || called || goes_back {
                self.ask(now, charge, key, incarnation);
            }
        }
    }

    /// A break: the cut is what has completed here, and the path is left as it is.
    fn return_unfenced(&mut self, now: Nanos, charge: &mut Charge, fence: Fence) {
        let state = charge.pair.state();
        let track = state.send_on.spare().map_or((0, 0), |track| (track.first_number, track.first_index));
        let executed = (track.1 + state.sends.first().saturating_sub(track.0)) as u32;
        drop(state);
        self.answered(now, charge, fence, Verdict { status: AnswerStatus::Truth, executed });
    }

    /// True if neither direction is on the first path or being moved, and that has been ready for long enough. One end
    /// decides.
    fn may_go_back(&self, now: Nanos, charge: &Charge, used: [Option<usize>; 2]) -> bool {
        let Some(first) = charge.first() else { return false };
        let answers = charge.answers_here || charge.answers_there;
        if !charge.is_away(used) || answers || charge.ready.is_some() || !charge.fences.is_empty() {
            return false;
        }
        let leads = charge.there.is_some_and(|there| there.leads);
        let Some(path) = self.owned.paths.get(&first) else { return false };
        let over = now >= path.ready_since + Nanos::new(settings().recovery_window_ns);
        leads && path.state == PathState::Ready && over && self.engine.ports_up(first)
    }

    fn ask(&mut self, now: Nanos, charge: &mut Charge, key: usize, incarnation: u32) {
        {
            let mut state = charge.pair.state();
            if charge.used(&state)[0] == Some(key) {
                state.closed = true;
            }
        }
        self.mark(charge);
        if let Some(shared) = charge.pair.shared.as_ref().filter(|_| charge.first() == Some(key)) {
            shared.leave();
        }
        self.owned.requests += 1;
        let request = self.owned.requests;
        if let Some(path) = self.owned.paths.get_mut(&key) {
            (path.asked, path.active) = (request, true);
        }
        charge.fences.push(Fence { key, incarnation, request });
        let ask = |path: &mut PathMachine<Half>, cx: &mut Step<'_, Half>| path.ask(cx, request, false);
        self.engine.with(&mut self.owned, now, key, ask);
        self.busy = true;
    }

    /// From now on completions may come from elsewhere.
    pub(super) fn mark(&self, charge: &mut Charge) {
        if !std::mem::replace(&mut charge.marked, true) {
            charge.pair.mark_moved();
        }
    }

    fn take_answers(&mut self, now: Nanos, charge: &mut Charge) {
        let mut at = 0;
        while at < charge.fences.len() {
            let fence = charge.fences[at];
            let is = |one: &(usize, u64, Verdict)| (one.0, one.1) == (fence.key, fence.request);
            let Some(found) = self.owned.answers.iter().position(is) else {
                at += 1;
                continue;
            };
            let (.., verdict) = self.owned.answers.swap_remove(found);
            charge.fences.swap_remove(at);
            self.answered(now, charge, fence, verdict);
            self.busy = true;
        }
    }

    /// Takes what NICs have written for the queue pair, ahead of the program.
    pub(super) fn drain(&self, charge: &Charge) {
        // While the program has the queue pair, its completion queues are alive.
        let raw = charge.pair.raw.read().unwrap_or_else(PoisonError::into_inner);
        if raw.is_some() {
            poll::drain(&charge.pair.send_cq);
            poll::drain(&charge.pair.recv_cq);
        }
    }

    /// Both halves of a path are fenced: the cut.
    fn answered(&mut self, now: Nanos, charge: &mut Charge, fence: Fence, verdict: Verdict) {
        self.drain(charge);
        let pair = charge.pair.clone();
        let mut queue = pair.send_cq.enter_first();
        let mut state = pair.state();
        let [sends, receives] = charge.used(&state).map(|key| key == Some(fence.key));
        state.own_fenced |= charge.first() == Some(fence.key) && fence.incarnation == 1;
        if sends {
            let again = match pair.cut_sends(&mut queue, &mut state, verdict) {
                Ok(again) => again,
                Err(why) => {
                    drop((state, queue));
                    return self.lose(now, charge, why);
                }
            };
            charge.again = again;
        }
        drop((state, queue));
        let number = charge.number(fence.key);
        let waited = charge.ready.is_some_and(|(to, of)| Some(to) == number && of == fence.incarnation);
        if sends || waited {
            charge.ready = charge.ready.filter(|_| !waited);
            self.tell_cut(charge);
        }
        if receives {
            charge.fenced_since = Some(now);
        }
    }

    /// Tells the receiver how much has come, and whether it must stay where atomics may go.
    fn tell_cut(&self, charge: &Charge) {
        let state = charge.pair.state();
        let (two_sided, atomics) = (state.sends.two_sided(), state.sends.has_atomics());
        drop(state);
        let keep = atomics && settings().atomics == Atomics::Keep;
        self.tell(charge, |id| Said::Cut(id, charge.their_epoch, two_sided, keep));
    }

    pub(super) fn tell(&self, charge: &Charge, said: impl FnOnce(u64) -> Said) {
        if let Some(there) = charge.there {
            self.post.send(there.peer, encode(&said(there.id)));
        }
    }

    /// Where it received is fenced, and the other end has said how many messages came: they are taken, and no more.
    fn free_receives(&mut self, now: Nanos, charge: &mut Charge) {
        let Some(since) = charge.fenced_since else { return };
        let Some((_, count)) = charge.cut.filter(|(epoch, _)| *epoch == charge.epoch) else { return };
        self.drain(charge);
        let pair = charge.pair.clone();
        let queue = pair.recv_cq.enter_first();
        let state = pair.state();
        let (received, fits) = (state.receives.received(), pair.fits(&state, true));
        drop((state, queue));
        if !fits {
            return self.lose(now, charge, NOT_POSTED);
        }
        if received > count {
            return self.lose(now, charge, "more messages came than the other end has sent");
        }
        if received < count {
            if now > since + COMPLETIONS {
                self.lose(now, charge, "completions of messages that were executed did not come");
            }
            return;
        }
        let mut state = charge.pair.state();
        state.recv_on = On::Nowhere;
        state.receives.rewind();
        if let Some(shared) = &charge.pair.shared {
            let dealt = state.receives.take_all();
            shared.give_back(charge.pair.id, dealt);
            drop(state);
            shared.moved().iter().for_each(|taker| taker.serve());
        } else {
            drop(state);
        }
        (charge.fenced_since, charge.cut) = (None, None);
        self.busy = true;
    }

    /// The queue pair that stands in on a path, if it is ready.
    fn ready_spare(&self, charge: &Charge, key: usize) -> Option<(Arc<Spare>, u32)> {
        let path = self.owned.paths.get(&key)?;
        let machine = self.engine.path(key)?;
        let usable = path.state == PathState::Ready && machine.incarnation() == path.incarnation;
        let fenced = charge.fences.iter().any(|fence| fence.key == key);
        if !usable || fenced || !self.engine.ports_up(key) {
            return None;
        }
        let made_for = (key, path.incarnation);
        let spares = charge.pair.spares.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = spares.iter().find(|spare| spare.made_for == made_for)?;
        Some((spare.clone(), path.incarnation))
    }

    /// Receives go to the first path that is ready.
    fn place_receives(&mut self, charge: &mut Charge) {
        if !charge.part.receives() || !matches!(charge.pair.state().recv_on, On::Nowhere) {
            return;
        }
        let fit =
            |key: &usize| !charge.atomics || self.owned.paths.get(key).is_some_and(|path| path.lies.at_home);
        let keys = charge.keys.iter().copied().filter(fit);
        let found = keys.filter_map(|key| Some((key, self.ready_spare(charge, key)?))).next();
        let Some((key, (queue, incarnation))) = found else { return };
        let pair: &QueuePair = &charge.pair;
        let mut state = pair.state();
        state.recv_on = On::Spare(Track { key, queue, first_number: 0, first_index: 0 });
        pair.push_out(&mut state);
        drop(state);
        charge.epoch += 1;
        if let Some(path) = self.owned.paths.get_mut(&key) {
            path.active = true;
        }
        let number = charge.number(key).unwrap_or_default();
        self.tell(charge, |id| Said::Ready(id, number, incarnation, charge.epoch));
        self.busy = true;
    }

    /// The other end receives somewhere: the rest is sent there.
    fn open_sends(&mut self, charge: &mut Charge) {
        let Some((number, incarnation)) = charge.ready.or_else(|| self.unasked(charge)) else { return };
        if !matches!(charge.pair.state().send_on, On::Nowhere) {
            return;
        }
        let Some(key) = charge.keys.get(number as usize).copied() else { return };
        let Some(machine) = self.engine.path(key) else { return };
        let missed = machine.incarnation() > incarnation;
        if missed || machine.incarnation() == incarnation && !machine.is_usable() {
            // It was fenced before anything was sent there.
            let fenced = missed || machine.truths().0.is_some();
            if fenced {
                charge.ready = None;
                self.tell_cut(charge);
            }
            return;
        }
        let Some((queue, of)) = self.ready_spare(charge, key).filter(|(_, of)| *of == incarnation) else {
            return;
        };
        let pair: &QueuePair = &charge.pair;
        let to = queue.name().to_owned();
        pair.send_over(key, queue);
        let again = std::mem::take(&mut charge.again);
        debug_assert_eq!(of, incarnation);
        charge.ready = None;
        if let Some(path) = self.owned.paths.get_mut(&key) {
            path.active = true;
        }
        let (device, qpn) = (&pair.context.device, pair.qpn);
        charge::say(&format!("{device} QP {qpn:#x} goes on over {to}, {again} requests posted again"));
        self.busy = true;
    }

    /// A break: any path will do.
    fn unasked(&self, charge: &Charge) -> Option<(u32, u32)> {
        let mut keys = charge.keys.iter().filter(|_| Mutant::ReadyNotAwaited.on());
        keys.find_map(|key| Some((charge.number(*key)?, self.ready_spare(charge, *key)?.1)))
    }

    /// Paths that no direction is on have been left.
    fn note_use(&mut self, charge: &Charge) {
        let state = charge.pair.state();
        let used = charge.used(&state);
        drop(state);
        for key in charge.keys.iter().copied() {
            let fenced = charge.fences.iter().any(|fence| fence.key == key);
            if let Some(path) = self.owned.paths.get_mut(&key) {
                path.active = used.contains(&Some(key)) || fenced;
            }
        }
    }
}
