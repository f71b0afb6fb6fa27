//! A queue pair in the agent's charge.

use super::pace::REST;
use super::silence::Silence;
use crate::endpoint::Own;
use crate::pair_state::{Connection, On, SHARES, STOPPED, State};
use crate::queue_pair::QueuePair;
use crate::settings::settings;
use crate::status::PairReport;
pub use crate::voice::{debug, say};
use crate::words::{Hello, Said};
use shunt_mlx5::descriptor::HalfCard;
use shunt_mlx5::rail::Rail;
use shunt_recovery::nanos::Nanos;
use std::sync::Arc;

/// Time between two introductions to a peer that has not answered.
pub(super) const AGAIN: Nanos = Nanos::millis(10);
/// A queue pair without a buffer waits so long until another gives its own back.
const HUNGRY: Nanos = Nanos::millis(20);
/// The same if all others have one at most: the program has fewer buffers than queue pairs, and each that gives its
/// own back moves for it.
const HUNGRY_AMONG_POOR: Nanos = Nanos::millis(500);
/// So much longer if another has waited longer: each has its turn, and one that does not ask keeps nobody.
const BEHIND_ANOTHER: Nanos = Nanos::millis(20);

/// Which directions of a queue pair a charge is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Both: another queue pair is the other end.
    Both,
    /// What it sends: it is connected to itself, and is in charge twice.
    Sends,
    /// What it receives: the other end of the same.
    Receives,
}

impl Part {
    /// Of a queue pair that is connected to itself, or is not.
    pub const fn all(to_itself: bool) -> &'static [Self] {
        if to_itself { &[Self::Sends, Self::Receives] } else { &[Self::Both] }
    }

    /// It sends.
    pub const fn sends(self) -> bool {
        !matches!(self, Self::Receives)
    }

    /// It receives.
    pub const fn receives(self) -> bool {
        !matches!(self, Self::Sends)
    }
}

/// Set in the number of what a queue pair receives that is connected to itself.
const RECEIVES: u64 = 1 << 63;

/// The other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct There {
    /// The engine's number for its process.
    pub peer: u32,
    /// Its number for its queue pair.
    pub id: u64,
    /// This end counts as the first of both.
    pub leads: bool,
}

/// A fence that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The path.
    pub key: usize,
    /// Its incarnation then.
    pub incarnation: u32,
    /// The request.
    pub request: u64,
}

/// A queue pair in the agent's charge.
pub struct Charge {
    /// The queue pair.
    pub pair: Arc<QueuePair>,
    /// Its directions.
    pub part: Part,
    /// What the program connected it with.
    pub connection: Connection,
    /// Its rail, and those of its backups, best first.
    pub rails: Vec<u32>,
    /// When that was.
    pub since: Nanos,
    /// When it was introduced last.
    pub hello_at: Nanos,
    /// The other end, once it is known.
    pub there: Option<There>,
    /// The other end knows this one.
    pub heard: bool,
    /// Keys of its paths, by number; none before the other end is known.
    pub keys: Vec<usize>,
    /// Fences that are under way.
    pub fences: Vec<Fence>,
    /// Counts the places where it received.
    pub epoch: u32,
    /// The other end's, as far as it said so.
    pub their_epoch: u32,
    /// The other end receives on this path and incarnation, and this direction does not send there yet.
    pub ready: Option<(u32, u32)>,
    /// So many receives were consumed of what was sent in this epoch and before.
    pub cut: Option<(u32, u64)>,
    /// The other end needs the answers of its atomics.
    pub answers_there: bool,
    /// This end needs those of its own, and has told the other.
    pub answers_here: bool,
    /// Atomics come from the other end: they stay on the NIC that the program chose.
    pub atomics: bool,
    /// The path that it received on is fenced: since when.
    pub fenced_since: Option<Nanos>,
    /// A direction is nowhere, or has requests that no NIC takes: since when.
    pub homeless_since: Option<Nanos>,
    /// It has no buffer, and others have: since when.
    pub hungry_since: Option<Nanos>,
    /// It has none, and none will come, since then.
    starving_since: Option<Nanos>,
    /// What is known of it while none of its requests completes.
    pub silence: Silence,
    /// The oldest request that has not completed, and since when that, or when the NIC was last asked.
    oldest: (u64, Nanos),
    /// All that was posted had completed when that was looked at last.
    idle: bool,
    /// When that was.
    looked: Nanos,
    /// Requests that the next queue pair gets once more.
    pub again: u64,
    /// The other end is gone.
    pub parted: bool,
    /// It was destroyed, or stopped by its program.
    pub ended_there: bool,
    /// No path is left, by the other end's word.
    pub lost_there: bool,
    /// Completions come from elsewhere: the queues know.
    pub marked: bool,
    /// Nothing more is done for it, and that was told.
    pub over: bool,
    /// Since when it is lost, while NICs may still use buffers of what is left.
    pub ended: Option<Nanos>,
}

