//! The recovery engine: paths by key, the NICs and links that carry out what their machines decide, and what is known of
//! ports, peers and rails. Who owns a path is told by [`Owner`]; the engine knows no channel and no device state.

use super::age::Age;
use super::datagram_renewal::Renewal;
use super::destroy_queue::DestroyQueue;
use super::fault_localizer::{FaultLocalizer, OTHERS, Ping};
use super::nic_dispatch::Nics;
use super::nic_job::{Job, JobId, Making, Outcome, Urgency};
use super::path::{
    Command, Endpoint, Facts, Notice, Output, PathMachine, Polled, Step, Task, Timing, Word, is_stuck,
};
use super::path_proof::Proofs;
use super::port_table::PortTable;
use super::rails::{Links, Reach};
use super::verdict::Verdict;
use crate::connect::card::HalfCard;
use crate::nanos::Nanos;
use crate::nic::half::HalfPath;
use crate::nic::qp::QpTuning;
use crate::nic::queue::{Producer, Request, RingSpan};
use crate::rail::Rail;
use crate::slots::RailPair;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::state::PathState;
use std::sync::Arc;

/// A half, which its NIC's worker may hold as well.
pub(super) type Half = Arc<HalfPath>;

impl Endpoint for Half {
    fn rail(&self) -> u32 {
        HalfPath::rail(self).index
    }

    fn incarnation(&self) -> u32 {
        HalfPath::incarnation(self)
    }

    fn psn(&self) -> u32 {
        HalfPath::psn(self)
    }

    fn card(&self) -> HalfCard {
        HalfPath::card(self)
    }
}

/// What a half of a path is made from, whatever its incarnation.
#[derive(Clone, Copy)]
pub(super) struct Recipe {
    /// Memory.
    pub rings: RingSpan,
    /// log2 of the ring depth.
    pub log_depth: u32,
    /// Timers and retries.
    pub tuning: QpTuning,
}

/// Who uses paths: told what becomes of them, and asked whether it still does. Paths are named by their keys.
pub(super) trait Owner {
    /// See [`Facts::has_left`].
    fn has_left(&self, key: usize) -> bool;
    /// See [`Facts::row_state`].
    fn row_state(&self, key: usize) -> PathState;
    /// See [`Facts::change_row`].
    fn change_row(&mut self, key: usize, from: PathState, to: PathState) -> bool;
    /// See [`Facts::newest_request`].
    fn newest_request(&self, key: usize) -> u64;
    /// See [`Facts::rail_being_left`].
    fn rail_being_left(&self, key: usize, rail: u32) -> bool;
    /// True if a peer was given up.
    fn peer_lost(&self, peer: u32) -> bool;
    /// True if this end and a peer have these rails.
    fn rails_exist(&self, peer: u32, rails: RailPair) -> bool;
    /// What halves of a path are made from.
    fn recipe(&self, key: usize) -> Option<Recipe>;
    /// A word about an incarnation of a path, as the peer's engine reads it.
    fn message(&self, key: usize, incarnation: u32, word: Word) -> Vec<u8>;

    /// A path's state.
    fn set_row(&mut self, key: usize, state: PathState);
    /// Both halves of a path are known. It is not usable yet.
    fn publish(&mut self, key: usize, half: &HalfPath, remote: &HalfCard);
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
    /// What happened to a path.
    fn notice(&mut self, now: Nanos, key: usize, at: (RailPair, u32), notice: Notice);
    /// A peer said something about a path that cannot be.
    fn remark(&mut self, now: Nanos, key: usize, remark: PeerError);
}

/// What a peer said that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerError {
    /// It offers rails that do not exist.
    NoSuchRails(super::path::Offer),
    /// It made its half on the first rail, asked for was the second.
    OtherRail(u32, u32),
}

/// What is known of the silence of peers.
pub(super) struct PeerSilence {
    /// By peer: since when it owes an answer, as the engine was awake; none once it said anything.
    owes: Vec<Option<Nanos>>,
    /// By peer: when it last said anything, likewise.
    heard: Vec<Nanos>,
}

impl PeerSilence {
    pub(super) fn new(peers: usize) -> Self {
        Self { owes: vec![None; peers], heard: vec![Nanos::ZERO; peers] }
    }

    /// A peer said something.
    pub(super) fn heard(&mut self, awake: Nanos, peer: u32) {
        if let (Some(owes), Some(heard)) =
            (self.owes.get_mut(peer as usize), self.heard.get_mut(peer as usize))
        {
            (*owes, *heard) = (None, awake);
        }
    }

