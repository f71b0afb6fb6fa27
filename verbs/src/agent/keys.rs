//! Keys of the program's memory on backups, and peers that must know them.

use super::Agent;
use crate::objects::At;
use crate::words::{Said, encode};

/// Keys in one message.
const KEYS: usize = 4096;

impl Agent {
    /// Registers on backups what was registered since, and tells peers the keys.
    pub(super) fn tell_keys(&mut self) {
        let mut changed = false;
        let mut all = Vec::new();
        let mut seen = Vec::new();
        for charge in self.charges.iter().filter(|charge| !charge.keys.is_empty()) {
            let domain = &charge.pair.domain;
            let address = domain.raw.0.addr();
            if seen.contains(&address) {
                continue;
            }
            seen.push(address);
            let changes = || domain.changes.load(std::sync::atomic::Ordering::Acquire);
            if self.told.get(&address) != Some(&changes()) {
                let context: At<_> = self.owned.devices[charge.rails.1 as usize].context;
                let covered = domain.spread(context);
                self.told.insert(address, covered);
                changed = true;
            }
        }
        if !changed {
            return;
        }
        for charge in &self.charges {
            let address = charge.pair.domain.raw.0.addr();
            let Some(at) = seen.iter().position(|one| *one == address) else { continue };
            seen.swap_remove(at);
            let regions = charge.pair.domain.regions();
            let known = regions.known.values().filter_map(|region| {
                // SAFETY: registered by this library, and alive while the lock is held.
                let spare = unsafe { (*region.spare?.0).rkey };
                Some([charge.rails.0, region.rkey, spare])
            });
            all.extend(known);
        }
        for peer in self.peers.keys() {
            if all.is_empty() {
                self.post.send(*peer, encode(&Said::Keys(true, Vec::new())));
            }
            for (at, keys) in all.chunks(KEYS).enumerate() {
                self.post.send(*peer, encode(&Said::Keys(at == 0, keys.to_vec())));
            }
        }
    }
}
