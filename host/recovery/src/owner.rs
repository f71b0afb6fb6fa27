//! Who uses paths, as the engine sees it.

use super::endpoint::{Endpoint, Half, Maker};
use super::path::{Notice, Offer, Output, PathMachine, Word};
use super::verdict::Verdict;
use crate::nanos::Nanos;
use crate::slots::RailPair;
use shunt_layout::state::PathState;
use shunt_mlx5::descriptor::HalfCard;

/// Who uses paths: told what becomes of them, and asked whether it still does. Paths are named by their keys.
pub trait Owner {
    /// See [`super::path::Facts::has_left`].
    fn has_left(&self, key: usize) -> bool;
    /// True if a direction that has left sent nothing through the present incarnation of a path. False if that is not
    /// known.
    fn is_unused(&self, key: usize) -> bool;
    /// See [`super::path::Facts::row_state`].
    fn row_state(&self, key: usize) -> PathState;
    /// See [`super::path::Facts::change_row`].
    fn change_row(&mut self, key: usize, from: PathState, to: PathState) -> bool;
    /// See [`super::path::Facts::newest_request`].
    fn newest_request(&self, key: usize) -> u64;
    /// See [`super::path::Facts::rail_being_left`].
    fn rail_being_left(&self, key: usize, rail: u32) -> bool;
    /// True if a peer was given up.
    fn peer_lost(&self, peer: u32) -> bool;
    /// True if this end and a peer have these rails.
    fn rails_exist(&self, peer: u32, rails: RailPair) -> bool;
    /// Makes the next endpoint of a path; none if it cannot be.
    fn maker(&self, key: usize) -> Option<Box<dyn Maker>>;
    /// A word about an incarnation of a path, as the peer's engine reads it.
    fn message(&self, key: usize, incarnation: u32, word: Word) -> Vec<u8>;

    /// A path's state.
    fn set_row(&mut self, key: usize, state: PathState);
    /// Both halves of a path are known. It is not usable yet.
    fn publish(&mut self, key: usize, half: &dyn Endpoint, remote: &HalfCard);
    /// The next half of a path is made on other memory, if its owner may still read the old ring.
    fn spare_journal(&mut self, key: usize);
    /// A path may be used: from this index on, as ready since then.
    fn hand_over(&mut self, key: usize, next_index: u64, since: Nanos);
    /// The answer to a request about an incarnation of a path.
    fn answer(&mut self, now: Nanos, key: usize, at: (RailPair, u32), request: u64, verdict: Verdict);
    /// A request is being worked on, for the so-many-th time.
    fn in_hand(&mut self, key: usize, request: u64, turn: u64);
    /// An older half of a path was never proven quiet on a rail of this end.
    fn unproven(&mut self, key: usize, rail: u32);
    /// Nothing older of a path is left on a rail of this end.
    fn proven(&mut self, key: usize, rail: u32);
    /// Rails to a peer fell silent.
    fn rails_failed(&mut self, now: Nanos, peer: u32, rails: RailPair);
    /// Rails to a peer work.
    fn rails_worked(&mut self, peer: u32, rails: RailPair);
    /// The NIC of a rail of this end (`None`) or of a peer did not answer for a half; `first` if the rail was not under
    /// suspicion before. It is until a ping through it is answered.
    fn mute(&mut self, now: Nanos, pe: Option<u32>, rail: u32, first: bool);
    /// It answers again.
    fn answers(&mut self, pe: Option<u32>, rail: u32);
    /// What happened to a path.
    fn notice(&mut self, now: Nanos, key: usize, at: (RailPair, u32), notice: Notice);
    /// A peer said something about a path that cannot be.
    fn remark(&mut self, now: Nanos, key: usize, remark: PeerError);
}

/// What a peer said that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// It offers rails that do not exist.
    NoSuchRails(Offer),
    /// It made its half on the first rail, asked for was the second.
    OtherRail(u32, u32),
}

/// What a path's owner is told.
pub(super) fn tell(
    owner: &mut dyn Owner,
    now: Nanos,
    key: usize,
    path: &PathMachine<Half>,
    output: Output<Half>,
) {
    match output {
        Output::Row(state) => owner.set_row(key, state),
        Output::SpareJournal => owner.spare_journal(key),
        Output::Answer(incarnation, request, verdict) => {
            owner.answer(now, key, (path.rails(), incarnation), request, verdict);
        }
        Output::InHand(request, turn) => owner.in_hand(key, request, turn),
        Output::Unproven(rail) => owner.unproven(key, rail),
        Output::Proven(rail) => owner.proven(key, rail),
        Output::Notice(rails, incarnation, notice) => owner.notice(now, key, (rails, incarnation), notice),
        Output::NoSuchRails(offer) => owner.remark(now, key, PeerError::NoSuchRails(offer)),
        Output::OtherRail(made, wanted) => owner.remark(now, key, PeerError::OtherRail(made, wanted)),
        // The engine's own.
        _ => {}
    }
}
