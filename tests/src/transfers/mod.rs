//! Processes that move memory with the transfer engine over RC queue pairs of soft NICs, in virtual time.
//!
//! Each process writes to the other, pages and single writes, some of which it cancels. The judge takes promises at
//! their word: a source is overwritten when its transfer has ended, a target when its immediates were counted, or when
//! its transfer was cancelled and has quiesced. What lands later is found at the end.

mod ground;
mod process;
mod spec;
pub mod timing;

use std::rc::Rc;

use ground::{Ground, Played};
use process::Process;
use spec::Board;
pub use spec::{Told, TransferSpec};

/// What a rail carries: so little that pieces wait in it when a fault comes.
const RAIL_GBPS: f64 = 2.0;

/// What came of a run.
#[derive(Debug, Default)]
pub struct TransferReport {
    /// What each process has to say.
    pub processes: Vec<Told>,
    /// Faults that hit.
    pub hits: u64,
    /// Virtual time.
    pub took_ns: u64,
}

impl TransferReport {
    /// Everything that broke the promise.
    pub fn wrong(&self) -> Vec<String> {
        self.processes.iter().flat_map(|told| told.wrong.clone()).collect()
    }

    /// A sum over processes.
    pub fn sum(&self, of: impl Fn(&Told) -> u64) -> u64 {
        self.processes.iter().map(of).sum()
    }
}

/// Runs it: returns once every transfer has ended, every expectation too, and every lane is open again.
pub fn run(spec: &TransferSpec) -> TransferReport {
    let ground = Ground { seed: spec.seed, rails: spec.rails, rail_gbps: RAIL_GBPS, limit_ns: 1_000_000_000 };
    let (board, spec) = (Rc::new(Board::new(spec.transfers)), spec.clone());
    let Played { told, hits, took_ns } =
        ground.play(move |seat| Process::start(seat, board.clone(), &spec).run());
    TransferReport { processes: told, hits, took_ns }
}
