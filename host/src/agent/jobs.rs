//! Between the agent and the workers of its NICs: jobs go out, outcomes come back as any other news.

use super::Agent;
use super::desk::Desk;
use super::message::SideTruth;
use super::pair::{Sent, Task, may_count};
use super::worker::{Crew, Fenced, Hand, Job, JobId, Making, Outcome, Urgency, Worker};
use crate::error::NicError;
use crate::events::Event;
use crate::nic::half::{HalfPath, revived_psn};
use crate::nic::qp::{MASK_24, QpTruth};
use crate::rail::Rail;
use shunt_device::health::Health;
use shunt_device::platform::host::World;
use shunt_layout::mlx5::prm::qp::State;
use shunt_layout::mutant::Mutant;
use std::cell::Cell;
use std::sync::Arc;

/// Halves of one NIC that are made anew at the same time: more would only stand in the queue while their time runs.
const MAKING_MAX: usize = 8;

/// The worker of a rail, as its agent sees it.
pub(super) struct Post {
    desk: Arc<Desk>,
    hand: Box<dyn Hand>,
    /// When the port was asked for, while no answer is in.
    asked_ns: Option<u64>,
    /// Since when its NIC owes an answer, by the clock and as the agent was awake.
    owing: Cell<Option<(u64, u64)>>,
}

impl Post {
    pub(super) fn fill(crew: &dyn Crew, rail: &Arc<Rail>, world: &Arc<dyn World>) -> Self {
        let desk = Arc::new(Desk::default());
        let worker = Worker::new(rail.clone(), desk.clone(), world.clone());
        let hand = crew.hire(format!("nic {}", rail.index), worker);
        Self { desk, hand, asked_ns: None, owing: Cell::new(None) }
    }
}

impl Post {
    /// A new agent works here: what the last one wanted is not wanted any more.
    pub(super) fn take_over(&mut self) {
        self.desk.take_over();
        self.asked_ns = None;
        self.hand.wake();
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.desk.close();
        self.hand.wake();
    }
}

impl Agent {
    pub(super) fn submit(&mut self, rail: u32, urgency: Urgency, about: usize, job: Job) -> u64 {
        self.jobs += 1;
        let id = JobId { number: self.jobs, about };
        if let Some(post) = self.posts.get(rail as usize) {
            post.desk.submit(urgency, id, job);
            post.hand.wake();
        }
        id.number
    }

    /// Gives a pair's NIC a job.
    pub(super) fn order(&mut self, index: usize, urgency: Urgency, job: Job) -> u64 {
        let rail = match &job {
            Job::Fence(half) | Job::Count(half) | Job::Stop(half) => half.rail().index,
            Job::Look(half) | Job::Connect(half, ..) | Job::Bury(half) => half.rail().index,
            _ => self.rail_at_work(index),
        };
        self.submit(rail, urgency, index, job)
    }

    /// The rail whose NIC works for a pair: that of its half. The pair may have been given to another one since.
    pub(super) fn rail_at_work(&self, index: usize) -> u32 {
        let Some(pair) = &self.pairs[index] else { return 0 };
        pair.half.as_ref().map_or(pair.local_rail, |half| half.rail().index)
    }

    /// A switcher waits for what so far nobody waited for.
    pub(super) fn hasten(&mut self, index: usize, urgency: Urgency) {
        let Some(pair) = &self.pairs[index] else { return };
        let post = self.posts.get(self.rail_at_work(index) as usize);
        if let (Task::Fence(number) | Task::Count(number) | Task::Stop(number), Some(post)) =
            (pair.task, post)
        {
            post.desk.hasten(urgency, number);
        }
    }

    /// Where the port of a half is down and its NIC has many to fence, a query is all that is left to do for one that
    /// nothing can reach any more.
    pub(super) fn lighten(&mut self, index: usize) {
        let Some(pair) = &self.pairs[index] else { return };
        let Task::Fence(number) = pair.task else { return };
        let rail = self.rail_at_work(index);
        let quiet_ns = self.age.age_ns.saturating_sub(pair.theirs_age_ns);
        if self.ports.own_up(rail) || !may_count(pair.theirs, quiet_ns, self.options.lifetime_ns) {
            return;
        }
        if self.posts.get(rail as usize).is_some_and(|post| post.desk.lighten(number)) {
            self.set_task(index, Task::Count(number));
        }
    }

