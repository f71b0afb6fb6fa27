//! Moves of atomic owners: who is asked, fenced and told. The rules are in `atomic_owner.rs`.

use crate::agent::atomic_owner::Bound;
use crate::agent::health::Health;
use crate::agent::links::Reach;
use crate::agent::message::{Home, Message};
use crate::agent::nic_job::Urgency;
use crate::agent::path_slots::Want;
use crate::agent::recovery::Recovery;
use crate::agent::words::Place;
use crate::events::Event;
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::Step;

/// A sender that has had no path to an owner for so long presses, and the owner moves though its rail seems to work. A
/// quarter of the give-up time, if that is less.
const PRESSING: Nanos = Nanos::millis(150);

/// What a sender without a path to a home says.
#[derive(Clone, Copy)]
pub(super) struct HomeQuestion {
    /// Channel index.
    pub channel: u32,
    /// The version that it knows.
    pub version: u32,
    /// Rails of this PE that it has paths to, a bit each.
    pub rails: u32,
    /// It has waited for long.
    pub pressing: bool,
}

/// What the directions of a channel that are bound want of its paths.
pub(super) fn wants(recovery: &Recovery, row: u32) -> impl Iterator<Item = Want> + Clone + use<> {
    let channels = &recovery.channels;
    let per = channels.words.root().channels_per_pe;
    let (peer, channel) = (row / per, row % per);
    let out = channels.words.is_bound(row).then(|| Want::Remote(channels.home(peer, channel).rail));
    let into = channels.atomics.is_bound_there(row).then(|| Want::Local(channels.own_home(channel).rail));
    [out, into].into_iter().flatten()
}

/// A peer's word of its home. Older ones are void.
pub(super) fn adopt(recovery: &mut Recovery, now: Nanos, peer: u32, channel: u32, home: Home) {
    let channels = &mut recovery.channels;
    let root = channels.words.root();
    if peer >= root.pe_count || peer == root.my_pe || channel >= root.channels_per_pe {
        let text = format!("PE {peer} speaks of the home of channel {channel}, which does not exist");
        return channels.note(now, text);
    }
    let row = peer * root.channels_per_pe + channel;
    if !channels.pool.has_rail(peer, home.rail) {
        let text = format!("PE {peer} has its home on rail {}, which does not exist", home.rail);
        return channels.note(now, text);
    }
    if home.version > channels.home(peer, channel).version {
        channels.words.set_home(peer, channel, home);
        channels.atomics.reached(row);
    }
}

/// True if this PE's rail may take atomics: nothing known is against it.
fn rail_serves(recovery: &Recovery, rail: u32) -> bool {
    recovery.engine.ports.own_up(rail) && !recovery.engine.nic_is_silent(rail)
}

/// Carries moves on, and asks for the homes of bound channels that have no path to them.
pub(super) fn look(recovery: &mut Recovery, now: Nanos) -> bool {
    let mut busy = false;
    for channel in 0..recovery.channels.words.root().channels_per_pe {
        busy |= recovery.channels.atomics.moving(channel).is_some() && carry_move(recovery, now, channel);
    }
    if !recovery.channels.atomics.is_due(now) {
        return busy;
    }
    let per = recovery.channels.words.root().channels_per_pe;
    for row in recovery.peers().flat_map(|peer| peer * per..(peer + 1) * per) {
        busy |= recovery.channels.words.is_bound(row) && look_at_bound(recovery, row, now);
    }
    busy
}

/// A bound channel: asks, if it has no path to its home.
fn look_at_bound(recovery: &mut Recovery, row: u32, now: Nanos) -> bool {
    let per = recovery.channels.words.root().channels_per_pe;
    let (peer, channel) = (row / per, row % per);
    let home = recovery.channels.home(peer, channel);
    let rails = rails_reached(recovery, peer, channel);
    let look = recovery.channels.words.look_at(row);
    let bound = Bound {
        reached: rails >> home.rail & 1 == 1,
        pathless: look.pathless,
        dead: look.step == Step::Dead,
        at_ledger: look.step == Step::Ledger,
    };
    let patience = pressing(recovery);
    let Some(pressing) = recovery.channels.atomics.ask(now, row, bound, patience) else { return false };
    ask(recovery, now, peer, HomeQuestion { channel, version: home.version, rails, pressing }, Reach::Both);
    true
}

