//! The facts of one path, put together for its machine.

use super::destroy_queue::DestroyQueue;
use super::endpoint::Half;
use super::links::Links;
use super::nic_dispatch::Nics;
use super::owner::Owner;
use super::path::Facts;
use super::path_proof::Proofs;
use super::peer_silence::PeerSilence;
use super::port_table::PortTable;
use crate::nanos::Nanos;
use crate::slots::RailPair;
use shunt_layout::state::PathState;
use shunt_mlx5::rail::Rail;
use std::sync::Arc;

/// The facts of one path, for its machine.
pub struct Seen<'a> {
    pub ports: &'a PortTable,
    pub links: &'a mut Links,
    pub nics: &'a Nics,
    pub destroys: &'a DestroyQueue<Half>,
    pub proofs: &'a Proofs,
    pub peers: &'a mut PeerSilence,
    pub rails: &'a [Arc<Rail>],
    pub awake: Nanos,
    pub nic_patience: Nanos,
    pub owner: &'a mut dyn Owner,
    pub key: usize,
    pub peer: u32,
}

impl Facts for Seen<'_> {
    fn own_port_up(&self, rail: u32) -> bool {
        self.ports.own_up(rail)
    }

    fn ports_up(&self, rails: RailPair) -> bool {
        self.ports.up(rails.local, self.peer, rails.remote)
    }

    fn calm_from(&self, now: Nanos, rails: RailPair) -> Nanos {
        self.ports.calm_from(now, rails.local, self.peer, rails.remote)
    }

    fn rails_exist(&self, rails: RailPair) -> bool {
        self.owner.rails_exist(self.peer, rails)
    }

    fn nic_silent(&self, rail: u32) -> bool {
        self.nics.is_silent(self.awake, rail, self.nic_patience)
    }

    fn nic_has_room(&self, rail: u32) -> bool {
        self.nics.has_room(rail)
    }

    fn count_trusted(&self, nic: u32, rails: RailPair) -> bool {
        let shown = self.rails.get(nic as usize).is_some_and(|rail| rail.truth_holds);
        shown && self.proofs.believes(self.peer, rails)
    }

    fn destroy_pending(&self, rail: u32) -> bool {
        self.destroys.holds(self.key, rail)
    }

    fn destroy_refused(&self, rail: u32) -> bool {
        self.destroys.was_refused(self.key, rail)
    }

    fn completions_in_use(&self, variant: u32) -> bool {
        self.destroys.cq_buffer_in_use(self.key, variant)
    }

    fn rail_being_left(&self, rail: u32) -> bool {
        self.owner.rail_being_left(self.key, rail)
    }

    fn peer_lost(&self) -> bool {
        self.owner.peer_lost(self.peer)
    }

    fn peer_reachable(&mut self, now: Nanos) -> bool {
        self.links.reachable(now, self.peer, self.ports)
    }

    fn peer_owes_since(&mut self, awake: Nanos) -> Nanos {
        self.peers.owes_since(self.peer, awake)
    }

    fn has_left(&self) -> bool {
        self.owner.has_left(self.key)
    }

    fn is_unused(&self) -> bool {
        self.owner.has_left(self.key) && self.owner.is_unused(self.key)
    }

    fn row_state(&self) -> PathState {
        self.owner.row_state(self.key)
    }

    fn change_row(&mut self, from: PathState, to: PathState) -> bool {
        self.owner.change_row(self.key, from, to)
    }

    fn newest_request(&self) -> u64 {
        self.owner.newest_request(self.key)
    }
}
