//! What the other end says. A late word, or one that comes twice, is told by its incarnation and changes nothing (H8).

use super::Urgency;
use super::fencing::SELDOM;
use super::io::{Handle, Output, Step, Word};
use super::io::{Offer, Task};
use super::machine::PathMachine;
use super::orders;
use super::phase::Phase;
use super::reviving::Reviving;
use crate::health::{Health, Observation};
use crate::truth::SideTruth;
use shunt_layout::mutant::Mutant;

/// Incarnations that a peer may have used up while this side heard none of it: at one a second, more than a week's. Who
/// is further ahead was not understood, and a path has no more than 2^32 of them.
const NUMBERS_MISSED: u32 = 1 << 20;

/// What a word of a newer incarnation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adopted {
    /// The word is about what this side knows, or adopted: hear it.
    Hear,
    /// This side still fences the last one; the peer says it again.
    Later,
    /// It cannot be: no word about it is heard.
    Refused,
}

/// A word about an incarnation is about to be heard. Messages of an older one are void; of a newer one, this side
/// missed its making and adopts it: it never had a half of that number.
pub fn adopt<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, incarnation: u32) -> Adopted {
    if incarnation <= path.pair.incarnation {
        return Adopted::Hear;
    }
    // A path is made again only after both directions left, so word of it says that theirs has.
    let over = path.health() == Health::Fenced && path.pair.fence.left_here;
    let near = incarnation - path.pair.incarnation <= NUMBERS_MISSED;
    // One that is retired takes part as well, and is retired again: the peer is not to wait for it in vain.
    if !matches!(path.phase, Phase::Released | Phase::Retired) && !over || !near {
        if near && matches!(path.phase, Phase::Fencing | Phase::Fenced) {
            path.pair.fence.peer_moved_on(cx.age);
            return Adopted::Later; // it says so again
        }
        return Adopted::Refused;
    }
    path.mark_unproven(cx);
    let pair = &mut path.pair;
    pair.fence.unknown = false;
    pair.incarnation = incarnation;
    pair.remote = None;
    pair.fence.theirs = None;
    path.phase = Phase::Connecting;
    path.pair.discard(cx);
    Adopted::Hear
}

/// The other end says something about an incarnation. True if what is awaited of a fence may be there now.
pub fn hear<H: Handle>(
    path: &mut PathMachine<H>,
    cx: &mut Step<'_, H>,
    incarnation: u32,
    word: Word,
    standby: bool,
) -> bool {
    match word {
        Word::Order(order) => orders::peer_orders(path, cx, order, standby),
        Word::Fence | Word::Leave | Word::Truth(_) | Word::Left => {
            return hear_of_fence(path, cx, incarnation, word);
        }
        _ => hear_of_revival(path, cx, incarnation, word),
    }
    false
}

fn hear_of_fence<H: Handle>(
    path: &mut PathMachine<H>,
    cx: &mut Step<'_, H>,
    incarnation: u32,
    word: Word,
) -> bool {
    if incarnation < path.pair.incarnation && !Mutant::OldMessageActedOn.on() {
        return false;
    }
    let asks = matches!(word, Word::Fence | Word::Leave);
    if asks && path.pair.fence.theirs.is_none() {
        // It has no truth to tell yet. A NIC that does not answer it would be one.
        path.pair.fence.in_hand_there = Some(cx.awake);
    }
    match word {
        Word::Fence => peer_asks(path, cx, Urgency::Peer),
        Word::Leave => peer_asks(path, cx, Urgency::Port),
        Word::Truth(truth) => {
            if path.pair.fence.hear(cx.age, truth) {
                path.pair.telling.times = 0;
                // Rails that the path was given to since are not those that its half was on.
                let remote = path.pair.rails.remote;
                match truth {
                    _ if path.pair.untried => {}
                    SideTruth::Dead | SideTruth::Unused => cx.put(Output::Mute(true, remote)),
                    truth if truth.is_of_the_nic() => cx.put(Output::Answers(true, remote)),
                    _ => {}
                }
            }
            if path.is_usable() {
                path.fence_asked(cx, Urgency::Peer);
            }
            return true;
        }
        _ => path.pair.fence.peer_left(cx.age),
    }
    false
}

/// Rule 10 is symmetric: the other's fence is answered by fencing, once.
fn peer_asks<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, urgency: Urgency) {
    // Its owner left; an order, or a slot that is wanted for other rails, says nothing against these.
    if urgency == Urgency::Peer && !path.is_ordered(cx.now) {
        path.look_into(cx);
    }
    match path.phase {
        Phase::Ready(_) | Phase::Connecting | Phase::Probing(_) => path.fence_asked(cx, urgency),
        // It asks although it was told: the telling got lost.
        Phase::Fencing | Phase::Fenced | Phase::Released => {
            path.pair.hasten(cx, urgency);
            path.pair.tell_again(cx, false, SELDOM);
        }
        Phase::Retired if !Mutant::RetiredSaysNothing.on() => tell_retired(path, cx),
        Phase::Retired => {}
    }
}

/// A path that is out has been left, and its half is fenced: who still asks has missed the word. What an agent that
/// took over does not know of the half, its NIC is asked first.
fn tell_retired<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>) {
    let pair = &mut path.pair;
    let Some(mine) = pair.fence.mine.filter(|_| cx.now >= pair.telling.at + cx.timing.resend / 2) else {
        return;
    };
    pair.telling.at = cx.now;
    pair.tell_truth(cx, mine);
    pair.tell(cx, Word::Left);
}

fn hear_of_revival<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, incarnation: u32, word: Word) {
    let current = incarnation == path.pair.incarnation && path.health() == Health::Connecting;
    match word {
        Word::Make(card, rail) if Some(incarnation) == path.pair.incarnation.checked_add(1) => {
            hear_offer(path, cx, Offer { card, rail });
        }
        // Said twice it is connected once.
        Word::Made(card) if current && path.pair.remote.is_none() && path.pair.task == Task::None => {
            Reviving { pair: &mut path.pair, probing: None }.hear_made(cx, card);
        }
        // It asks whether we are: the word that said so got lost.
        Word::Made(_) if path.health() == Health::Probing && path.pair.incarnation == incarnation => {
            path.pair.tell(cx, Word::Up);
        }
        Word::Up if current && !path.pair.leads && path.pair.half.is_some() => {
            path.observe(cx, Observation::Connected, Urgency::Idle);
        }
        // It probes, and misses our word.
        Word::Up if has_proved(path, incarnation) => path.pair.tell(cx, Word::Proved),
        Word::Proved if incarnation == path.pair.incarnation => path.pair.proved_there = true,
        _ => {}
    }
}

fn hear_offer<H: Handle>(path: &mut PathMachine<H>, cx: &mut Step<'_, H>, offer: Offer) {
    if !cx.facts.rails_exist(offer.rails()) {
        return cx.put(Output::NoSuchRails(offer));
    }
    path.pair.offered = Some(offer);
    path.pair.readmitted = false;
    cx.put(Output::Moved(offer.card.rail));
    path.pair.fence.peer_moved_on(cx.age);
    if path.pair.is_out() {
        path.pair.tell_order(cx); // it does not know, or knows better
    }
}

/// True if this side's probes of this incarnation were answered.
fn has_proved<H: Handle>(path: &PathMachine<H>, incarnation: u32) -> bool {
    let told = match &path.phase {
        Phase::Ready(_) => true,
        Phase::Probing(probing) => probing.told,
        _ => false,
    };
    path.pair.incarnation == incarnation && told
}
