//! Keys of the program's memory on backups, and peers that must know them.

use super::Agent;
use crate::objects::Domain;
use crate::words::{Said, encode};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Keys in one message.
const KEYS: usize = 3072;

impl Agent {
    /// Registers on backups what was registered since, and tells peers the keys. A program that registers memory for
    /// each queue pair connects that first: this waits for it, and for the pause that queue pairs wait for.
    pub(super) fn tell_keys(&mut self) {
        let mut domains: BTreeMap<usize, Shared<'_>> = BTreeMap::new();
        for charge in self.charges.iter().filter(|charge| !charge.keys.is_empty()) {
            let domain = &*charge.pair.domain;
            let shared = || Shared { domain, home: charge.home(), backups: BTreeSet::new() };
            let shared = domains.entry(domain.raw.0.addr()).or_insert_with(shared);
            shared.backups.extend(charge.backups());
        }
        // One without queue pairs is told again once it has some: what its peers knew may be cleared meanwhile.
        self.told.retain(|address, _| domains.contains_key(address));
        let (now, mut due, mut changed) = (self.now(), None, false);
        // What is to be posted on a backup now waits for its keys.
        let moves = self.charges.iter().any(|charge| !charge.fences.is_empty());
        for (address, shared) in &domains {
            let told = self.told.get(address).filter(|(_, backups)| *backups == shared.backups);
            if told.map(|(changes, _)| *changes) != Some(shared.domain.changes.load(Ordering::Acquire)) {
                due = self.fresh.after(now, self.keys_at).filter(|_| !moves);
                if due.is_some() {
                    continue;
                }
                let covered = shared.domain.spread(&self.owned.contexts(shared.backups.iter().copied()));
                self.told.insert(*address, (covered, shared.backups.clone()));
                changed = true;
            }
        }
        self.keys_at = due;
        if !changed {
            return;
        }
        let gone = |peer: &u32| {
            self.post.is_gone(*peer)
                && !self.charges.iter().any(|one| one.there.is_some_and(|at| at.peer == *peer))
        };
        let gone: Vec<u32> = self.peers.keys().copied().filter(gone).collect();
        let all: Vec<[u32; 4]> = domains.values().flat_map(Shared::keys).collect();
        for peer in self.peers.keys() {
            for (at, keys) in all.chunks(KEYS).chain(all.is_empty().then_some(&all[..])).enumerate() {
                self.post.send(*peer, encode(&Said::Keys(at == 0, keys.to_vec())));
            }
        }
        // A server whose clients change would keep what all of them ever told.
        for peer in gone {
            self.peers.remove(&peer);
            self.engine.leave(now, peer);
        }
    }
}

/// A domain of the program's, and the backups of all queue pairs in it.
struct Shared<'a> {
    domain: &'a Domain,
    home: u32,
    backups: BTreeSet<u32>,
}

impl Shared<'_> {
    fn keys(&self) -> Vec<[u32; 4]> {
        let regions = self.domain.regions();
        let mut keys = Vec::new();
        for region in regions.known.values() {
            let there = region.spares.iter().filter_map(|(rail, spare)| Some((*rail, (*spare)?)));
            // SAFETY: registered by this library, and alive while the lock is held.
            keys.extend(
                there.map(|(rail, spare)| [self.home, region.rkey, rail, unsafe { (*spare.0).rkey }]),
            );
        }
        keys
    }
}
