//! The engine and the channels that it works for.

use super::channels::Channels;
use super::endpoint::Half;
use super::engine::Engine;
use super::owner::Owner;
use super::path::{PathMachine, Step};
use super::words::Place;
use crate::events::{Event, Route};
use crate::nanos::Nanos;
use crate::slots::RailPair;
use shunt_layout::mutant::Mutant;

/// Both.
pub(super) struct Recovery {
    pub(super) engine: Engine,
    pub(super) channels: Channels,
}

impl Recovery {
    /// Has a path's machine `act`, and carries out what it decides.
    pub(super) fn with<R>(
        &mut self,
        now: Nanos,
        key: usize,
        act: impl FnOnce(&mut PathMachine<Half>, &mut Step<'_, Half>) -> R,
    ) -> Option<R> {
        self.engine.with(&mut self.channels, now, key, act)
    }

    /// A path.
    pub(super) fn path(&self, key: usize) -> Option<&PathMachine<Half>> {
        self.engine.path(key)
    }

    /// Keys of the slots of a path's channel.
    pub(super) fn siblings(&self, key: usize) -> std::ops::Range<usize> {
        let slots = self.channels.words.root().slots as usize;
        let first = key - key % slots;
        first..first + slots
    }

    /// True if another path of a path's channel is ready and no port of it is down.
    pub(super) fn has_standby(&self, key: usize) -> bool {
        self.siblings(key).any(|other| other != key && self.is_standby(other))
    }

    /// True if a path is ready, nobody is leaving it, and no port of it is down.
    pub(super) fn is_standby(&self, key: usize) -> bool {
        self.path(key).is_some_and(|path| path.standing().is_standby()) && self.engine.ports_up(key)
    }

    /// Peers, and this PE among them.
    pub(super) fn peers(&self) -> impl Iterator<Item = u32> + use<> {
        let (pes, me) = (self.channels.words.root().pe_count, self.channels.words.root().my_pe);
        (0..pes).filter(move |pe| *pe != me)
    }

    /// A path as events name it.
    pub(super) fn route(&self, key: usize) -> Route {
        let none = (RailPair { local: 0, remote: 0 }, 0);
        let at = self.path(key).map_or(none, |path| (path.rails(), path.incarnation()));
        self.channels.route(key, at)
    }

    /// Tells an event that happens now.
    pub(super) fn report(&mut self, now: Nanos, event: Event) {
        self.channels.report(now, event);
    }

    /// Says what has no event of its own.
    pub(super) fn note(&mut self, now: Nanos, text: String) {
        self.channels.note(now, text);
    }

    /// Exact fetching atomics of a channel index leave a rail: what waits there is taken back. True while some of it is
    /// under way.
    pub(super) fn take_fetches_back(&mut self, channel: u32, rail: u32) -> bool {
        let about = channel as usize;
        let Some((server, _)) = &mut self.channels.fetches else { return false };
        if Mutant::FetchHomeNotAwaited.on() {
            return false;
        }
        let under_way = self.engine.nics.queue(rail).is_some_and(|queue| queue.cancel_work(about));
        if !under_way {
            server.taken_back(about);
        }
        under_way
    }

    /// The key of a place.
    pub(super) fn key(&self, at: Place) -> usize {
        self.channels.key(at)
    }

    /// True if a peer was given up.
    pub(super) fn is_lost(&self, peer: u32) -> bool {
        self.channels.peer_lost(peer)
    }
}
