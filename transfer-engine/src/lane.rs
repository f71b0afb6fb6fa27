//! One lane: its pieces under way, and what becomes of each when it is closed. Pure.

use crate::domain::{Fence, LaneFacts, Op};
use crate::recover::{Held, Plan, plan};
use shunt_layout::mutant::Mutant;
use std::collections::VecDeque;

/// A lane that is open or being closed.
#[derive(Debug)]
pub(crate) struct Lane {
    pub facts: LaneFacts,
    /// In the order of posting. `None`: executed before an older one.
    under_way: VecDeque<Option<Held>>,
    /// Pieces under way.
    pub count: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Number of the oldest piece under way: those before it are executed.
    pub executed: u64,
    /// No more is posted.
    pub closing: bool,
    /// A NIC refused the piece of this number.
    pub denied: Option<u64>,
}

/// What becomes of the pieces of a lane that is closed.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The one that a NIC refused.
    pub denied: Option<Held>,
    pub plan: Plan,
    /// Nothing of what is in doubt can land any more.
    pub quiet: bool,
}

impl Lane {
    /// On which nothing was posted yet.
    pub const fn new(facts: LaneFacts) -> Self {
        Self {
            facts,
            under_way: VecDeque::new(),
            count: 0,
            bytes: 0,
            executed: 0,
            closing: false,
            denied: None,
        }
    }

    /// One more piece is under way.
    pub fn post(&mut self, held: Held) {
        (self.count, self.bytes) = (self.count + 1, self.bytes + held.piece.len);
        self.under_way.push_back(Some(held));
    }

    /// Pieces under way, the oldest first.
    pub fn under_way(&self) -> impl Iterator<Item = &Held> {
        self.under_way.iter().flatten()
    }

    /// The piece of a number, which is under way no more.
    pub fn take(&mut self, number: u64) -> Option<Held> {
        let at = usize::try_from(number.checked_sub(self.executed)?).ok()?;
        let held = self.under_way.get_mut(at)?.take()?;
        (self.count, self.bytes) = (self.count - 1, self.bytes - held.piece.len);
        while let Some(None) = self.under_way.front() {
            self.under_way.pop_front();
            self.executed += 1;
        }
        Some(held)
    }

    /// What becomes of its pieces after this fence.
    pub fn rest(mut self, fence: Fence) -> Rest {
        // A truth that fails its cross-check is no truth. Nothing that was refused or is behind it was executed.
        let posted = self.executed + self.under_way.len() as u64;
        let known = self.executed..=self.denied.unwrap_or(posted).min(posted);
        let fence = match fence {
            Fence::Executed(count) if !known.contains(&count) => Fence::NoTruth,
            fence => fence,
        };
        let quiet = fence != Fence::Unproven;
        let denied = self.denied.filter(|_| quiet).and_then(|number| self.take(number));
        let first = self.executed;
        let mut under_way: VecDeque<_> = self.under_way.into_iter().flatten().collect();
        let plan = match fence {
            Fence::Executed(count) => {
                let rest = under_way.split_off(count.saturating_sub(first) as usize);
                // Of a read the peer's count says that it was answered, and not that the answer came.
                let (mut again, mut executed) = split(under_way, |op| *op == Op::Read);
                again.extend(rest);
                if Mutant::ExecutedSentAgain.on() {
                    again.extend(executed.drain(..));
                }
                Plan { again, executed: executed.into(), ..Plan::default() }
            }
            Fence::Counted(counts) => plan(under_way, &counts),
            // A piece without an immediate changes nothing when it is done twice: its transfer has not ended.
            Fence::NoTruth => {
                let (again, in_doubt) = split(under_way, Op::repeats);
                Plan { again, in_doubt, ..Plan::default() }
            }
            // The memory of a SEND is the lane's own.
            Fence::Unproven => {
                let (again, in_doubt) = split(under_way, |op| matches!(op, Op::Send(_)));
                Plan { again, in_doubt, ..Plan::default() }
            }
        };
        Rest { denied, plan, quiet }
    }
}

/// Pieces of which something is true, and the others.
fn split(pieces: VecDeque<Held>, is: impl Fn(&Op) -> bool) -> (VecDeque<Held>, VecDeque<Held>) {
    pieces.into_iter().partition(|held| is(&held.piece.op))
}
