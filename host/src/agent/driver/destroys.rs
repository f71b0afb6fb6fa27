//! Old halves: when they are given up, and what their NICs say of it. The rules are in `destroy_queue.rs`.

use super::Agent;
use crate::agent::health::Health;
use crate::agent::message::SideTruth;
use crate::agent::nic_job::{Job, JobId, Urgency};
use crate::agent::pair::Task;
use crate::nanos::Nanos;
use crate::nic::half::{HalfPath, revived_psn};
use std::sync::Arc;

impl Agent {
    /// Gives up a pair's half. What comes after it begins far from where it did, whatever it sent since. What its NIC
    /// has still in hand for it means nothing any more.
    pub(in crate::agent) fn defer_old_half(&mut self, now: Nanos, index: usize) {
        let Some(pair) = &mut self.pairs[index] else { return };
        let Some(half) = pair.half.take() else { return };
        if matches!(pair.mine, None | Some(SideTruth::Dead)) {
            pair.next_psn = revived_psn(half.psn());
        }
        self.defer_destroy(now, index, half);
    }

    /// Keeps a half until it is gone.
    pub(in crate::agent) fn defer_destroy(&mut self, now: Nanos, index: usize, half: Arc<HalfPath>) {
        self.destroys.defer(now, index, half.rail().index, half.incarnation(), half);
    }

    /// True if a NIC does not let go of an old half of a pair, because it answers nothing: how long that lasts nobody
    /// knows. One that has just been told to destroy it is not.
    pub(in crate::agent) fn is_stuck(&self, index: usize, rail: u32) -> bool {
        let silent = self.nic_is_silent(rail);
        let fencing = self.pairs[index].as_ref().is_some_and(|pair| {
            pair.health == Health::Released
                && matches!(pair.task, Task::Fence(_))
                && self.rail_at_work(index) == rail
        });
        silent && self.destroys.holds(index, rail)
            || self.destroys.was_refused(index, rail)
            || silent && fencing
    }

    /// Has destroyed what is due.
    pub(in crate::agent) fn mind_destroys(&mut self, now: Nanos) -> bool {
        let mut destroys = std::mem::take(&mut self.destroys);
        let submit = |index, half| self.order(index, Urgency::Making, Job::Destroy(half));
        let busy = destroys.poll(now, submit);
        self.destroys = destroys;
        busy
    }

    /// A NIC has destroyed a half, or has not answered. From here the packet lifetime counts again.
    pub(in crate::agent) fn destroyed(
        &mut self,
        now: Nanos,
        id: JobId,
        result: Result<Option<u32>, Arc<HalfPath>>,
    ) {
        let next_send_psn = match result {
            Ok(psn) => {
                if let Some(rail) = self.destroys.destroyed(id.number) {
                    self.owner.clear_unfenced(id.about, rail);
                }
                psn
            }
            Err(half) => {
                let pause = self.options.backoff_ns;
                // The last agent of this PE gave the command.
                if let Some(half) = self.destroys.failed(now, id.number, half, pause) {
                    self.defer_destroy(now, id.about, half);
                }
                return;
            }
        };
        let Some(pair) = &mut self.pairs[id.about] else { return };
        pair.destroyed_age_ns = Some(self.age.age_ns);
        if let Some(psn) = next_send_psn.filter(|_| pair.half.is_none()) {
            pair.next_psn = revived_psn(psn);
        }
    }
}
