//! What switchers of this PE ask, and what other agents say: to the paths that it is about.

use super::homes::HomeQuestion;
use super::{datagrams, homes, ports, slots};
use crate::agent::message::{Message, PairId};
use crate::agent::path::Word;
use crate::agent::recovery::Recovery;
use crate::agent::verdict::Verdict;
use crate::agent::words::{Place, Request};
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;
use shunt_layout::state::{AnswerStatus, CauseKind};

/// Takes every request that is newer than the last one of its channel.
pub(super) fn scan(recovery: &mut Recovery, now: Nanos) {
    let (pes, per, slots) = {
        let root = recovery.channels.words.root();
        (root.pe_count, root.channels_per_pe, root.slots)
    };
    for row in 0..pes * per {
        let (peer, channel) = (row / per, row % per);
        let request = recovery.channels.words.request(peer, channel);
        let seen = &mut recovery.channels.requests_seen[row as usize];
        if request.number == *seen || request.slot >= slots {
            continue;
        }
        *seen = request.number;
        ask(recovery, now, Place { peer, channel, slot: request.slot }, request);
    }
}

/// A switcher of this PE asks.
fn ask(recovery: &mut Recovery, now: Nanos, at: Place, request: Request) {
    let key = recovery.key(at);
    // A path is made again only after this direction left it, so nobody can ask for an older one in earnest.
    let known = recovery.path(key).is_some_and(|path| path.incarnation() == request.incarnation);
    if !known {
        let unprovable = Verdict { status: AnswerStatus::Unprovable, executed: 0 };
        let was = recovery.route(key);
        return recovery.channels.answer_at(now, was, request.incarnation, request.number, unprovable);
    }
    let cause = recovery.channels.words.cause(at.peer, at.channel);
    let silent = matches!(cause, CauseKind::Overdue | CauseKind::Completion);
    recovery.with(now, key, |path, cx| path.ask(cx, request.number, silent));
}

/// A message of another agent.
pub(super) fn hear(recovery: &mut Recovery, now: Nanos, from: u32, message: Message) {
    let (id, word) = match message {
        Message::Port { rail, down, at_ns } => {
            return ports::peer_changed(recovery, now, from, rail, down, at_ns.into());
        }
        Message::Rail { card, at_ns } => return datagrams::peer_moved(recovery, from, &card, at_ns.into()),
        Message::Home { channel, home } => return homes::adopt(recovery, now, from, channel, home),
        Message::AskHome { channel, version, rails, pressing } => {
            let question = HomeQuestion { channel, version, rails, pressing };
            return homes::asked(recovery, now, from, question);
        }
        Message::Retire(id, order) | Message::Readmit(id, order) => (id, Word::Order(order)),
        Message::Vacate(id) => (id, Word::Vacate),
        Message::Fence(id) => (id, Word::Fence),
        Message::Leave(id) => (id, Word::Leave),
        Message::Truth(id, truth) => (id, Word::Truth(truth)),
        Message::Left(id) => (id, Word::Left),
        Message::Make(id, card, rail, _) => (id, Word::Make(card, rail)),
        Message::Made(id, card, _) => (id, Word::Made(card)),
        Message::Up(id) => (id, Word::Up),
        Message::Proved(id) => (id, Word::Proved),
    };
    let root = recovery.channels.words.root();
    let exists = from < root.pe_count && id.channel < root.channels_per_pe && id.slot < root.slots;
    let at = Place { peer: from, channel: id.channel, slot: id.slot };
    if !exists || recovery.path(recovery.key(at)).is_none() {
        return recovery.note(now, format!("PE {from} names a pair that does not exist: {id:?}"));
    }
    if let Message::Make(_, _, _, home) | Message::Made(_, _, home) = message
        && !Mutant::HomeNotCarried.on()
    {
        homes::adopt(recovery, now, from, id.channel, home); // by its own version, whatever becomes of the pair
    }
    hear_of_path(recovery, now, recovery.key(at), id, word);
}

fn hear_of_path(recovery: &mut Recovery, now: Nanos, key: usize, id: PairId, word: Word) {
    if word == Word::Vacate {
        return slots::asked_to_vacate(recovery, now, key, id.incarnation);
    }
    let standby = matches!(word, Word::Order(_)) && recovery.has_standby(key);
    let Recovery { engine, channels } = recovery;
    if !engine.hear(channels, now, key, (id.incarnation, word), standby) {
        refuse(recovery, now, key, id);
    }
}

fn refuse(recovery: &mut Recovery, now: Nanos, key: usize, id: PairId) {
    let Some(path) = recovery.path(key) else { return };
    let line = format!("peer is at {id:?}, this side at {} {:?}", path.incarnation(), path.health());
    recovery.note(now, line);
}
