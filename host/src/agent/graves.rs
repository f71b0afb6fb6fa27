//! Halves that are done with and not known to be gone: each is kept until its NIC has answered that it is destroyed,
//! and nothing is made on its rings by that NIC before. Rule 17, H15.
//!
//! A half whose fence failed may still be in its retries: forgotten, it would send what was given up to whoever got the
//! other half's number meanwhile.

use super::Agent;
use super::message::SideTruth;
use super::pair::Task;
use super::worker::{Job, JobId, Urgency};
use crate::nic::half::{HalfPath, revived_psn};
use shunt_device::health::{Health, backoff_ns};
use std::sync::Arc;

/// The longest pause before a NIC is asked again.
const PAUSE_MAX_NS: u64 = 1_000_000_000;

/// One of them.
pub(super) struct Grave {
    /// Index of its pair.
    about: usize,
    /// The rail it was made on.
    rail: u32,
    /// Its number: every other incarnation has its completions in the same memory.
    incarnation: u32,
    /// It, unless its NIC has it in hand.
    half: Option<Arc<HalfPath>>,
    /// The job that its NIC has in hand.
    job: u64,
    tries: u32,
    next_ns: u64,
}

impl Agent {
    /// Puts a pair's half away. What comes after it begins far from where it did, whatever it sent since. What its NIC
    /// has still in hand for it means nothing any more.
    pub(super) fn entomb(&mut self, index: usize) {
        let Some(pair) = &mut self.pairs[index] else { return };
        let Some(half) = pair.half.take() else { return };
        if matches!(pair.mine, None | Some(SideTruth::Dead)) {
            pair.next_psn = revived_psn(half.psn());
        }
        self.keep_grave(index, half);
    }

    /// Keeps a half until it is gone.
    pub(super) fn keep_grave(&mut self, index: usize, half: Arc<HalfPath>) {
        let (rail, incarnation, next_ns) = (half.rail().index, half.incarnation(), self.now());
        let half = Some(half);
        self.graves.push(Grave { about: index, rail, incarnation, half, job: 0, tries: 0, next_ns });
    }

    /// True if a NIC may still have an old half of a pair.
    pub(super) fn has_grave(&self, index: usize, rail: u32) -> bool {
        self.graves.iter().any(|grave| grave.about == index && grave.rail == rail)
    }

    /// True if some NIC, any, may still write completions of an old half of a pair where those of `incarnation` are
    /// to be (H15): an error among them would be taken for one of the new half.
    pub(super) fn lies_on_a_grave(&self, index: usize, incarnation: u32) -> bool {
        let there = |grave: &Grave| grave.about == index && (grave.incarnation ^ incarnation) & 1 == 0;
        self.graves.iter().any(there)
    }

    /// True if a NIC does not let go of an old half of a pair, because it answers nothing: how long that lasts nobody
    /// knows. One that has just been told to destroy it is not.
    pub(super) fn is_stuck(&self, index: usize, rail: u32) -> bool {
        let silent = self.nic_is_silent(rail);
        let mut graves = self.graves.iter().filter(|grave| grave.about == index && grave.rail == rail);
        let fencing = self.pairs[index].as_ref().is_some_and(|pair| {
            pair.health == Health::Released
                && matches!(pair.task, Task::Fence(_))
                && self.rail_at_work(index) == rail
        });
        graves.any(|grave| silent || grave.tries > 0) || silent && fencing
    }

    /// Has destroyed what its turn has come for.
    pub(super) fn mind_graves(&mut self) -> bool {
        let now = self.now();
        let mut busy = false;
        for at in 0..self.graves.len() {
            let grave = &mut self.graves[at];
            if now >= grave.next_ns
                && let Some(half) = grave.half.take()
            {
                let about = grave.about;
                self.graves[at].job = self.order(about, Urgency::Making, Job::Bury(half));
                busy = true;
            }
        }
        busy
    }

    /// A NIC has destroyed a half, or has not answered. From here the packet lifetime counts anew.
    pub(super) fn buried(&mut self, id: JobId, result: Result<Option<u32>, Arc<HalfPath>>) {
        let (now, age_ns) = (self.now(), self.grow_older());
        let found = self.graves.iter().position(|grave| grave.half.is_none() && grave.job == id.number);
        let next_send_psn = match (result, found) {
            (Ok(psn), found) => {
                if let Some(grave) = found.map(|at| self.graves.swap_remove(at))
                    && !self.has_grave(id.about, grave.rail)
                {
                    self.no_more_haunted(id.about, grave.rail);
                }
                psn
            }
            // The last agent of this PE gave it in hand.
            (Err(half), None) => return self.keep_grave(id.about, half),
            (Err(half), Some(at)) => {
                let grave = &mut self.graves[at];
                let pause_ns = backoff_ns(self.options.backoff_ns, grave.tries).min(PAUSE_MAX_NS);
                (grave.half, grave.tries) = (Some(half), grave.tries + 1);
                grave.next_ns = now.saturating_add(pause_ns);
                return;
            }
        };
        let Some(pair) = &mut self.pairs[id.about] else { return };
        pair.buried_age_ns = Some(age_ns);
        if let Some(psn) = next_send_psn.filter(|_| pair.half.is_none()) {
            pair.next_psn = revived_psn(psn);
        }
    }
}
