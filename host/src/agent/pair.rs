//! One pair as its agent knows it. Rules 17 and 18.

use super::checkpoint::PairCheckpoint;
use super::health::Health;
use super::message::SideTruth;
use super::slot_release::ReleaseRequest;
use super::verdict::Sent;
use crate::connect::card::HalfCard;
use crate::nanos::Nanos;
use crate::nic::half::HalfPath;
use crate::nic::queue::{Producer, RingSpan};
use crate::slots::RailPair;
use shunt_layout::mutant::Mutant;
use std::sync::Arc;

/// An offer to make a pair again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The leader's half, on its rail.
    pub card: HalfCard,
    /// The rail of this end that it wants the other half on.
    pub rail: u32,
}

impl Offer {
    /// The rails, as this end sees them.
    pub fn rails(&self) -> RailPair {
        RailPair { local: self.rail, remote: self.card.rail.index }
    }
}

/// What the NIC of a pair is doing for it, by the number of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Task {
    /// Nothing that matters.
    #[default]
    None,
    /// Fencing this half.
    Fence(u64),
    /// Counting what this half executed.
    Count(u64),
    /// Moving this half to ERR, which was counted before.
    Stop(u64),
    /// Making this half.
    Make(u64),
    /// Connecting this half.
    Connect(u64),
    /// Reading the queue pair of a path that the last agent left ready.
    Look(u64),
}

/// One pair, this side of it.
pub struct Pair {
    /// Health.
    pub health: Health,
    /// Incarnation; never used twice.
    pub incarnation: u32,
    /// Local rail.
    pub local_rail: u32,
    /// Remote rail.
    pub remote_rail: u32,
    /// Memory of the rings, for all incarnations.
    pub rings: RingSpan,
    /// This half, while there is one. Its NIC's worker may hold it as well.
    pub half: Option<Arc<HalfPath>>,
    /// What its NIC is doing.
    pub task: Task,
    /// It was given to its rails and has not been made there yet.
    pub untried: bool,
    /// The other half's card.
    pub remote: Option<HalfCard>,
    /// Truth of this half, once fenced.
    pub mine: Option<SideTruth>,
    /// Truth of the other half, once it said so.
    pub theirs: Option<SideTruth>,
    /// What this half had sent when it was fenced.
    pub sent: Option<Sent>,
    /// The request to answer when the fence is complete.
    pub asked: Option<u64>,
    /// How often it was said of it that it is in hand: when, in pauses of the agent's life awake.
    pub in_hand: u64,
    /// When the peer last said that it has this pair's fence in hand, as the agent was awake.
    pub in_hand_there_ns: Option<Nanos>,
    /// When the present state was entered.
    pub since_ns: Nanos,
    /// When this half was fenced.
    pub fenced_ns: Nanos,
    /// When its fence began, as the agent was awake.
    pub begun_awake_ns: Nanos,
    /// When anything was first known of this half, likewise.
    pub fenced_awake_ns: Nanos,
    /// The agent's age at that time: what the packet lifetime is counted by.
    pub fenced_age_ns: Nanos,
    /// The agent's age when this half, which was counted first, was moved to ERR.
    pub stopped_age_ns: Option<Nanos>,
    /// The agent's age when the last half that nobody fenced was destroyed.
    pub destroyed_age_ns: Option<Nanos>,
    /// The agent's age when the other half was first known to be fenced.
    pub theirs_age_ns: Nanos,
    /// When its NIC, which did not fence this half, is to try again, and how often it failed since the fence began.
    pub again_ns: Nanos,
    /// See `again_ns`.
    pub failed: u32,
    /// When the peer was last told of the fence, and how often since it began.
    pub told_ns: Nanos,
    /// See `told_ns`.
    pub told: u32,
    /// This direction has left, and the peer was told.
    pub left_here: bool,
    /// The peer's direction has left.
    pub left_there: bool,
    /// Failures to revive in a row.
    pub failures: u32,
    /// Times in a row that it was left soon after it was admitted.
    pub relapses: u32,
    /// When the path was last made anew and admitted; `None` for a path as it was made at start.
    pub admitted_ns: Option<Nanos>,
    /// The incarnation whose probes were all answered, both ways; 0 if none was.
    pub probed: u32,
    /// PSN the next incarnation starts at.
    pub next_psn: u32,
    /// A `Make` that came before this side was done resting.
    pub offered: Option<Offer>,
    /// The operators' last order of either end: odd if the pair is to be out. The larger number is the later order.
    pub orders: u32,
    /// It works, and both directions are to leave it by a drain: since when.
    pub leaving_ns: Option<Nanos>,
    /// Its slot is wanted for another pair, and the peer was asked to do without it.
    pub vacate: Option<ReleaseRequest>,
    /// It was brought back, and the peer, which leads, does not seem to know.
    pub readmitted: bool,
    /// It is fenced because its port is down, and no switcher of this PE has asked for it.
    pub bulk: bool,
    /// The last agent may have fenced this incarnation: what it executed is not known.
    pub unknown: bool,
    /// Probes under way.
    pub probes: Option<Probes>,
    /// The peer's probes were answered.
    pub proved_there: bool,
}

