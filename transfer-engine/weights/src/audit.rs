//! Whether a schedule writes each byte that is wanted once, and from memory that its trainer has. Pure. It knows
//! nothing of how the schedule was made.

use crate::param::Param;
use crate::schedule::Schedule;
use std::collections::BTreeMap;

/// What a schedule does with bytes of servers' memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Bytes that are wanted.
    pub wanted: u64,
    /// Of them, bytes that nobody writes.
    pub missing: u64,
    /// Writes of bytes that were written before; three writes of a byte are two.
    pub doubled: u64,
    /// Written bytes that nobody wants there, or that come from elsewhere.
    pub foreign: u64,
    /// Written bytes that their trainer does not hold.
    pub not_held: u64,
}

/// Changes of two counts at a byte: of wants, and of writes.
type Edges = BTreeMap<u64, [i64; 2]>;

/// Looks at every task.
pub fn audit(schedule: &Schedule, params: &[Param]) -> Audit {
    let mut audit = Audit::default();
    // By server, and by where a byte comes from: a parameter, and how far it moves.
    let mut all: BTreeMap<(u32, u32, i128), Edges> = BTreeMap::new();
    let mut count = |server, param, start: u64, at: u64, len: u64, which: usize| {
        let moved = i128::from(at) - i128::from(start);
        let edges = all.entry((server, param, moved)).or_default();
        edges.entry(at).or_default()[which] += 1;
        edges.entry(at + len).or_default()[which] -= 1;
    };
    for (number, param) in (0..).zip(params) {
        for it in &param.wanted {
            count(it.server, number, it.bytes.start, it.at, it.bytes.end - it.bytes.start, 0);
        }
    }
    for (trainer, task) in schedule.all() {
        count(task.server, task.param, task.bytes.start, task.at, task.len(), 1);
        let holds = |held: &crate::Held| {
            held.trainer == trainer
                && held.bytes.start <= task.bytes.start
                && held.bytes.end >= task.bytes.end
        };
        if !params.get(task.param as usize).is_some_and(|param| param.held.iter().any(holds)) {
            audit.not_held += task.len();
        }
    }
    for edges in all.values() {
        let (mut before, mut wants, mut writes) = (0, 0, 0);
        for (at, [wanted, written]) in edges {
            let len = at - before;
            if wants > 0 {
                audit.wanted += len;
                audit.missing += if writes == 0 { len } else { 0 };
                audit.doubled += len * u64::try_from(writes - 1).unwrap_or(0);
            } else {
                audit.foreign += len * u64::try_from(writes).unwrap_or(0);
            }
            (before, wants, writes) = (*at, wants + wanted, writes + written);
        }
    }
    audit
}
