//! A path fell silent: who is asked, and what becomes of the answers. The rules are in `fault_localizer.rs`.

use super::Agent;
use crate::agent::fault_localizer::{Blame, Cleared, OTHERS, Ping};
use crate::agent::health::Health;
use crate::agent::rails::Pong;
use crate::agent::words::Place;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::slots::RailPair;

impl Agent {
    /// A switcher leaves a path, of this PE or of the peer: if silence made it, and no port explains that, somebody is
    /// to be asked.
    pub(in crate::agent) fn look_into(&mut self, now: Nanos, index: usize, at: Place, silent: bool) {
        let Some(one) = self.pairs[index].as_ref().filter(|one| one.health == Health::Ready) else { return };
        let (peer, pair) = (at.peer, one.rails());
        if !silent || !self.ports.up(pair.local, peer, pair.remote) {
            return;
        }
        self.note_failure(now, index);
        if self.localizer.takes(peer, pair) {
            let (with_peer, others) = (self.links.pairs(peer, &self.ports), self.other_peers(peer, pair));
            let number = self.links.number();
            self.localizer.begin(now, (peer, pair), &with_peer, &others, number);
        }
    }

    /// Some other peers that can be asked over the local rail of a path.
    fn other_peers(&self, peer: u32, path: RailPair) -> Vec<Ping> {
        let (pes, me) = (self.words.root().pe_count, self.words.root().my_pe);
        let others = (1..pes).map(|step| (peer + step) % pes).filter(|other| *other != me && *other != peer);
        let over = |other: u32| {
            let pairs = self.links.pairs(other, &self.ports);
            pairs.into_iter().find(|pair| pair.local == path.local).map(|pair| (other, pair))
        };
        others.take(OTHERS).filter_map(over).collect()
    }

    /// Carries searches on and asks suspects.
    pub(in crate::agent) fn localize(&mut self, now: Nanos) -> bool {
        if self.localizer.is_idle() {
            return false;
        }
        let shape = (self.words.root().my_pe, self.words.root().pe_count);
        let (pings, found) = self.localizer.poll(now, shape, |peer| self.links.pairs(peer, &self.ports));
        for (peer, pair) in pings {
            self.links.ping(peer, pair);
        }
        for ((peer, pair), blame) in &found {
            match blame {
                Blame::Local => self.suspect(now, None, pair.local, *peer),
                Blame::Remote => self.suspect(now, Some(*peer), pair.remote, *peer),
                Blame::Pair | Blame::Nothing | Blame::Unknown => {}
            }
        }
        !found.is_empty()
    }

    /// A ping was answered.
    pub(in crate::agent) fn answered(&mut self, now: Nanos, pong: Pong) {
        let pair = RailPair { local: pong.local, remote: pong.remote };
        for one in self.localizer.answered(now, (pong.peer, pair), pong.number) {
            self.cleared(now, one);
        }
    }

    fn suspect(&mut self, now: Nanos, pe: Option<u32>, rail: u32, peer: u32) {
        let number = self.links.number();
        if self.localizer.suspect(now, pe, rail, peer, number) {
            self.words.set_suspect(pe, rail, true);
            self.report(now, Event::RailSuspected { of: pe.unwrap_or(self.words.root().my_pe), rail });
        }
    }

    fn cleared(&mut self, now: Nanos, one: Cleared) {
        self.words.set_suspect(one.pe, one.rail, false);
        let of = one.pe.unwrap_or(self.words.root().my_pe);
        self.report(now, Event::RailCleared { of, rail: one.rail, suspected_ns: one.suspected.get() });
    }

    /// A port changed: what is known of it takes the place of what was suspected.
    pub(in crate::agent) fn forget_suspicion(&mut self, now: Nanos, pe: Option<u32>, rail: u32) {
        if let Some(one) = self.localizer.forget(now, pe, rail) {
            self.cleared(now, one);
        }
    }
}