impl Pair {
    /// What outlives its agent.
    pub(super) fn left(self) -> PairCheckpoint {
        PairCheckpoint {
            incarnation: self.incarnation,
            local_rail: self.local_rail,
            remote_rail: self.remote_rail,
            rings: self.rings,
            half: self.half,
            next_psn: self.next_psn,
            orders: self.orders,
        }
    }

    /// A pair as its agent finds it: ready, unless the rows of an earlier agent say otherwise. One that bring-up left
    /// to the agents was never made, so there is nothing to fence and nobody to leave it.
    pub(super) fn found(held: PairCheckpoint, now_ns: Nanos) -> Self {
        let to_make = held.incarnation == 0;
        let begun_ns = if to_make { now_ns } else { Nanos::ZERO };
        let fenced = to_make.then_some(SideTruth::Fenced);
        Self {
            health: match held.half {
                Some(_) => Health::Ready,
                None if to_make => Health::Released,
                None => Health::Retired,
            },
            incarnation: held.incarnation,
            local_rail: held.local_rail,
            remote_rail: held.remote_rail,
            rings: held.rings,
            half: held.half,
            task: Task::None,
            untried: false,
            remote: None,
            mine: fenced,
            theirs: fenced,
            sent: None,
            asked: None,
            in_hand: 0,
            in_hand_there_ns: None,
            since_ns: begun_ns,
            fenced_ns: begun_ns,
            begun_awake_ns: Nanos::ZERO,
            fenced_awake_ns: Nanos::ZERO,
            fenced_age_ns: Nanos::ZERO,
            stopped_age_ns: None,
            destroyed_age_ns: None,
            theirs_age_ns: Nanos::ZERO,
            again_ns: Nanos::ZERO,
            failed: 0,
            told_ns: Nanos::ZERO,
            told: 0,
            left_here: to_make,
            left_there: to_make,
            failures: 0,
            relapses: 0,
            admitted_ns: None,
            probed: 0,
            next_psn: held.next_psn,
            offered: None,
            orders: held.orders,
            leaving_ns: None,
            vacate: None,
            readmitted: false,
            bulk: false,
            unknown: false,
            probes: None,
            proved_there: false,
        }
    }

    /// True if it was never made: nothing of it can be in the network, or wait to be left.
    pub fn is_fresh(&self) -> bool {
        self.incarnation == 0
    }

    /// Its rails, as this end sees them.
    pub fn rails(&self) -> RailPair {
        RailPair { local: self.local_rail, remote: self.remote_rail }
    }

    /// True if an operator wants it out.
    pub fn is_out(&self) -> bool {
        self.orders & 1 == 1
    }

    /// True if somebody wants it left who says nothing against its rails: an operator, or another pair that is to have
    /// its slot.
    pub fn is_ordered(&self, now_ns: Nanos) -> bool {
        let wanted = self.vacate.is_some_and(|asked| asked.is_fresh(now_ns));
        let ordered = self.leaving_ns.is_some() || wanted || self.is_out();
        ordered && !Mutant::OrderIsFailure.on()
    }

    /// An operator of this end wants it out, or back. What it is already needs no new number.
    pub fn order(&mut self, out: bool) {
        self.orders = self.orders.saturating_add((self.is_out() != out) as u32);
    }

    /// True if this incarnation is connected here and being probed.
    pub fn is_probing(&self, incarnation: u32) -> bool {
        self.health == Health::Probing && self.incarnation == incarnation
    }

    /// True if this side's probes of this incarnation were answered.
    pub fn has_proved(&self, incarnation: u32) -> bool {
        let told = self.probes.as_ref().is_some_and(|probes| probes.told);
        self.incarnation == incarnation
            && (self.health == Health::Ready || self.health == Health::Probing && told)
    }

    /// True if a fence of this half, or what came of it, is proof: what came through it has landed, and nothing comes
    /// any more. At `age_ns` of its agent.
    pub(super) fn is_proven(&self, age_ns: Nanos, lifetime_ns: Nanos) -> bool {
        let over = |since_ns: Nanos| age_ns >= since_ns + lifetime_ns;
        match (self.mine, self.theirs) {
            (Some(SideTruth::Exact { .. } | SideTruth::Fenced | SideTruth::Unknown), _) => true,
            (Some(SideTruth::Unflushed), _) => over(self.fenced_age_ns),
            (Some(SideTruth::Dead), Some(SideTruth::Dead) | None) => false,
            // The NIC says nothing; but nothing new leaves the other half, and what had left is gone.
            (Some(SideTruth::Dead), Some(_)) => over(self.theirs_age_ns),
            // Never made.
            (None, _) => self.half.is_none() && self.health == Health::Retired,
        }
    }

    /// True if nothing can come through this half.
    pub(super) fn is_quiet(&self, age_ns: Nanos, lifetime_ns: Nanos) -> bool {
        let alive = matches!(self.health, Health::Ready | Health::Connecting | Health::Probing);
        !alive && self.is_proven(age_ns, lifetime_ns)
    }

