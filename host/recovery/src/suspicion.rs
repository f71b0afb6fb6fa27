//! What makes the engine suspect a rail: a path that fell silent, and a NIC that does not answer for a half.

use super::engine::Engine;
use super::fault_localizer::{OTHERS, Ping};
use super::owner::Owner;
use crate::nanos::Nanos;
use crate::slots::RailPair;

impl Engine {
    /// A path is left because of silence: if no port explains that, somebody is to be asked.
    pub(super) fn look_into(&mut self, owner: &mut dyn Owner, now: Nanos, peer: u32, rails: RailPair) {
        if !self.ports.up(rails.local, peer, rails.remote) {
            return;
        }
        owner.rails_failed(now, peer, rails);
        if self.localizer.takes(peer, rails) {
            let with_peer = self.links.pairs(peer, &self.ports);
            let others: Vec<Ping> = self.links.others(peer, rails.local, OTHERS, &self.ports).collect();
            self.localizer.begin(now, (peer, rails), &with_peer, &others, self.links.number());
        }
    }

    /// A NIC did not answer for a half of a path to `peer`. Unless a port explains it, its rail is suspected at once
    /// and pinged: while nothing comes back, what is posted there can be fenced by the other end alone.
    pub(super) fn mute(
        &mut self,
        owner: &mut dyn Owner,
        now: Nanos,
        peer: u32,
        (pe, rail): (Option<u32>, u32),
    ) {
        if self.ports.is_down(pe, rail) {
            return;
        }
        let first = self.localizer.suspect(now, pe, rail, peer, self.links.number());
        self.localizer.mute(pe, rail);
        owner.mute(now, pe, rail, first);
    }

    /// A NIC answered for a half: paths over its rail can be fenced. The rail stays under suspicion until it carries a
    /// ping.
    pub(super) fn answers(&mut self, owner: &mut dyn Owner, pe: Option<u32>, rail: u32) {
        if self.localizer.answers(pe, rail) {
            owner.answers(pe, rail);
        }
    }
}
