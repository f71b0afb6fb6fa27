//! The channels of a PE as the owner of paths: what device code reads and writes, and the memory of its rings.
//!
//! A path's key is its place in the table of rows: by peer, channel and slot.

use super::atomic_owner::AtomicOwner;
use super::endpoint::{Endpoint, Maker};
use super::fetch_server::FetchServer;
use super::fetch_words::FetchWords;
use super::half::ChannelMaker;
use super::message::{Home, Message, PairId, SideTruth};
use super::nic_job::FenceTimes;
use super::owner::{Owner, PeerError};
use super::path::{Notice, Word};
use super::path_pool::PathPool;
use super::reporter::Reporter;
use super::verdict::Verdict;
use super::words::{Place, StateWords};
use crate::connect::card::HalfCard;
use crate::events::{Event, Route};
use crate::nanos::Nanos;
use crate::nic::qp::QpTuning;
use crate::nic::queue::{At, RingSpan};
use crate::slots::RailPair;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{AnswerStatus, DeviceState, PathState};

/// The channels of one PE.
pub(super) struct Channels {
    pub(super) words: StateWords,
    pub(super) pool: PathPool,
    pub(super) atomics: AtomicOwner,
    pub(super) reporter: Reporter,
    /// By key: memory of the rings, for all incarnations.
    pub(super) rings: Vec<Option<RingSpan>>,
    /// By row: the send queue that is no path's.
    pub(super) spares: Vec<Option<At>>,
    /// By key: how often switches had entered the path when this incarnation was handed over.
    pub(super) entered_before: Vec<u32>,
    /// By key: what [`Owner::has_left`] would have said when the path was handed over. For a break of the protocol
    /// alone, [`Mutant::MirrorReadEarly`].
    pub(super) left_before: Vec<bool>,
    /// By row: number of the newest request that was taken.
    pub(super) requests_seen: Vec<u64>,
    pub(super) tuning: QpTuning,
    /// Exact fetching atomics that peers ask for, where there is room for them.
    pub(super) fetches: Option<(FetchServer, FetchWords)>,
}

impl Channels {
    /// [`Channels::entered_before`] of an agent that begins: it knows of paths that no switch has ever entered. A
    /// channel begins on slot 0 without a switch, so nothing is known of that one.
    pub(super) fn entered_by_nobody(root: &DeviceState) -> Vec<u32> {
        let paths = root.pe_count * root.channels_per_pe * root.slots;
        (0..paths).map(|key| if key % root.slots == 0 { u32::MAX } else { 0 }).collect()
    }

    /// [`Channels::left_before`] of an agent that begins.
    pub(super) fn left_at_start(root: &DeviceState) -> Vec<bool> {
        let paths = root.pe_count * root.channels_per_pe * root.slots;
        (0..paths).map(|key| key % root.slots != 0).collect()
    }

    /// The key of a place.
    pub(super) fn key(&self, at: Place) -> usize {
        let root = self.words.root();
        ((at.peer * root.channels_per_pe + at.channel) * root.slots + at.slot) as usize
    }

    /// The place of a key.
    pub(super) fn place(&self, key: usize) -> Place {
        let (root, key) = (self.words.root(), key as u32);
        let row = key / root.slots;
        Place {
            peer: row / root.channels_per_pe,
            channel: row % root.channels_per_pe,
            slot: key % root.slots,
        }
    }

    /// The row of a place in the table of channels.
    pub(super) fn row(&self, at: Place) -> u32 {
        at.peer * self.words.root().channels_per_pe + at.channel
    }

    /// A path as events name it.
    pub(super) fn route(&self, key: usize, (rails, incarnation): (RailPair, u32)) -> Route {
        Route {
            pe: self.words.root().my_pe,
            place: self.place(key),
            local_rail: rails.local,
            remote_rail: rails.remote,
            incarnation,
        }
    }

    /// Tells an event that happens now.
    pub(super) fn report(&mut self, now: Nanos, event: Event) {
        self.reporter.emit(now, event);
    }

    /// Says what has no event of its own.
    pub(super) fn note(&mut self, now: Nanos, text: String) {
        self.report(now, Event::Remark { text });
    }

