//! The engine: joins transfers, counters of immediates and a domain, and calls back.

pub use crate::call::{
    Barrier, FLAG_DONE, FLAG_FAILED, FLAG_RUNNING, OnDone, OnLeft, OnMet, OnReached, OnScattered, Paged,
    Policy, Read, Scatter, Share, Write,
};
use crate::cut::Cut;
use crate::domain::{Batch, Domain, Event, LaneFacts};
use crate::error::TransferError;
use crate::ids::{ExpectationId, PeerId, TransferId, WatcherId};
use crate::imm::ImmCounters;
use crate::join::{JoinId, Joins, Part};
use crate::message::{Messages, Outgoing, skipped};
use crate::piece::{Op, Work};
use crate::probe::Probes;
use crate::region::{Mr, MrDesc};
use crate::told::{AllTold, Reached, Told, caught};
use crate::transfer::{Cancel, Counts, Ended, Output, Transfers};
use crate::watch::{OnChange, ReadWord, Watchers};
use shunt_recovery::nanos::Nanos;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

/// Moves memory to peers over the rails of a domain. One thread owns it, gives it work, and steps it.
pub struct Engine<D> {
    /// What moves the pieces.
    pub domain: D,
    policy: Policy,
    transfers: Transfers,
    counters: ImmCounters,
    on_done: AllTold,
    on_reached: BTreeMap<ExpectationId, Reached>,
    scatters: Joins<(PeerId, Ended), OnScattered>,
    scattered: BTreeMap<JoinId, Vec<TransferId>>,
    barriers: Joins<(PeerId, Result<(), TransferError>), OnMet>,
    watchers: Watchers,
    outgoing: Outgoing,
    messages: Messages,
    probes: Probes,
    /// Messages that nobody has taken.
    inbox: VecDeque<(PeerId, Vec<u8>)>,
    /// Peers that leave, and who is told when they are cut off; `None` once that was told.
    left: BTreeMap<PeerId, Option<OnLeft>>,
    expectations: u64,
    panics: u64,
    events: Vec<Event>,
    /// Nothing was begun since the last step: the first piece goes at once, and what follows it together.
    rests: bool,
}

impl<D: Domain> Engine<D> {
    /// Over this domain.
    pub fn new(domain: D, policy: Policy) -> Self {
        Self {
            domain,
            policy,
            transfers: Transfers::new(policy.give_up).suspecting(policy.suspect),
            counters: ImmCounters::default(),
            on_done: AllTold::default(),
            on_reached: BTreeMap::new(),
            scatters: Joins::default(),
            scattered: BTreeMap::new(),
            barriers: Joins::default(),
            watchers: Watchers::default(),
            outgoing: Outgoing::default(),
            messages: Messages::default(),
            probes: Probes::new(policy.give_up),
            inbox: VecDeque::new(),
            left: BTreeMap::new(),
            expectations: 0,
            panics: 0,
            events: Vec::new(),
            rests: false,
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
        let spans = self.cut().write(write)?;
        let work = Work::new(Op::Write(write.imm), write.from.0, write.to.0, spans);
        Ok(self.begin(now, write.peer, work, Told::Caller(done)))
    }

    /// Begins a single read.
    ///
    /// # Errors
    /// It has no bytes, leaves a region, or the source is not for peers to read. Nothing was posted.
    pub fn submit_read(
        &mut self,
        now: Nanos,
        read: &Read<'_>,
        done: OnDone,
    ) -> Result<TransferId, TransferError> {
        let spans = self.cut().read(read)?;
        let work = Work::new(Op::Read, read.to.0, read.from.0, spans);
        Ok(self.begin(now, read.peer, work, Told::Caller(done)))
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
        let spans = self.cut().paged(paged)?;
        let work = Work::new(Op::Write(paged.imm), paged.from.0, paged.to.0, spans);
        Ok(self.begin(now, paged.peer, work, Told::Caller(done)))
    }

    /// Begins to write to several peers. Each share is a transfer of its own: a lost peer holds up no other one.
    ///
    /// # Errors
    /// There are no shares, or one leaves a region, is longer than a write may be, or its target is not for peers to
    /// write. Nothing was posted.
    pub fn submit_scatter(
        &mut self,
        now: Nanos,
        scatter: &Scatter<'_>,
        done: OnScattered,
    ) -> Result<JoinId, TransferError> {
        let Scatter { from: source, shares } = *scatter;
        if shares.is_empty() {
            let (what, want) = ("shares of a scatter", "one or more");
            return Err(TransferError::Refused { what, want, met: "none".to_owned() });
        }
        let one = |share: &Share<'_>| {
            let spans = self.cut().share(source, share)?;
            Ok((share.peer, Work::new(Op::Write(share.imm), source, share.to.0, spans)))
        };
        let all = shares.iter().map(one).collect::<Result<Vec<_>, TransferError>>()?;
        let join = self.scatters.begin(all.len(), done);
        let begin = |(at, (peer, work)): (usize, (PeerId, Work))| {
            self.begin(now, peer, work, Told::Scatter(peer, (join, at)))
        };
        let parts = all.into_iter().enumerate().map(begin).collect();
        self.scattered.insert(join, parts);
        Ok(join)
    }

