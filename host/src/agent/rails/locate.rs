//! Localisation: a path fell silent and no port said anything. Which rail is at fault, ours, the peer's, or neither?
//!
//! Agents ping each other over pairs of rails that share one end with the path; who answers tells. The answer is a
//! suspicion and nothing more (invariant 7): a bit of a rail's hint word, which makes waiters on that rail leave it
//! after an eighth of their patience and choose other rails first. A suspect rail is used where there is no other, and
//! the first answered ping clears it.

use super::super::Agent;
use super::super::words::Place;
use super::{Pong, RailPair};
use crate::events::Event;
use shunt_device::health::Health;
use shunt_layout::mutant::Mutant;

/// Rounds of pings before anything is concluded, the pause between them, and what answers are given beyond it.
const ROUNDS: u32 = 3;
/// See [`ROUNDS`].
const ROUND_NS: u64 = 400_000;
/// See [`ROUNDS`].
const SETTLE_NS: u64 = 1_000_000;
/// Pause between further rounds while nobody answers, and how long they go on.
const AGAIN_NS: u64 = 4_000_000;
/// See [`AGAIN_NS`].
const UNTIL_NS: u64 = 40_000_000;
/// Searches at a time, those that ended lately included: a path that failed again is not looked at again at once.
const SEARCHES: usize = 16;
/// Other peers that are asked over the local rail.
const OTHERS: usize = 2;
/// First pause between pings of a suspect rail, doubled up to the longest.
const CLEAR_NS: u64 = 5_000_000;
/// See [`CLEAR_NS`].
const CLEAR_MAX_NS: u64 = 80_000_000;

/// Pairs of rails that were asked, and those that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Votes {
    /// Asked.
    pub asked: u32,
    /// Answered.
    pub answered: u32,
}

impl Votes {
    const fn some(self) -> bool {
        self.answered > 0
    }
}

/// What is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The rail of this end.
    Local,
    /// The rail of the other end.
    Remote,
    /// The way between the two: both work with others.
    Pair,
    /// Nothing, any more: the very pair answers.
    Nothing,
    /// It cannot be told: nobody answers at all, as if the peer were gone.
    Unknown,
}

/// Concludes from who answered: the pair itself, pairs that share its local rail, pairs that share its remote rail.
///
/// Silence convicts only beside an answer, so that a peer that is busy or gone makes nobody blame a rail. Where a rail
/// has no other pair to be tried in, it is the one that is suspected: it is of use to nobody else.
pub const fn conclude(pair: Votes, local: Votes, remote: Votes) -> Blame {
    if pair.some() {
        return Blame::Nothing;
    }
    match (local.some(), remote.some()) {
        (true, true) => Blame::Pair,
        (true, false) => Blame::Remote,
        (false, true) => Blame::Local,
        (false, false) => Blame::Unknown,
    }
}

/// Which end of the path a pair shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    Both,
    Local,
    Remote,
}

/// A pair that is asked.
struct Target {
    peer: u32,
    pair: RailPair,
    shares: Shares,
    answered: bool,
}

/// One path that fell silent.
struct Search {
    peer: u32,
    pair: RailPair,
    targets: Vec<Target>,
    /// Pings with lower numbers are not of this search.
    from_number: u64,
    rounds: u32,
    next_ns: u64,
    answered_ns: Option<u64>,
    until_ns: u64,
    over: bool,
}

impl Search {
    fn votes(&self, shares: Shares) -> Votes {
        let of = || self.targets.iter().filter(|target| target.shares == shares);
        let answered = of().filter(|target| target.answered).count() as u32;
        Votes { asked: of().count() as u32, answered }
    }

    fn blame(&self) -> Blame {
        conclude(self.votes(Shares::Both), self.votes(Shares::Local), self.votes(Shares::Remote))
    }
}

/// A rail under suspicion.
struct Suspect {
    /// `None`: of this PE.
    pe: Option<u32>,
    rail: u32,
    /// The peer that is asked: each in turn, if the rail is ours. The one it was found with may be gone.
    peer: u32,
    /// Pings with lower numbers prove nothing.
    from_number: u64,
    since_ns: u64,
    next_ns: u64,
    pause_ns: u64,
    turn: usize,
}

impl Suspect {
    fn is_in(&self, peer: u32, pair: RailPair) -> bool {
        match self.pe {
            None => self.rail == pair.local,
            Some(pe) => pe == peer && self.rail == pair.remote,
        }
    }
}

/// Paths that are looked into, and rails under suspicion. Both empty while all is well.
#[derive(Default)]
pub(in crate::agent) struct Locator {
    searches: Vec<Search>,
    suspects: Vec<Suspect>,
}

