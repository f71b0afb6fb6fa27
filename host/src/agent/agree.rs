//! The agents agree on who is left out, where somebody asked for it (`crate::ranks`). Links and facts are put together
//! here; the rules are there.

use super::Agent;
use super::rails::Reach;
use crate::events::Event;
use crate::ranks::Ranks;
use crate::ranks::machine::{Standing, Times};
use crate::ranks::message::Message;
use shunt_layout::status::Standing as Told;
use std::sync::Arc;

/// What an agent knows of it beside what outlives it.
pub(super) struct Agreement {
    pub(super) ranks: Arc<Ranks>,
    /// Epoch and standing that were told.
    told: (u64, Standing),
    next_touch_ns: u64,
    /// It follows another agent, and has not said so.
    follows: bool,
}

impl Agreement {
    pub(super) fn new(ranks: &Arc<Ranks>, follows: bool) -> Self {
        let agreed = ranks.agreed();
        Self { ranks: ranks.clone(), told: (agreed.epoch, agreed.standing), next_touch_ns: 0, follows }
    }
}

impl Agent {
    fn rank_times(&self) -> Times {
        Times::of(self.words.root().policy.give_up_ns)
    }

    /// Carries the agreement on. Without anybody who asked for it this is one load.
    pub(super) fn agree_on_ranks(&mut self) -> bool {
        if !self.agreement.ranks.is_asked() {
            return false;
        }
        let (me, pes) = (self.words.root().my_pe, self.words.root().pe_count);
        self.touch_the_half_lost();
        let lost: Vec<u32> = (0..pes).filter(|peer| self.news.is_lost(*peer)).collect();
        // As this agent was awake: neither a pause of its own nor a clock that jumps is the others' silence.
        let (now, times) = (self.awake.age_ns, self.rank_times());
        let Agreement { ranks, told, follows, .. } = &mut self.agreement;
        let (before, after, masked, sent) = ranks.with(me, times, now, |machine| {
            if std::mem::take(follows) {
                machine.restart(now);
            }
            lost.iter().for_each(|peer| machine.lose(now, *peer));
            machine.tick(now);
            let after = (machine.epoch(), machine.standing());
            (std::mem::replace(told, after), after, machine.mask().count(), machine.drain())
        });
        let busy = !sent.is_empty();
        for (to, message) in sent {
            self.links.send(to, message.to_bytes(), Reach::Link, &self.ports);
        }
        if before != after {
            self.report(Event::RankMask { epoch: after.0, masked, standing: as_told(after.1).name() });
        }
        busy
    }

    /// Where one channel to a peer has ended and others are at rest, those find out by being used.
    fn touch_the_half_lost(&mut self) {
        let now = self.awake.age_ns;
        let pause_ns = self.options.touch_ns;
        if now < self.agreement.next_touch_ns || !self.news.has_dead() || pause_ns == u64::MAX {
            return;
        }
        self.agreement.next_touch_ns = now.saturating_add(pause_ns);
        let (pes, per, me) =
            (self.words.root().pe_count, self.words.root().channels_per_pe, self.words.root().my_pe);
        for peer in (0..pes).filter(|peer| *peer != me && !self.news.is_lost(*peer)) {
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
    pub(super) fn hear_of_ranks(&mut self, from: u32, bytes: &[u8]) {
        // Who was not asked yet does not know whether its rank takes part. It is told again.
        if !self.agreement.ranks.is_asked() {
            return;
        }
        let (me, pes) = (self.words.root().my_pe, self.words.root().pe_count);
        match Message::from_bytes(pes, bytes) {
            Ok(message) => {
                let (now, times) = (self.awake.age_ns, self.rank_times());
                self.agreement.ranks.with(me, times, now, |machine| machine.take(now, from, message));
            }
            Err(error) => self.report(Event::MessageRefused { peer: from, error: error.to_string() }),
        }
    }
}

/// As the status page has it.
pub(super) const fn as_told(standing: Standing) -> Told {
    match standing {
        Standing::Member => Told::Member,
        Standing::Out => Told::Out,
        Standing::Alone => Told::Alone,
    }
}