    /// What was counted and may still send is stopped now: its port is up again.
    pub(super) fn hasten_stops(&mut self, rail: u32) {
        for index in 0..self.pairs.len() {
            let task = self.pairs[index].as_ref().map_or(Task::None, |pair| pair.task);
            if matches!(task, Task::Stop(_)) && self.rail_at_work(index) == rail {
                self.hasten(index, Urgency::Asked);
            }
        }
    }

    /// A half that was counted is in ERR and shows it, or counts as one that nobody fenced. Until then it may have
    /// sent: its packet lifetime begins now.
    fn stopped(&mut self, index: usize, result: Result<QpTruth, NicError>) {
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
        self.report(Event::FenceFailed { at, error });
    }

    /// Takes back what a pair's NIC has not begun.
    pub(super) fn recall(&mut self, index: usize) {
        let Some(pair) = &self.pairs[index] else { return };
        let post = self.posts.get(self.rail_at_work(index) as usize);
        if let (Task::Connect(number), Some(post)) = (pair.task, post) {
            post.desk.recall(number);
        }
    }

    /// True if a pair's NIC has owed an answer for too long to be waited for.
    pub(super) fn is_silent(&self, index: usize) -> bool {
        self.nic_is_silent(self.rail_at_work(index))
    }

    /// The same of a rail's NIC.
    pub(super) fn nic_is_silent(&self, rail: u32) -> bool {
        let awake_ns = self.awake.age_ns;
        let Some(post) = self.posts.get(rail as usize) else { return false };
        let owing_ns = post.desk.owing_ns();
        if post.owing.get().map(|(since, _)| since) != owing_ns {
            post.owing.set(owing_ns.map(|since| (since, awake_ns)));
        }
        post.owing.get().is_some_and(|(_, seen)| awake_ns > seen.saturating_add(self.options.nic_ns))
    }

    /// True if a NIC has room to make one more half anew.
    pub(super) fn may_make(&self, rail: u32) -> bool {
        self.posts.get(rail as usize).is_some_and(|post| post.desk.waiting() < MAKING_MAX)
    }

    /// Puts the old half away, and takes back one that is still to be made. One in the making is put away once it is
    /// made.
    pub(super) fn discard(&mut self, index: usize) {
        self.entomb(index);
        let Some(pair) = &self.pairs[index] else { return };
        let Task::Make(number) = pair.task else { return self.set_task(index, Task::None) };
        let post = self.posts.get(self.rail_at_work(index) as usize);
        let Some(Job::Make(making)) = post.and_then(|post| post.desk.recall(number)) else { return };
        self.set_task(index, Task::None);
        if let Some(old) = making.old {
            self.keep_grave(index, old);
        }
    }

