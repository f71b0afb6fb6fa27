//! What the proxy of a rank does: steps that kernels ask for, and what arrives, become expectations, writes and
//! answers. No order of arrivals is assumed. Pure: time is an argument.

use crate::buffers::Buffers;
use crate::failure::Failure;
use crate::plan::{Part, Plan, What};
use crate::routes::Counts;
use crate::words::{Step, step};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// What the proxy is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A kernel asks for the step of this number. With a dispatch: this rank's counts.
    Asked(u64, Vec<u32>),
    /// A rank's counts are there.
    Counts(u32, Vec<u32>),
    /// All that a rank was to send of it is there.
    Arrived(u32, What),
    /// So many parts have arrived: their sources may be written again.
    Written(usize),
    /// Something went wrong here.
    Failed(Failure),
    /// Something went wrong at this rank, which told the others.
    Heard(u32, Failure),
}

/// What the proxy is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Expect so many immediates of a rank.
    Expect(u32, What, u64),
    /// Write these parts, by one scatter.
    Write(Vec<Part>),
    /// Answer a step.
    Answer(u64),
    /// Answer nothing any more. True: the others do not know of it.
    Fail(Failure, bool),
}

/// The proxy of one rank.
#[derive(Clone, Debug)]
pub struct Machine {
    buffers: Buffers,
    rank: u32,
    patience: Duration,
    counts: Counts,
    asked: u64,
    answered: u64,
    since: Duration,
    waits: BTreeSet<(What, u32)>,
    /// Parts that have not ended.
    parts: usize,
    has_failed: bool,
    outputs: VecDeque<Output>,
}

impl Machine {
    /// Of this rank. A step that is not done for so long has failed.
    pub fn new(buffers: Buffers, rank: u32, patience: Duration) -> Self {
        Self {
            buffers,
            rank,
            patience,
            counts: Counts::new(buffers.shape, buffers.topk),
            asked: 0,
            answered: 0,
            since: Duration::ZERO,
            waits: BTreeSet::new(),
            parts: 0,
            has_failed: false,
            outputs: VecDeque::new(),
        }
    }

    /// The layer that is under way.
    pub const fn layer(&self) -> u64 {
        step(self.asked).0
    }

    /// Ranks that something is awaited of.
    pub fn awaited(&self) -> BTreeSet<u32> {
        self.waits.iter().map(|(_, rank)| *rank).collect()
    }

    /// What is to be done next.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes what has happened.
    pub fn take(&mut self, now: Duration, input: Input) {
        if self.has_failed {
            return;
        }
        let taken = match input {
            Input::Asked(number, counts) => self.ask(now, number, &counts),
            Input::Counts(of, counts) => self.learn(of, &counts),
            Input::Arrived(of, what) => self.arrived(of, what),
            Input::Written(parts) => self.written(parts),
            Input::Failed(failure) => Err(failure),
            Input::Heard(rank, Failure { why, is_lost, is_uncertain }) => {
                let why = format!("rank {rank}: {why}");
                return self.fail(Failure { why, is_lost, is_uncertain }, false);
            }
        };
        match taken {
            Ok(()) => self.answer(),
            Err(failure) => self.fail(failure, true),
        }
    }

    /// Looks whether a step takes too long.
    pub fn tick(&mut self, now: Duration) {
        if self.has_failed || self.asked == self.answered || now.saturating_sub(self.since) < self.patience {
            return;
        }
        let ((layer, step), patience) = (step(self.asked), self.patience);
        let waits: Vec<_> =
            self.waits.iter().map(|(what, rank)| format!("{what:?} of rank {rank}")).collect();
        let met = if waits.is_empty() { format!("{} writes", self.parts) } else { waits.join(", ") };
        let why =
            format!("layer {layer}, {step:?}: expected its end within {patience:?}, still waiting for {met}");
        self.fail(Failure::broken(why), true);
    }

    fn fail(&mut self, failure: Failure, is_new: bool) {
        self.has_failed = true;
        self.outputs.clear();
        self.outputs.push_back(Output::Fail(failure, is_new));
    }

    fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let rank = self.rank;
        (0..self.buffers.shape.ranks).filter(move |other| *other != rank)
    }

    fn plan(&self) -> Plan<'_> {
        Plan { buffers: &self.buffers, rank: self.rank, counts: &self.counts }
    }

    fn write(&mut self, parts: Vec<Part>) {
        if !parts.is_empty() {
            self.parts += parts.len();
            self.outputs.push_back(Output::Write(parts));
        }
    }

    fn expect(&mut self, of: u32, what: What, count: u64) {
        if count > 0 {
            self.waits.insert((what, of));
            self.outputs.push_back(Output::Expect(of, what, count));
        }
    }

    fn ask(&mut self, now: Duration, number: u64, counts: &[u32]) -> Result<(), Failure> {
        if number != self.asked + 1 || self.asked != self.answered {
            let (want, open) = (self.asked + 1, self.answered + 1);
            let why = format!("a kernel's word: expected step {want}, once {open} is answered, got {number}");
            return Err(Failure::broken(why));
        }
        (self.asked, self.since) = (number, now);
        match step(number).1 {
            Step::Dispatch => {
                self.counts.clear();
                self.counts.learn(self.rank, counts)?;
                self.others().for_each(|other| self.expect(other, What::Counts, 1));
                let (counts, first) = (self.plan().counts(), self.plan().first());
                self.write(counts);
                self.write(first);
            }
            Step::Combine => {
                let from: Vec<_> = self.others().map(|other| (other, self.plan().made_from(other))).collect();
                from.into_iter().for_each(|(other, count)| self.expect(other, What::Made, count));
                let made = self.plan().made();
                self.write(made);
            }
            Step::End => {
                self.others().for_each(|other| self.expect(other, What::Free, 1));
                let free = self.plan().free();
                self.write(free);
            }
        }
        Ok(())
    }

    fn learn(&mut self, of: u32, counts: &[u32]) -> Result<(), Failure> {
        self.counts.learn(of, counts)?;
        self.arrived(of, What::Counts)?;
        let count = self.plan().rows_from(of);
        self.expect(of, What::Rows, count);
        if self.counts.are_whole() {
            let rest = self.plan().rest();
            self.write(rest);
        }
        Ok(())
    }

    fn arrived(&mut self, of: u32, what: What) -> Result<(), Failure> {
        if self.waits.remove(&(what, of)) {
            return Ok(());
        }
        Err(Failure::broken(format!("{what:?} of rank {of}: expected nothing, got it")))
    }

    fn written(&mut self, parts: usize) -> Result<(), Failure> {
        let left = self.parts.checked_sub(parts);
        let why = || format!("ends of parts: expected at most {}, got {parts}", self.parts);
        self.parts = left.ok_or_else(|| Failure::broken(why()))?;
        Ok(())
    }

    /// Answers what is asked once all of it is done.
    fn answer(&mut self) {
        let is_end = step(self.asked).1 == Step::End;
        if self.asked == self.answered || !self.waits.is_empty() || is_end && self.parts > 0 {
            return;
        }
        self.answered = self.asked;
        self.outputs.push_back(Output::Answer(self.asked));
    }
}
