//! Commands that NICs execute while a fault is outlived.

use std::collections::BTreeMap;

use shunt_soft_nic::{RailAt, SharedFabric};

use super::connection::Connection;
use super::spec::Board;

/// Commands of both first NICs, by opcode.
type ByOpcode = BTreeMap<u16, u64>;

/// Counts them, one fault after the other.
#[derive(Default)]
pub(super) struct Commands {
    before: Option<ByOpcode>,
    /// By fault, from it until every connection had a good completion of a later request.
    pub counted: Vec<ByOpcode>,
}

impl Commands {
    /// Looks at them now.
    pub(super) fn count(
        &mut self,
        fabric: &SharedFabric,
        board: &Board,
        now: u64,
        connections: &[Connection],
    ) {
        let number = self.counted.len();
        let fault_at = board.faults_at.borrow().get(number).copied();
        if fault_at.is_none_or(|at| at > now) {
            return;
        }
        match &self.before {
            None => self.before = Some(executed(fabric)),
            Some(before) if connections.iter().all(|one| one.gaps_ns.len() > number) => {
                let mut since = executed(fabric);
                since.retain(|opcode, count| {
                    *count -= before.get(opcode).copied().unwrap_or_default();
                    *count > 0
                });
                self.counted.push(since);
                self.before = None;
            }
            Some(_) => {}
        }
    }
}

/// All so far.
fn executed(fabric: &SharedFabric) -> ByOpcode {
    let mut sum = ByOpcode::new();
    for pe in 0..2 {
        fabric.with_unseen(|fabric| {
            let nic = fabric.find(RailAt { pe, rail: 0 }).expect("added before");
            let by_opcode = fabric.nic(nic).commands_by_opcode();
            by_opcode.iter().for_each(|(opcode, count)| *sum.entry(*opcode).or_default() += count);
        });
    }
    sum
}