impl Charge {
    /// One that was just connected.
    pub fn new(pair: Arc<QueuePair>, part: Part, rails: Vec<u32>, now: Nanos) -> Self {
        let connection = pair.state().connection;
        Self {
            pair,
            part,
            connection,
            rails,
            since: now,
            hello_at: Nanos::ZERO,
            there: None,
            heard: false,
            keys: Vec::new(),
            fences: Vec::new(),
            epoch: 0,
            their_epoch: 0,
            ready: None,
            cut: None,
            answers_there: false,
            answers_here: false,
            atomics: false,
            fenced_since: None,
            homeless_since: None,
            hungry_since: None,
            starving_since: None,
            silence: Silence::default(),
            oldest: (0, now),
            idle: true,
            looked: now,
            again: 0,
            parted: false,
            ended_there: false,
            lost_there: false,
            marked: false,
            over: false,
            ended: None,
        }
    }

    /// Its number, by which the other end names it.
    pub fn id(&self) -> u64 {
        self.pair.id | if self.part == Part::Receives { RECEIVES } else { 0 }
    }

    /// The rail of the NIC that the program chose.
    pub fn home(&self) -> u32 {
        self.rails[0]
    }

    /// Rails of its backups, best first.
    pub fn backups(&self) -> &[u32] {
        &self.rails[1..]
    }

    /// How it introduces itself.
    pub fn hello(&self, cards: &[HalfCard]) -> Hello {
        Hello {
            id: self.id(),
            from: (self.connection.gid, self.pair.qpn),
            to: self.connection.remote(),
            rails: self.rails.clone(),
            psn: self.connection.attr.sq_psn,
            heard: self.there.is_some(),
            cards: cards.to_vec(),
        }
    }

    /// Its own queue pair, for the engine.
    pub fn own(&self, rails: &[Arc<Rail>]) -> Own {
        Own {
            pair: Arc::downgrade(&self.pair),
            rail: rails[self.home() as usize].clone(),
            qpn: self.pair.qpn,
            psn: self.connection.attr.sq_psn,
        }
    }

    /// True while something of it is under way.
    pub fn is_in_motion(&self) -> bool {
        let waits = self.fenced_since.is_some() || self.ready.is_some() || self.homeless_since.is_some();
        !self.over && (!self.fences.is_empty() || waits || self.there.is_some() && !self.heard)
    }

