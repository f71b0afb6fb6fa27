//! Which pairs of rails the slots of a channel get: what is known of them, and what is done about it. The rules are in
//! `path_pool.rs` and `path_ranking.rs`.

use super::Agent;
use crate::agent::health::Health;
use crate::agent::nic_job::Urgency;
use crate::agent::path_pool::{Assignment, ChannelLook, ChannelView, Prospects};
use crate::agent::path_ranking::Rank;
use crate::agent::path_slots::{SlotView, next_pair};
use crate::agent::words::Place;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::slots::RailPair;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::SLOTS_MAX;

/// What the agent knows of pairs of rails for the slots of a channel.
struct Outlook<'a> {
    agent: &'a Agent,
    at: Place,
}

impl Prospects for Outlook<'_> {
    fn is_usable(&self, slot: usize, pair: RailPair) -> bool {
        let index = self.agent.index(Place { slot: slot as u32, ..self.at });
        self.agent.ports.up(pair.local, self.at.peer, pair.remote) && !self.agent.is_stuck(index, pair.local)
    }

    fn suspects(&self, pair: RailPair) -> usize {
        self.agent.localizer.suspects(self.at.peer, pair)
    }
}

impl Agent {
    /// A pair fell silent, in use or while it was made anew. What a port explains is no failure of the pair.
    pub(in crate::agent) fn note_failure(&mut self, now: Nanos, index: usize) {
        let peer = self.place(index).peer;
        let Some(pair) = &self.pairs[index] else { return };
        if self.ports.up(pair.local_rail, peer, pair.remote_rail) {
            self.pool.history.failed(peer, pair.rails(), now);
        }
    }

    /// A pair made anew works.
    pub(in crate::agent) fn note_success(&mut self, index: usize) {
        let peer = self.place(index).peer;
        if let Some(pair) = &self.pairs[index] {
            self.pool.history.worked(peer, pair.rails());
        }
    }

    /// What a pair of rails to a peer promises.
    pub(in crate::agent) fn rank_of(&self, peer: u32, pair: RailPair) -> Rank {
        self.pool.rank(peer, pair, self.localizer.suspects(peer, pair))
    }

    /// True if a slot that does not work is better not waited for where nothing else works: its rails failed, or are
    /// under suspicion, or it has been silent for longer than one that works ever is.
    pub(in crate::agent) fn is_doubtful(&self, now: Nanos, index: usize) -> bool {
        let peer = self.place(index).peer;
        let Some(pair) = &self.pairs[index] else { return false };
        let rank = self.rank_of(peer, pair.rails());
        // It was given to them in spite of it, and has its turn.
        let failed = rank.failed_at.is_some() && !pair.untried;
        failed || rank.suspects > 0 || self.is_overdue(now, index)
    }

    /// True if a pair has stood for longer than its patience in a state that passes by itself.
    fn is_overdue(&self, now: Nanos, index: usize) -> bool {
        let peer = self.place(index).peer;
        let Some(pair) = &self.pairs[index] else { return false };
        let passes =
            matches!(pair.health, Health::Fencing | Health::Fenced | Health::Connecting | Health::Probing);
        let patience = self.pool.history.patience(peer, pair.rails(), self.options.probe_ns);
        passes && now >= pair.since_ns + patience && !Mutant::DeadRailsFirst.on()
    }

    /// True if a pair whose probes are not answered is to make room for another one: the channel has nothing else, or
    /// nothing that leads to a home it wants, and its retries may take as long as the give-up time.
    pub(in crate::agent) fn gives_way(&self, now: Nanos, index: usize) -> bool {
        let at = self.place(index);
        at.slot != 0
            && self.leads(index)
            && self.is_overdue(now, index)
            && self.is_pressed(at)
            && self.has_other_rails(now, at)
    }

    /// True if no slot of a channel works, or none that leads to a home that it wants.
    fn is_pressed(&self, at: Place) -> bool {
        let row = at.peer * self.words.root().channels_per_pe + at.channel;
        let ready = |slot: u32| {
            let pair = self.pairs[self.index(Place { slot, ..at })].as_ref()?;
            let up = self.ports.up(pair.local_rail, at.peer, pair.remote_rail);
            (pair.health == Health::Ready && up).then(|| pair.rails())
        };
        let ready: Vec<RailPair> = (0..self.words.root().slots).filter_map(ready).collect();
        ready.is_empty() || self.wants(row).any(|want| !ready.iter().any(|pair| want.is_met_by(*pair)))
    }

