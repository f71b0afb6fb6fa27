//! Who owns the paths of this process's queue pairs, as the recovery engine sees it.

use crate::endpoint::SpareMaker;
use crate::objects::{At, Channel};
use crate::pair_state::Connection;
use crate::queue_pair::QueuePair;
use crate::real;
use crate::spare::{Lies, Place};
use crate::words::{Said, encode};
use shunt_layout::state::PathState;
use shunt_mlx5::descriptor::HalfCard;
use shunt_mlx5::rail::Rail;
use shunt_mlx5_sys::{ibv_context, ibv_context_ops, ibv_gid};
use shunt_recovery::endpoint::{Endpoint, Maker};
use shunt_recovery::nanos::Nanos;
use shunt_recovery::owner::{Owner, PeerError};
use shunt_recovery::path::{Notice, Word};
use shunt_recovery::slots::RailPair;
use shunt_recovery::verdict::Verdict;
use std::collections::HashMap;
use std::sync::Weak;

/// A device, opened by this library for its own queue pairs.
#[derive(Clone)]
pub struct Device {
    /// Name.
    pub name: String,
    /// The context.
    pub context: At<ibv_context>,
    /// Its table.
    pub ops: ibv_context_ops,
    /// Completions there wake the agent.
    pub channel: Option<Channel>,
}

impl Device {
    /// The address of an end that is connected so; none if the kernel knows none.
    pub fn address(&self, connection: &Connection) -> Option<[u8; 16]> {
        let (port, index) = (connection.attr.port_num, connection.attr.ah_attr.grh.sgid_index);
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: the agent's context is open, and the answer is ours; any sixteen bytes are an address.
        unsafe {
            let errno = real::ibv_query_gid(self.context.0, port, index.into(), &raw mut gid);
            (errno == 0).then_some(gid.raw)
        }
    }
}

/// A path of a queue pair.
pub struct OwnedPath {
    /// Whose it is.
    pub pair: Weak<QueuePair>,
    /// This end's number, and whose path it is among those of a queue pair that is connected to itself.
    pub here: u64,
    /// The peer's number for its queue pair.
    pub there: u64,
    /// Its place in the list of both ends. 0: the one that the program made.
    pub number: u32,
    /// Where this end's queue pairs lie, and where they lead.
    pub lies: Lies,
    /// What the engine says of it.
    pub state: PathState,
    /// Since when it is ready.
    pub ready_since: Nanos,
    /// The incarnation whose halves are both known.
    pub incarnation: u32,
    /// A direction uses it, or is leaving it.
    pub active: bool,
    /// The newest request for its fence.
    pub asked: u64,
}

/// All of them.
pub struct Owned {
    /// By key.
    pub paths: HashMap<usize, OwnedPath>,
    /// Requests so far.
    pub requests: u64,
    /// Answers that nobody has taken: key, request, verdict.
    pub answers: Vec<(usize, u64, Verdict)>,
    /// By rail.
    pub devices: Vec<Device>,
    /// What went wrong, to be told.
    pub remarks: Vec<String>,
}

impl Owned {
    /// The key of a path by the names that the peer has for it.
    pub fn key(&self, here: u64, number: u32) -> Option<usize> {
        let is = |path: &OwnedPath| (path.here, path.number) == (here, number);
        self.paths.iter().find(|(_, path)| is(path)).map(|(key, _)| *key)
    }

    /// Contexts of rails, for this library's own objects.
    pub fn contexts(&self, rails: impl Iterator<Item = u32>) -> Vec<(u32, At<ibv_context>)> {
        rails.map(|rail| (rail, self.devices[rail as usize].context)).collect()
    }

    fn state(&self, key: usize) -> PathState {
        self.paths.get(&key).map_or(PathState::Absent, |path| path.state)
    }

    fn set(&mut self, key: usize, state: PathState) {
        if let Some(path) = self.paths.get_mut(&key) {
            path.state = state;
        }
    }
}