impl Locator {
    /// Rails of a pair that are under suspicion.
    pub(in crate::agent) fn suspects(&self, peer: u32, pair: crate::slots::RailPair) -> usize {
        let pair = RailPair { local: pair.local, remote: pair.remote };
        self.suspects.iter().filter(|suspect| suspect.is_in(peer, pair)).count()
    }
}

impl Agent {
    /// A switcher leaves a path, of this PE or of the peer: if silence made it, and no port explains that, somebody is
    /// to be asked.
    pub(in crate::agent) fn look_into(&mut self, index: usize, at: Place, silent: bool) {
        let Some(one) = self.pairs[index].as_ref().filter(|one| one.health == Health::Ready) else { return };
        let (peer, pair) = (at.peer, RailPair { local: one.local_rail, remote: one.remote_rail });
        if !silent || !self.ports.up(pair.local, peer, pair.remote) {
            return;
        }
        self.note_failure(index);
        let known = self.locator.suspects.iter().any(|suspect| suspect.is_in(peer, pair))
            || self.locator.searches.iter().any(|search| search.peer == peer && search.pair == pair);
        if known || self.locator.searches.len() >= SEARCHES || Mutant::NobodyAsked.on() {
            return;
        }
        let targets = self.targets(peer, pair);
        let now = self.now();
        self.locator.searches.push(Search {
            peer,
            pair,
            targets,
            from_number: self.links.number(),
            rounds: 0,
            next_ns: now,
            answered_ns: None,
            until_ns: now.saturating_add(UNTIL_NS),
            over: false,
        });
    }

    /// Whom to ask about a path: every pair with the peer that shares a rail with it, and over the local rail some
    /// other peers as well.
    fn targets(&self, peer: u32, path: RailPair) -> Vec<Target> {
        let mut targets = Vec::new();
        for pair in self.links.pairs(peer, &self.ports) {
            let shares = match (pair.local == path.local, pair.remote == path.remote) {
                (true, true) => Shares::Both,
                (true, false) => Shares::Local,
                (false, true) => Shares::Remote,
                (false, false) => continue,
            };
            targets.push(Target { peer, pair, shares, answered: false });
        }
        let (pes, me) = (self.words.root().pe_count, self.words.root().my_pe);
        let others = (1..pes).map(|step| (peer + step) % pes).filter(|other| *other != me && *other != peer);
        for other in others.take(OTHERS) {
            let pairs = self.links.pairs(other, &self.ports);
            let one = pairs.into_iter().find(|pair| pair.local == path.local);
            let target = one.map(|pair| Target { peer: other, pair, shares: Shares::Local, answered: false });
            targets.extend(target);
        }
        targets
    }

    /// Carries searches on and asks suspects.
    pub(in crate::agent) fn locate(&mut self) -> bool {
        if self.locator.searches.is_empty() && self.locator.suspects.is_empty() {
            return false;
        }
        let now = self.now();
        let mut locator = std::mem::take(&mut self.locator);
        let mut found = Vec::new();
        for search in &mut locator.searches {
            if let Some(blame) = self.search(search, now) {
                found.push((search.peer, search.pair, blame));
            }
        }
        locator.searches.retain(|search| now < search.until_ns);
        for suspect in &mut locator.suspects {
            self.ask_suspect(suspect, now);
        }
        self.locator = locator;
        for (peer, pair, blame) in &found {
            match blame {
                Blame::Local => self.suspect(None, pair.local, *peer),
                Blame::Remote => self.suspect(Some(*peer), pair.remote, *peer),
                Blame::Pair | Blame::Nothing | Blame::Unknown => {}
            }
        }
        !found.is_empty()
    }

    /// One look at a search: its conclusion, once it has one.
    fn search(&mut self, search: &mut Search, now: u64) -> Option<Blame> {
        if search.over {
            return None;
        }
        let asked = search.rounds >= ROUNDS;
        let settled = search.answered_ns.is_some_and(|at| now >= at.saturating_add(SETTLE_NS));
        if asked && settled && now >= search.next_ns {
            search.over = true;
            return Some(search.blame());
        }
        // Once somebody has answered, the others have had as many questions.
        if now >= search.next_ns && !(asked && search.answered_ns.is_some()) {
            for target in search.targets.iter().filter(|target| !target.answered) {
                self.links.ping(target.peer, target.pair);
            }
            search.rounds += 1;
            search.next_ns = now.saturating_add(match search.rounds {
                rounds if rounds < ROUNDS => ROUND_NS,
                ROUNDS => SETTLE_NS,
                _ => AGAIN_NS,
            });
        }
        None
    }

