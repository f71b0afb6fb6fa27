//! What the slots of a channel call for. Pure.

use super::health::Health;
use crate::slots::RailPair;
use shunt_layout::mutant::Mutant;

/// A pair that failed so often in a row is one that does not come back by itself.
const FAILURES_MAX: u32 = 2;

/// A slot as a look at its channel finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Its pair of rails.
    pub pair: RailPair,
    /// Where it stands.
    pub health: Health,
    /// Neither port is known to be down.
    pub up: bool,
    /// Failures in a row, of these rails.
    pub failures: u32,
    /// It was given to these rails and has not been made there yet.
    pub untried: bool,
    /// The NIC here does not let go of the last half: nothing is made on it.
    pub stuck: bool,
    /// Where nothing works it is better not waited for.
    pub doubtful: bool,
    /// Nobody may be there to fence it: channels enter it only when they have waited long for another.
    pub last_resort: bool,
}

impl SlotView {
    fn ready(&self) -> bool {
        self.health == Health::Ready && self.up && !self.last_resort
    }

    /// It will be ready again without being given to another pair.
    fn coming(&self, failures_max: u32) -> bool {
        let stays_away = matches!(self.health, Health::Ready | Health::Retired);
        !stays_away && self.up && !self.stuck && self.failures < failures_max
    }

    /// It works, or will.
    fn serves(&self, failures_max: u32) -> bool {
        self.ready() || self.coming(failures_max)
    }
}

/// Failures in a row after which a pair is not waited for: fewer if nothing else works.
pub fn patience(slots: &[Option<SlotView>], active: usize) -> u32 {
    let works = slots.get(active).copied().flatten().is_some_and(|look| look.ready());
    if works { FAILURES_MAX } else { 1 }
}

/// What a bound direction wants of a pair: that it leads to its home (rule 16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// From here: this rail of the peer.
    Remote(u32),
    /// To here: this rail of this PE.
    Local(u32),
}

impl Want {
    /// True if a pair of rails is what is wanted.
    pub fn is_met_by(self, pair: RailPair) -> bool {
        match self {
            Self::Remote(rail) => pair.remote == rail,
            Self::Local(rail) => pair.local == rail,
        }
    }
}

/// Slots that lead home, or will.
pub fn leading(slots: &[Option<SlotView>], want: Want, failures_max: u32) -> usize {
    let leads = |look: &&SlotView| want.is_met_by(look.pair) && look.serves(failures_max);
    slots.iter().flatten().filter(leads).count()
}

/// Which slot is to lead home from now on, where `leading` ones do. None while one is on its way out for that. The
/// `last` one that works is taken only where nothing leads home and the home does not move.
pub fn slot_to_give(
    slots: &[Option<SlotView>],
    active: usize,
    wants: impl Iterator<Item = Want> + Clone,
    leading: usize,
    last: bool,
) -> Option<usize> {
    let failures_max = patience(slots, active);
    // What leads home and does not work serves nobody.
    let leads = |look: &SlotView| wants.clone().any(|want| want.is_met_by(look.pair));
    let free = |(slot, look): &(usize, SlotView)| {
        *slot != 0
            && *slot != active
            && !(leads(look) && (look.serves(failures_max) || Mutant::UselessKept.on()))
    };
    let all = slots.iter().enumerate().filter_map(|(slot, look)| Some((slot, (*look)?))).filter(free);
    let of = |healths: &'static [Health]| all.clone().filter(|(_, look)| healths.contains(&look.health));
    if let Some((slot, _)) = of(&[Health::Released]).next() {
        return Some(slot);
    }
    let ready = of(&[Health::Ready]);
    let on_its_way = of(&[Health::Fencing, Health::Fenced]).next().is_some();
    // One that leads elsewhere stays, for when the home moves.
    let spare = leading == 0 || ready.clone().filter(|(_, look)| look.up).count() > 1;
    if on_its_way || !spare {
        return None;
    }
    let (slot, look) = ready.min_by_key(|(slot, look)| (look.up, usize::MAX - slot))?;
    let works = slots.iter().flatten().filter(|look| look.ready()).count();
    (last || works > 1 || !look.ready() || Mutant::LastGivenAway.on()).then_some(slot)
}