fn ask(recovery: &mut Recovery, now: Nanos, peer: u32, question: HomeQuestion, reach: Reach) {
    let HomeQuestion { channel, version, rails, pressing } = question;
    let message = Message::AskHome { channel, version, rails, pressing };
    tell(recovery, now, peer, message, reach);
}

fn tell(recovery: &mut Recovery, now: Nanos, peer: u32, message: Message, reach: Reach) {
    let engine = &mut recovery.engine;
    engine.links.send(now, peer, message.to_bytes(), reach, &engine.ports);
}

/// True if a path leads to the home of its direction, which is bound: the peer is told that it is.
pub(super) fn leads_home(recovery: &mut Recovery, now: Nanos, key: usize) -> bool {
    let Place { peer, channel, .. } = recovery.channels.place(key);
    let home = recovery.channels.home(peer, channel);
    let row = recovery.channels.row(Place { peer, channel, slot: 0 });
    let there = recovery.path(key).is_some_and(|path| path.rails().remote == home.rail);
    if !there || !recovery.channels.words.is_bound(row) {
        return false;
    }
    let (version, rails) = (home.version, rails_reached(recovery, peer, channel));
    ask(recovery, now, peer, HomeQuestion { channel, version, rails, pressing: false }, Reach::Link);
    true
}

/// How long a sender has had no path to a home when it begins to press.
pub(super) fn pressing(recovery: &Recovery) -> Nanos {
    PRESSING.min(Nanos::new(recovery.channels.words.root().policy.give_up_ns) / 4)
}

/// Rails of a peer that a channel has ready paths to, a bit each.
fn rails_reached(recovery: &Recovery, peer: u32, channel: u32) -> u32 {
    let slots = 0..recovery.channels.words.root().slots;
    let keys = slots.map(|slot| recovery.key(Place { peer, channel, slot }));
    let ready = keys.filter_map(|key| {
        let path = recovery.path(key).filter(|path| path.health() == Health::Ready)?;
        recovery.engine.ports_up(key).then(|| path.rails().remote)
    });
    ready.fold(0, |rails, remote| rails | 1 << remote)
}

/// A peer has no path to a home of this PE.
pub(super) fn asked(recovery: &mut Recovery, now: Nanos, from: u32, question: HomeQuestion) {
    let HomeQuestion { channel, version, rails, pressing } = question;
    let root = recovery.channels.words.root();
    if from >= root.pe_count || from == root.my_pe || channel >= root.channels_per_pe {
        let text = format!("PE {from} asks for the home of channel {channel}, which does not exist");
        return recovery.note(now, text);
    }
    let row = from * root.channels_per_pe + channel;
    recovery.channels.atomics.bind_there(row);
    let home = recovery.channels.own_home(channel);
    // A rail that serves is left only for one that the asker has a path to.
    let wanted = !rail_serves(recovery, home.rail) || pressing && rails & !(1 << home.rail) != 0;
    if version == home.version && wanted {
        match recovery.channels.atomics.moving(channel) {
            Some(_) => recovery.channels.atomics.begin_move(channel, rails),
            None => begin_move(recovery, now, channel, rails),
        }
    }
    let answer = Message::Home { channel, home: recovery.channels.own_home(channel) };
    tell(recovery, now, from, answer, Reach::Both);
}

/// Every slot of every channel of an index.
fn places(recovery: &Recovery, channel: u32) -> impl Iterator<Item = Place> + use<> {
    let (pes, slots) = (recovery.channels.words.root().pe_count, recovery.channels.words.root().slots);
    (0..pes).flat_map(move |peer| (0..slots).map(move |slot| Place { peer, channel, slot }))
}