    /// The other end knows this one: failures are handled from now on. True the first time.
    pub fn arm(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.heard, true);
        if first {
            self.pair.state().armed = true;
            debug(&format!("QP {:#x}: both ends know each other", self.pair.qpn));
        }
        first
    }

    /// The other end says something of this queue pair.
    pub fn hear(&mut self, now: Nanos, said: &Said) {
        match said {
            Said::Cut(_, epoch, count, atomics) => {
                self.cut = Some((*epoch, *count));
                self.atomics = *atomics;
            }
            Said::Ready(_, number, incarnation, epoch) => {
                self.their_epoch = *epoch;
                self.ready = Some((*number, *incarnation));
            }
            Said::Atomics(_) => self.answers_there = true,
            Said::Parted(_, ended) => (self.parted, self.ended_there) = (true, *ended),
            Said::Lost(_) => self.lost_there = true,
            Said::Receives(_, count) => self.silence.hear(now, *count),
            _ => {}
        }
    }

    /// If it has no buffer, while none is left to deal, another gives its own back.
    pub fn mind_the_buffers(&mut self, now: Nanos) {
        let Some(shared) = self.pair.shared.as_ref().filter(|_| self.part.receives()) else { return };
        let Some((most, before)) = shared.hoard_elsewhere(self.pair.id) else {
            self.hungry_since = None;
            return;
        };
        let patience = if most > 1 { HUNGRY } else { HUNGRY_AMONG_POOR };
        let patience = patience + BEHIND_ANOTHER * before as u64;
        if now > *self.hungry_since.get_or_insert(now) + patience {
            self.hungry_since = None;
            shared.call_back(self.pair.id);
        }
    }

    /// True if no request has completed for a while although some are under way. True once in that time.
    pub fn is_quiet(&mut self, now: Nanos) -> bool {
        let state = self.pair.state();
        let (first, idle) = (state.sends.first(), state.sends.is_empty());
        let patience = self.silence.patience((first, state.sends.next()));
        drop(state);
        let quiet = !idle && self.oldest.0 == first && now > self.oldest.1 + patience;
        // One that has become the oldest since the last look may have done so right after it.
        let since = if quiet || idle { now } else { self.looked.max(now - REST) };
        if idle || quiet || self.oldest.0 != first {
            self.oldest = (first, since);
        }
        (self.idle, self.looked) = (idle, now);
        quiet
    }

    /// When it is to be looked at again if nobody tells of anything before; none if it is not at rest: it waits for
    /// what nobody tells of.
    pub fn due(&self) -> Option<Nanos> {
        if self.marked && self.pair.may_sleep() {
            // A program that sleeps is woken by who looks.
            return None;
        }
        if self.over {
            return Some(Nanos::MAX);
        }
        if !self.heard {
            return Some(self.hello_at + AGAIN);
        }
        let state = self.pair.state();
        let home = state.is_at_home() || self.pair.shared.is_none() && self.is_back(&state);
        if !home || state.over().is_some() || self.parted || self.lost_there || self.hungry_since.is_some() {
            return None;
        }
        let silence =
            self.oldest.1 + self.silence.patience((self.oldest.0, state.sends.next())) + Nanos::new(1);
        Some(if self.idle { Nanos::MAX } else { silence })
    }

    /// It was moved, and is back on the first path with all that it has.
    fn is_back(&self, state: &State) -> bool {
        let has = [self.part.sends(), self.part.receives()];
        let back = |key: Option<usize>| key.is_some() && key == self.first();
        let all = self.used(state).into_iter().zip(has).all(|(key, has)| !has || back(key));
        all && !state.closed
            && !state.lost
            && state.spare_failed == [None; 2]
            && self.homeless_since.is_none()
    }

    /// Nothing more is done for it. One that is lost takes nothing from a queue that it shares.
    pub fn close(&mut self, why: &str, lost: bool) {
        self.over = true;
        self.fences.clear();
        if !lost {
            self.pair.estrange(why);
        }
    }

    /// It was moved and has had no buffer for as long as one waits for a path: a queue pair that is not protected keeps
    /// those of the NIC.
    pub fn starves(&mut self, now: Nanos) -> bool {
        let shared = self.pair.shared.as_ref().filter(|_| self.part.receives());
        let starves = shared.is_some_and(|shared| shared.starves(self.pair.id));
        let since = *self.starving_since.get_or_insert(now);
        self.starving_since = self.starving_since.filter(|_| starves);
        starves && now > since + Nanos::new(settings().give_up_ns)
    }

    /// The key of the path that the program made.
    pub fn first(&self) -> Option<usize> {
        self.keys.first().copied()
    }

    /// The number of a path by its key.
    pub fn number(&self, key: usize) -> Option<u32> {
        self.keys.iter().position(|one| *one == key).map(|at| at as u32)
    }

    /// Keys of the paths that it sends on, and receives on.
    pub fn used(&self, state: &State) -> [Option<usize>; 2] {
        let sends = self.key_of(&state.send_on).filter(|_| self.part.sends());
        let receives = self.key_of(&state.recv_on).filter(|_| self.part.receives());
        [sends, receives]
    }

    /// True if each of its directions is on a path, and none on the first.
    pub fn is_away(&self, used: [Option<usize>; 2]) -> bool {
        let has = [self.part.sends(), self.part.receives()];
        let away = |key: Option<usize>| key.is_some() && key != self.first();
        used.into_iter().zip(has).all(|(key, has)| !has || away(key))
    }

    /// Stand-ins of its own that have failed. What a queue pair that is connected to itself receives on has another key
    /// than what it sends on.
    pub fn take_failed(&self, state: &mut State) -> [Option<(usize, u32)>; 2] {
        state.spare_failed.each_mut().map(|failed| failed.take_if(|(key, _)| self.keys.contains(key)))
    }

    /// The key of the path that a direction is on.
    fn key_of(&self, on: &On) -> Option<usize> {
        match on {
            On::Own => self.first(),
            On::Nowhere => None,
            On::Spare(track) => Some(track.key),
        }
    }
}

/// What a queue pair waits for until it is protected.
pub const fn awaits(there: bool, store: Option<bool>) -> &'static str {
    match (there, store) {
        (false, Some(false)) => "cannot find the other end: the store is not there, or refuses this process",
        (false, _) => "waits for the other end to introduce itself; without Shunt there it never does",
        (true, _) => "waits for the other end to say that it knows this one",
    }
}

