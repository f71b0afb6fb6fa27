//! The agents agree on who is left out, where somebody asked for it (`crate::ranks`). Links and facts are put together
//! here; the rules are there.

use crate::agent::agreement::Agreement;
use crate::agent::links::Reach;
use crate::agent::recovery::Recovery;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::ranks::machine::{Standing, Times};
use crate::ranks::message::Message;
use shunt_layout::status::Standing as Told;

fn times(recovery: &Recovery) -> Times {
    Times::of(recovery.channels.words.root().policy.give_up_ns)
}

/// Carries the agreement on. Without anybody who asked for it this is one load. `pause`: between two touches.
pub(super) fn look(recovery: &mut Recovery, agreement: &mut Agreement, now: Nanos, pause: Nanos) -> bool {
    if !agreement.ranks.is_asked() {
        return false;
    }
    touch_the_half_lost(recovery, agreement, pause);
    let (me, pes) = (recovery.channels.words.root().my_pe, recovery.channels.words.root().pe_count);
    let lost: Vec<u32> = (0..pes).filter(|peer| recovery.is_lost(*peer)).collect();
    // As this agent was awake: neither a pause of its own nor a clock that jumps is the others' silence.
    let (awake, times) = (recovery.engine.awake.age_ns.get(), times(recovery));
    let Agreement { ranks, told, follows, .. } = agreement;
    let (before, after, masked, sent) = ranks.with(me, times, awake, |machine| {
        if std::mem::take(follows) {
            machine.restart(awake);
        }
        lost.iter().for_each(|peer| machine.lose(awake, *peer));
        machine.tick(awake);
        let after = (machine.epoch(), machine.standing());
        (std::mem::replace(told, after), after, machine.mask().count(), machine.drain())
    });
    let busy = !sent.is_empty();
    for (to, message) in sent {
        let engine = &mut recovery.engine;
        engine.links.send(now, to, message.to_bytes(), Reach::Link, &engine.ports);
    }
    if before != after {
        recovery.report(now, Event::RankMask { epoch: after.0, masked, standing: as_told(after.1).name() });
    }
    busy
}

/// Puts something on the wire to peers whose agent neither link reaches. If only the agents are silent, that changes
/// nothing; if the process is gone, its channels fail now and not at the next put: a kernel that waits for such a
/// peer's signal has nothing outstanding to notice it by. Answers with the pause until the next look.
pub(super) fn touch_the_silent(recovery: &mut Recovery, now: Nanos, pause: Nanos) -> Nanos {
    let (per, attended) =
        (recovery.channels.words.root().channels_per_pe, recovery.channels.words.attended());
    let mut next = pause;
    for peer in recovery.peers() {
        let engine = &mut recovery.engine;
        if !engine.links.reachable(now, peer, &engine.ports) {
            (0..attended).for_each(|channel| {
                recovery.channels.words.touch(peer * per + channel);
            });
        } else if engine.links.in_question(peer) {
            next = next.min(pause / 4);
        }
    }
    next
}

/// Where one channel to a peer has ended and others are at rest, those find out by being used.
fn touch_the_half_lost(recovery: &mut Recovery, agreement: &mut Agreement, pause: Nanos) {
    let (awake, channels) = (recovery.engine.awake.age_ns, &recovery.channels);
    if awake < agreement.next_touch_ns || !channels.reporter.has_dead() || pause == Nanos::MAX {
        return;
    }
    agreement.next_touch_ns = awake + pause;
    let per = channels.words.root().channels_per_pe;
    for peer in recovery.peers().filter(|peer| !recovery.is_lost(*peer)) {
        let (dead, rest): (Vec<u32>, Vec<u32>) =
            (0..per).partition(|channel| channels.words.is_dead(peer, *channel));
        if !dead.is_empty() {
            rest.into_iter().filter(|channel| *channel < channels.words.attended()).for_each(|channel| {
                channels.words.touch(peer * per + channel);
            });
        }
    }
}

/// A message about it arrived.
pub(super) fn hear(recovery: &mut Recovery, agreement: &mut Agreement, now: Nanos, from: u32, bytes: &[u8]) {
    // Who was not asked yet does not know whether its rank takes part. It is told again.
    if !agreement.ranks.is_asked() {
        return;
    }
    let (me, pes) = (recovery.channels.words.root().my_pe, recovery.channels.words.root().pe_count);
    match Message::from_bytes(pes, bytes) {
        Ok(message) => {
            let (awake, times) = (recovery.engine.awake.age_ns.get(), times(recovery));
            agreement.ranks.with(me, times, awake, |machine| machine.take(awake, from, message));
        }
        Err(error) => recovery.report(now, Event::MessageRefused { peer: from, error: error.to_string() }),
    }
}

/// As the status page has it.
pub(super) const fn as_told(standing: Standing) -> Told {
    match standing {
        Standing::Member => Told::Member,
        Standing::Out => Told::Out,
        Standing::Alone => Told::Alone,
    }
}
