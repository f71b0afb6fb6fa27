//! The agents agree on who is left out, where somebody asked for it (`crate::ranks`). Links and facts are put together
//! here; the rules are there.

use super::Agent;
use crate::agent::agreement::Agreement;
use crate::agent::rails::Reach;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::ranks::machine::{Standing, Times};
use crate::ranks::message::Message;
use shunt_layout::status::Standing as Told;

impl Agent {
    fn rank_times(&self) -> Times {
        Times::of(self.words.root().policy.give_up_ns)
    }

    /// Carries the agreement on. Without anybody who asked for it this is one load.
    pub(in crate::agent) fn agree_on_ranks(&mut self, now: Nanos) -> bool {
        if !self.agreement.ranks.is_asked() {
            return false;
        }
        let (me, pes) = (self.words.root().my_pe, self.words.root().pe_count);
        self.touch_the_half_lost();
        let lost: Vec<u32> = (0..pes).filter(|peer| self.reporter.is_lost(*peer)).collect();
        // As this agent was awake: neither a pause of its own nor a clock that jumps is the others' silence.
        let (awake_ns, times) = (self.awake.age_ns.get(), self.rank_times());
        let Agreement { ranks, told, follows, .. } = &mut self.agreement;
        let (before, after, masked, sent) = ranks.with(me, times, awake_ns, |machine| {
            if std::mem::take(follows) {
                machine.restart(awake_ns);
            }
            lost.iter().for_each(|peer| machine.lose(awake_ns, *peer));
            machine.tick(awake_ns);
            let after = (machine.epoch(), machine.standing());
            (std::mem::replace(told, after), after, machine.mask().count(), machine.drain())
        });
        let busy = !sent.is_empty();
        for (to, message) in sent {
            self.links.send(now, to, message.to_bytes(), Reach::Link, &self.ports);
        }
        if before != after {
            self.report(now, Event::RankMask { epoch: after.0, masked, standing: as_told(after.1).name() });
        }
        busy
    }

    /// Puts something on the wire to peers whose agent neither link reaches. If only the agents are silent, that
    /// changes nothing; if the process is gone, its channels fail now and not at the next put: a kernel that waits
    /// for such a peer's signal has nothing outstanding to notice it by.
    pub(in crate::agent) fn touch_the_silent(&mut self, now: Nanos) {
        if now < self.next_touch_ns || self.options.touch_ns == Nanos::MAX {
            return;
        }
        let (pes, per, me) = {
            let root = self.words.root();
            (root.pe_count, root.channels_per_pe, root.my_pe)
        };
        let mut pause_ns = self.options.touch_ns;
        for peer in (0..pes).filter(|peer| *peer != me) {
            if !self.links.reachable(now, peer, &self.ports) {
                (0..per).for_each(|channel| {
                    self.words.touch(peer * per + channel);
                });
            } else if self.links.in_question(peer) {
                pause_ns = pause_ns.min(self.options.touch_ns / 4);
            }
        }
        self.next_touch_ns = now + pause_ns;
        self.tell_of_rails(now);
    }

    /// Where one channel to a peer has ended and others are at rest, those find out by being used.
    fn touch_the_half_lost(&mut self) {
        let now = self.awake.age_ns;
        let pause_ns = self.options.touch_ns;
        if now < self.agreement.next_touch_ns || !self.reporter.has_dead() || pause_ns == Nanos::MAX {
            return;
        }
        self.agreement.next_touch_ns = now + pause_ns;
        let (pes, per, me) =
            (self.words.root().pe_count, self.words.root().channels_per_pe, self.words.root().my_pe);
        for peer in (0..pes).filter(|peer| *peer != me && !self.reporter.is_lost(*peer)) {
            let (dead, rest): (Vec<u32>, Vec<u32>) =
                (0..per).partition(|channel| self.words.is_dead(peer, *channel));
            if !dead.is_empty() {
                rest.into_iter().for_each(|channel| {
                    self.words.touch(peer * per + channel);
                });
            }
        }
    }

    /// A message about it arrived.
    pub(in crate::agent) fn hear_of_ranks(&mut self, now: Nanos, from: u32, bytes: &[u8]) {
        // Who was not asked yet does not know whether its rank takes part. It is told again.
        if !self.agreement.ranks.is_asked() {
            return;
        }
        let (me, pes) = (self.words.root().my_pe, self.words.root().pe_count);
        match Message::from_bytes(pes, bytes) {
            Ok(message) => {
                let (awake_ns, times) = (self.awake.age_ns.get(), self.rank_times());
                self.agreement
                    .ranks
                    .with(me, times, awake_ns, |machine| machine.take(awake_ns, from, message));
            }
            Err(error) => self.report(now, Event::MessageRefused { peer: from, error: error.to_string() }),
        }
    }
}

/// As the status page has it.
pub(in crate::agent) const fn as_told(standing: Standing) -> Told {
    match standing {
        Standing::Member => Told::Member,
        Standing::Out => Told::Out,
        Standing::Alone => Told::Alone,
    }
}