/// What is told of a queue pair.
pub fn report(pair: &QueuePair, backup: &str, why: &str) -> PairReport {
    // Told before it fails: a move would end it.
    let shares = pair.shared.as_ref().is_some_and(|shared| shared.has_strangers());
    let state = pair.state();
    let failed = state.lost && state.stopped.is_none();
    let shares = shares && state.is_at_home() && !failed;
    let ended = state.over().is_some_and(|(why, _)| why == STOPPED);
    let name = match () {
        () if ended && !failed => "ended",
        () if shares || state.over().is_some() && !failed => "unprotected",
        () if state.lost => "lost",
        () if state.closed || matches!(state.send_on, On::Nowhere) => "moving",
        () if state.armed => "protected",
        () => "connecting",
    };
    let why = if shares { SHARES } else { why };
    let why = state.over().filter(|_| !failed).map_or(why, |(why, _)| why);
    let on = state.send_on.spare().map_or(pair.context.device.as_str(), |track| track.queue.name());
    PairReport {
        qpn: pair.qpn,
        device: pair.context.device.clone(),
        state: name.into(),
        on: on.into(),
        backup: backup.into(),
        switches: state.switches,
        replayed: state.replayed,
        why: why.into(),
        ..PairReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idle_pair::pair;

    /// Peers were not told the keys of a domain that had another's address, and as many changes.
    #[test]
    fn no_two_domains_count_the_same_changes() {
        let (one, other) = (pair(), pair());
        let count = |pair: &QueuePair| pair.domain.changes.load(std::sync::atomic::Ordering::Relaxed);
        assert!(count(&one).abs_diff(count(&other)) > u64::from(u32::MAX));
    }

    #[test]
    fn one_that_is_at_home_waits_for_who_tells_and_one_that_moves_is_looked_at() {
        let mut charge = Charge::new(pair(), Part::Both, vec![0, 1], Nanos::ZERO);
        assert_eq!(charge.due(), Some(AGAIN), "it introduces itself again");
        charge.heard = true;
        assert_eq!(charge.due(), Some(Nanos::MAX));
        (charge.idle, charge.oldest) = (false, (0, Nanos::secs(1)));
        assert_eq!(charge.due(), Some(Nanos::secs(1) + charge.silence.patience((0, 0)) + Nanos::new(1)));
        charge.pair.state().closed = true;
        assert_eq!(charge.due(), None);
        charge.over = true;
        assert_eq!(charge.due(), Some(Nanos::MAX));
    }

    /// A rank of MPI is connected to itself. Such a queue pair was not protected, nor was any that shares its buffers.
    #[test]
    fn one_that_is_connected_to_itself_has_two_ends_with_a_direction_each() {
        let pair = pair();
        let charge = |part: &Part| {
            let mut charge = Charge::new(pair.clone(), *part, vec![0, 1], Nanos::ZERO);
            charge.keys = if *part == Part::Receives { vec![20, 21] } else { vec![10, 11] };
            charge
        };
        let [sends, receives] = &Part::all(true).iter().map(charge).collect::<Vec<_>>()[..] else {
            panic!("two ends")
        };
        let [both] = &Part::all(false).iter().map(charge).collect::<Vec<_>>()[..] else { panic!("one") };
        assert_eq!((both.id(), sends.id()), (7, 7));
        assert_ne!(receives.id(), sends.id(), "each must name the other");
        let mut state = State::default();
        assert_eq!(both.used(&state), [Some(10), Some(10)]);
        assert_eq!(sends.used(&state), [Some(10), None]);
        assert_eq!(receives.used(&state), [None, Some(20)]);
        // Where the other direction is does not keep one from going back.
        assert!(sends.is_away([Some(11), None]) && receives.is_away([None, Some(21)]));
        assert!(!sends.is_away([Some(10), None]) && !sends.is_away([None, None]));
        assert!(both.is_away([Some(11), Some(11)]) && !both.is_away([Some(11), None]));
        // A failure is told to the end whose stand-in it is.
        state.spare_failed = [None, Some((21, 1))];
        assert_eq!((sends.take_failed(&mut state), both.take_failed(&mut state)), ([None; 2], [None; 2]));
        assert_eq!(receives.take_failed(&mut state), [None, Some((21, 1))]);
        assert_eq!(state.spare_failed, [None; 2]);
    }
}
