//! Through which NIC of a PE the words that many write take their atomics: the owner. Rule 16.
//!
//! Each PE keeps one owner for each channel index; what it knows of its peers' owners lies in the rows of the channel
//! table, where device code reads it. An owner moves when a sender asks that has no path to it. First every pair of
//! that channel index on the old rail is fenced, of all peers, standby ones too, and none is made again meanwhile; once
//! each is proven quiet, the next version is told to all. A pair that is made later carries it, so that nobody can use
//! one under an older version. An owner does not move back by itself.

use crate::nanos::Nanos;

/// Time between two looks over all bound channels.
const LOOK: Nanos = Nanos::micros(500);
/// First pause before an owner is asked for again; doubled each time.
const ASK: Nanos = Nanos::millis(2);
/// Doublings of that pause at most.
const ASK_DOUBLINGS: u32 = 5;

/// A bound channel without a path to its owner, or with none that it could open on.
#[derive(Clone, Copy)]
struct Unreachable {
    since: Nanos,
    next: Nanos,
    asked: u32,
}

/// How a bound channel stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// A path to its owner is ready.
    pub reached: bool,
    /// The channel finds no path.
    pub pathless: bool,
    /// The channel ended.
    pub dead: bool,
    /// Its switch reads a ledger.
    pub at_ledger: bool,
}

/// What the agent keeps of owners beyond the words that device code reads.
pub(super) struct AtomicOwner {
    /// By channel index: the owner at this PE is moving. Rails that those who asked have paths to, a bit each.
    moving: Vec<Option<u32>>,
    /// By row of the channel table.
    unreachable: Vec<Option<Unreachable>>,
    /// By row: the peer said that its direction is bound.
    bound_there: Vec<bool>,
    /// By pair: rails of this PE on which an older half was never proven quiet, a bit each.
    unfenced: Vec<u32>,
    next_look: Nanos,
}

impl AtomicOwner {
    /// Of so many channels a peer and rows of all; `unfenced` is what an earlier agent left.
    pub(super) fn new(channels: usize, rows: usize, unfenced: Vec<u32>) -> Self {
        Self {
            moving: vec![None; channels],
            unreachable: vec![None; rows],
            bound_there: vec![false; rows],
            unfenced,
            next_look: Nanos::ZERO,
        }
    }

