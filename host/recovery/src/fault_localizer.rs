//! Localisation: a path fell silent and no port said anything. Which rail is at fault, ours, the peer's, or neither?
//!
//! Agents ping each other over pairs of rails that share one end with the path; who answers tells. The answer is a
//! suspicion and nothing more (invariant 7): a bit of a rail's hint word, which makes waiters on that rail leave it
//! after an eighth of their patience and choose other rails first. A suspect rail is used where there is no other, and
//! the first answered ping clears it.
//!
//! A rail whose NIC does not answer for a half is suspected at once, and mute until the NIC answers for a half or
//! carries a ping. Of a path that is entered over it only the other end could say that it is quiet, and that end may
//! turn out as dead.

use crate::nanos::Nanos;
use crate::slots::RailPair;
use shunt_layout::mutant::Mutant;

/// Rounds of pings before anything is concluded, the pause between them, and what answers are given beyond it.
const ROUNDS: u32 = 3;
/// See [`ROUNDS`].
const ROUND_NS: Nanos = Nanos::micros(400);
/// See [`ROUNDS`].
const SETTLE_NS: Nanos = Nanos::millis(1);
/// Pause between further rounds while nobody answers, and how long they go on.
const AGAIN_NS: Nanos = Nanos::millis(4);
/// See [`AGAIN_NS`].
const UNTIL_NS: Nanos = Nanos::millis(40);
/// Searches at a time, those that ended lately included: a path that failed again is not looked at again at once.
const SEARCHES: usize = 16;
/// Other peers that are asked over the local rail.
pub const OTHERS: usize = 2;
/// First pause between pings of a suspect rail, doubled up to the longest.
const CLEAR_NS: Nanos = Nanos::millis(5);
/// See [`CLEAR_NS`].
const CLEAR_MAX_NS: Nanos = Nanos::millis(80);

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
    next_ns: Nanos,
    answered_ns: Option<Nanos>,
    until_ns: Nanos,
    over: bool,
}

impl Search {
    fn votes(&self, shares: Shares) -> Votes {
        let of = || self.targets.iter().filter(|target| target.shares == shares);
        let answered = of().filter(|target| target.answered).count() as u32;
        Votes { asked: of().count() as u32, answered }
    }

    /// One look at a search: its conclusion, once it has one.
    fn poll(&mut self, now: Nanos, pings: &mut Vec<Ping>) -> Option<Blame> {
        if self.over {
            return None;
        }
        let asked = self.rounds >= ROUNDS;
        let settled = self.answered_ns.is_some_and(|at| now >= at + SETTLE_NS);
        if asked && settled && now >= self.next_ns {
            self.over = true;
            return Some(self.blame());
        }
        // Once somebody has answered, the others have had as many questions.
        if now >= self.next_ns && !(asked && self.answered_ns.is_some()) {
            for target in self.targets.iter().filter(|target| !target.answered) {
                pings.push((target.peer, target.pair));
            }
            self.rounds += 1;
            self.next_ns = now
                + match self.rounds {
                    rounds if rounds < ROUNDS => ROUND_NS,
                    ROUNDS => SETTLE_NS,
                    _ => AGAIN_NS,
                };
        }
        None
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
    /// Its NIC did not answer for a half.
    mute: bool,
    /// Pings with lower numbers prove nothing.
    from_number: u64,
    since_ns: Nanos,
    next_ns: Nanos,
    pause_ns: Nanos,
    turn: usize,
}

impl Suspect {
    fn is_in(&self, peer: u32, pair: RailPair) -> bool {
        match self.pe {
            None => self.rail == pair.local,
            Some(pe) => pe == peer && self.rail == pair.remote,
        }
    }

    fn poll(
        &mut self,
        now: Nanos,
        (me, peers): (u32, u32),
        pairs: impl Fn(u32) -> Vec<RailPair>,
    ) -> Option<Ping> {
        if now < self.next_ns {
            return None;
        }
        self.pause_ns = (self.pause_ns * 2).min(CLEAR_MAX_NS);
        self.next_ns = now + self.pause_ns;
        if self.pe.is_none() {
            let after = |peer: u32| (peer + 1) % peers;
            let next = after(self.peer);
            self.peer = if next == me { after(next) } else { next };
        }
        let mut pairs = pairs(self.peer);
        pairs.retain(|pair| self.is_in(self.peer, *pair));
        if pairs.is_empty() {
            return None;
        }
        self.turn += 1;
        Some((self.peer, pairs[self.turn % pairs.len()]))
    }
}

/// Paths that are looked into, and rails under suspicion. Both empty while all is well.
#[derive(Default)]
pub struct FaultLocalizer {
    searches: Vec<Search>,
    suspects: Vec<Suspect>,
}

/// A ping is to go out: to a peer, over a pair of rails.
pub type Ping = (u32, RailPair);

/// A rail whose suspicion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// `None`: of this PE.
    pub pe: Option<u32>,
    /// Its rail.
    pub rail: u32,
    /// For how long it was suspected.
    pub suspected: Nanos,
}

