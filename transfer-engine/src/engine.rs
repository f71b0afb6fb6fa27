//! The engine: joins transfers, counters of immediates and a domain, and calls back.

use crate::domain::{Domain, Event, Piece};
use crate::error::TransferError;
use crate::ids::{ExpectationId, PeerId, TransferId};
use crate::imm::ImmCounters;
use crate::region::{Mr, MrDesc};
use crate::shard::{PIECE_MIN, Pages, page_pairs, pieces, writes_of};
use crate::transfer::{Cancel, Counts, Ended, Output, Transfers};
use shunt_recovery::nanos::Nanos;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Pieces that are handed to a lane at once.
const BATCH: usize = 16;

/// What both ends agree on, and how patient this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Least bytes of a piece of a split write. Both ends have the same.
    pub piece_min: u64,
    /// Rails of a peer and of this end, the smaller number: into how many pieces a single write may be split. Both ends
    /// have the same.
    pub rails: u32,
    /// How long a peer may be without a lane.
    pub give_up: Nanos,
}

impl Policy {
    /// Between ends with so many rails each.
    pub const fn of_rails(rails: u32) -> Self {
        Self { piece_min: PIECE_MIN, rails, give_up: Nanos::secs(1) }
    }

    /// How many immediates a single write of so many bytes has.
    pub const fn writes_of(&self, len: u64) -> u32 {
        writes_of(len, self.rails, self.piece_min)
    }
}

/// A single write: cut into pieces over the rails.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// To whom.
    pub peer: PeerId,
    /// Bytes; none with an immediate is a bare immediate.
    pub len: u64,
    /// What each piece carries.
    pub imm: Option<u32>,
    /// Source, and the first byte in it.
    pub from: (&'a Mr, u64),
    /// Target, and the first byte in it.
    pub to: (&'a MrDesc, u64),
}

/// Pages, one write each.
#[derive(Clone, Copy, Debug)]
pub struct Paged<'a> {
    /// To whom.
    pub peer: PeerId,
    /// Bytes of a page.
    pub page_len: u64,
    /// What each page carries.
    pub imm: Option<u32>,
    /// Source, and its pages.
    pub from: (&'a Mr, &'a Pages),
    /// Target, and its pages, as many.
    pub to: (&'a MrDesc, &'a Pages),
}

/// [`OnDone::Flag`] before the end.
pub const FLAG_RUNNING: u8 = 0;
/// [`OnDone::Flag`] of a transfer that was written.
pub const FLAG_DONE: u8 = 1;
/// [`OnDone::Flag`] of one that ended with an error.
pub const FLAG_FAILED: u8 = 2;

/// Who is told that a transfer has ended: once.
pub enum OnDone {
    /// This function, on the thread that steps the engine. A panic in it is counted and harms no other transfer.
    Call(Box<dyn FnOnce(Ended) + Send>),
    /// This flag becomes [`FLAG_DONE`] or [`FLAG_FAILED`].
    Flag(Arc<AtomicU8>),
    /// Nobody.
    None,
}

/// Who is told what became of an expectation: once.
pub type OnReached = Box<dyn FnOnce(Result<(), TransferError>) + Send>;

/// Moves memory to peers over the rails of a domain. One thread owns it, gives it work, and steps it.
pub struct Engine<D> {
    /// What moves the pieces.
    pub domain: D,
    policy: Policy,
    transfers: Transfers,
    counters: ImmCounters,
    on_done: BTreeMap<TransferId, OnDone>,
    on_reached: BTreeMap<ExpectationId, OnReached>,
    expectations: u64,
    panics: u64,
    events: Vec<Event>,
    batch: Vec<Piece>,
}

impl<D: Domain> Engine<D> {
    /// Over this domain.
    pub fn new(domain: D, policy: Policy) -> Self {
        Self {
            domain,
            policy,
            transfers: Transfers::new(policy.give_up),
            counters: ImmCounters::default(),
            on_done: BTreeMap::new(),
            on_reached: BTreeMap::new(),
            expectations: 0,
            panics: 0,
            events: Vec::new(),
            batch: Vec::new(),
        }
    }

