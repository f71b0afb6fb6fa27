//! How both ends of a queue pair meet, and what each has then: a number of the other, and paths.
//!
//! A queue pair may have both ends in this process. Then this process is one of its own peers, and everything goes as
//! between two. One that is connected to itself is in charge twice, for what it sends and for what it receives: these
//! two are its ends.

use super::charge::{AGAIN, Charge, There};
use super::owner::OwnedPath;
use super::{ALONE, Agent, Peer};
use crate::chain::links;
use crate::spare::Lies;
use crate::words::{Hello, Said, encode};
use shunt_layout::state::PathState;
use shunt_recovery::links::PeerAddress;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::path::{PathMachine, PathStart};
use shunt_recovery::slots::RailPair;
use std::sync::Arc;

impl Agent {
    pub(super) fn introduce(&mut self, now: Nanos, charge: &mut Charge) {
        if charge.there.is_none() && now > charge.since + ALONE {
            let mut state = charge.pair.state();
            if state.is_at_home() {
                state.pass("no process with this library answers at the other end");
            }
            return;
        }
        if now < charge.hello_at + AGAIN {
            return;
        }
        charge.hello_at = now;
        let (to_gid, to_qpn) = charge.connection.remote();
        let Some(name) = self.post.directory.get(&to_gid, to_qpn) else { return self.report(charge) };
        if self.foreign.contains(&name) {
            return charge.pair.state().pass("the other end runs another version of this library");
        }
        let said = encode(&Said::Hello(Box::new(charge.hello(&self.cards))));
        // Nobody there, or no room: it is said again.
        let _ = self.post.directory.send(&name, &said);
        self.report(charge);
    }

    /// Somebody says that one of its queue pairs is connected to one of ours.
    pub(super) fn meet(&mut self, now: Nanos, name: &str, hello: &Hello) {
        let from_here = name == self.post.directory.name();
        let is = |one: &Charge| {
            let ends =
                (one.connection.gid, one.pair.qpn) == hello.to && one.connection.remote() == hello.from;
            // Of one that is connected to itself each part meets the other.
            let itself = from_here && one.id() == hello.id;
            ends && !itself && !one.parted && !one.over
        };
        let Some(at) = self.charges.iter().position(is) else { return };
        if hello.rails.iter().any(|rail| *rail as usize >= hello.cards.len()) {
            return;
        }
        let known = self.post.number(name);
        let peer = known.unwrap_or_else(|| self.join(name, hello));
        if self.peers.get(&peer).is_some_and(|peer| hello.cards.len() > peer.rails) {
            // Another process has this name by now.
            return;
        }
        let charge = &mut self.charges[at];
        if let Some(there) = charge.there.filter(|there| there.id != hello.id) {
            // One that its program has moved to RESET is another by now. Who had met it hears so by its own words.
            if charge.heard || from_here || there.id > hello.id {
                return;
            }
            charge.there = Some(There { id: hello.id, ..there });
            let paths = charge.keys.iter();
            paths.for_each(|key| {
                if let Some(path) = self.owned.paths.get_mut(key) {
                    path.there = hello.id;
                }
            });
        }
        let charge = &mut self.charges[at];
        if charge.there.is_none() {
            // Two ends in one process have one name.
            let leads = (self.post.directory.name(), charge.id()) < (name, hello.id);
            charge.there = Some(There { peer, id: hello.id, leads });
            self.make_paths(now, at, &hello.rails);
        }
        let charge = &mut self.charges[at];
        let armed = hello.heard && charge.arm();
        self.busy |= armed;
        // It may not know yet that it was heard.
        if armed || !hello.heard {
            // In order with all that follows: it hears nothing of a process that it has not met.
            self.post.send(peer, encode(&Said::Hello(Box::new(self.charges[at].hello(&self.cards)))));
        }
        if known.is_none() {
            self.tell_ports(peer);
        }
    }

    /// Tells a process that was just met which ports are down.
    fn tell_ports(&self, peer: u32) {
        for rail in 0..self.engine.rails.len() as u32 {
            let (down, at) = self.engine.ports.own(rail);
            if down {
                self.post.send(peer, encode(&Said::Port(rail, down, at.get())));
            }
        }
    }

    fn join(&mut self, name: &str, hello: &Hello) -> u32 {
        let rails = hello.cards.iter().map(|card| card.rail).collect();
        let address = PeerAddress { rails, datagrams: vec![0; hello.cards.len()], qkey: 0 };
        let number = self.engine.join(address);
        self.post.meet(name);
        let rails = hello.cards.len();
        self.peers.insert(number, Peer { keys: Arc::default(), rails });
        // It knows no key of ours.
        self.told.clear();
        number
    }

    /// The paths of a queue pair: the program's own, and those between other rails, which the engine makes.
    fn make_paths(&mut self, now: Nanos, at: usize, rails_there: &[u32]) {
        let charge = &self.charges[at];
        let Some(there) = charge.there else { return };
        let here = charge.id();
        let (pair, own, rails_here) =
            (charge.pair.clone(), charge.own(&self.engine.rails), charge.rails.clone());
        pair.domain.spread(&self.owned.contexts(charge.backups().iter().copied()));
        pair.hang_bell();
        if let Some(peer) = self.peers.get(&there.peer) {
            pair.state().keys = peer.keys.clone();
        }
        let psn = shunt_mlx5::endpoint::revived_psn(charge.connection.attr.sq_psn);
        let own: shunt_recovery::endpoint::Half = Arc::new(own);
        // Who leads counts as the first of the two ends, so that both mean the same by a number.
        let between = links(there.leads, rails_here.len(), rails_there.len());
        for (number, link) in (0..).zip(between) {
            let first = number == 0;
            let rails = RailPair { local: rails_here[link.here], remote: rails_there[link.there] };
            let lies = Lies {
                rail: rails.local,
                at_home: link.here == 0,
                peer_rail: rails.remote,
                peer_home: rails_there[0],
            };
            let half = first.then(|| own.clone());
            let start = PathStart { incarnation: first.into(), rails, half, next_psn: psn, orders: 0 };
            let key = self.engine.insert(there.peer, PathMachine::found(start, there.leads, now));
            let path = OwnedPath {
                pair: Arc::downgrade(&pair),
                here,
                there: there.id,
                number,
                lies,
                state: if first { PathState::Ready } else { PathState::Released },
                ready_since: now,
                incarnation: first.into(),
                active: first,
                asked: 0,
            };
            self.owned.paths.insert(key, path);
            self.charges[at].keys.push(key);
        }
    }
}
