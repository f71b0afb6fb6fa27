//! All PEs in this process: a board is shared memory, and there is nobody to report to.

use super::board::Board;
use super::entry::Entry;
use super::{AgentCut, Job, JobError, Member};
use shunt::Members;
use shunt_device::platform::host::World;
use shunt_host::connect::oob::OobNet;
use shunt_soft_nic::Fabric;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A job of this process alone.
pub struct Threads {
    pes: u32,
    /// The agents' network of the phase that is running.
    oob: Mutex<Option<OobNet>>,
}

impl Threads {
    /// A job of `pes` PEs.
    pub fn new(pes: u32) -> Self {
        Self { pes, oob: Mutex::new(None) }
    }

    fn oob(&self, f: impl FnOnce(&OobNet)) {
        if let Some(net) = &*self.oob.lock().unwrap_or_else(PoisonError::into_inner) {
            f(net);
        }
    }
}

impl Job for Threads {
    fn pes(&self) -> u32 {
        self.pes
    }

    fn own(&self) -> Range<u32> {
        0..self.pes
    }

    fn rank(&self) -> u32 {
        0
    }

    fn members(&self, clock: &Arc<dyn World>) -> Vec<Member> {
        let Members { net, members } = Members::in_process(self.pes, clock);
        *self.oob.lock().unwrap_or_else(PoisonError::into_inner) = Some(net);
        members
    }

    fn attach(&self, _: &mut Fabric) -> Result<(), JobError> {
        Ok(())
    }

    fn mates(&self, _: &str) -> Result<Vec<u32>, JobError> {
        Ok(self.own().collect())
    }

    fn cut_agent(&self, pe: u32, cut: AgentCut) {
        self.oob(|net| {
            for other in (0..self.pes).filter(|other| *other != pe) {
                match cut {
                    AgentCut::Joined => net.join(pe, other),
                    AgentCut::BothWays => net.cut(pe, other),
                    AgentCut::Says => net.cut_one_way(pe, other),
                    AgentCut::Hears => net.cut_one_way(other, pe),
                }
            }
        });
    }

    fn lost_by_cuts(&self) -> u64 {
        let mut lost = 0;
        self.oob(|net| lost = net.counts().1);
        lost
    }

    fn close_agent(&self, pe: u32) {
        self.oob(|net| net.close(pe));
    }

    fn begin(&self, _: &Arc<Board>) -> Result<(), JobError> {
        Ok(())
    }

    fn publish(&self, _: &Entry) {}

    fn collect(&self) -> Vec<(u32, Entry)> {
        Vec::new()
    }

    fn close(&self) {}

    fn awaited(&self) -> Vec<u32> {
        Vec::new()
    }

    fn missing(&self) -> Vec<u32> {
        Vec::new()
    }

    fn conclude(&self, status: u8, _: Duration) -> Option<u8> {
        Some(status)
    }

    fn gone(&self, _: u32) -> Option<String> {
        None
    }

    fn die(&self) -> bool {
        false
    }
}