    /// What both ends agree on.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Begins a single write.
    ///
    /// # Errors
    /// It leaves a region, or the target is not for peers to write. Nothing was posted.
    pub fn submit_write(
        &mut self,
        now: Nanos,
        write: &Write<'_>,
        done: OnDone,
    ) -> Result<TransferId, TransferError> {
        let Write { peer, len, imm, from: (source, from), to: (target, to) } = *write;
        self.check_keys(source, target)?;
        let from = source.part("source", from, len)?;
        let to = target.writable("target", to, len)?;
        let id = self.transfers.next_id();
        let piece = |(at, len)| piece(id, (source, from + at), (target, to + at), len, imm);
        let all = pieces(len, self.policy.writes_of(len)).map(piece).collect();
        Ok(self.begin(now, peer, all, done))
    }

    /// Begins to write pages.
    ///
    /// # Errors
    /// A page leaves a region, the target is not for peers to write, there are no pages, or not as many on both sides.
    /// Nothing was posted.
    pub fn submit_paged(
        &mut self,
        now: Nanos,
        paged: &Paged<'_>,
        done: OnDone,
    ) -> Result<TransferId, TransferError> {
        let Paged { peer, page_len, imm, from: (source, from), to: (target, to) } = *paged;
        self.check_keys(source, target)?;
        let pairs = page_pairs(from, to)?;
        if pairs.is_empty() || page_len > crate::shard::PIECE_MAX {
            let met = format!("{} of {page_len} bytes", pairs.len());
            let (what, want) = ("pages", "one or more of at most 2^30 bytes");
            return Err(TransferError::Refused { what, want, met });
        }
        let id = self.transfers.next_id();
        let one = |(from, to)| {
            let from = source.part("source page", from, page_len)?;
            let to = target.writable("target page", to, page_len)?;
            Ok(piece(id, (source, from), (target, to), page_len, imm))
        };
        let all = pairs.into_iter().map(one).collect::<Result<Vec<_>, TransferError>>()?;
        Ok(self.begin(now, peer, all, done))
    }

    /// A region without a key for a rail that is used could not go over it.
    fn check_keys(&self, source: &Mr, target: &MrDesc) -> Result<(), TransferError> {
        let fewest = source.keys().len().min(target.keys().len());
        if fewest >= self.policy.rails as usize {
            return Ok(());
        }
        let met = format!("{fewest} for {} rails", self.policy.rails);
        Err(TransferError::Refused { what: "a region's keys", want: "one for each rail", met })
    }

    fn begin(&mut self, now: Nanos, peer: PeerId, pieces: Vec<Piece>, done: OnDone) -> TransferId {
        let id = self.transfers.begin(now, peer, pieces);
        self.on_done.insert(id, done);
        id
    }

    /// Expects so many immediates of a peer, by a deadline.
    ///
    /// # Errors
    /// None are expected, or another expectation of this immediate is open.
    pub fn expect(
        &mut self,
        (peer, imm): (PeerId, u32),
        count: u64,
        until: Nanos,
        reached: OnReached,
    ) -> Result<ExpectationId, TransferError> {
        let id = ExpectationId(self.expectations);
        let ended = self.counters.expect(id, (peer, imm), count, until)?;
        self.expectations += 1;
        self.on_reached.insert(id, reached);
        ended.into_iter().for_each(|ended| self.tell_reached(ended));
        Ok(id)
    }

    /// How many immediates of a peer have arrived and were not taken by an expectation.
    pub fn counter(&self, peer: PeerId, imm: u32) -> u64 {
        self.counters.count(peer, imm)
    }

    /// Cancels a transfer: its end says what was written. False if it has ended already.
    pub fn cancel(&mut self, now: Nanos, transfer: TransferId, how: Cancel) -> bool {
        self.transfers.cancel(now, transfer, how)
    }