    /// Cancels what is left of a scatter: the end of each share says what was written. False if it has ended already.
    pub fn cancel_scatter(&mut self, now: Nanos, scatter: JoinId, how: Cancel) -> bool {
        let parts = self.scattered.get(&scatter).cloned().unwrap_or_default();
        parts.into_iter().fold(false, |any, part| self.cancel(now, part, how) | any)
    }

    /// Meets the others: it ends once each of them has called it as well, or at the deadline.
    ///
    /// What this engine had written before it is not covered: transfers have no order. Wait for their ends first.
    ///
    /// # Errors
    /// There are no others, one is named twice, its region is not for peers to write, or this immediate is expected of
    /// it already. Nothing was posted.
    pub fn submit_barrier(
        &mut self,
        now: Nanos,
        barrier: &Barrier<'_>,
        done: OnMet,
    ) -> Result<JoinId, TransferError> {
        let Barrier { imm, until, .. } = *barrier;
        let all = self.cut().barrier(barrier, |peer| self.counters.is_open(peer, imm))?;
        let join = self.barriers.begin(2 * all.len(), done);
        for (at, (peer, work)) in all.into_iter().enumerate() {
            // What did not come is told before what became of the word to its peer.
            let (came, said) = (2 * at, 2 * at + 1);
            self.begin(now, peer, work, Told::Barrier(peer, (join, said)));
            self.expect_as((peer, imm), 1, until, Reached::Barrier(peer, (join, came)))?;
        }
        Ok(join)
    }

