//! What runs the kernels of one rank: calls of its own thread.

use crate::Job;
use shunt::Runtime;
use shunt_deep_ep_bridge::normal::NormalRunner;
use shunt_deep_ep_bridge::runner::{blocks_in_turn, in_turn};
use shunt_deep_ep_bridge::{Agreement, PathName, Runner};
use shunt_device::{Fault, Solo};
use shunt_host::agent::words::Place;
use shunt_kernels::Outcome;
use shunt_kernels::moe::normal::{NormalCall, NormalKernel};
use shunt_kernels::moe::{MoeCall, Stage};
use std::sync::Arc;

/// One rank's kernels.
pub struct Lane {
    pub(crate) job: Arc<Job>,
    pub(crate) rank: u32,
    /// Ranks of its node are reached by NICs as well.
    pub(crate) alone: bool,
}

impl Lane {
    /// The same where memory of other ranks is not reached, whatever node they are on.
    pub fn by_nics(self) -> Self {
        Self { alone: true, ..self }
    }

    fn own(&self) -> &Runtime {
        self.job.rank(self.rank)
    }
}

impl Runner for Lane {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn ranks(&self) -> u32 {
        self.job.ranks()
    }
    fn heap_bytes(&self) -> u64 {
        self.own().pe().heap().bytes
    }
    fn address(&self, at: u64) -> u64 {
        self.own().pe().heap().address + at
    }
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome {
        in_turn(call, |part| stage.run(self.own().device(), Solo, part, call))
    }
    fn path(&self, fault: &Fault) -> Option<PathName> {
        let place = Place { peer: fault.peer, channel: fault.channel, slot: fault.slot };
        (fault.peer != self.rank).then(|| PathName::of(&self.own().path(place), fault.at.0))
    }
    fn near(&self, rank: u32, at: u64) -> Option<u64> {
        if self.alone { None } else { Some(self.job.near(self.rank, rank)? + at) }
    }
    fn agreement(&self) -> Option<Agreement> {
        Some(Agreement::of(self.own().pe()))
    }
}

impl NormalRunner for Lane {
    fn run_normal(&self, kernel: NormalKernel, call: &NormalCall) -> Outcome {
        blocks_in_turn(call.blocks, |block| kernel.run(self.own().device(), Solo, block, call))
    }
}
