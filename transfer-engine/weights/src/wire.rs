//! The pipeline's last two stages on a node of the transfer engine.

use shunt_transfer::{CallError, Node, Region, Scattered};
use shunt_transfer_engine::engine::Share;
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_engine::ids::PeerId;
use shunt_transfer_engine::region::MrDesc;
use shunt_weight_sync::Task;
use shunt_weight_sync::pipeline::{Failure, Pending, Transform, Wire};
use shunt_weight_sync::stages::Rounding;
use std::ops::Range;
use std::time::Duration;

/// Writes from staging memory of a node.
pub struct NodeWire<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its staging memory.
    pub staging: &'a Region,
    /// Ends that are written to, by their number in the schedule, and their memory.
    pub servers: Vec<(u32, &'a MrDesc)>,
    /// What each write carries.
    pub imm: u32,
    /// Tells where bytes come to.
    pub rounding: Rounding,
}

fn other(error: CallError) -> Failure {
    Failure::Other(error.to_string())
}

impl Wire for NodeWire<'_> {
    type Pending = Begun;

    fn stage(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let memory = self.staging.memory();
        memory.memory().write(memory.span().address + at, bytes).map_err(|error| error.to_string())
    }

    fn write(&self, tasks: &[Task], staged: Range<u64>) -> Result<Begun, Failure> {
        let share = |task: &Task| {
            let (end, target) = self.servers[task.server as usize];
            let (len, at) = (staged.end - staged.start, self.rounding.bytes(task.at));
            Share { peer: PeerId(end), len, imm: Some(self.imm), from: staged.start, to: (target, at) }
        };
        let shares: Vec<_> = tasks.iter().map(share).collect();
        self.node.scatter(self.staging, &shares).map(Begun).map_err(other)
    }
}

/// Writes that were begun.
pub struct Begun(Scattered);

impl Pending for Begun {
    fn wait(self) -> Vec<Result<(), Failure>> {
        // Each ends in any case: written, or its peer is given up.
        match self.0.wait(Duration::MAX) {
            Ok(Some(ends)) => ends.into_iter().map(|end| end.result.map_err(failure)).collect(),
            Ok(None) => vec![Err(Failure::Other("a write without an end".to_owned()))],
            Err(error) => vec![Err(other(error))],
        }
    }
}

fn failure(error: TransferError) -> Failure {
    match error {
        TransferError::PeerLost { .. } | TransferError::PeerLeft { .. } => Failure::Lost(error.to_string()),
        TransferError::Uncertain { .. } => Failure::Uncertain(error.to_string()),
        _ => Failure::Other(error.to_string()),
    }
}
