//! The agents' datagram queue pairs: made again when they end, and where they are is told.

use crate::agent::links::Reach;
use crate::agent::message::Message;
use crate::agent::nic_job::{Job, Urgency};
use crate::agent::recovery::Recovery;
use crate::connect::card::HalfCard;
use crate::error::NicError;
use crate::events::Event;
use crate::nanos::Nanos;

/// Looks after the queue pairs that the agents' datagrams go by.
pub(super) fn look(recovery: &mut Recovery, now: Nanos) {
    for rail in 0..recovery.engine.rails.len() {
        let why = recovery.engine.rails[rail].datagrams().as_ref().and_then(|one| one.broken());
        let Some((syndrome, vendor)) = why else { continue };
        if recovery.engine.renewals[rail].ended() {
            recovery.note(
                now,
                format!(
                    "the agents' datagrams on rail {rail} ended: syndrome {syndrome:#x}, vendor {vendor:#x}"
                ),
            );
        }
        let engine = &mut recovery.engine;
        if engine.renewals[rail].begin(now) {
            let qkey = engine.links.own_qkey();
            engine.nics.submit(rail as u32, Urgency::Idle, rail, Job::Datagrams(qkey));
        }
    }
}

/// A queue pair was made again, or could not be.
pub(super) fn made(recovery: &mut Recovery, now: Nanos, rail: usize, result: Result<u32, NicError>) {
    match result {
        Ok(qpn) => {
            recovery.engine.renewals[rail].made();
            recovery.report(now, Event::AgentRailRenewed { rail: rail as u32, qpn });
            tell(recovery, now, rail, Reach::Both);
        }
        Err(error) => {
            recovery.engine.renewals[rail].failed(now);
            let text = format!("the agents' datagrams on rail {rail} cannot be recreated: {error}");
            recovery.note(now, text);
        }
    }
}

/// The NIC was asked for its address; the peers know what they were told last.
pub(super) fn address_asked(recovery: &mut Recovery, now: Nanos, rail: usize, result: Result<(), NicError>) {
    // A NIC that says nothing is asked again when the next thing goes wrong.
    if result.is_ok() && recovery.engine.renewals[rail].told() != Some(card(recovery, rail)) {
        tell(recovery, now, rail, Reach::Both);
    }
}

fn card(recovery: &Recovery, rail: usize) -> HalfCard {
    let one = &recovery.engine.rails[rail];
    HalfCard { qpn: one.datagram_qpn(), psn: 0, incarnation: 0, ece: 0, rail: one.card() }
}

/// Tells every peer where this rail's datagrams are taken, unless it always was there.
pub(super) fn tell(recovery: &mut Recovery, now: Nanos, rail: usize, reach: Reach) {
    let card = card(recovery, rail);
    let engine = &mut recovery.engine;
    if engine.renewals[rail].told().is_none() && engine.links.is_as_at_start(&card) {
        return;
    }
    engine.renewals[rail].tell(now, card);
    let message = Message::Rail { card, at_ns: now.get() };
    for peer in recovery.peers() {
        let engine = &mut recovery.engine;
        engine.links.send(now, peer, message.to_bytes(), reach, &engine.ports);
    }
}

/// Tells it once more, as seldom as an old word of a port.
pub(super) fn tell_again(recovery: &mut Recovery, now: Nanos, rail: usize, pause: Nanos) {
    if recovery.engine.renewals[rail].is_told_again(now, pause) {
        tell(recovery, now, rail, Reach::Link);
    }
}

/// A peer's rail is somewhere else: the way there is resolved as for a path.
pub(super) fn peer_moved(recovery: &mut Recovery, from: u32, card: &HalfCard, at: Nanos) {
    let engine = &mut recovery.engine;
    if !engine.links.renewed(from, card, at) {
        return;
    }
    for rail in 0..engine.rails.len() {
        if engine.rails[rail].caps.link == card.rail.link {
            engine.nics.submit(rail as u32, Urgency::Idle, rail, Job::Resolve(Box::new(card.rail)));
        }
    }
}
