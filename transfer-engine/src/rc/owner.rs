//! The paths, as their owner knows them: what the recovery engine asks and tells.

use super::endpoint::{AllMade, LaneMaker};
use super::words::{Said, encode};
use crate::ids::LaneId;
use shunt_device::platform::host::World;
use shunt_layout::state::PathState;
use shunt_mlx5::descriptor::HalfCard;
use shunt_recovery::endpoint::{Endpoint, Maker};
use shunt_recovery::nanos::Nanos;
use shunt_recovery::owner::{Owner, PeerError};
use shunt_recovery::path::{Notice, Word};
use shunt_recovery::slots::RailPair;
use shunt_recovery::verdict::Verdict;
use std::sync::Arc;

/// A path.
pub(super) struct OwnedPath {
    pub peer: u32,
    /// Its number among the paths to that peer: both ends name it by that.
    pub number: u32,
    /// What the engine says of it.
    pub state: PathState,
    /// The incarnation whose halves are both known.
    pub incarnation: u32,
    /// The last incarnation that a lane was opened on.
    pub opened: u32,
    /// The lane on it, until its fence is answered.
    pub lane: Option<LaneId>,
    /// The newest request for its fence.
    pub asked: u64,
}

/// All of them, by key.
pub(super) struct Owned {
    pub paths: Vec<OwnedPath>,
    /// Rails of every end, by number.
    pub rails: Vec<u32>,
    pub me: u32,
    /// Requests so far.
    pub requests: u64,
    /// Answers that nobody has taken: key, request, verdict.
    pub answers: Vec<(usize, u64, Verdict)>,
    pub made: AllMade,
    pub world: Arc<dyn World>,
    /// What went wrong and was not of anybody's asking, to be told.
    pub remarks: Vec<String>,
}

/// The peer of a path that is gone: its key waits for another one.
const NOBODY: u32 = u32::MAX;

impl Owned {
    /// A path, by its key.
    pub fn put(&mut self, key: usize, path: OwnedPath) {
        match self.paths.get_mut(key) {
            Some(place) => *place = path,
            None => self.paths.push(path),
        }
    }

    /// A path is gone: the lane that was on it.
    pub fn take(&mut self, key: usize) -> Option<LaneId> {
        let path = self.paths.get_mut(key)?;
        (path.peer, path.state) = (NOBODY, PathState::Released);
        path.lane.take()
    }

    /// The key of a path by the name that both ends have for it.
    pub fn key(&self, peer: u32, number: u32) -> Option<usize> {
        self.paths.iter().position(|path| (path.peer, path.number) == (peer, number))
    }
}

impl Owner for Owned {
    fn has_left(&self, key: usize) -> bool {
        self.paths[key].lane.is_none()
    }

    fn is_unused(&self, _key: usize) -> bool {
        false
    }

    fn row_state(&self, key: usize) -> PathState {
        self.paths[key].state
    }

    fn change_row(&mut self, key: usize, from: PathState, to: PathState) -> bool {
        let state = &mut self.paths[key].state;
        let same = *state == from;
        *state = if same { to } else { *state };
        same
    }

    fn newest_request(&self, key: usize) -> u64 {
        self.paths[key].asked
    }

    fn rail_being_left(&self, _key: usize, _rail: u32) -> bool {
        false
    }

    fn peer_lost(&self, _peer: u32) -> bool {
        false
    }

    fn rails_exist(&self, peer: u32, rails: RailPair) -> bool {
        let count = |end: u32| self.rails.get(end as usize).copied().unwrap_or(0);
        rails.local < count(self.me) && rails.remote < count(peer)
    }

    fn maker(&self, key: usize) -> Option<Box<dyn Maker>> {
        let peer = self.paths[key].peer;
        Some(Box::new(LaneMaker { key, peer, made: self.made.clone(), world: self.world.clone() }))
    }

    fn message(&self, key: usize, incarnation: u32, word: Word) -> Vec<u8> {
        encode(Said::Path(self.paths[key].number, incarnation, word))
    }

    fn set_row(&mut self, key: usize, state: PathState) {
        self.paths[key].state = state;
    }

    fn publish(&mut self, key: usize, half: &dyn Endpoint, _remote: &HalfCard) {
        self.paths[key].incarnation = half.incarnation();
    }

    fn spare_journal(&mut self, _key: usize) {}

    fn hand_over(&mut self, _key: usize, _next_index: u64, _since: Nanos) {}

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
