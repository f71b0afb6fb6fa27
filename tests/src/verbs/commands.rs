//! Commands that NICs execute while a fault is outlived.

use std::collections::BTreeMap;

use shunt_soft_nic::RailAt;

use super::connection::Connection;
use super::process::Around;

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
    pub(super) fn count(&mut self, around: &Around, now: u64, connections: &[Connection]) {
        let number = self.counted.len();
        let fault_at = around.board.faults_at.borrow().get(number).copied();
        if fault_at.is_none_or(|at| at > now) {
            return;
        }
        match &self.before {
            None => self.before = Some(executed(around)),
            Some(before) if connections.iter().all(|one| one.gaps_ns.len() > number) => {
                let mut since = executed(around);
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
fn executed(around: &Around) -> ByOpcode {
    let mut sum = ByOpcode::new();
    for pe in 0..2 {
        around.fabric.with_unseen(|fabric| {
            let nic = fabric.find(RailAt { pe, rail: 0 }).expect("added before");
            let by_opcode = fabric.nic(nic).commands_by_opcode();
            by_opcode.iter().for_each(|(opcode, count)| *sum.entry(*opcode).or_default() += count);
        });
    }
    sum
}