    /// Rails to a peer that work: local and remote.
    pub fn rails_to(&self, peer: PeerId) -> Vec<(u32, u32)> {
        self.transfers.lanes_to(peer).map(|lane| (lane.local, lane.remote)).collect()
    }

    /// What has become of lanes and pieces so far.
    pub const fn counts(&self) -> Counts {
        self.transfers.counts()
    }

    /// Callbacks that have panicked.
    pub const fn callback_panics(&self) -> u64 {
        self.panics
    }

    /// When a step has something to do next, if nothing happens before.
    pub fn next_deadline(&self) -> Nanos {
        self.transfers.next_deadline().min(self.counters.next_deadline())
    }

    /// Takes what has happened, posts what can be posted, tells what has ended. False if there was nothing to do.
    pub fn step(&mut self, now: Nanos) -> bool {
        let mut events = std::mem::take(&mut self.events);
        self.domain.poll(now, &mut events);
        let mut busy = !events.is_empty();
        for event in events.drain(..) {
            match event {
                Event::Opened(lane, facts) => self.transfers.opened(lane, facts),
                Event::Sent(lane, count) => self.transfers.sent(lane, count),
                Event::Failed(lane) => self.transfers.failed(now, lane),
                Event::Closed(lane, fence) => self.transfers.closed(now, lane, fence),
                Event::Imm(peer, imm) => {
                    let reached = self.counters.arrived(peer, imm);
                    reached.into_iter().for_each(|ended| self.tell_reached(ended));
                }
            }
        }
        self.events = events;
        self.transfers.tick(now);
        let overdue = self.counters.overdue(now);
        busy |= !overdue.is_empty();
        overdue.into_iter().for_each(|ended| self.tell_reached(ended));
        busy |= self.post(now);
        while let Some(output) = self.transfers.next_output() {
            busy = true;
            match output {
                Output::Close(lane) => self.domain.close(now, lane),
                Output::Ended(ended) => self.tell_done(ended),
                Output::Lost(peer) => {
                    let lost = self.counters.lost(peer);
                    lost.into_iter().for_each(|ended| self.tell_reached(ended));
                }
            }
        }
        busy
    }

    /// Posts while lanes have room, in runs of one lane.
    fn post(&mut self, now: Nanos) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let mut on = None;
        let mut busy = false;
        while let Some((lane, piece)) = self.transfers.next_piece() {
            busy = true;
            if let Some(last) = on.filter(|last| *last != lane || batch.len() == BATCH) {
                self.domain.post(now, last, &batch);
                batch.clear();
            }
            on = Some(lane);
            batch.push(piece);
        }
        if let Some(lane) = on {
            self.domain.post(now, lane, &batch);
        }
        batch.clear();
        self.batch = batch;
        busy
    }

    fn tell_done(&mut self, ended: Ended) {
        match self.on_done.remove(&ended.transfer) {
            Some(OnDone::Call(call)) => self.guarded(|| call(ended)),
            Some(OnDone::Flag(flag)) => {
                let value = if ended.result.is_ok() { FLAG_DONE } else { FLAG_FAILED };
                flag.store(value, Ordering::Release);
            }
            Some(OnDone::None) | None => {}
        }
    }

    fn tell_reached(&mut self, (id, result): crate::imm::Ended) {
        if let Some(call) = self.on_reached.remove(&id) {
            self.guarded(|| call(result));
        }
    }

    fn guarded(&mut self, call: impl FnOnce()) {
        self.panics += u64::from(catch_unwind(AssertUnwindSafe(call)).is_err());
    }
}

fn piece(transfer: TransferId, from: (&Mr, u64), to: (&MrDesc, u64), len: u64, imm: Option<u32>) -> Piece {
    let (from_keys, to_keys) = (from.0.keys().clone(), to.0.keys().clone());
    Piece { transfer, from: from.1, from_keys, to: to.1, to_keys, len, imm }
}