    /// True if it is time to look over all bound channels.
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + LOOK;
        true
    }

    /// A look at a bound channel. None: nothing is asked now; else whether the sender presses, because it has waited
    /// for as long as `pressing`.
    pub(super) fn ask(&mut self, now: Nanos, row: u32, bound: Bound, pressing: Nanos) -> Option<bool> {
        // A path that is ready serves once the channel has opened on it: one that answers probes, and no ledger in
        // time, is left and made again and again, and the give-up time goes on meanwhile.
        if bound.reached && !bound.pathless || bound.dead {
            self.reached(row);
            return None;
        }
        let new = Unreachable { since: now, next: now, asked: 0 };
        let one = self.unreachable[row as usize].get_or_insert(new);
        // One that is ready has its turn first; a ledger that is answered takes microseconds, and is hardly met here.
        if now < one.next || bound.reached && !bound.at_ledger {
            return None;
        }
        one.next = now + (ASK << one.asked.min(ASK_DOUBLINGS));
        one.asked += 1;
        Some(now - one.since >= pressing)
    }

    /// A channel's owner is where a path leads, or is another one.
    pub(super) fn reached(&mut self, row: u32) {
        self.unreachable[row as usize] = None;
    }

    /// The peer said that its direction of a channel is bound.
    pub(super) fn bind_there(&mut self, row: u32) {
        self.bound_there[row as usize] = true;
    }

    /// True if it said so.
    pub(super) fn is_bound_there(&self, row: u32) -> bool {
        self.bound_there[row as usize]
    }

    /// Rails that those who asked for a move have paths to; none while the owner stays.
    pub(super) fn moving(&self, channel: u32) -> Option<u32> {
        self.moving[channel as usize]
    }

    /// Somebody asks for a move, who has paths to these rails.
    pub(super) fn begin_move(&mut self, channel: u32, rails: u32) {
        *self.moving[channel as usize].get_or_insert(0) |= rails;
    }

    /// The owner has moved, or stays.
    pub(super) fn end_move(&mut self, channel: u32) {
        self.moving[channel as usize] = None;
    }

    /// A half gives way to the next and was not proven quiet: no owner leaves its rail from now on.
    pub(super) fn mark_unfenced(&mut self, pair: usize, rail: u32) {
        self.unfenced[pair] |= 1 << rail;
    }

    /// A NIC has destroyed what it had of a pair before, or has made the next half of it: then it has, too.
    pub(super) fn clear_unfenced(&mut self, pair: usize, rail: u32) {
        self.unfenced[pair] &= !(1 << rail);
    }

    /// True if an older half of a pair was never proven quiet on a rail.
    pub(super) fn is_unfenced(&self, pair: usize, rail: u32) -> bool {
        self.unfenced[pair] >> rail & 1 == 1
    }

    /// For the next agent, which forgets who was proven quiet: what is in ERR is fenced once more and proven by that,
    /// but of an older half that was given up its NIC alone knows.
    pub(super) fn all_unfenced(&self) -> Vec<u32> {
        self.unfenced.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRANDED: Bound = Bound { reached: false, pathless: true, dead: false, at_ledger: false };
    const PRESSING: Nanos = Nanos::millis(10);

    fn owner() -> AtomicOwner {
        AtomicOwner::new(1, 2, vec![0; 4])
    }

    #[test]
    fn a_sender_without_a_path_asks_ever_more_seldom_and_presses_in_the_end() {
        let mut owner = owner();
        let mut asked = Vec::new();
        for ms in 0..20 {
            asked.extend(owner.ask(Nanos::millis(ms), 1, STRANDED, PRESSING).map(|pressing| (ms, pressing)));
        }
        assert_eq!(asked, [(0, false), (2, false), (6, false), (14, true)]);
        owner.reached(1);
        assert_eq!(owner.ask(Nanos::millis(20), 1, STRANDED, PRESSING), Some(false), "it begins again");
    }

    #[test]
    fn a_path_that_is_ready_has_its_turn_before_its_owner_is_asked_for() {
        let mut owner = owner();
        let ready = Bound { reached: true, ..STRANDED };
        assert_eq!(owner.ask(Nanos::ZERO, 1, ready, PRESSING), None);
        assert_eq!(owner.ask(Nanos::ZERO, 1, Bound { at_ledger: true, ..ready }, PRESSING), Some(false));
        for over in [Bound { pathless: false, ..ready }, Bound { dead: true, ..STRANDED }] {
            assert_eq!(owner.ask(Nanos::secs(1), 1, over, PRESSING), None, "{over:?}");
            assert_eq!(owner.ask(Nanos::secs(1), 1, STRANDED, PRESSING), Some(false), "it begins again");
        }
    }

    #[test]
    fn a_move_knows_the_rails_of_all_who_asked() {
        let mut owner = owner();
        owner.begin_move(0, 0b01);
        owner.begin_move(0, 0b10);
        assert_eq!(owner.moving(0), Some(0b11));
        owner.end_move(0);
        assert_eq!(owner.moving(0), None);
    }

    #[test]
    fn a_rail_stays_unfenced_until_its_nic_says_otherwise() {
        let mut owner = owner();
        owner.mark_unfenced(2, 1);
        assert!(owner.is_unfenced(2, 1) && !owner.is_unfenced(2, 0) && !owner.is_unfenced(1, 1));
        assert_eq!(owner.all_unfenced(), [0, 0, 2, 0]);
        owner.clear_unfenced(2, 1);
        assert!(!owner.is_unfenced(2, 1));
    }
}
