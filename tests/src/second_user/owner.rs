//! Who owns the paths of a process: what the engine asks of it and tells it, and the words that engines exchange.

use std::sync::Arc;

use shunt_device::platform::host::World;
use shunt_host::agent::endpoint::{Endpoint, Maker};
use shunt_host::agent::owner::{Owner, PeerError};
use shunt_host::agent::path::{Notice, Word, WordParts};
use shunt_host::agent::verdict::Verdict;
use shunt_host::connect::card::HalfCard;
use shunt_host::nanos::Nanos;
use shunt_host::slots::RailPair;
use shunt_layout::state::PathState;

use super::endpoint::{Made, TalkMaker};
use super::spec::RAILS;

/// A path as its owner knows it.
pub(super) struct OwnedPath {
    /// Where it leads.
    pub peer: u32,
    /// Its number among the paths to that peer: both ends name it by that.
    pub number: u32,
    /// What the engine says of it.
    pub state: PathState,
    /// The incarnation whose halves are both known.
    pub incarnation: u32,
    /// This end posts on it.
    pub active: bool,
    /// The newest request for its fence.
    pub asked: u64,
}

/// The paths of a process.
pub(super) struct Owned {
    /// By key.
    pub paths: Vec<OwnedPath>,
    /// Requests so far.
    pub requests: u64,
    /// Answers that nobody has taken: key, request, verdict.
    pub answers: Vec<(usize, u64, Verdict)>,
    /// What cannot be.
    pub wrong: Vec<String>,
    /// The queue pairs of the paths.
    pub made: Made,
    /// The clock.
    pub world: Arc<dyn World>,
}

impl Owned {
    /// The key of a path by the name that both ends have for it.
    pub(super) fn key(&self, peer: u32, number: u32) -> Option<usize> {
        self.paths.iter().position(|path| (path.peer, path.number) == (peer, number))
    }
}

impl Owner for Owned {
    fn has_left(&self, key: usize) -> bool {
        !self.paths[key].active
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

    fn rails_exist(&self, _peer: u32, rails: RailPair) -> bool {
        rails.local < RAILS && rails.remote < RAILS
    }

    fn maker(&self, key: usize) -> Option<Box<dyn Maker>> {
        Some(Box::new(TalkMaker { key, made: self.made.clone(), world: self.world.clone() }))
    }

    fn message(&self, key: usize, incarnation: u32, word: Word) -> Vec<u8> {
        encode(self.paths[key].number, incarnation, word)
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

    fn notice(&mut self, _now: Nanos, _key: usize, _at: (RailPair, u32), _notice: Notice) {}

    fn remark(&mut self, _now: Nanos, key: usize, remark: PeerError) {
        self.wrong.push(format!("path {key}: the peer says what cannot be: {remark:?}"));
    }
}

/// What a process tells another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    /// Of a path, by its number, about an incarnation.
    Path(u32, u32, Word),
    /// A port of the sender is down, or up again; when, on its clock.
    Port(u32, bool, u64),
}

const PORT: u32 = 100;

/// A word about a path.
fn encode(number: u32, incarnation: u32, word: Word) -> Vec<u8> {
    let WordParts { numbers: [code, a, b], card } = word.into();
    let mut out: Vec<u8> =
        [code, number, incarnation, a, b].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    card.iter().for_each(|card: &HalfCard| out.extend(card.to_bytes()));
    out
}

/// A word about a port of the sender.
pub(super) fn port_word(rail: u32, down: bool, at_ns: u64) -> Vec<u8> {
    let words = [PORT, rail, down as u32, (at_ns >> 32) as u32, at_ns as u32];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Reads either.
pub(super) fn decode(bytes: &[u8]) -> Option<Said> {
    let word = |i: usize| Some(u32::from_be_bytes(bytes.get(4 * i..4 * i + 4)?.try_into().ok()?));
    let (number, incarnation, a, b) = (word(1)?, word(2)?, word(3)?, word(4)?);
    let card = || HalfCard::from_bytes(bytes.get(20..)?).ok();
    if word(0)? == PORT {
        return Some(Said::Port(number, incarnation != 0, u64::from(a) << 32 | u64::from(b)));
    }
    let said = Word::read([word(0)?, a, b], card)?;
    Some(Said::Path(number, incarnation, said))
}