/// What a channel's slots call for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// There is a standby, or one is on its way.
    None,
    /// The channel works, and would stop with one more fault.
    Standby,
    /// Nothing works.
    Path,
}

/// What a channel on this slot is short of.
pub fn need(slots: &[Option<SlotView>], active: usize) -> Need {
    let works = slots.get(active).copied().flatten().is_some_and(|look| look.ready());
    let failures_max = patience(slots, active);
    let others = slots.iter().enumerate().filter(|(slot, _)| *slot != active || !works);
    let spare = others
        .filter_map(|(_, look)| *look)
        .any(|look| look.ready() || look.coming(failures_max) && (works || !look.doubtful));
    match (works, spare) {
        (_, true) => Need::None,
        (true, false) => Need::Standby,
        (false, false) => Need::Path,
    }
}

/// The pair that promises most, the best ranked of equals, that no slot holds and that is `up`.
pub fn next_pair<K: Ord>(
    ranked: &[RailPair],
    slots: &[Option<SlotView>],
    up: impl Fn(RailPair) -> bool,
    promise: impl Fn(RailPair) -> K,
) -> Option<RailPair> {
    let held = |pair: &RailPair| slots.iter().flatten().any(|look| look.pair == *pair);
    ranked.iter().copied().filter(|pair| !held(pair) && up(*pair)).min_by_key(|pair| promise(*pair))
}

/// Slots as tests describe them.
#[cfg(test)]
pub(crate) mod described {
    use super::*;

    pub fn pair(local: u32, remote: u32) -> RailPair {
        RailPair { local, remote }
    }