impl From<(Nanos, &Suspect)> for Cleared {
    fn from((now, suspect): (Nanos, &Suspect)) -> Self {
        Self { pe: suspect.pe, rail: suspect.rail, suspected: now - suspect.since_ns }
    }
}

impl FaultLocalizer {
    /// Rails of a pair that are under suspicion.
    pub fn suspects(&self, peer: u32, pair: RailPair) -> usize {
        self.suspects.iter().filter(|suspect| suspect.is_in(peer, pair)).count()
    }

    /// True while nothing is asked.
    pub fn is_idle(&self) -> bool {
        self.searches.is_empty() && self.suspects.is_empty()
    }

    /// True if a path that fell silent is to be looked into: it is not already, and there are not too many.
    pub fn takes(&self, peer: u32, pair: RailPair) -> bool {
        let known = self.suspects.iter().any(|suspect| suspect.is_in(peer, pair))
            || self.searches.iter().any(|search| search.peer == peer && search.pair == pair);
        !known && self.searches.len() < SEARCHES && !Mutant::NobodyAsked.on()
    }

    /// Looks into a path. `with_peer` are pairs of rails to the peer, `others` those to some other peers; pings up to
    /// `number` are none of this search.
    pub fn begin(
        &mut self,
        now: Nanos,
        (peer, pair): Ping,
        with_peer: &[RailPair],
        others: &[Ping],
        number: u64,
    ) {
        self.searches.push(Search {
            peer,
            pair,
            targets: targets(peer, pair, with_peer, others),
            from_number: number,
            rounds: 0,
            next_ns: now,
            answered_ns: None,
            until_ns: now + UNTIL_NS,
            over: false,
        });
    }

    /// Carries searches on and asks suspects: whom to ping, and what was concluded of which path. `pairs` are the pairs
    /// of rails to a peer, `peers` how many PEs there are, `me` this one.
    pub fn poll(
        &mut self,
        now: Nanos,
        (me, peers): (u32, u32),
        pairs: impl Fn(u32) -> Vec<RailPair>,
    ) -> (Vec<Ping>, Vec<(Ping, Blame)>) {
        let (mut pings, mut found) = (Vec::new(), Vec::new());
        for search in &mut self.searches {
            found.extend(search.poll(now, &mut pings).map(|blame| ((search.peer, search.pair), blame)));
        }
        self.searches.retain(|search| now < search.until_ns);
        for suspect in &mut self.suspects {
            pings.extend(suspect.poll(now, (me, peers), &pairs));
        }
        (pings, found)
    }

    /// A rail is suspected from now on, found with a peer; pings up to `number` prove nothing. False if it was already.
    pub fn suspect(&mut self, now: Nanos, pe: Option<u32>, rail: u32, peer: u32, number: u64) -> bool {
        let known = self.suspects.iter().any(|other| other.pe == pe && other.rail == rail);
        if !known {
            self.suspects.push(Suspect {
                pe,
                rail,
                peer,
                mute: false,
                from_number: number,
                since_ns: now,
                next_ns: now + CLEAR_NS,
                pause_ns: CLEAR_NS,
                turn: 0,
            });
        }
        !known
    }

    /// The NIC of a suspect rail did not answer for a half.
    pub fn mute(&mut self, pe: Option<u32>, rail: u32) {
        let of = |suspect: &&mut Suspect| suspect.pe == pe && suspect.rail == rail;
        self.suspects.iter_mut().filter(of).for_each(|suspect| suspect.mute = true);
    }

    /// It answered; true if it was mute.
    pub fn answers(&mut self, pe: Option<u32>, rail: u32) -> bool {
        let mut of = self.suspects.iter_mut().filter(|suspect| suspect.pe == pe && suspect.rail == rail);
        of.any(|suspect| std::mem::take(&mut suspect.mute))
    }

    /// True if nobody may be there to fence a path over a pair: both rails are suspects, or the NIC of one is mute.
    pub fn is_last_resort(&self, peer: u32, pair: RailPair) -> bool {
        let mut here = self.suspects.iter().filter(|suspect| suspect.is_in(peer, pair));
        here.clone().any(|suspect| suspect.mute) || here.nth(1).is_some()
    }

    /// A ping of this number was answered: the rails that are cleared by it.
    pub fn answered(&mut self, now: Nanos, (peer, pair): Ping, number: u64) -> Vec<Cleared> {
        for search in self.searches.iter_mut().filter(|search| number > search.from_number) {
            let here = |target: &&mut Target| target.peer == peer && target.pair == pair;
            if let Some(target) = search.targets.iter_mut().find(here) {
                target.answered = true;
                search.answered_ns.get_or_insert(now);
            }
        }
        let cleared = |suspect: &Suspect| suspect.is_in(peer, pair) && number > suspect.from_number;
        let (clear, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.suspects).into_iter().partition(cleared);
        self.suspects = kept;
        clear.iter().map(|suspect| Cleared::from((now, suspect))).collect()
    }

