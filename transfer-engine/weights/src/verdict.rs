//! What came of a run, at one end and at all.

use crate::model::wanted_bytes;
use crate::options::Options;
use crate::phase::Seen;
use crate::run::Ran;
use clap::ValueEnum as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shunt_json::Kind;
use shunt_transfer_program::faults::Struck;
use shunt_weight_sync::Param;
use shunt_weight_sync::audit::Audit;
use shunt_weight_sync::pipeline::Transform;
use shunt_weight_sync::stages::Rounding;
use std::fmt;

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
    /// Bytes that the schedules write more than once, not at all, or where nobody wants them.
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

    /// A phase that did not. What of it arrived is not counted. Where an end was lost, or a write is uncertain, nobody
    /// can expect the rest.
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
    fn sum(parts: &[Self]) -> Self {
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
        let all = options.trainers * options.nics.rails;
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
        let Self { mode, step, rails_down, took_ns, gb_s, .. } = self;
        write!(f, "{mode} step {step}: {gb_s:.3} GB/s, {:.2} s", *took_ns as f64 / 1e9)?;
        if *rails_down > 0 { write!(f, ", {rails_down} rails of trainers down") } else { Ok(()) }
    }
}

/// Rates of steps in GB/s, and what they come to.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct Rates {
    /// What the rails of all trainers carry together, if it is known.
    pub rails: Option<f64>,
    /// All bytes of the mode's steps without faults, by their time together.
    pub p2p: Option<f64>,
    /// The same.
    pub rank0: Option<f64>,
    /// `p2p` by `rank0`.
    pub ratio: Option<f64>,
    /// The same, without the time in which trainer 0 gathers.
    pub ratio_of_writes: Option<f64>,
    /// Of p2p steps that began with a rail of a trainer down.
    pub p2p_down: Option<f64>,
    /// `p2p_down` by `p2p`.
    pub down_ratio: Option<f64>,
}

fn rate<'a>(steps: impl Iterator<Item = &'a Step>, time: impl Fn(&Step) -> u64) -> Option<f64> {
    let (mut bytes, mut ns) = (0, 0);
    for step in steps {
        (bytes, ns) = (bytes + step.bytes, ns + time(step));
    }
    (ns > 0).then(|| bytes as f64 / ns as f64)
}

impl Rates {
    fn of(steps: &[Step], rails: Option<f64>) -> Self {
        let whole = |step: &Step| step.took_ns;
        let plain = |mode: &'static str| steps.iter().filter(move |it| it.mode == mode && !it.faults);
        let p2p = rate(plain("p2p"), whole);
        let rank0 = rate(plain("rank0"), whole);
        let writes = rate(plain("rank0"), |step| step.took_ns - step.gather_ns);
        let down = steps.iter().filter(|it| it.mode == "p2p" && it.faults && it.rails_down > 0);
        let p2p_down = rate(down, whole);
        let by = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
        Self {
            rails,
            p2p,
            rank0,
            ratio: by(p2p, rank0),
            ratio_of_writes: by(p2p, writes),
            p2p_down,
            down_ratio: by(p2p_down, p2p),
        }
    }
}

/// What came of it all.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Verdict {
    /// `clean`, `broken`, `peer lost`, `uncertain` or `not exercised`.
    pub verdict: &'static str,
    /// What figures are.
    pub clock: &'static str,
    /// `p2p`, `rank0` or `both`.
    pub mode: String,
    /// Ends that hold weights, and that get them.
    pub trainers: u32,
    /// See [`Verdict::trainers`].
    pub servers: u32,
    /// Parameters, and bytes of all of them.
    pub params: u32,
    /// See [`Verdict::params`].
    pub bytes: u64,
    /// Rails of each end.
    pub rails: u32,
    /// What a rail carries in Gb/s, if it is known.
    pub rail_gbps: Option<f64>,
    /// Most bytes that a trainer may have fetched or staged at once.
    pub watermark: u64,
    /// Whether one of them had more.
    pub watermark_passed: bool,
    /// Rates.
    pub gb_s: Rates,
    /// Steps.
    pub steps: Vec<Step>,
    /// What all ends saw.
    #[serde(flatten)]
    pub part: Part,
}

impl Kind for Verdict {
    const NAME: &'static str = "shunt-weight-sync";
    const VERSION: u32 = 1;
}

impl Verdict {
    /// Judges what all ends saw.
    pub fn of(options: &Options, clock: &'static str, rail_gbps: Option<f64>, ran: Ran) -> Self {
        let mut part = Part::sum(&ran.parts);
        // What was written differs from what was wanted: a write too many, or one too few.
        part.bytes_doubled += part.bytes_written.saturating_sub(part.bytes_wanted);
        part.bytes_missing += part.bytes_wanted.saturating_sub(part.bytes_written);
        let watermark_passed = part.staging_peak > options.watermark;
        let wrong = part.bytes_wrong + part.bytes_doubled + part.bytes_missing + part.bytes_foreign;
        let is_broken = wrong + part.imm_doubled + part.imm_missing > 0 || watermark_passed;
        let is_excused = part.peer_lost || part.uncertain;
        let missed = part.faults.iter().any(|struck| struck.hits == 0);
        let verdict = match () {
            () if is_broken || (!is_excused && !part.failure.is_empty()) => "broken",
            () if part.peer_lost => "peer lost",
            () if part.uncertain => "uncertain",
            // A run that moved nothing shows nothing.
            () if part.bytes_written == 0 || ran.steps.is_empty() => "broken",
            () if missed => "not exercised",
            () => "clean",
        };
        let rails = rail_gbps.map(|gbps| gbps * f64::from(options.nics.rails * options.trainers) / 8.0);
        Self {
            verdict,
            clock,
            mode: options.mode.to_possible_value().map(|mode| mode.get_name().to_owned()).unwrap_or_default(),
            trainers: options.trainers,
            servers: options.servers,
            params: options.params,
            bytes: options.bytes,
            rails: options.nics.rails,
            rail_gbps,
            watermark: options.watermark,
            watermark_passed,
            gb_s: Rates::of(&ran.steps, rails),
            steps: ran.steps,
            part,
        }
    }

    /// 0 clean, 3 where no rail to an end was left or the fate of a write is not known, else 1.
    pub fn exit_status(&self) -> u8 {
        match self.verdict {
            "clean" => 0,
            "peer lost" | "uncertain" => 3,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Verdict::NAME, &shunt_json::schema::<Verdict>());
    }
}
