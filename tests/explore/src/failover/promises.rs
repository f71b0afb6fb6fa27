//! What must hold in every state of model F, what must hold at its end, and its actions in words.

use super::state::{Error, NONE, Part, Phase, REUSED, System};
use super::{Action, Kind, Op, Setup, name};

impl Setup {
    /// Invariants 1, 2, 4 and 5, in every state.
    pub(super) fn always(&self, s: &System) -> Result<(), String> {
        for pe in [0, 1] {
            for op in 0..self.ops[pe].len() {
                self.one_operation(s, pe, op)?;
            }
        }
        if self.kind == Kind::Shared && s.memory[1].words[0] > self.all_adds() {
            return Err(format!("exactly once: the shared word is {}", s.memory[1].words[0]));
        }
        Ok(())
    }

    fn one_operation(&self, s: &System, pe: usize, op: usize) -> Result<(), String> {
        let (channel, memory, bit) = (&s.channels[pe], &s.memory[1 - pe], 1 << op);
        let (kind, who) = (self.op(pe, op), name(pe));
        let seen = memory.consumed & bit != 0;
        let word = memory.words[self.word(op)];
        let cleared = kind == Op::Signal && self.kind == Kind::Cleared;
        if kind == Op::Put && seen && memory.buffers[op] != REUSED {
            return Err(format!(
                "no ghosts: put {op} of {who} overwrote what its receiver wrote there since"
            ));
        }
        if cleared && seen && word != 0 {
            return Err(format!("exactly once: signal {op} of {who} is applied again after it was cleared"));
        }
        if cleared && word > 1 {
            return Err(format!("exactly once: signal {op} of {who} is applied twice"));
        }
        if channel.used & bit != 0 && s.memory[pe].fetched[op] != REUSED {
            return Err(format!("no ghosts: a late response to get {op} of {who} overwrote its buffer"));
        }
        if usize::from(channel.done) > op && kind != Op::Get && memory.applied & bit == 0 {
            return Err(format!("no loss: operation {op} of {who} is done and was never executed"));
        }
        Ok(())
    }

    /// Adds of all writers of the shared word.
    fn all_adds(&self) -> u8 {
        self.ops[0].len().checked_sub(1).map_or(0, |last| self.value(0, last)) + self.other_adds
    }

    /// Where nothing can happen any more: everything is delivered, or the error is an answer.
    pub(super) fn at_rest(&self, s: &System) -> Result<(), String> {
        for pe in [0, 1] {
            let channel = &s.channels[pe];
            if self.ops[pe].is_empty() {
                continue;
            }
            if channel.phase == Phase::Dead {
                self.justified(s, pe)?;
                continue;
            }
            if channel.phase != Phase::Open || usize::from(channel.done) < self.ops[pe].len() {
                let (phase, done) = (channel.phase, channel.done);
                return Err(format!(
                    "bounded waits: channel of {} is stuck in {phase:?}, done {done}",
                    name(pe)
                ));
            }
            for op in 0..self.ops[pe].len() {
                if self.op(pe, op) == Op::Signal && s.memory[1 - pe].consumed & 1 << op == 0 {
                    return Err(format!("no loss: signal {op} of {} is never seen", name(pe)));
                }
            }
            if self.kind == Kind::Shared && pe == 0 && s.memory[1].words[0] != self.all_adds() {
                let (word, wanted) = (s.memory[1].words[0], self.all_adds());
                return Err(format!("exactly once: the shared word is {word}, {wanted} were added"));
            }
        }
        Ok(())
    }

    /// Errors are answers only where something is to blame (invariants 7 and 12).
    fn justified(&self, s: &System, pe: usize) -> Result<(), String> {
        let error = s.channels[pe].error;
        let mute = s.halves.iter().flatten().any(|half| half.mute);
        let silent = s.agents != [true; 2];
        let failures = usize::from(self.budget.faults + self.budget.deadlines);
        let right = match error {
            Error::None => false,
            Error::PeerLost => failures >= self.paths || s.revived,
            Error::Uncertain => silent || mute || self.timed,
            // A path is left whose NICs both answer, and the end that chose knew of the others.
            Error::Unproven => silent || mute && !self.nics_shared,
        };
        if right {
            Ok(())
        } else {
            Err(format!("suspicion only fails over: {} ends with {error:?}", name(pe)))
        }
    }

