//! Commands for a pair's NIC, and what comes of them.

use super::Agent;
use crate::agent::health::Health;
use crate::agent::message::SideTruth;
use crate::agent::nic_job::{Fenced, Job, JobId, Making, Outcome, Urgency};
use crate::agent::pair::Task;
use crate::agent::verdict::{Sent, may_count};
use crate::error::NicError;
use crate::events::Event;
use crate::nanos::Nanos;
use crate::nic::half::{HalfPath, revived_psn};
use crate::nic::qp::{MASK_24, QpTruth};
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mutant::Mutant;
use std::sync::Arc;

impl Agent {
    /// Gives a pair's NIC a job.
    pub(in crate::agent) fn order(&mut self, index: usize, urgency: Urgency, job: Job) -> u64 {
        let rail = match &job {
            Job::Fence(half) | Job::Count(half) | Job::Stop(half) => half.rail().index,
            Job::Look(half) | Job::Connect(half, ..) | Job::Destroy(half) => half.rail().index,
            _ => self.rail_at_work(index),
        };
        self.nics.submit(rail, urgency, index, job)
    }

    /// The rail whose NIC works for a pair: that of its half. The pair may have been given to another one since.
    pub(in crate::agent) fn rail_at_work(&self, index: usize) -> u32 {
        let Some(pair) = &self.pairs[index] else { return 0 };
        pair.half.as_ref().map_or(pair.local_rail, |half| half.rail().index)
    }

    /// A switcher waits for what so far nobody waited for.
    pub(in crate::agent) fn hasten(&mut self, index: usize, urgency: Urgency) {
        let Some(pair) = &self.pairs[index] else { return };
        let queue = self.nics.queue(self.rail_at_work(index));
        if let (Task::Fence(number) | Task::Count(number) | Task::Stop(number), Some(queue)) =
            (pair.task, queue)
        {
            queue.raise_priority(urgency, number);
        }
    }

    /// Where the port of a half is down and its NIC has many to fence, a query is all that is left to do for one that
    /// nothing can reach any more.
    pub(in crate::agent) fn lighten(&mut self, index: usize) {
        let Some(pair) = &self.pairs[index] else { return };
        let Task::Fence(number) = pair.task else { return };
        let rail = self.rail_at_work(index);
        let quiet_ns = self.age.age_ns - pair.theirs_age_ns;
        if self.ports.own_up(rail) || !may_count(pair.theirs, quiet_ns, self.options.lifetime_ns) {
            return;
        }
        if self.nics.queue(rail).is_some_and(|queue| queue.lighten(number)) {
            self.set_task(index, Task::Count(number));
        }
    }

    /// What was counted and may still send is stopped now: its port is up again.
    pub(in crate::agent) fn hasten_stops(&mut self, rail: u32) {
        for index in 0..self.pairs.len() {
            let task = self.pairs[index].as_ref().map_or(Task::None, |pair| pair.task);
            if matches!(task, Task::Stop(_)) && self.rail_at_work(index) == rail {
                self.hasten(index, Urgency::Asked);
            }
        }
    }

    /// A half that was counted is in ERR and shows it, or counts as one that nobody fenced. Until then it may have
    /// sent: its packet lifetime begins now.
    fn stopped(&mut self, now: Nanos, index: usize, result: Result<QpTruth, NicError>) {
        let (at, age_ns) = (self.route(index), self.age.age_ns);
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.task = Task::None;
        pair.stopped_age_ns = Some(age_ns);
        let error = match result {
            Ok(truth) if truth.state == Some(State::Err) => return,
            Ok(truth) => format!("the queue pair after 2ERR: expected ERR, got {:?}", truth.state),
            Err(error) => error.to_string(),
        };
        pair.mine = Some(SideTruth::Dead);
        self.report(now, Event::FenceFailed { at, error });
    }

