//! Which pairs of rails the slots of a channel get: what is known of them, and what is done about it. The rules are in
//! `path_pool.rs` and `path_ranking.rs`.

use super::homes::{leads_home, pressing, wants};
use crate::agent::health::Health;
use crate::agent::nic_job::Urgency;
use crate::agent::owner::Owner;
use crate::agent::path::{self, Standing};
use crate::agent::path_pool::{Assignment, ChannelLook, ChannelView, Prospects};
use crate::agent::path_slots::{SlotView, next_pair};
use crate::agent::recovery::Recovery;
use crate::agent::words::Place;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::slots::RailPair;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{PathState, SLOTS_MAX};

/// What is known of pairs of rails for the slots of a channel.
struct Outlook<'a> {
    recovery: &'a Recovery,
    at: Place,
}

impl Prospects for Outlook<'_> {
    fn is_usable(&self, slot: usize, pair: RailPair) -> bool {
        let key = self.recovery.key(Place { slot: slot as u32, ..self.at });
        let engine = &self.recovery.engine;
        engine.ports.up(pair.local, self.at.peer, pair.remote) && !engine.is_stuck(key, pair.local)
    }

    fn suspects(&self, pair: RailPair) -> usize {
        self.recovery.engine.localizer.suspects(self.at.peer, pair)
    }
}

/// True if a slot that does not work is better not waited for where nothing else works: its rails failed, or are under
/// suspicion, or it has been silent for longer than one that works ever is.
fn is_doubtful(recovery: &Recovery, now: Nanos, key: usize) -> bool {
    let peer = recovery.channels.place(key).peer;
    let Some(path) = recovery.path(key) else { return false };
    let untried = path.standing().untried;
    let suspects = recovery.engine.localizer.suspects(peer, path.rails());
    let rank = recovery.channels.pool.rank(peer, path.rails(), suspects);
    // It was given to them in spite of it, and has its turn.
    let failed = rank.failed_at.is_some() && !untried;
    failed || rank.suspects > 0 || is_overdue(recovery, now, key)
}

/// True if a path has stood for longer than its patience in a state that passes by itself.
fn is_overdue(recovery: &Recovery, now: Nanos, key: usize) -> bool {
    let peer = recovery.channels.place(key).peer;
    let Some(path) = recovery.path(key) else { return false };
    let passes =
        matches!(path.health(), Health::Fencing | Health::Fenced | Health::Connecting | Health::Probing);
    let patience = recovery.channels.pool.history.patience(peer, path.rails(), recovery.engine.timing.probe);
    passes && now >= path.standing().since + patience && !Mutant::DeadRailsFirst.on()
}

/// True if a path whose probes are not answered is to make room for another pair of rails: the channel has nothing
/// else, or nothing that leads to a home it wants, and its retries may take as long as the give-up time.
pub(super) fn gives_way(recovery: &Recovery, now: Nanos, key: usize) -> bool {
    let at = recovery.channels.place(key);
    at.slot != 0
        && recovery.channels.words.root().my_pe < at.peer
        && is_overdue(recovery, now, key)
        && is_pressed(recovery, at)
        && has_other_rails(recovery, now, at)
}

/// True if no slot of a channel works, or none that leads to a home that it wants.
fn is_pressed(recovery: &Recovery, at: Place) -> bool {
    let ready = |key: usize| {
        let path = recovery.path(key).filter(|path| path.health() == Health::Ready)?;
        recovery.engine.ports_up(key).then(|| path.rails())
    };
    let ready: Vec<RailPair> = recovery.siblings(recovery.key(at)).filter_map(ready).collect();
    let mut wants = wants(recovery, recovery.channels.row(at));
    ready.is_empty() || wants.any(|want| !ready.iter().any(|pair| want.is_met_by(*pair)))
}

/// True if a slot may be given to some other pair of rails.
fn has_other_rails(recovery: &Recovery, now: Nanos, at: Place) -> bool {
    let outlook = Outlook { recovery, at };
    let usable = |pair| outlook.is_usable(at.slot as usize, pair);
    let ranked = recovery.channels.pool.ranked(at.peer, at.channel);
    next_pair(&ranked, &views(recovery, now, at), usable, |_| ()).is_some()
}

/// Looks over the channels that this PE leads.
pub(super) fn look(recovery: &mut Recovery, now: Nanos) -> bool {
    if !recovery.channels.pool.is_due(now) {
        return false;
    }
    let mut overlooked = false;
    for key in recovery.engine.paths().keys() {
        // Most paths of a large job are well: of those only the state is read.
        if recovery.path(key).is_some() && recovery.channels.row_state(key) == PathState::Fenced {
            overlooked |= recovery.with(now, key, |path, cx| path.fence_overlooked(cx)) == Some(true);
        }
    }
    let (me, per, pes) = {
        let root = recovery.channels.words.root();
        (root.my_pe, root.channels_per_pe, root.pe_count)
    };
    let all_well = recovery.engine.ports.all_up() && recovery.engine.localizer.is_idle();
    let led = (0..pes * per).filter(|row| me < row / per);
    let busy = led
        .filter(|row| !(all_well && rests(recovery, *row)) && look_at_channel(recovery, now, *row))
        .count()
        > 0;
    overlooked || busy
}