    fn owes_since(&mut self, peer: u32, fenced: Nanos) -> Nanos {
        let heard = self.heard.get(peer as usize).copied().unwrap_or_default();
        let Some(owes) = self.owes.get_mut(peer as usize) else { return fenced };
        *owes.get_or_insert(fenced.max(heard))
    }
}

/// A path and what is open for it.
struct Entry {
    peer: u32,
    path: PathMachine<Half>,
    /// Posts probes while the path is being probed.
    prober: Option<Producer>,
}

/// The engine of one process.
pub(super) struct Engine {
    pub(super) world: Arc<dyn World>,
    pub(super) rails: Vec<Arc<Rail>>,
    entries: Vec<Option<Entry>>,
    pub(super) ports: PortTable,
    pub(super) links: Links,
    pub(super) nics: Nics,
    pub(super) destroys: DestroyQueue<Half>,
    pub(super) proofs: Proofs,
    pub(super) localizer: FaultLocalizer,
    pub(super) peers: PeerSilence,
    /// By rail: what is being done about its datagrams.
    pub(super) renewals: Vec<Renewal>,
    /// Packet lifetimes are counted by it.
    pub(super) age: Age,
    /// The same for patience: neither a jump of the clock nor a pause of this process is somebody else's silence.
    pub(super) awake: Age,
    pub(super) timing: Timing,
    /// How long a NIC may owe an answer.
    pub(super) nic_patience: Nanos,
    out: Vec<Output<Half>>,
}

/// What an engine is made of.
pub(super) struct Parts {
    pub world: Arc<dyn World>,
    pub rails: Vec<Arc<Rail>>,
    pub ports: PortTable,
    pub links: Links,
    pub nics: Nics,
    pub destroys: DestroyQueue<Half>,
    pub timing: Timing,
    pub nic_patience: Nanos,
    pub peers: usize,
}

