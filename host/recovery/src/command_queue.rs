//! The queue of firmware commands between an agent and the worker of one NIC, the most urgent first, and what came of
//! them. No call blocks.

use super::nic_job::{Job, JobId, Outcome, Urgency};
use crate::nanos::Nanos;
use shunt_layout::mutant::Mutant;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Inner {
    /// By urgency; among equals in the order in which each became so urgent.
    waiting: BTreeMap<(Urgency, u64), (JobId, Job)>,
    /// The last turn that was given.
    turn: u64,
    done: VecDeque<(JobId, Outcome)>,
    /// When the oldest outstanding command was sent.
    owing: Option<Nanos>,
    working: bool,
    /// What the work under way is about, if that is the owner's.
    at_work: Option<usize>,
    closed: bool,
}

impl Inner {
    fn enqueue(&mut self, urgency: Urgency, id: JobId, job: Job) {
        self.turn += 1;
        self.waiting.insert((urgency, self.turn), (id, job));
    }

    /// Where a job waits.
    fn place(&self, number: u64) -> Option<(Urgency, u64)> {
        self.waiting.iter().find(|(_, (id, _))| id.number == number).map(|(key, _)| *key)
    }
}

/// Where an agent lays jobs for one NIC and finds what came of them. Nothing here waits.
#[derive(Default)]
pub struct CommandQueue(Mutex<Inner>);