    /// The NIC could not fence this half, and has nothing in hand for it.
    pub(super) fn is_unproven(&self) -> bool {
        self.mine == Some(SideTruth::Dead) && self.task == Task::None
    }

    /// True if such a half was put away, and a packet lifetime has passed since a half of this pair was last destroyed.
    /// While its own NIC still has it, that rail counts as unfenced.
    pub(super) fn is_gone(&self, age_ns: Nanos, lifetime_ns: Nanos) -> bool {
        let rests = matches!(self.health, Health::Fenced | Health::Released | Health::Retired);
        let over = self.destroyed_age_ns.is_some_and(|since| age_ns >= since + lifetime_ns);
        rests && self.half.is_none() && self.is_unproven() && over
    }

    /// The age that the packet lifetime counts from: that of the half which is proven to be in ERR, here if it is both.
    pub fn quiet_since_ns(&self) -> Nanos {
        match self.mine {
            Some(SideTruth::Dead) => self.theirs_age_ns.max(self.fenced_age_ns),
            _ => self.fenced_age_ns,
        }
    }
}

/// Probes of one direction: zero-length WRITEs on the path's own ring, which hands its index over afterwards.
pub struct Probes {
    /// Posts on the ring; the agent is its only user before the path is ready.
    pub producer: Producer,
    /// Probes posted.
    pub posted: u32,
    /// Probes answered.
    pub answered: u32,
    /// When the next one is due.
    pub next_ns: Nanos,
    /// True once the peer was told.
    pub told: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::queue::{At, RingVariant};

    const EXACT: SideTruth = SideTruth::Exact { executed: 42, next_rcv_psn: 1 };

    fn pair(health: Health, mine: Option<SideTruth>, theirs: Option<SideTruth>) -> Pair {
        let at = At { address: 0, offset: 0 };
        let variant = RingVariant { completion_queue: at, queue_record: at, completion_record: at };
        let rings = RingSpan { send_queue: at, variants: [variant; 2], user_index: 0 };
        let held = PairCheckpoint {
            incarnation: 1,
            local_rail: 0,
            remote_rail: 0,
            rings,
            half: None,
            next_psn: 0,
            orders: 0,
        };
        Pair {
            health,
            mine,
            theirs,
            fenced_age_ns: Nanos::new(100),
            theirs_age_ns: Nanos::new(200),
            ..Pair::found(held, Nanos::ZERO)
        }
    }

    #[test]
    fn only_what_is_proven_is_silent() {
        let silent = |health, mine, theirs, age_ns| {
            pair(health, mine, theirs).is_quiet(Nanos::new(age_ns), Nanos::new(50))
        };
        for health in [Health::Ready, Health::Connecting, Health::Probing] {
            assert!(!silent(health, Some(EXACT), Some(EXACT), 1_000), "{health:?} is alive");
        }
        assert!(!silent(Health::Fencing, None, Some(EXACT), 1_000), "its own half may still take requests");
        assert!(silent(Health::Fencing, Some(EXACT), None, 0), "a peer that is gone does not matter");
        assert!(silent(Health::Released, Some(SideTruth::Fenced), None, 0));
        let unflushed = Some(SideTruth::Unflushed);
        assert!(!silent(Health::Fenced, unflushed, Some(EXACT), 149));
        assert!(silent(Health::Fenced, unflushed, Some(EXACT), 150), "what it had accepted has landed");
        let dead = Some(SideTruth::Dead);
        assert!(!silent(Health::Fenced, dead, Some(EXACT), 249));
        assert!(silent(Health::Fenced, dead, Some(EXACT), 250), "nothing new leaves the other half");
        for theirs in [None, dead] {
            assert!(!silent(Health::Fenced, dead, theirs, u64::MAX), "nothing is proved");
        }
        assert!(silent(Health::Retired, None, None, 0), "it was never made");
    }

    #[test]
    fn a_half_that_was_destroyed_is_gone_a_lifetime_later() {
        let dead = |health| Pair {
            destroyed_age_ns: Some(Nanos::new(300)),
            ..pair(health, Some(SideTruth::Dead), Some(SideTruth::Dead))
        };
        for health in [Health::Fenced, Health::Released, Health::Retired] {
            assert!(
                !dead(health).is_gone(Nanos::new(349), Nanos::new(50))
                    && dead(health).is_gone(Nanos::new(350), Nanos::new(50)),
                "{health:?}"
            );
        }
        assert!(!dead(Health::Fencing).is_gone(Nanos::new(350), Nanos::new(50)), "its truth may still come");
        let kept = Pair { destroyed_age_ns: None, ..dead(Health::Released) };
        assert!(!kept.is_gone(Nanos::new(u64::MAX), Nanos::new(50)), "nobody destroyed it");
        let in_hand = Pair { task: Task::Fence(1), ..dead(Health::Released) };
        assert!(!in_hand.is_gone(Nanos::new(350), Nanos::new(50)), "its NIC may still fence it");
    }
}