    const fn cut(&self) -> Cut<'_> {
        Cut(&self.policy)
    }

    /// Begins to bring into a peer's memory what was written there by transfers that have ended, before any of it is
    /// used or told of by another way. A write without an immediate is there once it has ended, and needs none.
    ///
    /// # Errors
    /// The region is not for peers to write. Nothing was posted.
    pub fn submit_flush(
        &mut self,
        peer: PeerId,
        to: &MrDesc,
        done: OnDone,
    ) -> Result<TransferId, TransferError> {
        let id = self.transfers.flush(peer, self.cut().flush(to)?);
        self.on_done.put(id, Told::Caller(done));
        Ok(id)
    }

    /// Begins to send a message, whose bytes are copied. A peer gets the messages of an engine in order, each once. It
    /// has ended when the peer's NIC has all of it.
    ///
    /// # Errors
    /// It is longer than [`MESSAGE_MAX`](crate::message::MESSAGE_MAX). Nothing was posted.
    pub fn submit_send(
        &mut self,
        now: Nanos,
        peer: PeerId,
        message: &[u8],
        done: OnDone,
    ) -> Result<TransferId, TransferError> {
        let parts = self.outgoing.parts(peer, message)?;
        let id = self.transfers.begin_message(now, peer, parts);
        self.on_done.put(id, Told::Caller(done));
        Ok(id)
    }

    /// The oldest message that has arrived and was not taken. Until then it is kept.
    pub fn take_message(&mut self) -> Option<(PeerId, Vec<u8>)> {
        self.inbox.pop_front()
    }

    #[inline]
    fn begin(&mut self, now: Nanos, peer: PeerId, work: Work, told: Told) -> TransferId {
        let Self { transfers, domain, rests, .. } = self;
        let post = |lane, batch: &Batch<'_>| domain.post(now, lane, batch);
        let id = transfers.begin(now, peer, work, std::mem::take(rests).then_some(post));
        self.on_done.put(id, told);
        id
    }

    /// Expects so many immediates of a peer, by a deadline; at the latest until the peer is lost.
    ///
    /// `count` is all that the transfers with this immediate carry, and memory of any of them may be used once it is
    /// reached, not before. An expectation of fewer proves nothing of any piece: where a NIC counts nothing
    /// ([`Fence::Counted`](crate::domain::Fence::Counted)) what has arrived is written once more while another piece
    /// with the same immediate is missing, and that may be after such an expectation was reached.
    ///
    /// # Errors
    /// None are expected, or another expectation of this immediate is open.
    pub fn expect(
        &mut self,
        of: (PeerId, u32),
        count: u64,
        until: Nanos,
        reached: OnReached,
    ) -> Result<ExpectationId, TransferError> {
        self.expect_as(of, count, until, Reached::Caller(reached))
    }

    fn expect_as(
        &mut self,
        (peer, imm): (PeerId, u32),
        count: u64,
        until: Nanos,
        reached: Reached,
    ) -> Result<ExpectationId, TransferError> {
        let id = ExpectationId(self.expectations);
        let ended = self.counters.expect(id, (peer, imm), count, until)?;
        self.expectations += 1;
        self.on_reached.insert(id, reached);
        if let Some(ended) = ended {
            self.domain.reached(peer, imm);
            self.tell_reached(ended);
        }
        if self.left.contains_key(&peer) {
            self.peer_is_gone(peer);
        }
        Ok(id)
    }

    /// Cuts a peer off, whether it answers or not, for good: transfers to it and expectations of it end. Once `done` is
    /// called nothing of the peer lands in memory of this end any more. False if it leaves already.
    pub fn leave(&mut self, now: Nanos, peer: PeerId, done: OnLeft) -> bool {
        if self.left.contains_key(&peer) {
            return false;
        }
        self.left.insert(peer, Some(done));
        self.domain.leave(now, peer);
        self.transfers.leave(peer);
        self.peer_is_gone(peer);
        true
    }

    /// Ends what is expected of a peer.
    fn peer_is_gone(&mut self, peer: PeerId) {
        let gone = self.counters.lost(peer);
        gone.into_iter().for_each(|ended| self.tell_reached(ended));
    }

    /// How many immediates of a peer have arrived and were not taken by an expectation.
    pub fn counter(&self, peer: PeerId, imm: u32) -> u64 {
        self.counters.count(peer, imm)
    }

    /// Drops the count of an immediate that is of no use any more, of a transfer that was cancelled. An expectation of
    /// it ends with [`Missing`](TransferError::Missing).
    pub fn forget(&mut self, peer: PeerId, imm: u32) {
        let ended = self.counters.forget(peer, imm);
        ended.into_iter().for_each(|ended| self.tell_reached(ended));
    }

    /// Watches a word that a kernel or another thread writes: each step reads it, and tells of a change on its thread.
    /// Values between two steps are passed over; the last one never is. One of the two that panics is counted and ends
    /// its watcher.
    pub fn watch(&mut self, read: ReadWord, each: OnChange) -> WatcherId {
        let Self { watchers, panics, .. } = self;
        watchers.watch(read, each, |read| caught(panics, read))
    }

    /// Ends a watcher. False if it has ended already.
    pub fn unwatch(&mut self, watcher: WatcherId) -> bool {
        self.watchers.unwatch(watcher)
    }

    /// Cancels a transfer: its end says what was written. False if it has ended already.
    pub fn cancel(&mut self, now: Nanos, transfer: TransferId, how: Cancel) -> bool {
        self.transfers.cancel(now, transfer, how)
    }

    /// True if a transfer of this end that has not ended reads or writes a region.
    pub fn is_used(&self, region: &Mr) -> bool {
        self.transfers.uses(region.keys())
    }

    /// Lanes that work, to whatever peer.
    pub fn lanes(&self) -> impl Iterator<Item = &LaneFacts> {
        self.transfers.lanes()
    }

    /// Rails to a peer that work: local and remote.
    pub fn rails_to(&self, peer: PeerId) -> Vec<(u32, u32)> {
        self.lanes().filter(|lane| lane.peer == peer).map(|lane| (lane.local, lane.remote)).collect()
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
        self.transfers.next_deadline().min(self.counters.next_deadline()).min(self.probes.next_deadline())
    }

    /// Takes what has happened, posts what can be posted, tells what has ended. False if there was nothing to do.
    pub fn step(&mut self, now: Nanos) -> bool {
        self.domain.poll(now, &mut self.events);
        let mut busy = !self.events.is_empty();
        if busy {
            self.take_events(now);
        }
        busy |= self.look_at_words();
        self.transfers.tick(now);
        if now >= self.counters.next_deadline() {
            let overdue = self.counters.overdue(now);
            busy |= !overdue.is_empty();
            overdue.into_iter().for_each(|ended| self.tell_reached(ended));
        }
        if self.probes.is_due(now, self.counters.awaits()) {
            self.probe(now);
        }
        let Self { transfers, domain, .. } = self;
        busy |= transfers.post(|lane, batch| domain.post(now, lane, batch));
        while let Some(output) = self.transfers.next_output() {
            busy = true;
            match output {
                Output::Close(lane) => self.domain.close(now, lane),
                Output::Ended(ended) => self.tell_done(ended),
                Output::Lost(peer) => self.peer_is_gone(peer),
            }
        }
        self.rests = true;
        busy
    }

    fn take_events(&mut self, now: Nanos) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                // A completion that was read late.
                Event::Imm(peer, _) | Event::Part(peer, _) if matches!(self.left.get(&peer), Some(None)) => {}
                Event::Opened(lane, facts) => self.transfers.opened(lane, facts),
                Event::Sent(lane, count) => self.transfers.sent(lane, count),
                Event::Failed(lane) => self.transfers.failed(now, lane),
                Event::Executed(lane, number) => self.transfers.executed(lane, number),
                Event::Denied(lane, number) => self.transfers.denied(now, lane, number),
                Event::Closed(lane, fence) => self.transfers.closed(now, lane, fence),
                Event::Left(peer) => {
                    self.outgoing.forget(peer);
                    self.messages.forget(peer);
                    self.counters.forget_all(peer);
                    if let Some(done) = self.left.get_mut(&peer).and_then(Option::take) {
                        self.guarded(done);
                    }
                }
                Event::Imm(peer, imm) => {
                    if let Some(ended) = self.counters.arrived(peer, imm) {
                        self.domain.reached(peer, imm);
                        self.tell_reached(ended);
                    }
                }
                Event::Part(peer, part) => {
                    let whole = self.messages.arrived(peer, &part).into_iter();
                    self.inbox.extend(whole.map(|message| (peer, message)));
                }
            }
        }
        self.events = events;
    }

    /// Speaks to peers of which something is expected: a message that they pass over.
    fn probe(&mut self, now: Nanos) {
        for peer in self.probes.due(now, self.counters.awaited()) {
            // A message without bytes is short enough.
            let parts = self.outgoing.parts(peer, &[]).unwrap_or_default();
            let parts = parts.iter().map(|part| skipped(part)).collect();
            let id = self.transfers.begin_message(now, peer, parts);
            self.on_done.put(id, Told::Probe(peer));
        }
    }

    fn tell_done(&mut self, ended: Ended) {
        match self.on_done.take(ended.transfer) {
            Told::Caller(OnDone::Call(call)) => self.guarded(|| call(ended)),
            Told::Caller(OnDone::Flag(flag)) => {
                let value = if ended.result.is_ok() { FLAG_DONE } else { FLAG_FAILED };
                flag.store(value, Ordering::Release);
            }
            Told::Scatter(peer, part) => {
                if let Some((call, ends)) = self.scatters.ended(part, (peer, ended)) {
                    self.scattered.remove(&part.0);
                    self.guarded(|| call(ends));
                }
            }
            Told::Barrier(peer, part) => self.tell_met(part, peer, ended.result),
            Told::Probe(peer) => {
                self.probes.ended(peer);
                // What was expected since it was lost does not come either.
                if ended.result.is_err() {
                    self.peer_is_gone(peer);
                }
            }
            Told::Caller(OnDone::None) | Told::Nobody => {}
        }
    }

    fn tell_reached(&mut self, (id, result): crate::imm::Ended) {
        match self.on_reached.remove(&id) {
            Some(Reached::Caller(call)) => self.guarded(|| call(result)),
            Some(Reached::Barrier(peer, (join, came))) => {
                if result.is_err() {
                    // The word to it is not waited for: it stands for no memory.
                    self.tell_met((join, came + 1), peer, Ok(()));
                }
                self.tell_met((join, came), peer, result);
            }
            None => {}
        }
    }

    fn tell_met(&mut self, part: Part, peer: PeerId, result: Result<(), TransferError>) {
        if let Some((call, ends)) = self.barriers.ended(part, (peer, result)) {
            let failed: Vec<_> =
                ends.into_iter().filter_map(|(peer, result)| Some((peer, result.err()?))).collect();
            self.guarded(|| call(if failed.is_empty() { Ok(()) } else { Err(failed) }));
        }
    }

    fn look_at_words(&mut self) -> bool {
        let Self { watchers, panics, .. } = self;
        watchers.look(|call| caught(panics, call))
    }

    fn guarded(&mut self, call: impl FnOnce()) {
        let _ = caught(&mut self.panics, call);
    }
}
