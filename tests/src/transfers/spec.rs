//! What a run of transfers is, what a process says in the end, and what processes know of each other.

use std::cell::RefCell;

use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;
use shunt_transfer_engine::transfer::Counts;

use super::ground::PROCESSES;
use crate::rng::Rng;

/// What a run is.
#[derive(Clone, Debug)]
pub struct TransferSpec {
    /// Seed of the simulator.
    pub seed: u64,
    /// Rails of each process.
    pub rails: u32,
    /// Transfers each way.
    pub transfers: usize,
    /// One transfer in so many is cancelled; 0: none.
    pub cancels: usize,
    /// Faults: how long after the first transfer, at which process and rail, and which.
    pub faults: Vec<(u64, RailAt, FaultKind)>,
    /// A break of the judge: it takes memory back when it asks for the cancel, and not when that is proven.
    pub hasty: bool,
}

impl TransferSpec {
    /// Faults as the seed has them.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7a4f);
        let rails = rng.between(2, 3) as u32;
        let mut at = 0;
        let mut fault = |rng: &mut Rng| {
            at += 50_000 + rng.below(900_000);
            let place =
                RailAt { pe: rng.below(PROCESSES.into()) as u32, rail: rng.below(rails.into()) as u32 };
            let for_ns = Some(500_000 + rng.below(8_000_000));
            let kind = match rng.below(4) {
                0 => FaultKind::DropAcks { for_ns },
                1 => FaultKind::BlackholeTx { for_ns },
                _ => FaultKind::Down { for_ns },
            };
            (at, place, kind)
        };
        let count = 1 + rng.below(4);
        let faults = (0..count).map(|_| fault(&mut rng)).collect();
        Self { seed, rails, transfers: 60, cancels: 6, faults, hasty: false }
    }
}

/// What a process has to say in the end.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Promises that were broken.
    pub wrong: Vec<String>,
    /// What became of lanes and pieces.
    pub lanes: Counts,
    /// Transfers that were written whole.
    pub written: u64,
    /// Transfers that were cancelled before that, with a proof.
    pub cancelled: u64,
    /// Transfers that ended otherwise.
    pub other: Vec<String>,
}

/// What processes know of each other.
pub(super) struct Board {
    /// By process: all its transfers have ended, and all it expected has come.
    pub done: RefCell<Vec<bool>>,
    /// By process: how many pieces of each of its transfers were written, once it has ended.
    pub written: RefCell<Vec<Vec<Option<u64>>>>,
}

impl Board {
    /// For so many transfers each way.
    pub(super) fn new(transfers: usize) -> Self {
        let processes = PROCESSES as usize;
        Self {
            done: RefCell::new(vec![false; processes]),
            written: RefCell::new(vec![vec![None; transfers]; processes]),
        }
    }
}
