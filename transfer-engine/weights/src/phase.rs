//! One phase: a schedule is carried out, by all ends at once.

use crate::end::End;
use crate::model;
use crate::options::UNIT;
use crate::seen::Seen;
use anyhow::{Context, Result};
use shunt_transfer::Expectation;
use shunt_weight_sync::audit::audit;
use shunt_weight_sync::pipeline::{self, Report};
use shunt_weight_sync::stages::{Copy, Rounding};
use shunt_weight_sync::{Param, Rules, Schedule};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The first immediate. Each phase has its own.
const IMM: u32 = 0x100;
/// A server waits so long for what it is to get. It is less than what ends wait for each other.
const DEADLINE: Duration = Duration::from_secs(50);
/// It looks so often whether a trainer is gone, and gives it up so much later than that one would give up the server.
const LOOK: Duration = Duration::from_millis(200);
const LATER: Duration = Duration::from_secs(2);

/// What is written, and to whom.
pub struct Phase<'p> {
    /// Parameters, with their shards.
    pub params: &'p [Param],
    /// Who writes what.
    pub schedule: Schedule,
    /// Ends that are written to: the schedule's servers, by number.
    pub to: Range<u32>,
    /// What is done on the way.
    pub rounding: Rounding,
    /// Whether trainer 0 has gathered what it writes.
    pub is_gathered: bool,
}

impl End<'_> {
    /// The rules of all schedules.
    pub fn rules(&self) -> Rules {
        Rules { piece: self.options.piece, grain: UNIT }
    }

    /// Carries out a phase with all others: what each end saw of it.
    ///
    /// # Errors
    /// An end does not answer, or a call is refused.
    pub fn carry_out(&mut self, phase: &Phase<'_>) -> Result<Vec<Seen>> {
        let imm = IMM + self.phases;
        self.phases += 1;
        let expected = self.expect(phase, imm)?;
        let trainers: Vec<u32> = expected.iter().map(|(trainer, _)| *trainer).collect();
        self.exchange(&())?;
        let (began, mut seen) = (Instant::now(), Seen::default());
        if !phase.schedule.tasks(self.number()).is_empty() {
            seen.add_report(self.write(phase, imm)?);
        }
        for (trainer, expectation) in expected {
            self.wait(trainer, &expectation, began, &mut seen)?;
        }
        seen.took_ns = began.elapsed().as_nanos() as u64;
        let all = self.exchange(&seen)?;
        let is_clean = all.iter().all(|seen| seen.failure.is_empty());
        if is_clean {
            self.part.add_clean(&seen);
            self.counted.extend(trainers.into_iter().map(|trainer| (trainer, imm)));
        } else {
            let is_excused = all.iter().any(|seen| seen.lost || seen.uncertain);
            self.part.add_failed(&seen, is_excused);
        }
        if self.number() == 0 {
            self.part.add_audit(&audit(&phase.schedule, phase.params), is_clean, phase.rounding);
        }
        Ok(all)
    }

    /// One expectation for each trainer that writes to this end.
    fn expect(&self, phase: &Phase<'_>, imm: u32) -> Result<Vec<(u32, Expectation)>> {
        let mut expected = Vec::new();
        if !phase.to.contains(&self.number()) {
            return Ok(expected);
        }
        let server = self.number() - phase.to.start;
        for trainer in 0..self.options.trainers {
            let tasks = phase.schedule.tasks(trainer).iter().filter(|task| task.server == server);
            // Each write carries one.
            let count = tasks.count() as u64;
            if count > 0 {
                expected.push((trainer, self.node.expect(trainer, imm, count, Some(DEADLINE))?));
            }
        }
        Ok(expected)
    }

    fn write(&self, phase: &Phase<'_>, imm: u32) -> Result<Report> {
        let staging = self.staging.as_ref().context("a trainer has staging memory")?;
        let target = |end: u32| {
            let target = self.targets[end as usize].as_ref();
            target.map(|target| (end, target)).with_context(|| format!("end {end} has no memory to write to"))
        };
        let servers = phase.to.clone().map(target).collect::<Result<_>>()?;
        let (node, rounding) = (&self.node, phase.rounding);
        let wire = crate::wire::NodeWire { node, staging, servers, imm, rounding };
        let starts = model::starts(phase.params);
        let fetch = |param: u32, bytes: Range<u64>, into: &mut Vec<u8>| match &self.memory {
            Some(memory) if phase.is_gathered => {
                into.resize((bytes.end - bytes.start) as usize, 0);
                let at = memory.memory().span().address + starts[param as usize] + bytes.start;
                memory.memory().memory().read(at, into).map_err(|error| error.to_string())
            }
            _ => self.holding.read(param, bytes, into),
        };
        let tasks = phase.schedule.tasks(self.number());
        Ok(pipeline::run(tasks, &mut Copy(&fetch), &rounding, &wire, self.options.watermark))
    }

    /// Waits for what a trainer is to write. It is lost once no rail to it has worked for a while.
    fn wait(&self, trainer: u32, expectation: &Expectation, began: Instant, seen: &mut Seen) -> Result<()> {
        let patience = self.node.give_up()? + LATER;
        let mut rails_seen = Instant::now();
        loop {
            match expectation.wait(LOOK)? {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => {
                    seen.add_missing(&error);
                    return Ok(());
                }
                None => {}
            }
            if !self.node.rails_to(trainer)?.is_empty() {
                rails_seen = Instant::now();
            }
            if rails_seen.elapsed() > patience || began.elapsed() > DEADLINE + LATER {
                seen.lost = true;
                seen.failure =
                    format!("trainer {trainer}: expected a rail that works within {patience:?}, got none");
                return Ok(());
            }
        }
    }
}