/// The facts of one path, for its machine.
struct Seen<'a> {
    ports: &'a PortTable,
    links: &'a mut Links,
    nics: &'a Nics,
    destroys: &'a DestroyQueue<Half>,
    proofs: &'a Proofs,
    peers: &'a mut PeerSilence,
    rails: &'a [Arc<Rail>],
    awake: Nanos,
    nic_patience: Nanos,
    owner: &'a mut dyn Owner,
    key: usize,
    peer: u32,
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

    fn completions_in_use(&self, incarnation: u32) -> bool {
        self.destroys.cq_buffer_in_use(self.key, incarnation)
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

impl Engine {
    pub(super) fn new(parts: Parts, now: Nanos) -> Self {
        let Parts { world, rails, ports, links, nics, destroys, timing, nic_patience, peers } = parts;
        Self {
            renewals: vec![Renewal::default(); rails.len()],
            world,
            rails,
            entries: Vec::new(),
            ports,
            links,
            nics,
            destroys,
            proofs: Proofs::default(),
            localizer: FaultLocalizer::default(),
            peers: PeerSilence::new(peers),
            age: Age::new(now),
            awake: Age::new(now),
            timing,
            nic_patience,
            out: Vec::new(),
        }
    }

    /// A place for a path to a peer; `None`: the key stays free. Answers with the key.
    pub(super) fn add(&mut self, peer: u32, path: Option<PathMachine<Half>>) -> usize {
        self.entries.push(path.map(|path| Entry { peer, path, prober: None }));
        self.entries.len() - 1
    }

    /// Keys, of paths and free.
    pub(super) fn keys(&self) -> std::ops::Range<usize> {
        0..self.entries.len()
    }

    /// A path.
    pub(super) fn path(&self, key: usize) -> Option<&PathMachine<Half>> {
        self.entries.get(key)?.as_ref().map(|entry| &entry.path)
    }

    /// A path, to be changed without any output.
    pub(super) fn path_mut(&mut self, key: usize) -> Option<&mut PathMachine<Half>> {
        self.entries.get_mut(key)?.as_mut().map(|entry| &mut entry.path)
    }

    /// Every path, to be left to another engine.
    pub(super) fn take_paths(&mut self) -> Vec<Option<PathMachine<Half>>> {
        self.entries.drain(..).map(|entry| entry.map(|entry| entry.path)).collect()
    }

    /// Time passes.
    pub(super) fn grow(&mut self, now: Nanos) {
        self.awake.grow(now, self.nic_patience / 8 + Nanos::new(1));
        self.age.grow(now, self.timing.lifetime / 8 + Nanos::new(1));
    }

    /// Has a path's machine `act`, and carries out what it decides.
    pub(super) fn with<R>(
        &mut self,
        owner: &mut dyn Owner,
        now: Nanos,
        key: usize,
        act: impl FnOnce(&mut PathMachine<Half>, &mut Step<'_, Half>) -> R,
    ) -> Option<R> {
        let mut out = std::mem::take(&mut self.out);
        let Entry { peer, path, .. } = self.entries.get_mut(key)?.as_mut()?;
        let mut seen = Seen {
            ports: &self.ports,
            links: &mut self.links,
            nics: &self.nics,
            destroys: &self.destroys,
            proofs: &self.proofs,
            peers: &mut self.peers,
            rails: &self.rails,
            awake: self.awake.age_ns,
            nic_patience: self.nic_patience,
            owner: &mut *owner,
            key,
            peer: *peer,
        };
        let mut step = Step {
            now,
            age: self.age.age_ns,
            awake: self.awake.age_ns,
            timing: &self.timing,
            facts: &mut seen,
            out: &mut out,
        };
        let result = act(path, &mut step);
        for output in out.drain(..) {
            self.carry_out(owner, now, key, output);
        }
        self.out = out;
        Some(result)
    }

    fn carry_out(&mut self, owner: &mut dyn Owner, now: Nanos, key: usize, output: Output<Half>) {
        let Some(Entry { peer, path, prober }) = self.entries.get_mut(key).and_then(Option::as_mut) else {
            return;
        };
        let peer = *peer;
        match output {
            Output::Tell(incarnation, word) => {
                let message = owner.message(key, incarnation, word);
                self.links.send(now, peer, message, Reach::Link, &self.ports);
            }
            Output::Command(urgency, command) => self.command(owner, key, urgency, command),
            Output::Hasten(urgency, rail, number) => {
                self.nics.queue(rail).into_iter().for_each(|queue| queue.raise_priority(urgency, number));
            }
            Output::Count(rail, number) => {
                if self.nics.queue(rail).is_some_and(|queue| queue.lighten(number)) {
                    path.given(Task::Count(number));
                }
            }
            Output::CancelConnect(rail, number) => {
                self.cancel(rail, number);
            }
            Output::CancelMake(rail, number) => {
                let cancelled = self.nics.queue(rail).and_then(|queue| queue.cancel(number));
                if let Some(Job::Make(making)) = cancelled {
                    path.make_cancelled();
                    making.old.into_iter().for_each(|old| self.destroy(now, key, old));
                }
            }
            Output::Destroy(half) => self.destroy(now, key, half),
            Output::OpenProbes => {
                // SAFETY: the path is not `Ready`, so no owner posts on it; the producer is dropped before it is, and
                // before the half is put away.
                *prober = path.half().map(|half| unsafe { half.producer() });
            }
            Output::PostProbe => {
                if let Some(prober) = prober {
                    prober.post(&*self.world, Request::WriteNothing);
                }
            }
            Output::CloseProbes => *prober = None,
            Output::HandOver(since) => {
                if let Some(prober) = prober.take() {
                    owner.hand_over(key, prober.next_index(), since);
                }
            }
            Output::Publish => {
                if let (Some(half), Some(remote)) = (path.half(), path.remote()) {
                    owner.publish(key, half, remote);
                }
            }
            Output::Doubt => self.links.doubt(now, peer),
            Output::Moved(card) => self.links.moved(peer, &card),
            Output::RailsFailed => {
                let rails = path.rails();
                self.rails_failed(owner, now, peer, rails);
            }
            Output::RailsWorked => owner.rails_worked(peer, path.rails()),
            Output::LookInto => {
                let rails = path.rails();
                self.look_into(owner, now, peer, rails);
            }
            Output::AskAddress(rail) => self.ask_address(now, rail),
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
        }
    }

    fn cancel(&self, rail: u32, number: u64) -> Option<Job> {
        self.nics.queue(rail)?.cancel(number)
    }

    /// Gives a command, and tells the path its number.
    fn command(&mut self, owner: &dyn Owner, key: usize, urgency: Urgency, command: Command<Half>) {
        let Some(Recipe { rings, log_depth, tuning }) = owner.recipe(key) else { return };
        let (rail, job, task): (u32, Job, fn(u64) -> Task) = match command {
            Command::Fence(half) => (Endpoint::rail(&half), Job::Fence(half), Task::Fence),
            Command::Stop(half) => (Endpoint::rail(&half), Job::Stop(half), Task::Stop),
            Command::Look(half) => (Endpoint::rail(&half), Job::Look(half), Task::Look),
            Command::Connect(half, card) => {
                (Endpoint::rail(&half), Job::Connect(half, Box::new(card), tuning), Task::Connect)
            }
            Command::Make { rail, old, incarnation, psn, remote } => {
                let making = Making { old, rings, log_depth, incarnation, psn, remote, tuning };
                (rail, Job::Make(Box::new(making)), Task::Make)
            }
        };
        let number = self.nics.submit(rail, urgency, key, job);
        self.path_mut(key).into_iter().for_each(|path| path.given(task(number)));
    }

    /// Keeps a half until it is gone.
    pub(super) fn destroy(&mut self, now: Nanos, key: usize, half: Half) {
        self.destroys.defer(now, key, Endpoint::rail(&half), Endpoint::incarnation(&half), half);
    }

    /// Has destroyed what is due.
    pub(super) fn look_at_destroys(&mut self, now: Nanos) -> bool {
        let nics = &mut self.nics;
        self.destroys.poll(now, |key, half| {
            nics.submit(Endpoint::rail(&half), Urgency::Making, key, Job::Destroy(half))
        })
    }

    /// True if a command is the fence or the count that its path waits for.
    pub(super) fn is_about_fence(&self, id: JobId) -> bool {
        let task = self.path(id.about).map_or(Task::None, PathMachine::task);
        [Task::Fence(id.number), Task::Count(id.number)].contains(&task)
    }

    /// What came of a command about a path. What is over is compared by its number: a path may have moved on meanwhile.
    pub(super) fn outcome(&mut self, owner: &mut dyn Owner, now: Nanos, id: JobId, outcome: Outcome) {
        let key = id.about;
        let task = self.path(key).map_or(Task::None, PathMachine::task);
        match outcome {
            Outcome::Fenced(result) if self.is_about_fence(id) => {
                let result = result.map_err(|error| error.to_string());
                self.with(owner, now, key, |path, cx| path.fenced(cx, result));
            }
            Outcome::Stopped(result) if task == Task::Stop(id.number) => {
                let result = match result {
                    Ok(truth) if truth.state == Some(State::Err) => Ok(()),
                    Ok(truth) => {
                        Err(format!("the queue pair after 2ERR: expected ERR, got {:?}", truth.state))
                    }
                    Err(error) => Err(error.to_string()),
                };
                self.with(owner, now, key, |path, cx| path.stopped(cx, result));
            }
            Outcome::Made(result, left) if task == Task::Make(id.number) => {
                left.into_iter().for_each(|left| self.destroy(now, key, left));
                let result = result.map_err(|error| error.to_string());
                self.with(owner, now, key, |path, cx| path.made(cx, result));
            }
            Outcome::Connected(result) if task == Task::Connect(id.number) => {
                let result = result.map_err(|error| error.to_string());
                self.with(owner, now, key, |path, cx| path.connected_here(cx, result));
            }
            Outcome::Looked(result) if task == Task::Look(id.number) => {
                // One that was not read shows with the first work on it.
                let works = result.map_or(true, |truth| truth.state == Some(State::Rts));
                self.with(owner, now, key, |path, cx| path.looked(cx, works));
            }
            Outcome::Made(made, left) => {
                made.ok().into_iter().chain(left).for_each(|half| self.destroy(now, key, half));
            }
            Outcome::Destroyed(result) => self.destroyed(owner, now, id, result),
            _ => {}
        }
    }

    /// A NIC has destroyed a half, or has not answered. From here the packet lifetime counts again.
    fn destroyed(
        &mut self,
        owner: &mut dyn Owner,
        now: Nanos,
        id: JobId,
        result: Result<Option<u32>, Half>,
    ) {
        match result {
            Ok(psn) => {
                if let Some(rail) = self.destroys.destroyed(id.number) {
                    owner.proven(id.about, rail);
                }
                let age = self.age.age_ns;
                self.path_mut(id.about).into_iter().for_each(|path| path.destroyed(age, psn));
            }
            Err(half) => {
                // The last agent of this process gave the command.
                if let Some(half) = self.destroys.failed(now, id.number, half, self.timing.backoff) {
                    self.destroy(now, id.about, half);
                }
            }
        }
    }

    /// Waits for the truths of a path's fence.
    pub(super) fn await_truth(&mut self, owner: &mut dyn Owner, now: Nanos, key: usize) -> bool {
        self.with(owner, now, key, |path, cx| path.look_asking(cx));
        let known = self.with(owner, now, key, |path, cx| path.look_own_half(cx)) == Some(true);
        known && self.with(owner, now, key, |path, cx| path.look_both_halves(cx)) == Some(true)
    }

    /// What became of a path's probes since the last look.
    pub(super) fn poll_probes(&mut self, key: usize) -> Polled {
        let mut polled = Polled::default();
        let prober = self.entries.get_mut(key).and_then(Option::as_mut).and_then(|entry| entry.prober.as_mut());
        let Some(prober) = prober else { return polled };
        while let Some(result) = prober.poll(&*self.world) {
            match result {
                Ok(_) => polled.answered += 1,
                Err(error) => polled.failed = Some(error.to_string()),
            }
        }
        polled.has_room = prober.has_room();
        polled
    }

    /// Rails to a peer fell silent. What a port explains is no failure of theirs.
    pub(super) fn rails_failed(&mut self, owner: &mut dyn Owner, now: Nanos, peer: u32, rails: RailPair) {
        if self.ports.up(rails.local, peer, rails.remote) {
            owner.rails_failed(now, peer, rails);
        }
    }

    /// A path is left because of silence: if no port explains that, somebody is to be asked.
    fn look_into(&mut self, owner: &mut dyn Owner, now: Nanos, peer: u32, rails: RailPair) {
        if !self.ports.up(rails.local, peer, rails.remote) {
            return;
        }
        owner.rails_failed(now, peer, rails);
        if self.localizer.takes(peer, rails) {
            let (with_peer, others) = (self.links.pairs(peer, &self.ports), self.other_peers(peer, rails));
            let number = self.links.number();
            self.localizer.begin(now, (peer, rails), &with_peer, &others, number);
        }
    }

    /// Some other peers that can be asked over the local rail of a path.
    fn other_peers(&self, peer: u32, path: RailPair) -> Vec<Ping> {
        let (me, count) = self.links.shape();
        let others = (1..count).map(|step| (peer + step) % count).filter(|other| *other != me && *other != peer);
        let over = |other: u32| {
            let pairs = self.links.pairs(other, &self.ports);
            pairs.into_iter().find(|pair| pair.local == path.local).map(|pair| (other, pair))
        };
        others.take(OTHERS).filter_map(over).collect()
    }

    /// Something went wrong on a rail: its address may be another one.
    fn ask_address(&mut self, now: Nanos, rail: u32) {
        let Some(renewal) = self.renewals.get_mut(rail as usize) else { return };
        if renewal.asks_address(now) {
            self.nics.submit(rail, Urgency::Idle, rail as usize, Job::AskAddress);
        }
    }

    /// True if a rail's NIC has owed an answer for too long to be waited for.
    pub(super) fn nic_is_silent(&self, rail: u32) -> bool {
        self.nics.is_silent(self.awake.age_ns, rail, self.nic_patience)
    }

    /// True if a NIC does not let go of an old half of a path.
    pub(super) fn is_stuck(&self, key: usize, rail: u32) -> bool {
        let fencing = self.path(key).is_some_and(|path| path.is_fencing_at_rest(rail));
        let (pending, refused) = (self.destroys.holds(key, rail), self.destroys.was_refused(key, rail));
        is_stuck(self.nic_is_silent(rail), pending, refused, fencing)
    }

    /// False while a port of a path is known to be down.
    pub(super) fn ports_up(&self, key: usize) -> bool {
        let Some(Entry { peer, path, .. }) = self.entries.get(key).and_then(Option::as_ref) else {
            return false;
        };
        self.ports.up(path.rails().local, *peer, path.rails().remote)
    }

    /// What was counted and may still send is stopped now: the port of its rail is up again.
    pub(super) fn hasten_stops(&self, rail: u32) {
        for path in self.entries.iter().flatten().map(|entry| &entry.path) {
            if let (Task::Stop(number), true) = (path.task(), path.rail_at_work() == rail) {
                self.nics.queue(rail).into_iter().for_each(|queue| queue.raise_priority(Urgency::Asked, number));
            }
        }
    }
}
