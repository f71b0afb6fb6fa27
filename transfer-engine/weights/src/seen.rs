//! What ends see: of a phase, of a step, of all.

use crate::model::wanted_bytes;
use crate::options::Options;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shunt_transfer_engine::error::TransferError;
use shunt_transfer_program::faults::Struck;
use shunt_transfer_program::lost::Lost;
use shunt_weight_sync::Param;
use shunt_weight_sync::audit::Audit;
use shunt_weight_sync::pipeline::{Failure, Report, Transform};
use shunt_weight_sync::stages::Rounding;
use std::fmt;

/// What an end saw of a phase.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// From the common beginning to this end's own, nanoseconds.
    pub took_ns: u64,
    /// Bytes that it wrote, as servers have them.
    pub bytes: u64,
    /// Writes that ended well, and that did not.
    pub writes: u64,
    /// See [`Seen::writes`].
    pub writes_failed: u64,
    /// Most bytes that were fetched or staged at once, and how often the watermark held a fetch back.
    pub staging_peak: u64,
    /// See [`Seen::staging_peak`].
    pub staging_waits: u64,
    /// Immediates that did not come.
    pub imm_missing: u64,
    /// No rail to an end was left; the fate of a write is not known.
    pub lost: bool,
    /// See [`Seen::lost`].
    pub uncertain: bool,
    /// The first thing that went wrong.
    pub failure: String,
}

impl Seen {
    /// What its pipeline did.
    pub fn add_report(&mut self, report: Report) {
        let Report { writes, writes_failed, bytes, peak, waits, failure } = report;
        (self.writes, self.writes_failed, self.bytes) = (writes, writes_failed, bytes);
        (self.staging_peak, self.staging_waits) = (peak, waits);
        if let Some(failure) = failure {
            self.lost = matches!(failure, Failure::Lost(_));
            self.uncertain = matches!(failure, Failure::Uncertain(_));
            self.failure = failure.to_string();
        }
    }

    /// An expectation that was not reached.
    pub fn add_missing(&mut self, error: &TransferError) {
        if let TransferError::Missing { got, want, .. } = error {
            self.imm_missing += want - got;
        }
        if self.failure.is_empty() {
            self.failure = error.to_string();
        }
    }
}

/// What one end saw, and all of them together.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Part {
    /// Bytes that servers wanted in phases that went well, and bytes of the writes of those. In rank 0 what trainer 0
    /// gathers counts, too.
    pub bytes_wanted: u64,
    /// See [`Part::bytes_wanted`].
    pub bytes_written: u64,
    /// Bytes in servers' memory that are not what the trainers held.
    pub bytes_wrong: u64,
    /// Bytes that the schedules write more than once, not at all, or where no server wants them.
    pub bytes_doubled: u64,
    /// See [`Part::bytes_doubled`].
    pub bytes_missing: u64,
    /// See [`Part::bytes_doubled`].
    pub bytes_foreign: u64,
    /// Immediates that came once too often, and that did not come.
    pub imm_doubled: u64,
    /// See [`Part::imm_doubled`].
    pub imm_missing: u64,
    /// Writes that ended well, and that did not.
    pub writes: u64,
    /// See [`Part::writes`].
    pub writes_failed: u64,
    /// Most bytes that a trainer had fetched or staged at once.
    pub staging_peak: u64,
    /// How often the watermark held a fetch back.
    pub staging_waits: u64,
    /// Steps that were made again without a trainer that was lost.
    pub steps_repeated: u64,
    /// An end had no rail left.
    pub peer_lost: bool,
    /// The fate of a write is not known.
    pub uncertain: bool,
    /// The first thing that went wrong.
    pub failure: String,
    /// Lanes of all ends that were left because of a fault, and opened again.
    pub failovers: u64,
    /// See [`Part::failovers`].
    pub returns: u64,
    /// Pieces that were sent again on another lane.
    pub pieces_again: u64,
    /// Each fault, and how often it struck.
    pub faults: Vec<Struck>,
    /// Turns so far: what the weights are.
    #[serde(skip)]
    pub turns: u64,
}

impl Part {
    /// A phase that went well at all ends.
    pub fn add_clean(&mut self, seen: &Seen) {
        self.bytes_written += seen.bytes;
        self.add(seen);
    }