impl CommandQueue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change under this lock is one insertion or removal: a panic leaves no half state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays a job down; the one that works here must be woken afterwards.
    pub fn submit(&self, urgency: Urgency, id: JobId, job: Job) {
        let mut inner = self.lock();
        if !inner.working && inner.waiting.is_empty() {
            // Whatever it owed was long ago: this job shows whether it answers.
            inner.owing = None;
        }
        inner.enqueue(urgency, id, job);
    }

    /// Makes a job that has not begun at least so urgent, behind those that are so already.
    pub fn raise_priority(&self, urgency: Urgency, number: u64) {
        let mut inner = self.lock();
        let key = inner.place(number).filter(|key| key.0 > urgency);
        if let Some((id, job)) = key.and_then(|key| inner.waiting.remove(&key)) {
            inner.enqueue(urgency, id, job);
        }
    }

    /// Has a half that waits for its fence counted instead, in its turn. False if its turn has come.
    pub fn lighten(&self, number: u64) -> bool {
        let mut inner = self.lock();
        let Some((_, job)) = inner.place(number).and_then(|key| inner.waiting.get_mut(&key)) else {
            return false;
        };
        let Job::Fence(half) = job else { return false };
        *job = Job::Count(half.clone());
        true
    }

    /// Takes a job back that has not begun.
    pub fn cancel(&self, number: u64) -> Option<Job> {
        let mut inner = self.lock();
        let key = inner.place(number)?;
        inner.waiting.remove(&key).map(|(_, job)| job)
    }

    /// Takes work of the owner's back that is about this and has not begun. True if some of it is under way: it ends by
    /// its deadline.
    pub fn cancel_work(&self, about: usize) -> bool {
        let mut inner = self.lock();
        inner.waiting.retain(|_, (id, job)| !matches!(job, Job::Work(_)) || id.about != about);
        inner.at_work == Some(about)
    }

    /// Another agent sits down here: what has not begun is not done, but halves that were to go still go.
    pub fn take_over(&self) {
        let mut inner = self.lock();
        inner.done.retain(|(_, outcome)| matches!(outcome, Outcome::Made(..) | Outcome::Destroyed(_)));
        for (id, job) in std::mem::take(&mut inner.waiting).into_values() {
            let old = match job {
                Job::Make(making) => making.old,
                Job::Destroy(old) => Some(old),
                Job::Fence(_) | Job::Count(_) | Job::Stop(_) | Job::Look(_) | Job::Connect(..) => None,
                Job::AskPort | Job::AskAddress | Job::Resolve(_) | Job::Datagrams(_) | Job::Work(_) => None,
            };
            // Before anything that is made from now on.
            if let Some(old) = old {
                inner.enqueue(Urgency::Making, id, Job::Destroy(old));
            }
        }
    }

    /// The next job that is over.
    pub fn next_done(&self) -> Option<(JobId, Outcome)> {
        self.lock().done.pop_front()
    }

    /// A job that was taken, and not looked at: it is the next again.
    pub fn give_back(&self, id: JobId, outcome: Outcome) {
        self.lock().done.push_front((id, outcome));
    }

    /// Since when the NIC owes an answer to a command; none while it answers or has nothing to do.
    pub fn oldest_outstanding(&self) -> Option<Nanos> {
        self.lock().owing
    }

    /// Jobs that have not begun.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// True if nothing waits or is under way, and all that came of it was taken.
    pub fn is_idle(&self) -> bool {
        let inner = self.lock();
        !inner.working && inner.waiting.is_empty() && inner.done.is_empty()
    }

    /// No more work: what has not begun is dropped, the worker ends.
    pub fn close(&self) {
        let waiting = {
            let mut inner = self.lock();
            inner.closed = true;
            std::mem::take(&mut inner.waiting)
        };
        // Outside the lock: what is dropped may command its NIC.
        drop(waiting);
    }

    /// True if nobody works here any more.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The most urgent job, if it is one to `take` now.
    pub fn begin(&self, now: Nanos, take: impl Fn(&Job) -> bool) -> Option<(JobId, Job)> {
        let mut inner = self.lock();
        let mut next = *inner.waiting.first_key_value()?.0;
        if Mutant::NewestFirst.on() {
            next = *inner.waiting.range(next..=(next.0, u64::MAX)).next_back()?.0;
        }
        if !inner.waiting.get(&next).is_some_and(|(_, job)| take(job)) {
            return None;
        }
        let (id, job) = inner.waiting.remove(&next)?;
        inner.working = true;
        inner.at_work = matches!(job, Job::Work(_)).then_some(id.about);
        inner.owing.get_or_insert(now);
        Some((id, job))
    }

    /// A job is over.
    pub fn end(&self, id: JobId, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome {
            self.lock().done.push_back((id, outcome));
        }
    }

    /// The worker looks for the next job; `answered`: its NIC answers commands.
    pub fn idle(&self, answered: bool) {
        let mut inner = self.lock();
        (inner.working, inner.at_work) = (false, None);
        if answered {
            inner.owing = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic_job::Work;
    use shunt_mlx5::error::NicError;
    use shunt_mlx5::rail::Rail;

    fn id(number: u64) -> JobId {
        JobId { number, about: 0 }
    }

    fn queue(jobs: &[(Urgency, u64)]) -> CommandQueue {
        let queue = CommandQueue::default();
        jobs.iter().for_each(|(urgency, number)| queue.submit(*urgency, id(*number), Job::AskPort));
        queue
    }

    fn order(queue: &CommandQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.begin(Nanos::ZERO, |_| true)).map(|(id, _)| id.number).collect()
    }

    #[test]
    fn what_somebody_waits_for_goes_first_and_equals_in_turn() {
        use Urgency::{Asked, Idle, Making, Peer, Port};
        let queue = queue(&[(Idle, 1), (Making, 2), (Port, 3), (Peer, 4), (Asked, 5), (Peer, 6)]);
        queue.raise_priority(Asked, 3);
        queue.raise_priority(Idle, 4);
        assert!(queue.cancel(2).is_some() && queue.cancel(2).is_none());
        assert_eq!(order(&queue), [5, 3, 4, 6, 1]);
    }

    #[test]
    fn who_was_hastened_last_goes_last_whenever_the_job_was_laid_down() {
        let queue = queue(&[(Urgency::Port, 1), (Urgency::Port, 2), (Urgency::Port, 3)]);
        queue.raise_priority(Urgency::Asked, 3);
        queue.raise_priority(Urgency::Asked, 1);
        queue.raise_priority(Urgency::Asked, 3);
        assert_eq!(order(&queue), [3, 1, 2]);
    }

    #[test]
    fn it_is_idle_once_what_came_of_the_last_job_was_taken() {
        let queue = queue(&[(Urgency::Idle, 1)]);
        assert!(!queue.is_idle(), "it waits");
        let (id, _) = queue.begin(Nanos::ZERO, |_| true).unwrap();
        assert!(!queue.is_idle(), "it is under way");
        queue.end(id, Some(Outcome::Port(true)));
        queue.idle(true);
        assert!(!queue.is_idle(), "what came of it is not taken");
        assert!(queue.next_done().is_some() && queue.is_idle());
    }

    /// An agent that panics in the middle of what it took leaves the rest to the next one, in order.
    #[test]
    fn what_was_taken_and_not_looked_at_is_the_next_again() {
        let queue = queue(&[]);
        (1..4).for_each(|number| queue.lock().done.push_back((id(number), Outcome::Port(true))));
        let taken: Vec<_> = std::iter::from_fn(|| queue.next_done()).collect();
        taken.into_iter().skip(1).rev().for_each(|(id, outcome)| queue.give_back(id, outcome));
        queue.lock().done.push_back((id(4), Outcome::Port(true)));
        let rest: Vec<u64> = std::iter::from_fn(|| queue.next_done()).map(|(id, _)| id.number).collect();
        assert_eq!(rest, [2, 3, 4]);
    }

    #[test]
    fn a_nic_owes_from_its_first_job_until_it_answers() {
        let queue = queue(&[(Urgency::Peer, 1), (Urgency::Peer, 2), (Urgency::Peer, 3)]);
        assert_eq!(queue.oldest_outstanding(), None);
        for (now, answered, owing) in
            [(10, false, Some(Nanos::new(10))), (20, false, Some(Nanos::new(10))), (30, true, None)]
        {
            assert!(queue.begin(Nanos::new(now), |_| true).is_some());
            assert_eq!(queue.oldest_outstanding(), owing.or(Some(Nanos::new(10))));
            queue.idle(answered);
            assert_eq!(queue.oldest_outstanding(), owing);
        }
        queue.submit(Urgency::Peer, id(4), Job::AskPort);
        assert!(queue.begin(Nanos::new(40), |_| true).is_some());
        queue.idle(false);
        queue.submit(Urgency::Peer, id(5), Job::AskPort);
        assert_eq!(queue.oldest_outstanding(), None, "a job for an idle NIC shows again whether it answers");
    }

    struct Nothing;

    impl Work for Nothing {
        fn run(&self, _: &Rail) -> Result<(), NicError> {
            Ok(())
        }
    }

    /// A home that moved while work for it waited would have it done at the old NIC.
    #[test]
    fn work_that_waits_is_taken_back_and_work_under_way_is_told() {
        let queue = CommandQueue::default();
        for (number, about) in [(1, 7), (2, 7), (3, 8)] {
            queue.submit(Urgency::Peer, JobId { number, about }, Job::Work(Box::new(Nothing)));
        }
        queue.submit(Urgency::Peer, JobId { number: 4, about: 7 }, Job::AskPort);
        assert_eq!(queue.begin(Nanos::ZERO, |_| true).map(|(id, _)| id.number), Some(1));
        assert!(queue.cancel_work(7) && !queue.cancel_work(8) && !queue.cancel_work(9));
        queue.idle(true);
        assert!(!queue.cancel_work(7), "it is over");
        assert_eq!(order(&queue), [4], "what is no work of the owner's stays");
    }

    #[test]
    fn a_closed_queue_is_empty() {
        let queue = queue(&[(Urgency::Peer, 1)]);
        queue.close();
        assert_eq!((queue.waiting(), order(&queue)), (0, vec![]));
    }
}
