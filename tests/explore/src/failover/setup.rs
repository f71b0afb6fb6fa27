//! What is explored: operations, kinds, budgets, and which parts of the protocol are taken away.

use super::state::{Budget, OPS, System};

/// An operation of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A put.
    Put,
    /// A get.
    Get,
    /// A signal that covers the puts before it.
    Signal,
}

/// How signals are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Kind 1: one word that only grows.
    Monotone,
    /// Kind 2: a word a signal, added to, cleared by the receiver.
    Cleared,
    /// Kind 3: one word that several PEs add to.
    Shared,
}

/// A part of the protocol taken away, or a design that is known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Nothing is fenced.
    NoFence,
    /// The cut is what the completions say.
    CutFromCompletions,
    /// The receiver's count is read before its half is in ERR.
    QueryBeforeError,
    /// A deadline is taken for a fence.
    DeadlineAsFence,
    /// Only the receiver's half is fenced.
    OneSided,
    /// The receiver's NIC is not flushed before its count is told.
    NoFlush,
    /// A drain does not wait for completions.
    NoDrain,
    /// A drain ends with the last completion.
    NoDrainFlush,
    /// The watermark of an earlier switch is forgotten.
    ForgetExecuted,
    /// An executed get is not issued again.
    NoReget,
    /// A path is recreated though a direction has not left it.
    ReviveAlone,
    /// A path is recreated with the old PSNs, before the packet lifetime is over.
    ReusePsn,
    /// The fence by time does not wait for the packet lifetime.
    NoLifetime,
    /// The other writers of a shared word stay on the NIC that is being left.
    NoAtomicHome,
    /// A path over a NIC that has just answered nothing is as good as another.
    MuteEntered,
}

/// One exploration.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Operations of each PE's channel.
    pub ops: [Vec<Op>; 2],
    /// How signals are applied.
    pub kind: Kind,
    /// Paths.
    pub paths: usize,
    /// What may go wrong, how often.
    pub budget: Budget,
    /// Signals stand between two ledger words.
    pub bracket: bool,
    /// No agent answers, as `SHUNT_FENCE=time` has it.
    pub timed: bool,
    /// Path 1 shares A's NIC with path 0 and B's with none, path 2 B's with path 0 and A's with none.
    pub nics_shared: bool,
    /// Adds of another PE to the shared word.
    pub other_adds: u8,
    /// What is taken away.
    pub broken: Vec<Break>,
}

impl Setup {
    /// Operations as letters: P put, G get, S signal; one channel each way.
    pub fn new(kind: Kind, there: &str, back: &str) -> Self {
        let ops = [there, back].map(|ops| ops.chars().map(op).collect::<Vec<_>>());
        assert!(ops.iter().all(|ops| ops.len() <= OPS), "at most {OPS} operations a channel");
        let budget = Budget { faults: 1, deadlines: 0, revivals: 0, agent_deaths: 0, mutes: 0 };
        let timed = false;
        let (bracket, nics_shared) = (false, false);
        Self { ops, kind, paths: 2, budget, bracket, timed, nics_shared, other_adds: 0, broken: Vec::new() }
    }

    /// So many paths.
    pub fn paths(mut self, paths: usize) -> Self {
        self.paths = paths;
        self
    }

    /// So many faults, and deadlines that pass though the path is alive.
    pub fn faults(mut self, faults: u8, deadlines: u8) -> Self {
        (self.budget.faults, self.budget.deadlines) = (faults, deadlines);
        self
    }

    /// Path 0 may be recreated once, and gone back to.
    pub fn revival(mut self) -> Self {
        self.budget.revivals = 1;
        self
    }

    /// B's agent may die.
    pub fn agent_death(mut self) -> Self {
        self.budget.agent_deaths = 1;
        self
    }

    /// One NIC may stop answering commands.
    pub fn mute(mut self) -> Self {
        self.budget.mutes = 1;
        self
    }

    /// Three paths over two NICs of each end. The NICs of path 1 may stop answering commands, both, as long as no path
    /// was left.
    pub fn a_nic_of_each_end(mut self) -> Self {
        (self.paths, self.budget.mutes, self.nics_shared) = (3, 2, true);
        self
    }

    /// Signals stand between two ledger words.
    pub fn bracket(mut self) -> Self {
        self.bracket = true;
        self
    }

    /// Fences by time alone.
    pub fn timed(mut self) -> Self {
        self.timed = true;
        self
    }

    /// Another PE adds so often.
    pub fn other_adds(mut self, adds: u8) -> Self {
        self.other_adds = adds;
        self
    }

    /// The same without a part of the protocol.
    pub fn without(mut self, part: Break) -> Self {
        self.broken.push(part);
        self
    }

    /// True if `part` is taken away.
    pub fn lacks(&self, part: Break) -> bool {
        self.broken.contains(&part)
    }

    /// The NIC of `pe` that a path uses.
    pub(super) fn nic(&self, pe: usize, path: usize) -> usize {
        match (self.nics_shared, pe) {
            (false, _) => path,
            (true, 0) => [0, 0, 1][path],
            (true, _) => [0, 1, 0][path],
        }
    }

    /// True if the NIC of `pe` that a path uses may stop answering commands now.
    pub(super) fn may_mute(&self, s: &System, pe: usize, path: usize) -> bool {
        let whole = (s.budget.faults, s.budget.deadlines) == (self.budget.faults, self.budget.deadlines);
        s.budget.mutes > 0 && !s.halves[pe][path].mute && (!self.nics_shared || path == 1 && whole)
    }

    /// Operation `op` of `pe`'s channel.
    pub fn op(&self, pe: usize, op: usize) -> Op {
        self.ops[pe][op]
    }

    /// Signals among the first operations of `pe`, up to `op`: the value that signal `op` gives a word.
    pub fn value(&self, pe: usize, op: usize) -> u8 {
        self.ops[pe][..=op].iter().filter(|op| **op == Op::Signal).count() as u8
    }

    /// The word that signal `op` goes to.
    pub fn word(&self, op: usize) -> usize {
        if self.kind == Kind::Cleared { op } else { 0 }
    }
}

fn op(letter: char) -> Op {
    match letter {
        'P' => Op::Put,
        'G' => Op::Get,
        'S' => Op::Signal,
        other => panic!("{other} is no operation"),
    }
}
