//! What a simulation is given: its seed and limits, and what moves besides its actors.

/// Whatever moves on the virtual clock besides the actors: the NICs and the links between them.
pub trait Clockwork {
    /// Does everything that is due at `now`; true if anything happened.
    fn step(&self, now: u64) -> bool;
    /// The earliest instant at which `step` would do something.
    fn next_due(&self) -> Option<u64>;
}

/// Hears of every step of a run, and may put one off.
pub trait Steps {
    /// This actor is to go on at `now`: for how long it is put off. 0: it goes on.
    fn before(&self, actor: usize, now: u64) -> u64;
    /// An actor has gone on, or the fabric has (none). False in `moved` if nobody else can tell.
    fn after(&self, actor: Option<usize>, now: u64, moved: bool);
}

/// No NIC at all: actors only.
pub struct NoClockwork;

impl Clockwork for NoClockwork {
    fn step(&self, _now: u64) -> bool {
        false
    }
    fn next_due(&self) -> Option<u64> {
        None
    }
}

/// Seed and limits of a run.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The seed of every decision.
    pub seed: u64,
    /// A run that reaches this virtual instant is a runaway: it fails with a dump.
    pub time_limit_ns: u64,
    /// A run that takes this many scheduling steps is a runaway.
    pub step_limit: u64,
}

impl SimConfig {
    /// A minute of virtual time for `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, time_limit_ns: 60_000_000_000, step_limit: 200_000_000 }
    }
}