    /// `action` in `s`, in words.
    pub(super) fn words(&self, s: &System, action: Action) -> String {
        match action {
            Action::Consume { pe } => {
                format!("{} sees {}'s next signal, clears it, reuses the buffers", name(1 - pe), name(pe))
            }
            Action::UseFetched { pe, op } => {
                format!("{} uses the value of get {op}, reuses its buffer", name(pe))
            }
            Action::Post { pe } => {
                let (op, path) = (usize::from(s.channels[pe].next), s.channels[pe].path);
                format!("{} posts {:?} {op} on path {path}", name(pe), self.op(pe, op))
            }
            Action::Execute { pe, path } => {
                let direction = &s.directions[pe][path];
                let what = self.message(pe, direction.ring[usize::from(direction.executed)]);
                format!("path {path}: {} executes {}'s {what}", name(1 - pe), name(pe))
            }
            Action::Ghost { pe, path } => {
                let direction = &s.directions[pe][path];
                let what = self.message(pe, direction.ghosts[usize::from(direction.executed)]);
                format!("path {path}: {} executes {what} of {}'s earlier incarnation", name(1 - pe), name(pe))
            }
            Action::Complete { pe, path } => {
                let direction = &s.directions[pe][path];
                let what = self.message(pe, direction.ring[usize::from(direction.completed)]);
                format!("path {path}: {} gets the completion of {what}", name(pe))
            }
            Action::Mute { pe, path } => {
                format!("path {path}: the NIC of {} answers no commands any more", name(pe))
            }
            Action::Visible { pe, path } => match s.queues[pe][path].first() {
                Some(place) => format!("NIC {path} of {} places {place:?}", name(pe)),
                None => "nothing is placed".into(),
            },
            Action::OtherAdd => format!("another PE adds through NIC {} of B", s.other.home),
            Action::KillAgent => "B's agent dies".into(),
            Action::Revive => "the agents recreate path 0".into(),
            switching => self.switch_words(s, switching),
        }
    }

    fn message(&self, pe: usize, message: super::state::Message) -> String {
        let op = message.op();
        match message.part() {
            Part::Whole => format!("{:?} {op}", self.op(pe, op)),
            Part::Before => format!("first ledger word of signal {op}"),
            Part::After => format!("second ledger word of signal {op}"),
            Part::Placeholder => format!("placeholder of {op}"),
        }
    }

    fn switch_words(&self, s: &System, action: Action) -> String {
        let of = |pe: usize| (name(pe), s.channels[pe].path, name(1 - pe), s.channels[pe].to);
        match action {
            Action::SeeError { pe } => format!("{} sees an error completion, closes", of(pe).0),
            Action::NoAnswer { pe } => {
                format!("{}'s retries run out: the other half is in ERR; it closes", of(pe).0)
            }
            Action::Fail { pe } => format!("{}'s retries run out, it closes", of(pe).0),
            Action::Deadline { pe } => format!("{}'s deadline passes, it closes", of(pe).0),
            Action::SkipFence { pe } => format!("{} leaves path {} without a fence", of(pe).0, of(pe).1),
            Action::FenceLocal { pe } => {
                format!("{}'s agent: own half of path {} to ERR", of(pe).0, of(pe).1)
            }
            Action::FenceRemote { pe } => {
                format!("{}'s agent: its half of path {} to ERR", of(pe).2, of(pe).1)
            }
            Action::Query { pe } => {
                let direction = &s.directions[pe][usize::from(s.channels[pe].path)];
                let first = direction.truth == NONE;
                let count = if first { direction.executed } else { direction.truth };
                format!("{}'s agent: {count} executed on path {}", of(pe).2, of(pe).1)
            }
            Action::Flush { pe } => format!("{}'s agent: flush of NIC {}", of(pe).2, of(pe).1),
            Action::GoTimed { pe } => {
                format!("{}: no agent answers for path {}, time is to prove", of(pe).0, of(pe).1)
            }
            Action::Lifetime { pe } => format!("{}: the wait for path {} is over", of(pe).0, of(pe).1),
            Action::Answer { pe } => format!("{} is answered, cuts, chooses", of(pe).0),
            Action::Replay { pe } => {
                format!("{} replays operation {} on path {}", of(pe).0, s.channels[pe].replaying, of(pe).3)
            }
            Action::Open { pe } => format!("{} opens path {}", of(pe).0, of(pe).3),
            Action::GoBack { pe } => format!("{} closes to go back, drains path {}", of(pe).0, of(pe).1),
            Action::Drained { pe } => format!("{} has drained path {}, opens path 0", of(pe).0, of(pe).1),
            other => format!("{other:?}"),
        }
    }
}