impl Owner for Owned {
    fn has_left(&self, key: usize) -> bool {
        self.paths.get(&key).is_none_or(|path| !path.active)
    }

    fn is_unused(&self, _key: usize) -> bool {
        false
    }

    fn row_state(&self, key: usize) -> PathState {
        self.state(key)
    }

    fn change_row(&mut self, key: usize, from: PathState, to: PathState) -> bool {
        let same = self.state(key) == from;
        if same {
            self.set(key, to);
        }
        same
    }

    fn newest_request(&self, key: usize) -> u64 {
        self.paths.get(&key).map_or(0, |path| path.asked)
    }

    fn rail_being_left(&self, _key: usize, _rail: u32) -> bool {
        false
    }

    fn peer_lost(&self, _peer: u32) -> bool {
        false
    }

    fn rails_exist(&self, _peer: u32, rails: RailPair) -> bool {
        (rails.local as usize) < self.devices.len()
    }

    fn maker(&self, key: usize) -> Option<Box<dyn Maker>> {
        let path = self.paths.get(&key)?;
        let (pair, lies) = (path.pair.clone(), path.lies);
        let (of, devices) = (pair.clone(), self.devices.clone());
        let place = move |rail: &Rail| {
            let pair = of.upgrade()?;
            let device = devices.get(rail.index as usize)?;
            let (context, ops, domain) = match lies.at_home {
                true => (pair.context.raw, pair.context.ops, pair.domain.raw),
                false => (device.context, device.ops, *pair.domain.regions().spares.get(&lies.rail)?),
            };
            let channel = match (pair.may_sleep(), lies.at_home) {
                (false, _) => None,
                (true, true) => pair.context.channel(),
                (true, false) => device.channel,
            };
            let name = device.name.clone();
            Some(Place { context, ops, domain, lies, name, channel })
        };
        Some(Box::new(SpareMaker { pair, key, place: Box::new(place) }))
    }

    fn message(&self, key: usize, incarnation: u32, word: Word) -> Vec<u8> {
        let name = self.paths.get(&key).map_or((0, 0), |path| (path.there, path.number));
        encode(&Said::Path(name.0, name.1, incarnation, word))
    }

    fn set_row(&mut self, key: usize, state: PathState) {
        self.set(key, state);
    }

    fn publish(&mut self, key: usize, half: &dyn Endpoint, _remote: &HalfCard) {
        if let Some(path) = self.paths.get_mut(&key) {
            path.incarnation = half.incarnation();
        }
    }

    fn spare_journal(&mut self, _key: usize) {}

    fn hand_over(&mut self, key: usize, _next_index: u64, since: Nanos) {
        if let Some(path) = self.paths.get_mut(&key) {
            path.ready_since = since;
        }
    }

    fn answer(&mut self, _now: Nanos, key: usize, _at: (RailPair, u32), request: u64, verdict: Verdict) {
        self.answers.push((key, request, verdict));
    }

    fn in_hand(&mut self, _key: usize, _request: u64, _turn: u64) {}

    fn unproven(&mut self, _key: usize, _rail: u32) {}

    fn proven(&mut self, _key: usize, _rail: u32) {}

    fn rails_failed(&mut self, _now: Nanos, _peer: u32, _rails: RailPair) {}

    fn rails_worked(&mut self, _peer: u32, _rails: RailPair) {}

    fn mute(&mut self, _now: Nanos, _pe: Option<u32>, _rail: u32, _first: bool) {}

    fn answers(&mut self, _pe: Option<u32>, _rail: u32) {}

    fn notice(&mut self, _now: Nanos, key: usize, at: (RailPair, u32), notice: Notice) {
        if let Notice::RevivalFailed(error) | Notice::FenceFailed(error) = notice {
            self.remarks.push(format!("path {key}, incarnation {}: {error}", at.1));
        }
    }

    fn remark(&mut self, _now: Nanos, key: usize, remark: PeerError) {
        self.remarks.push(format!("path {key}: the peer says what cannot be: {remark:?}"));
    }
}