/// Paths of a channel index on a rail of this PE, or given to another one while their last half is there.
fn paths_at(recovery: &Recovery, channel: u32, rail: u32) -> Vec<usize> {
    let all = places(recovery, channel).map(|place| recovery.key(place));
    all.filter(|key| recovery.path(*key).is_some_and(|path| path.standing().touches(rail))).collect()
}

/// A home whose NIC does not serve moves, if there is somewhere to go: nobody needs to ask.
pub(super) fn leave(recovery: &mut Recovery, now: Nanos, channel: u32) {
    if recovery.channels.atomics.moving(channel).is_none() {
        begin_move(recovery, now, channel, 0);
    }
}

fn begin_move(recovery: &mut Recovery, now: Nanos, channel: u32, rails: u32) {
    if next_home(recovery, channel, rails).is_none() {
        return; // nowhere to go
    }
    recovery.channels.atomics.begin_move(channel, rails);
    carry_move(recovery, now, channel);
}

/// One look at a home that moves: what is not fenced yet is, and once all of it is proven the move is told.
fn carry_move(recovery: &mut Recovery, now: Nanos, channel: u32) -> bool {
    let Some(rails) = recovery.channels.atomics.moving(channel) else { return false };
    let home = recovery.channels.own_home(channel);
    let next = next_home(recovery, channel, rails);
    let mut silent = !recovery.take_fetches_back(channel, home.rail);
    if !Mutant::HomeMovedUnfenced.on() {
        for key in paths_at(recovery, channel, home.rail) {
            let (age, lifetime) = (recovery.engine.age.age_ns, recovery.engine.timing.lifetime);
            let Some(path) = recovery.path(key) else { continue };
            silent &= path.is_silenced(age, lifetime);
            if path.is_forsaken() {
                recovery.with(now, key, |path, cx| path.forsake(cx)); // its peer may never leave
            } else if next.is_some() && path.is_usable() {
                recovery.with(now, key, |path, cx| path.fence_asked(cx, Urgency::Peer));
            }
        }
        let unfenced = |place| recovery.channels.atomics.is_unfenced(recovery.key(place), home.rail);
        silent &= !places(recovery, channel).any(unfenced);
    }
    match next {
        Some(rail) if silent => {
            recovery.channels.atomics.end_move(channel);
            publish(recovery, now, channel, Home { rail, version: home.version + 1 });
            true
        }
        // The others are gone meanwhile, and this one is back.
        None if rail_serves(recovery, home.rail) => {
            recovery.channels.atomics.end_move(channel);
            false
        }
        _ => false,
    }
}

/// The best rail for a home to move to: one that those who asked have a path to, then one that most peers have.
fn next_home(recovery: &Recovery, channel: u32, rails: u32) -> Option<u32> {
    let (count, from) = (recovery.engine.rails.len() as u32, recovery.channels.own_home(channel).rail);
    let others = (1..count).map(|step| (from + step) % count).filter(|rail| rail_serves(recovery, *rail));
    let ready = |rail: u32| {
        let paths = paths_at(recovery, channel, rail).into_iter().filter_map(|key| recovery.path(key));
        paths.filter(|path| path.health() == Health::Ready).count()
    };
    let suspect = |rail: u32| recovery.channels.words.is_suspect(rail);
    // The first of equals: `max_by_key` would take the last.
    others.rev().max_by_key(|rail| (rails >> rail & 1, !suspect(*rail), ready(*rail)))
}

fn publish(recovery: &mut Recovery, now: Nanos, channel: u32, home: Home) {
    let (me, from) = (recovery.channels.words.root().my_pe, recovery.channels.own_home(channel).rail);
    recovery.channels.words.set_home(me, channel, home);
    recovery.report(now, Event::HomeMoved { channel, from, to: home.rail, version: home.version });
    for peer in recovery.peers() {
        tell(recovery, now, peer, Message::Home { channel, home }, Reach::Both);
    }
}