/// True for a channel that is short of nothing where all ports are up and no rail is suspected: all its paths are
/// ready, two at least, and it is not bound to a home. What it was short of is forgotten.
fn rests(recovery: &mut Recovery, row: u32) -> bool {
    let per = recovery.channels.words.root().channels_per_pe;
    let at = Place { peer: row / per, channel: row % per, slot: 0 };
    let mut ready = 0;
    for path in recovery.siblings(recovery.key(at)).filter_map(|key| recovery.path(key)) {
        if !path.is_at_rest() || path.health() != Health::Ready {
            return false;
        }
        ready += 1;
    }
    let rests = ready >= 2 && wants(recovery, row).next().is_none();
    if rests {
        recovery.channels.pool.suffices(row as usize);
    }
    rests
}

/// True if it gave a slot of a channel to another pair of rails.
fn look_at_channel(recovery: &mut Recovery, now: Nanos, row: u32) -> bool {
    let per = recovery.channels.words.root().channels_per_pe;
    let at = Place { peer: row / per, channel: row % per, slot: 0 };
    let view = ChannelView {
        peer: at.peer,
        channel: at.channel,
        row: row as usize,
        slots: views(recovery, now, at),
        active: recovery.channels.words.active_slot(at.peer, at.channel) as usize,
        wants: wants(recovery, row).collect(),
        pressing: pressing(recovery),
    };
    let (mut look, mut given) = (ChannelLook::from(view), false);
    loop {
        let mut pool = std::mem::take(&mut recovery.channels.pool);
        let next = pool.next(now, &mut look, &Outlook { recovery, at });
        recovery.channels.pool = pool;
        let Some(one) = next else { return given };
        assign(recovery, now, Place { slot: one.slot as u32, ..at }, &one);
        given = true;
    }
}

/// Every slot of a channel.
fn views(recovery: &Recovery, now: Nanos, at: Place) -> [Option<SlotView>; SLOTS_MAX] {
    let mut views = [None; SLOTS_MAX];
    let keys = recovery.siblings(recovery.key(Place { slot: 0, ..at }));
    views.iter_mut().zip(keys).for_each(|(view, key)| *view = self::view(recovery, now, key));
    views
}

fn view(recovery: &Recovery, now: Nanos, key: usize) -> Option<SlotView> {
    let path = recovery.path(key)?;
    let Standing { health, failures, untried, .. } = path.standing();
    // Failures that it came with say nothing of rails it was not made on yet.
    let failures = if untried { 0 } else { failures };
    let stuck = health != Health::Ready && recovery.engine.is_stuck(key, path.rails().local);
    let doubtful = health != Health::Ready && is_doubtful(recovery, now, key);
    let up = recovery.engine.ports_up(key);
    let peer = recovery.channels.place(key).peer;
    let last_resort = recovery.engine.localizer.is_last_resort(peer, path.rails());
    Some(SlotView { pair: path.rails(), health, up, failures, untried, stuck, doubtful, last_resort })
}

/// Gives a slot that is released to another pair of rails; one that is ready is left and fenced first, and given in a
/// later look.
fn assign(recovery: &mut Recovery, now: Nanos, at: Place, one: &Assignment) {
    let (key, view) = (recovery.key(at), &one.view);
    if view.health == Health::Ready {
        let works = view.up && !Mutant::SlotTakenUnasked.on();
        recovery.with(now, key, |path, cx| match works {
            true => path::orders::want_slot(path, cx),
            false => path.fence_asked(cx, Urgency::Idle),
        });
        return;
    }
    let was = recovery.route(key);
    if let Some(path) = recovery.engine.paths_mut().get_mut(key) {
        // Where no pair is left that did not fail, the pauses grow all the same.
        path.give_rails(one.to, view.up && one.to_failed);
    }
    let (local_rail, remote_rail) = (one.to.local, one.to.remote);
    recovery.report(now, Event::SlotAssigned { at: was, local_rail, remote_rail });
}

/// The other end wants the slot of a path for another pair of rails.
pub(super) fn asked_to_vacate(recovery: &mut Recovery, now: Nanos, key: usize, incarnation: u32) {
    let in_question = recovery.path(key).is_some_and(|path| path::orders::may_do_without(path, incarnation));
    if in_question && !leads_home(recovery, now, key) && recovery.has_standby(key) {
        recovery.with(now, key, path::orders::do_without);
    }
}