    /// The home of a channel index at a PE, as far as this one knows.
    pub(super) fn home(&self, pe: u32, channel: u32) -> Home {
        let word = self.words.home(pe, channel);
        Home { rail: word.rail(), version: word.version() }
    }

    /// This PE's own.
    pub(super) fn own_home(&self, channel: u32) -> Home {
        self.home(self.words.root().my_pe, channel)
    }

    /// Answers a switcher's request about an incarnation, and says so.
    pub(super) fn answer_at(
        &mut self,
        now: Nanos,
        at: Route,
        incarnation: u32,
        request: u64,
        verdict: Verdict,
    ) {
        self.words.answer(at.place, incarnation, request, verdict);
        let status = match verdict.status {
            AnswerStatus::Truth => "truth",
            AnswerStatus::FencedNoTruth => "no-truth",
            AnswerStatus::Unprovable => "unprovable",
        };
        self.report(now, Event::FenceAnswered { at, request, status, executed: verdict.executed });
    }

    fn half_fenced(at: Route, mine: SideTruth, times: FenceTimes) -> Event {
        let (truth, executed) = match mine {
            SideTruth::Exact { executed, .. } => ("exact", executed),
            SideTruth::Fenced => ("fenced", 0),
            SideTruth::Dead => ("dead", 0),
            SideTruth::Unflushed => ("unflushed", 0),
            SideTruth::Unknown => ("unknown", 0),
            SideTruth::Unused => ("unused", 0),
        };
        let FenceTimes { error_ns, query_ns, flush_ns, again_ns } = times;
        Event::HalfFenced { at, truth, executed, error_ns, query_ns, flush_ns, again_ns }
    }
}

impl Owner for Channels {
    fn has_left(&self, key: usize) -> bool {
        if Mutant::MirrorReadEarly.on() {
            self.left_before[key]
        } else if Mutant::RingMadeUnderKernel.on() {
            true
        } else {
            self.words.has_left(self.place(key))
        }
    }

    fn is_unused(&self, key: usize) -> bool {
        self.words.was_entered(self.place(key)) == Some(self.entered_before[key])
    }

    fn row_state(&self, key: usize) -> PathState {
        self.words.path_state(self.place(key))
    }

    fn change_row(&mut self, key: usize, from: PathState, to: PathState) -> bool {
        self.words.change_state(self.place(key), from, to)
    }

    fn newest_request(&self, key: usize) -> u64 {
        self.requests_seen[self.row(self.place(key)) as usize]
    }

    fn rail_being_left(&self, key: usize, rail: u32) -> bool {
        let channel = self.place(key).channel;
        self.atomics.moving(channel).is_some() && self.own_home(channel).rail == rail
    }

    fn peer_lost(&self, peer: u32) -> bool {
        self.reporter.is_lost(peer)
    }

    fn rails_exist(&self, peer: u32, rails: RailPair) -> bool {
        self.pool.has(peer, rails)
    }

    fn maker(&self, key: usize) -> Option<Box<dyn Maker>> {
        let rings = self.rings.get(key).copied().flatten()?;
        let log_depth = self.words.root().log_depth;
        Some(Box::new(ChannelMaker { rings, log_depth, tuning: self.tuning }))
    }

    fn message(&self, key: usize, incarnation: u32, word: Word) -> Vec<u8> {
        let Place { channel, slot, .. } = self.place(key);
        let id = PairId { channel, slot, incarnation };
        let message = match word {
            Word::Fence => Message::Fence(id),
            Word::Leave => Message::Leave(id),
            Word::Truth(truth) => Message::Truth(id, truth),
            Word::Left => Message::Left(id),
            Word::Make(card, rail) => Message::Make(id, card, rail, self.own_home(channel)),
            Word::Made(card) => Message::Made(id, card, self.own_home(channel)),
            Word::Up => Message::Up(id),
            Word::Proved => Message::Proved(id),
            Word::Order(order) if order & 1 == 1 => Message::Retire(id, order),
            Word::Order(order) => Message::Readmit(id, order),
            Word::Vacate => Message::Vacate(id),
        };
        message.to_bytes()
    }