    /// Has the next incarnation of a half made.
    pub(super) fn make(&mut self, index: usize) {
        let (log_depth, tuning) = (self.words.root().log_depth, self.tuning);
        let Some(pair) = &mut self.pairs[index] else { return };
        let rail = pair.local_rail;
        let mut old = pair.half.take();
        if old.as_ref().is_some_and(|half| half.rail().index != rail) {
            // By its own NIC, which may be dead; the new one is not to wait for that.
            if let Some(old) = old.take() {
                self.keep_grave(index, old);
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

    pub(super) fn set_task(&mut self, index: usize, task: Task) {
        if let Some(pair) = &mut self.pairs[index] {
            pair.task = task;
        }
    }

    /// Asks firmware whether a port is up, unless it was asked already.
    pub(super) fn ask_port(&mut self, rail: usize) {
        let now = self.now();
        if self.posts[rail].asked_ns.is_none() {
            self.posts[rail].asked_ns = Some(now);
            self.submit(rail as u32, Urgency::Idle, rail, Job::AskPort);
        }
    }

    /// What the workers have done since the last look.
    pub(super) fn take_outcomes(&mut self) -> bool {
        let mut busy = false;
        for rail in 0..self.posts.len() {
            while let Some((id, outcome)) = self.posts[rail].desk.next_done() {
                busy = true;
                self.outcome(rail, id, outcome);
            }
        }
        busy
    }

    fn outcome(&mut self, rail: usize, id: JobId, outcome: Outcome) {
        if let Outcome::Port(up) = outcome {
            let asked_ns = self.posts[rail].asked_ns.take();
            return self.port_answer(rail, up, asked_ns.unwrap_or(0));
        }
        match outcome {
            Outcome::Address(result) => return self.address_asked(rail, result),
            Outcome::Datagrams(result) => return self.datagrams_made(rail, result),
            Outcome::Buried(result) => return self.buried(id, result),
            _ => {}
        }
        let task = self.pairs[id.about].as_ref().map_or(Task::None, |pair| pair.task);
        // What is over is compared by its number: a pair may have moved on meanwhile.
        match outcome {
            Outcome::Fenced(result) if [Task::Fence(id.number), Task::Count(id.number)].contains(&task) => {
                self.fenced(id.about, result);
            }
            Outcome::Stopped(result) if task == Task::Stop(id.number) => self.stopped(id.about, result),
            Outcome::Made(result, left) if task == Task::Make(id.number) => {
                if let Some(left) = left {
                    self.keep_grave(id.about, left);
                }
                self.made(id.about, result);
            }
            Outcome::Connected(result) if task == Task::Connect(id.number) => {
                self.set_task(id.about, Task::None);
                self.leader_connected(id.about, result);
            }
            Outcome::Looked(result) if task == Task::Look(id.number) => {
                self.set_task(id.about, Task::None);
                self.looked(id.about, result);
            }
            Outcome::Made(made, left) => {
                made.ok().into_iter().chain(left).for_each(|half| self.keep_grave(id.about, half));
            }
            _ => {}
        }
    }

    /// This half is fenced, or cannot be.
    fn fenced(&mut self, index: usize, result: Result<Fenced, NicError>) {
        if let Ok(fenced) = &result
            && fenced.stopped
        {
            self.judge_path(index, fenced);
        }
        let believed = self.pairs[index].as_ref().is_some_and(|pair| {
            let peer = self.place(index).peer;
            self.proofs.believes(peer, pair.rails())
        });
        let holds = self.rails.get(self.rail_at_work(index) as usize).is_some_and(|rail| rail.truth_holds);
        let holds = holds && believed;
        self.ask_address(self.rail_at_work(index));
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
                self.report(Event::FenceFailed { at, error: error.to_string() });
                SideTruth::Dead
            }
        };
        if let Some(times) = fenced {
            self.report_half(index, mine, times);
        }
        if let Some(half) = to_stop.filter(|_| !Mutant::CountedNotStopped.on()) {
            // A port that came back in the meantime lets it send again.
            let up = self.ports.own_up(half.rail().index);
            let urgency = if up { Urgency::Asked } else { Urgency::Idle };
            let number = self.order(index, urgency, Job::Stop(half));
            self.set_task(index, Task::Stop(number));
        }
        self.half_fenced(index, mine);
    }

    /// A new half is made, or is not. Whoever asked for its fence meanwhile gets it now.
    fn made(&mut self, index: usize, result: Result<Arc<HalfPath>, NicError>) {
        let leads = self.leads(index);
        if let Ok(half) = &result {
            self.no_more_haunted(index, half.rail().index);
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
            self.keep_grave(index, half);
        }
        if health != Health::Connecting {
            return self.fence_half(index, Urgency::Peer);
        }
        if self.pairs[index].as_ref().is_none_or(|pair| pair.half.is_none()) {
            return self.revival_failed(index, error.as_ref());
        }
        if !leads {
            self.publish_row(index);
        }
        self.say_revival(index);
    }
}