    /// Takes back what a pair's NIC has not begun.
    pub(in crate::agent) fn recall(&mut self, index: usize) {
        let Some(pair) = &self.pairs[index] else { return };
        let queue = self.nics.queue(self.rail_at_work(index));
        if let (Task::Connect(number), Some(queue)) = (pair.task, queue) {
            queue.cancel(number);
        }
    }

    /// True if a pair's NIC has owed an answer for too long to be waited for.
    pub(in crate::agent) fn is_silent(&self, index: usize) -> bool {
        self.nic_is_silent(self.rail_at_work(index))
    }

    /// The same of a rail's NIC.
    pub(in crate::agent) fn nic_is_silent(&self, rail: u32) -> bool {
        self.nics.is_silent(self.awake.age_ns, rail, self.options.nic_ns)
    }

    /// Puts the old half away, and takes back one that is still to be made. One in the making is put away once it is
    /// made.
    pub(in crate::agent) fn discard(&mut self, now: Nanos, index: usize) {
        self.defer_old_half(now, index);
        let Some(pair) = &self.pairs[index] else { return };
        let Task::Make(number) = pair.task else { return self.set_task(index, Task::None) };
        let queue = self.nics.queue(self.rail_at_work(index));
        let Some(Job::Make(making)) = queue.and_then(|queue| queue.cancel(number)) else { return };
        self.set_task(index, Task::None);
        if let Some(old) = making.old {
            self.defer_destroy(now, index, old);
        }
    }

    /// Has the next incarnation of a half made.
    pub(in crate::agent) fn make(&mut self, now: Nanos, index: usize) {
        let (log_depth, tuning) = (self.words.root().log_depth, self.tuning);
        let Some(pair) = &mut self.pairs[index] else { return };
        let rail = pair.local_rail;
        let mut old = pair.half.take();
        if old.as_ref().is_some_and(|half| half.rail().index != rail) {
            // By its own NIC, which may be dead; the new one is not to wait for that.
            if let Some(old) = old.take() {
                self.defer_destroy(now, index, old);
            }
        }
        let Some(pair) = &mut self.pairs[index] else { return };
        let making = Making {
            old,
            rings: pair.rings,
            log_depth,
            incarnation: pair.incarnation,
            psn: pair.next_psn,
            remote: pair.remote,
            tuning,
        };
        let number = self.order(index, Urgency::Making, Job::Make(Box::new(making)));
        self.set_task(index, Task::Make(number));
    }

    pub(in crate::agent) fn set_task(&mut self, index: usize, task: Task) {
        if let Some(pair) = &mut self.pairs[index] {
            pair.task = task;
        }
    }

    pub(in crate::agent) fn outcome(&mut self, now: Nanos, rail: usize, id: JobId, outcome: Outcome) {
        if let Outcome::Port(up) = outcome {
            let asked_ns = self.nics.port_answered(rail);
            return self.port_answer(now, rail, up, asked_ns);
        }
        match outcome {
            Outcome::Address(result) => return self.address_asked(now, rail, result),
            Outcome::Datagrams(result) => return self.datagrams_made(now, rail, result),
            Outcome::Destroyed(result) => return self.destroyed(now, id, result),
            _ => {}
        }
        let task = self.pairs[id.about].as_ref().map_or(Task::None, |pair| pair.task);
        // What is over is compared by its number: a pair may have moved on meanwhile.
        match outcome {
            Outcome::Fenced(result) if [Task::Fence(id.number), Task::Count(id.number)].contains(&task) => {
                self.fenced(now, id.about, result);
            }
            Outcome::Stopped(result) if task == Task::Stop(id.number) => self.stopped(now, id.about, result),
            Outcome::Made(result, left) if task == Task::Make(id.number) => {
                if let Some(left) = left {
                    self.defer_destroy(now, id.about, left);
                }
                self.made(now, id.about, result);
            }
            Outcome::Connected(result) if task == Task::Connect(id.number) => {
                self.set_task(id.about, Task::None);
                self.leader_connected(now, id.about, result);
            }
            Outcome::Looked(result) if task == Task::Look(id.number) => {
                self.set_task(id.about, Task::None);
                self.queried(now, id.about, result);
            }
            Outcome::Made(made, left) => {
                made.ok().into_iter().chain(left).for_each(|half| self.defer_destroy(now, id.about, half));
            }
            _ => {}
        }
    }