    /// True if a slot may be given to some other pair.
    fn has_other_rails(&self, now: Nanos, at: Place) -> bool {
        let outlook = Outlook { agent: self, at };
        let usable = |pair| outlook.is_usable(at.slot as usize, pair);
        let ranked = self.pool.ranked(at.peer, at.channel);
        next_pair(&ranked, &self.slot_views(now, at), usable, |_| ()).is_some()
    }

    /// Looks over the channels that this PE leads.
    pub(in crate::agent) fn mind_pool(&mut self, now: Nanos) -> bool {
        if !self.pool.is_due(now) {
            return false;
        }
        let overlooked = (0..self.pairs.len()).filter(|index| self.fence_overlooked(now, *index)).count() > 0;
        let root = self.words.root();
        let (me, per, rows) = (root.my_pe, root.channels_per_pe, root.pe_count * root.channels_per_pe);
        let led = (0..rows).filter(|row| me < row / per);
        let busy = led.filter(|row| self.mind_channel(now, *row)).count() > 0;
        overlooked || busy
    }

    /// True if it gave a slot of a channel to another pair.
    fn mind_channel(&mut self, now: Nanos, row: u32) -> bool {
        let per = self.words.root().channels_per_pe;
        let at = Place { peer: row / per, channel: row % per, slot: 0 };
        let view = ChannelView {
            peer: at.peer,
            channel: at.channel,
            row: row as usize,
            slots: self.slot_views(now, at),
            active: self.words.active_slot(at.peer, at.channel) as usize,
            wants: self.wants(row).collect(),
            pressing: self.pressing_ns(),
        };
        let (mut look, mut given) = (ChannelLook::from(view), false);
        loop {
            let mut pool = std::mem::take(&mut self.pool);
            let next = pool.next(now, &mut look, &Outlook { agent: self, at });
            self.pool = pool;
            let Some(one) = next else { return given };
            self.assign(now, Place { slot: one.slot as u32, ..at }, &one);
            given = true;
        }
    }

    /// Every slot of a channel.
    fn slot_views(&self, now: Nanos, at: Place) -> [Option<SlotView>; SLOTS_MAX] {
        let mut views = [None; SLOTS_MAX];
        let slots = self.words.root().slots;
        views
            .iter_mut()
            .zip(0..slots)
            .for_each(|(view, slot)| *view = self.slot_view(now, Place { slot, ..at }));
        views
    }

    fn slot_view(&self, now: Nanos, at: Place) -> Option<SlotView> {
        let index = self.index(at);
        let pair = self.pairs[index].as_ref()?;
        let up = self.ports.up(pair.local_rail, at.peer, pair.remote_rail);
        // Failures that it came with say nothing of rails it was not made on yet.
        let failures = if pair.untried { 0 } else { pair.failures };
        let stuck = self.is_stuck(index, pair.local_rail);
        let doubtful = pair.health != Health::Ready && self.is_doubtful(now, index);
        let (health, untried) = (pair.health, pair.untried);
        Some(SlotView { pair: pair.rails(), health, up, failures, untried, stuck, doubtful })
    }

    /// Gives a slot that is released to another pair; one that is ready is left and fenced first, and given in a later
    /// look.
    fn assign(&mut self, now: Nanos, at: Place, one: &Assignment) {
        let (index, view) = (self.index(at), &one.view);
        if view.health == Health::Ready {
            let works = view.up && !Mutant::SlotTakenUnasked.on();
            return if works { self.vacate(now, index) } else { self.fence_asked(now, index, Urgency::Idle) };
        }
        let was = self.route(index);
        if let Some(pair) = &mut self.pairs[index] {
            (pair.local_rail, pair.remote_rail) = (one.to.local, one.to.remote);
            pair.untried = true;
            // What failed was another pair. Where no pair is left that did not fail, the pauses grow all the same.
            pair.failures = if view.up && one.to_failed { pair.failures } else { 0 };
        }
        let (local_rail, remote_rail) = (one.to.local, one.to.remote);
        self.report(now, Event::SlotAssigned { at: was, local_rail, remote_rail });
    }
}