    fn set_row(&mut self, key: usize, state: PathState) {
        self.words.set_state(self.place(key), state);
    }

    fn publish(&mut self, key: usize, half: &dyn Endpoint, remote: &HalfCard) {
        let Some(mut row) = half.row(remote) else { return };
        row.state = PathState::Probing as u32;
        self.words.write_row(self.place(key), &row);
    }

    /// The old ring may still be the journal of a switch that found no path yet: then the new half gets the channel's
    /// spare queue, and the journal's place becomes the spare. One switch, one journal, one spare (H14).
    fn spare_journal(&mut self, key: usize) {
        let at = self.place(key);
        let (journal, row) = (self.words.journal_queue(at.peer, at.channel), self.row(at) as usize);
        if let (Some(rings), Some(spare)) = (&mut self.rings[key], &mut self.spares[row])
            && rings.send_queue.address == journal
        {
            std::mem::swap(&mut rings.send_queue, spare);
        }
    }

    fn hand_over(&mut self, key: usize, next_index: u64, since: Nanos) {
        let at = self.place(key);
        self.entered_before[key] = self.words.was_entered(at).unwrap_or(u32::MAX);
        self.left_before[key] = self.words.has_left(at);
        self.words.hand_over(at, next_index);
        self.words.set_ready_since(at, since);
    }

    fn answer(&mut self, now: Nanos, key: usize, at: (RailPair, u32), request: u64, verdict: Verdict) {
        let incarnation = at.1;
        self.answer_at(now, self.route(key, at), incarnation, request, verdict);
    }

    fn in_hand(&mut self, key: usize, request: u64, turn: u64) {
        self.words.say_in_hand(self.place(key), request, turn);
    }

    fn unproven(&mut self, key: usize, rail: u32) {
        self.atomics.mark_unfenced(key, rail);
    }

    fn proven(&mut self, key: usize, rail: u32) {
        self.atomics.clear_unfenced(key, rail);
    }

    fn rails_failed(&mut self, now: Nanos, peer: u32, rails: RailPair) {
        self.pool.history.failed(peer, rails, now);
    }

    fn rails_worked(&mut self, peer: u32, rails: RailPair) {
        self.pool.history.worked(peer, rails);
    }

    fn mute(&mut self, now: Nanos, pe: Option<u32>, rail: u32, first: bool) {
        self.words.set_mute(pe, rail);
        if first {
            self.report(now, Event::RailSuspected { of: pe.unwrap_or(self.words.root().my_pe), rail });
        }
    }

    fn answers(&mut self, pe: Option<u32>, rail: u32) {
        self.words.set_answers(pe, rail);
    }

    fn notice(&mut self, now: Nanos, key: usize, at: (RailPair, u32), notice: Notice) {
        let at = self.route(key, at);
        self.report(
            now,
            match notice {
                Notice::FenceAsked(request) => Event::FenceAsked { at, request },
                Notice::Fencing(why) => Event::PathFencing { at, why },
                Notice::HalfFenced(mine, times) => Self::half_fenced(at, mine, times),
                Notice::FenceFailed(error) => Event::FenceFailed { at, error },
                Notice::Fenced(took) => Event::PathFenced { at, took_ns: took.get() },
                Notice::Released => Event::PathReleased { at },
                Notice::Revived => Event::PathRevived { at },
                Notice::Probing => Event::PathProbing { at },
                Notice::RevivalFailed(error) => Event::RevivalFailed { at, error },
                Notice::Admitted(out) => Event::PathAdmitted { at, out_ns: out.get() },
                Notice::Retired => Event::PathRetired { at },
            },
        );
    }

    fn remark(&mut self, now: Nanos, key: usize, remark: PeerError) {
        let peer = self.place(key).peer;
        let text = match remark {
            PeerError::NoSuchRails(offer) => format!("PE {peer} offers rails that do not exist: {offer:?}"),
            PeerError::OtherRail(made, wanted) => {
                format!("PE {peer} made its half on rail {made}, asked for was {wanted}")
            }
        };
        self.note(now, text);
    }
}