    /// This half is fenced, or cannot be.
    fn fenced(&mut self, now: Nanos, index: usize, result: Result<Fenced, NicError>) {
        if let Ok(fenced) = &result
            && fenced.stopped
        {
            self.judge_path(now, index, fenced);
        }
        let believed = self.pairs[index].as_ref().is_some_and(|pair| {
            let peer = self.place(index).peer;
            self.proofs.believes(peer, pair.rails())
        });
        let holds = self.rails.get(self.rail_at_work(index) as usize).is_some_and(|rail| rail.truth_holds);
        let holds = holds && believed;
        self.ask_address(now, self.rail_at_work(index));
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.task = Task::None;
        let (mut fenced, mut to_stop) = (None, None);
        let mine = match result {
            Ok(Fenced { first, last, flushed, stopped, times }) => {
                fenced = Some(times);
                to_stop = pair.half.clone().filter(|_| !stopped && last.state != Some(State::Err));
                let again = pair.half.as_ref().filter(|_| Mutant::SamePsn.on()).map(|half| half.psn());
                pair.next_psn = again.unwrap_or(revived_psn(last.next_send_psn));
                let oldest = last.last_acked_psn.wrapping_add(1) & MASK_24;
                pair.sent = Some(Sent { oldest, next: last.next_send_psn });
                let still = first.rmsn == last.rmsn && first.next_rcv_psn == last.next_rcv_psn;
                if stopped && last.state != Some(State::Err) && !Mutant::StateNotLookedAt.on() {
                    SideTruth::Dead
                } else if !flushed {
                    SideTruth::Unflushed
                } else if still && holds {
                    SideTruth::Exact { executed: last.rmsn, next_rcv_psn: last.next_rcv_psn }
                } else {
                    SideTruth::Fenced
                }
            }
            Err(error) => {
                let at = self.route(index);
                self.report(now, Event::FenceFailed { at, error: error.to_string() });
                SideTruth::Dead
            }
        };
        if let Some(times) = fenced {
            self.report_half(now, index, mine, times);
        }
        if let Some(half) = to_stop.filter(|_| !Mutant::CountedNotStopped.on()) {
            // A port that came back in the meantime lets it send again.
            let up = self.ports.own_up(half.rail().index);
            let urgency = if up { Urgency::Asked } else { Urgency::Idle };
            let number = self.order(index, urgency, Job::Stop(half));
            self.set_task(index, Task::Stop(number));
        }
        self.half_fenced(now, index, mine);
    }

    /// A new half is made, or is not. Whoever asked for its fence meanwhile gets it now.
    fn made(&mut self, now: Nanos, index: usize, result: Result<Arc<HalfPath>, NicError>) {
        let leads = self.leads(index);
        if let Ok(half) = &result {
            self.owner.clear_unfenced(index, half.rail().index);
        }
        let Some(pair) = &mut self.pairs[index] else { return };
        pair.task = Task::None;
        let mut stray = None;
        let error = match result {
            // The pair has gone on to another number while this was made.
            Ok(half) if half.incarnation() != pair.incarnation => {
                stray = Some(half);
                None
            }
            Ok(half) => {
                pair.half = Some(half);
                None
            }
            Err(error) => Some(error),
        };
        let health = pair.health;
        if let Some(half) = stray {
            self.defer_destroy(now, index, half);
        }
        if health != Health::Connecting {
            return self.fence_half(now, index, Urgency::Peer);
        }
        if self.pairs[index].as_ref().is_none_or(|pair| pair.half.is_none()) {
            return self.revival_failed(now, index, error.as_ref());
        }
        if !leads {
            self.publish_row(index);
        }
        self.say_revival(now, index);
    }
}
