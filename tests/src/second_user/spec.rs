//! What a run of talks is.

use std::cell::RefCell;

use shunt_host::agent::links::PeerAddress;
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::FaultKind;

use crate::rng::Rng;

/// Rails of each process, and paths to each peer: one a rail.
pub const RAILS: u32 = 2;

/// What a run of talks is.
#[derive(Clone, Debug)]
pub struct TalkSpec {
    /// Seed of the simulator.
    pub seed: u64,
    /// Numbers each way of each talk.
    pub numbers: u64,
    /// When each process joins, nanoseconds of virtual time.
    pub joins: Vec<u64>,
    /// Processes that leave once they have said all: the others go on.
    pub leaves: Vec<u32>,
    /// Faults: how long after the first number, at which process and rail, and which.
    pub faults: Vec<(u64, RailAt, FaultKind)>,
    /// A break of the second user: every cut begins one number too early.
    pub repeats: bool,
    /// In the end a machine panics once it has given its half up.
    pub panics: bool,
}

impl TalkSpec {
    /// Two processes whose ports go down and come back as the seed has it; of every fourth seed, three, the last of
    /// which joins late and leaves early.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7a1c);
        let third = seed % 4 == 3;
        let joins = if third { vec![0, 0, 5_000_000 + rng.below(5_000_000)] } else { vec![0, 0] };
        let processes = joins.len() as u64;
        let mut faults = Vec::new();
        let mut at = 0;
        for _ in 0..1 + rng.below(4) {
            at += 100_000 + rng.below(4_000_000);
            let place = RailAt { pe: rng.below(processes) as u32, rail: rng.below(u64::from(RAILS)) as u32 };
            let for_ns = Some(1_000_000 + rng.below(10_000_000));
            let kind = match rng.below(4) {
                0 => FaultKind::DropAcks { for_ns },
                1 => FaultKind::BlackholeTx { for_ns },
                _ => FaultKind::Down { for_ns },
            };
            faults.push((at, place, kind));
        }
        let leaves = if third { vec![2] } else { Vec::new() };
        Self { seed, numbers: 600 + 2 * rng.below(800), joins, leaves, faults, repeats: false, panics: false }
    }
}

/// How a process is found, and where others write into it.
#[derive(Clone, Debug)]
pub(super) struct Introduction {
    /// Over the rails.
    pub address: PeerAddress,
    /// First byte of its region.
    pub base: u64,
    /// Keys of the region, big-endian, by rail.
    pub rkeys_be: Vec<u32>,
}

/// What processes find each other by: where each is, once it is there.
#[derive(Default)]
pub(super) struct Directory(pub RefCell<Vec<Option<Introduction>>>);
