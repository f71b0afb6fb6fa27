//! What is explored of one path: budgets, and which part of its surroundings is not as it should be.

use super::state::Budget;
use shunt_recovery::nanos::Nanos;
use shunt_recovery::path::Timing;

/// What a tick of the clocks is: a packet lifetime, and longer than every pause of a machine.
pub const TICK: Nanos = Nanos::secs(20);

/// What is wrong with what is around the machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// A NIC answers 2ERR and shows ERR, and its half goes on.
    LyingError,
    /// A fence flushes its NIC before the half is in ERR.
    EarlyFlush,
    /// An owner that is to leave says at once that it has.
    LeftTooSoon,
    /// The age of an end runs ahead of the time that passed.
    FastClock,
    /// A NIC says that a half is destroyed, and keeps it.
    LyingDestroy,
    /// Probes count as answered when they are posted.
    LyingProbes,
    /// A NIC counts a message that it did not execute.
    WrongCount,
    /// Of a half that sent, its owner says that it never did.
    UsedCountsAsUnused,
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What may happen, how often.
    pub budget: Budget,
    /// Messages of an owner in an incarnation, its probes not among them.
    pub posts: u8,
    /// Ends whose owner uses the path at the start, its messages sent.
    pub uses: [bool; 2],
    /// The path was never made.
    pub fresh: bool,
    /// Words in flight; one more is lost.
    pub in_flight: usize,
    /// First pause after a failed revival.
    pub backoff: Nanos,
    /// An end looks at its path as soon as anything happened to it.
    pub prompt: bool,
    /// What is wrong.
    pub broken: Option<Break>,
}

impl Setup {
    /// `asks` requests for a fence that nothing compels, `ticks` of the clocks, one message from each end.
    pub fn new(asks: u8, ticks: u8) -> Self {
        let budget = Budget { asks, ticks, ..Budget::default() };
        let (uses, in_flight) = ([true; 2], 4);
        Self { budget, posts: 1, uses, fresh: false, in_flight, backoff: TICK, prompt: false, broken: None }
    }

    /// So many messages of an owner in an incarnation.
    pub fn posts(mut self, posts: u8) -> Self {
        self.posts = posts;
        self
    }

    /// The path is still to be made.
    pub fn fresh(mut self) -> Self {
        (self.fresh, self.uses) = (true, [false; 2]);
        self
    }

    /// Only the owner of A uses the path.
    pub fn one_way(mut self) -> Self {
        self.uses = [true, false];
        self
    }

    /// So many words may get lost, and be heard twice.
    pub fn words(mut self, losses: u8, doubles: u8) -> Self {
        (self.budget.losses, self.budget.doubles) = (losses, doubles);
        self
    }

    /// So many commands may fail, and so often may a NIC owe an answer for too long.
    pub fn nics(mut self, fails: u8, silences: u8) -> Self {
        (self.budget.fails, self.budget.silences) = (fails, silences);
        self
    }

    /// A NIC may die.
    pub fn death(mut self) -> Self {
        self.budget.deaths = 1;
        self
    }

    /// So often may a port go down.
    pub fn ports(mut self, downs: u8) -> Self {
        self.budget.downs = downs;
        self
    }

    /// So many orders of operators.
    pub fn orders(mut self, orders: u8) -> Self {
        self.budget.orders = orders;
        self
    }

    /// So often may an owner go back to the path.
    pub fn returns(mut self, returns: u8) -> Self {
        self.budget.returns = returns;
        self
    }

    /// So many of the ticks may pass unseen by one end.
    pub fn lags(mut self, lags: u8) -> Self {
        self.budget.lags = lags;
        self
    }

    /// The pause after a failed revival ends at once: as short beside the packet lifetime as it may be.
    pub fn no_backoff(mut self) -> Self {
        self.backoff = Nanos::ZERO;
        self
    }

    /// Ends look at once.
    pub fn prompt(mut self) -> Self {
        self.prompt = true;
        self
    }

    /// The same with something wrong.
    pub fn but(mut self, broken: Break) -> Self {
        self.broken = Some(broken);
        self
    }

    /// True if `part` is wrong.
    pub fn has(&self, part: Break) -> bool {
        self.broken == Some(part)
    }

    /// How patient both machines are: few instants can be told apart.
    pub fn timing(&self) -> Timing {
        Timing {
            lifetime: TICK,
            peer: TICK,
            doubt: TICK,
            resend: Nanos::new(1),
            probes: 1,
            probe: Nanos::ZERO,
            revive: TICK,
            backoff: self.backoff,
            owner: TICK * 2,
            give_up: Nanos::ZERO,
        }
    }
}
