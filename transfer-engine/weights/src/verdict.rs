//! What came of a run at all ends.

use crate::options::Options;
use crate::seen::{Part, Ran, Step};
use clap::ValueEnum as _;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_json::Kind;
use shunt_transfer_program::start::exit_status;
use shunt_transfer_program::why;

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
        // One end alone does not know what the others wrote.
        if ran.alone.is_none() {
            part.bytes_doubled += part.bytes_written.saturating_sub(part.bytes_wanted);
            part.bytes_missing += part.bytes_wanted.saturating_sub(part.bytes_written);
        }
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
        let rails = rail_gbps.map(|gbps| gbps * f64::from(options.nics.rails() * options.trainers) / 8.0);
        Self {
            verdict,
            clock,
            mode: options.mode.to_possible_value().map(|mode| mode.get_name().to_owned()).unwrap_or_default(),
            trainers: options.trainers,
            servers: options.servers,
            params: options.params,
            bytes: options.bytes,
            rails: options.nics.rails(),
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
        exit_status(self.verdict)
    }

    /// Why it is not clean, in the order in which it is judged.
    pub fn why(&self) -> String {
        if self.verdict == "clean" {
            return String::new();
        }
        let part = &self.part;
        let wrong = [
            ("bytes wrong", part.bytes_wrong),
            ("bytes doubled", part.bytes_doubled),
            ("bytes missing", part.bytes_missing),
            ("bytes foreign", part.bytes_foreign),
            ("immediates doubled", part.imm_doubled),
            ("immediates missing", part.imm_missing),
        ];
        let (peak, most) = (part.staging_peak, self.watermark);
        let passed =
            self.watermark_passed.then(|| format!("staged bytes: expected {most} at most, got {peak}"));
        let failure = (!part.failure.is_empty()).then(|| part.failure.clone());
        let lost = part.peer_lost.then(|| "rails that work: expected one or more, got none".to_owned());
        let unknown =
            part.uncertain.then(|| "writes of unknown fate: expected 0, got one or more".to_owned());
        let is_idle = part.bytes_written == 0 || self.steps.is_empty();
        let idle = is_idle.then(|| "bytes written: expected one or more, got 0".to_owned());
        let one = |line: Option<String>| line.into_iter().collect();
        why::first([
            why::none_of(&wrong),
            one(passed),
            one(failure),
            one(lost),
            one(unknown),
            one(idle),
            why::unhit(&part.faults),
        ])
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