    /// A phase that did not. What of it arrived is not counted. Where an end was lost, or a write is uncertain, the
    /// rest cannot be expected.
    pub fn add_failed(&mut self, seen: &Seen, is_excused: bool) {
        if !seen.failure.is_empty() {
            self.fail(&seen.failure, seen.lost);
        }
        self.uncertain |= seen.uncertain;
        self.writes_failed += seen.writes_failed;
        self.imm_missing += if is_excused { 0 } else { seen.imm_missing };
        self.add(seen);
    }

    fn add(&mut self, seen: &Seen) {
        self.writes += seen.writes;
        self.staging_peak = self.staging_peak.max(seen.staging_peak);
        self.staging_waits += seen.staging_waits;
    }

    /// Something went wrong.
    pub fn fail(&mut self, what: &str, is_lost: bool) {
        self.peer_lost |= is_lost;
        if self.failure.is_empty() {
            what.clone_into(&mut self.failure);
        }
    }

    /// A schedule.
    pub fn add_audit(&mut self, audit: &Audit, is_clean: bool, rounding: Rounding) {
        self.bytes_wanted += if is_clean { rounding.bytes(audit.wanted) } else { 0 };
        self.bytes_doubled += audit.doubled;
        self.bytes_missing += audit.missing;
        self.bytes_foreign += audit.foreign + audit.not_held;
    }

    /// Of all ends together.
    pub fn sum(parts: &[Self]) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.bytes_wanted += part.bytes_wanted;
            all.bytes_written += part.bytes_written;
            all.bytes_wrong += part.bytes_wrong;
            all.bytes_doubled += part.bytes_doubled;
            all.bytes_missing += part.bytes_missing;
            all.bytes_foreign += part.bytes_foreign;
            all.imm_doubled += part.imm_doubled;
            all.imm_missing += part.imm_missing;
            all.writes += part.writes;
            all.writes_failed += part.writes_failed;
            all.staging_peak = all.staging_peak.max(part.staging_peak);
            all.staging_waits += part.staging_waits;
            all.steps_repeated = all.steps_repeated.max(part.steps_repeated);
            all.uncertain |= part.uncertain;
            if !part.failure.is_empty() {
                all.fail(&part.failure, part.peer_lost);
            }
            all.failovers += part.failovers;
            all.returns += part.returns;
            all.pieces_again += part.pieces_again;
            all.faults.extend(part.faults.iter().cloned());
        }
        all
    }
}

/// A step that went well.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Step {
    /// `p2p` or `rank0`.
    pub mode: &'static str,
    /// Whether faults may strike in it.
    pub faults: bool,
    /// Its number, from 1 on.
    pub step: u32,
    /// Rails of trainers that did not work when it began.
    pub rails_down: u32,
    /// Bytes that servers got.
    pub bytes: u64,
    /// From its beginning to the end of the last end, nanoseconds.
    pub took_ns: u64,
    /// Of them, until trainer 0 had gathered what the others hold.
    pub gather_ns: u64,
    /// Bytes that servers got a second, in GB.
    pub gb_s: f64,
}

impl Step {
    /// Of a step that took so long.
    pub fn of(
        (options, params): (&Options, &[Param]),
        (is_p2p, faults, step): (bool, bool, u32),
        rails: &[u32],
        (took_ns, gather_ns): (u64, u64),
    ) -> Self {
        let all = options.trainers * options.nics.rails();
        let bytes = wanted_bytes(params, options.rounding());
        Self {
            mode: if is_p2p { "p2p" } else { "rank0" },
            faults,
            step,
            rails_down: all - rails[..options.trainers as usize].iter().sum::<u32>().min(all),
            bytes,
            took_ns,
            gather_ns,
            gb_s: bytes as f64 / took_ns.max(1) as f64,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, faults, step, rails_down, took_ns, gb_s, .. } = self;
        let with = if *faults { " with faults" } else { "" };
        write!(f, "{mode}{with} step {step}: {gb_s:.3} GB/s, {:.2} s", *took_ns as f64 / 1e9)?;
        if *rails_down > 0 { write!(f, ", rails of trainers down: {rails_down}") } else { Ok(()) }
    }
}

/// What all ends saw, and the steps.
pub struct Ran {
    /// By number of the end.
    pub parts: Vec<Part>,
    /// Steps that went well, in order.
    pub steps: Vec<Step>,
    /// An end is gone, and this one says no more than what it saw itself.
    pub alone: Option<Lost>,
}