    /// A port changed: what is known of it takes the place of what was suspected.
    pub fn forget(&mut self, now: Nanos, pe: Option<u32>, rail: u32) -> Option<Cleared> {
        let place = self.suspects.iter().position(|one| one.pe == pe && one.rail == rail)?;
        Some(Cleared::from((now, &self.suspects.remove(place))))
    }
}

/// Whom to ask about a path: every pair with the peer that shares a rail with it, and over the local rail the others.
fn targets(peer: u32, path: RailPair, with_peer: &[RailPair], others: &[Ping]) -> Vec<Target> {
    let mut targets = Vec::new();
    for pair in with_peer {
        let shares = match (pair.local == path.local, pair.remote == path.remote) {
            (true, true) => Shares::Both,
            (true, false) => Shares::Local,
            (false, true) => Shares::Remote,
            (false, false) => continue,
        };
        targets.push(Target { peer, pair: *pair, shares, answered: false });
    }
    let other =
        |(peer, pair): &Ping| Target { peer: *peer, pair: *pair, shares: Shares::Local, answered: false };
    targets.extend(others.iter().map(other));
    targets
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

    const fn pair(local: u32, remote: u32) -> RailPair {
        RailPair { local, remote }
    }

    /// All pairs of two rails at either end.
    fn pairs(_peer: u32) -> Vec<RailPair> {
        vec![pair(0, 0), pair(1, 1), pair(0, 1), pair(1, 0)]
    }

    /// The path 0.0 to peer 1 fell silent; only pairs that `answer` do. What is concluded, and when.
    fn search(answer: impl Fn(RailPair) -> bool) -> Option<(Nanos, Blame)> {
        let mut localizer = FaultLocalizer::default();
        assert!(localizer.takes(1, pair(0, 0)));
        localizer.begin(Nanos::ZERO, (1, pair(0, 0)), &pairs(1), &[], 10);
        assert!(!localizer.takes(1, pair(0, 0)), "it is looked into already");
        (0..50_000).map(Nanos::micros).find_map(|now| {
            let (pings, found) = localizer.poll(now, (0, 2), pairs);
            for ping in pings.into_iter().filter(|(_, pair)| answer(*pair)) {
                assert!(localizer.answered(now, ping, 9).is_empty(), "an older one proves nothing");
                localizer.answered(now, ping, 11);
            }
            found.first().map(|(_, blame)| (now, *blame))
        })
    }

    #[test]
    fn the_rail_whose_pairs_are_all_silent_is_blamed() {
        let after = Some(ROUND_NS * 2 + SETTLE_NS);
        for (silent, blame) in [("local", Blame::Local), ("remote", Blame::Remote), ("both", Blame::Pair)] {
            let answer = |pair: RailPair| match silent {
                "local" => pair.local != 0,
                "remote" => pair.remote != 0,
                _ => (pair.local, pair.remote) != (0, 0),
            };
            assert_eq!(search(answer).map(|(_, blame)| blame), Some(blame), "{silent}");
            assert_eq!(search(answer).map(|(at, _)| at), after, "{silent}");
        }
        assert_eq!(search(|_| false), None, "no answer: no rail is blamed");
    }

    #[test]
    fn a_suspect_is_cleared_by_the_first_answer_and_by_its_port() {
        let mut localizer = FaultLocalizer::default();
        assert!(
            localizer.suspect(Nanos::ZERO, None, 0, 1, 10) && !localizer.suspect(Nanos::ZERO, None, 0, 1, 10)
        );
        assert_eq!(localizer.suspects(1, pair(0, 1)), 1);
        let (pings, _) = localizer.poll(CLEAR_NS, (0, 3), pairs);
        assert_eq!(pings.len(), 1);
        assert!(
            pings[0].0 == 2 && pings[0].1.local == 0,
            "the next peer is asked, over that rail: {pings:?}"
        );
        assert_eq!(localizer.answered(CLEAR_NS, pings[0], 10), [], "that ping is older than the suspicion");
        let cleared = Cleared { pe: None, rail: 0, suspected: CLEAR_NS };
        assert_eq!(localizer.answered(CLEAR_NS, pings[0], 11), [cleared]);
        localizer.suspect(Nanos::ZERO, Some(1), 1, 1, 20);
        assert!(!localizer.is_last_resort(1, pair(0, 1)), "one end can be fenced for certain");
        localizer.mute(Some(1), 1);
        assert!(localizer.is_last_resort(1, pair(0, 1)) && !localizer.is_last_resort(1, pair(1, 0)));
        assert!(
            !localizer.answers(None, 1) && localizer.answers(Some(1), 1) && !localizer.answers(Some(1), 1)
        );
        assert!(!localizer.is_last_resort(1, pair(0, 1)), "it answers commands, whatever it carries");
        assert_eq!(localizer.forget(Nanos::ZERO, Some(1), 0), None);
        assert!(localizer.forget(Nanos::ZERO, Some(1), 1).is_some() && localizer.is_idle());
    }
}