    /// A ping was answered.
    pub(in crate::agent) fn answered(&mut self, pong: Pong) {
        let now = self.now();
        let pair = RailPair { local: pong.local, remote: pong.remote };
        for search in self.locator.searches.iter_mut().filter(|search| pong.number > search.from_number) {
            let here = |target: &&mut Target| target.peer == pong.peer && target.pair == pair;
            if let Some(target) = search.targets.iter_mut().find(here) {
                target.answered = true;
                search.answered_ns.get_or_insert(now);
            }
        }
        let cleared = |suspect: &Suspect| suspect.is_in(pong.peer, pair) && pong.number > suspect.from_number;
        let suspects = std::mem::take(&mut self.locator.suspects);
        let (clear, kept) = suspects.into_iter().partition(cleared);
        self.locator.suspects = kept;
        for suspect in clear {
            self.acquit(&suspect);
        }
    }

    fn suspect(&mut self, pe: Option<u32>, rail: u32, peer: u32) {
        if self.locator.suspects.iter().any(|other| other.pe == pe && other.rail == rail) {
            return;
        }
        let now = self.now();
        self.words.set_suspect(pe, rail, true);
        self.report(Event::RailSuspected { of: pe.unwrap_or(self.words.root().my_pe), rail });
        self.locator.suspects.push(Suspect {
            pe,
            rail,
            peer,
            from_number: self.links.number(),
            since_ns: now,
            next_ns: now.saturating_add(CLEAR_NS),
            pause_ns: CLEAR_NS,
            turn: 0,
        });
    }

    fn ask_suspect(&mut self, suspect: &mut Suspect, now: u64) {
        if now < suspect.next_ns {
            return;
        }
        suspect.pause_ns = (suspect.pause_ns * 2).min(CLEAR_MAX_NS);
        suspect.next_ns = now.saturating_add(suspect.pause_ns);
        let (pes, me) = (self.words.root().pe_count, self.words.root().my_pe);
        if suspect.pe.is_none() {
            let after = |peer: u32| (peer + 1) % pes;
            let next = after(suspect.peer);
            suspect.peer = if next == me { after(next) } else { next };
        }
        let mut pairs = self.links.pairs(suspect.peer, &self.ports);
        pairs.retain(|pair| suspect.is_in(suspect.peer, *pair));
        if !pairs.is_empty() {
            suspect.turn += 1;
            self.links.ping(suspect.peer, pairs[suspect.turn % pairs.len()]);
        }
    }

    fn acquit(&mut self, suspect: &Suspect) {
        self.words.set_suspect(suspect.pe, suspect.rail, false);
        let of = suspect.pe.unwrap_or(self.words.root().my_pe);
        let suspected_ns = self.now().saturating_sub(suspect.since_ns);
        self.report(Event::RailCleared { of, rail: suspect.rail, suspected_ns });
    }

    /// A port changed: what is known of it takes the place of what was suspected.
    pub(in crate::agent) fn forget_suspicion(&mut self, pe: Option<u32>, rail: u32) {
        let place = self.locator.suspects.iter().position(|one| one.pe == pe && one.rail == rail);
        if let Some(place) = place {
            let suspect = self.locator.suspects.remove(place);
            self.acquit(&suspect);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_ASKED: Votes = Votes { asked: 0, answered: 0 };
    const SILENT: Votes = Votes { asked: 2, answered: 0 };
    const SOME: Votes = Votes { asked: 2, answered: 1 };

    #[test]
    fn who_answers_tells_who_is_at_fault() {
        for (pair, local, remote, blame) in [
            // The pair itself answers: whatever it was is over.
            (SOME, SILENT, SILENT, Blame::Nothing),
            (SOME, SOME, SOME, Blame::Nothing),
            // Our rail works with others, the peer's with nobody.
            (SILENT, SOME, SILENT, Blame::Remote),
            (SILENT, SOME, NOT_ASKED, Blame::Remote),
            // The peer's rail works with others, ours with nobody.
            (SILENT, SILENT, SOME, Blame::Local),
            (SILENT, NOT_ASKED, SOME, Blame::Local),
            // Both work, only not with each other.
            (SILENT, SOME, SOME, Blame::Pair),
            // Silence everywhere convicts nobody.
            (SILENT, SILENT, SILENT, Blame::Unknown),
            (SILENT, SILENT, NOT_ASKED, Blame::Unknown),
            (SILENT, NOT_ASKED, SILENT, Blame::Unknown),
            (SILENT, NOT_ASKED, NOT_ASKED, Blame::Unknown),
            (NOT_ASKED, NOT_ASKED, NOT_ASKED, Blame::Unknown),
        ] {
            assert_eq!(conclude(pair, local, remote), blame, "{pair:?} {local:?} {remote:?}");
        }
    }
}