    pub fn look(rails: (u32, u32), health: Health, up: bool) -> Option<SlotView> {
        Some(SlotView {
            pair: pair(rails.0, rails.1),
            health,
            up,
            failures: 0,
            untried: false,
            stuck: false,
            doubtful: false,
            last_resort: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::described::{look, pair};
    use super::*;
    use crate::slots::{End, rank};

    #[test]
    fn a_channel_needs_a_standby_or_a_path() {
        let (works, dead) = (look((0, 0), Health::Ready, true), look((1, 1), Health::Ready, false));
        assert_eq!(need(&[works, look((1, 1), Health::Ready, true)], 0), Need::None);
        assert_eq!(need(&[works, look((1, 1), Health::Probing, true)], 0), Need::None, "it is on its way");
        assert_eq!(need(&[works, dead], 0), Need::Standby);
        assert_eq!(need(&[works, look((1, 1), Health::Retired, true)], 0), Need::Standby);
        assert_eq!(need(&[dead, look((1, 1), Health::Released, false)], 0), Need::Path);
        assert_eq!(need(&[dead, works, dead], 1), Need::Standby);
        let mut failing = look((2, 2), Health::Released, true);
        failing.as_mut().expect("a look").failures = FAILURES_MAX;
        assert_eq!(need(&[works, dead, failing], 0), Need::Standby);
    }

    #[test]
    fn the_best_pair_that_nobody_holds_and_whose_ports_are_up() {
        let ranked = rank(End { pe: 0, rails: 8 }, End { pe: 1, rails: 8 }, 0);
        let slots = [look((0, 0), Health::Ready, false), look((1, 1), Health::Released, false)];
        assert_eq!(next_pair(&ranked, &slots, |_| true, |_| ()), Some(pair(2, 2)));
        assert_eq!(next_pair(&ranked, &slots, |p| p.local == 7 && p.remote == 3, |_| ()), Some(pair(7, 3)));
        assert_eq!(next_pair(&ranked, &slots, |p| p.local == 1 && p.remote == 1, |_| ()), None, "it is held");
        assert_eq!(next_pair(&ranked, &slots, |_| false, |_| ()), None);
    }

    #[test]
    fn a_bound_direction_gets_two_pairs_to_its_home() {
        let want = Want::Remote(0);
        let given = |slots: &[Option<SlotView>], active, last| {
            slot_to_give(slots, active, [want].into_iter(), leading(slots, want, FAILURES_MAX), last)
        };
        let give = |slots: &[Option<SlotView>], active| given(slots, active, false);
        let primary = look((0, 0), Health::Ready, true);
        let dead = look((0, 0), Health::Ready, false);
        let (one, two) = (look((1, 1), Health::Ready, true), look((2, 2), Health::Ready, true));
        assert_eq!(leading(&[primary, look((1, 0), Health::Probing, true)], want, FAILURES_MAX), 2);
        assert_eq!(
            give(&[primary, one, two], 0),
            Some(2),
            "the last one; another stays for the home to move to"
        );
        assert_eq!(give(&[primary, one], 0), None, "what is left leads elsewhere");
        assert_eq!(give(&[dead, one], 0), None, "the last that works; the home may move there");
        assert_eq!(given(&[dead, one], 0, true), Some(1), "nothing leads home, and it does not move");
        assert_eq!(give(&[dead, one, two], 0), Some(2), "nothing leads home");
        let down = look((1, 1), Health::Ready, false);
        assert_eq!(give(&[dead, down], 0), Some(1), "it does not work");
        assert_eq!(give(&[dead, one, two], 2), Some(1), "not the one in use");
        assert_eq!(give(&[dead, look((1, 1), Health::Fencing, true), two], 0), None, "one is on its way");
        assert_eq!(give(&[dead, look((1, 1), Health::Released, true), two], 0), Some(1));
        let other = [want, Want::Local(2)].into_iter();
        assert_eq!(
            slot_to_give(&[dead, one, two], 0, other, 0, true),
            Some(1),
            "the other direction's is not taken"
        );
    }

    #[test]
    fn what_leads_home_and_does_not_work_is_given_away() {
        let wants = [Want::Remote(1), Want::Local(1)];
        let give = |slots: &[Option<SlotView>]| slot_to_give(slots, 0, wants.into_iter(), 0, false);
        let dead = look((0, 0), Health::Released, false);
        let one = |failures, stuck| {
            Some(SlotView { failures, stuck, ..look((1, 0), Health::Released, true).expect("a look") })
        };
        assert_eq!(give(&[dead, one(0, false)]), None, "it is on its way");
        assert_eq!(give(&[dead, one(1, false)]), Some(1), "it failed");
        assert_eq!(give(&[dead, one(0, true)]), Some(1), "its NIC does not let go");
        assert_eq!(give(&[look((0, 0), Health::Ready, true), one(1, false)]), None, "there is time");
        assert_eq!(need(&[dead, one(0, true)], 0), Need::Path, "it is not on its way");
    }

    #[test]
    fn what_is_in_doubt_is_waited_for_only_where_something_works() {
        let works = look((0, 0), Health::Ready, true);
        let doubtful =
            Some(SlotView { doubtful: true, ..look((1, 1), Health::Probing, true).expect("a look") });
        assert_eq!(need(&[works, doubtful], 0), Need::None);
        assert_eq!(need(&[doubtful, doubtful], 0), Need::Path);
        assert_eq!(need(&[doubtful, look((2, 2), Health::Probing, true)], 0), Need::None, "it is on its way");
    }

    /// A standby between two suspected rails counted as one, and nobody made a better path in its time.
    #[test]
    fn a_standby_between_two_suspected_rails_is_none() {
        let last = Some(SlotView { last_resort: true, ..look((0, 1), Health::Ready, true).expect("a look") });
        let dead = look((0, 0), Health::Released, false);
        assert_eq!(need(&[dead, last], 0), Need::Path);
        assert_eq!(need(&[look((1, 1), Health::Ready, true), last], 0), Need::Standby);
    }
}
