//! What came of a run at all ranks.

use crate::options::Options;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shunt_json::Kind;
use shunt_moe_proxy::check::Seen;
use shunt_transfer_program::faults::Struck;
use shunt_transfer_program::lost::Lost;
use shunt_transfer_program::start::exit_status;
use shunt_transfer_program::why;

/// Times in microseconds: of the layers of a rank the median, the 99th percentile, the longest; of all ranks the
/// largest of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl From<Vec<u64>> for Spread {
    fn from(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        let at = |percent: usize| {
            let place = (ns.len() * percent).div_ceil(100).saturating_sub(1);
            ns.get(place).map_or(0.0, |ns| *ns as f64 / 1e3)
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

impl Spread {
    fn largest(self, other: Self) -> Self {
        Self { p50: self.p50.max(other.p50), p99: self.p99.max(other.p99), max: self.max.max(other.max) }
    }
}

/// What one rank saw, and all of them together.
#[derive(Clone, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Part {
    /// What was checked, and what of it was wrong. Layers: those that every rank ended.
    #[serde(flatten)]
    pub seen: Seen,
    /// Immediates of the last 1000 layers that came once too often.
    pub imm_doubled: u64,
    /// Layers that began while a rail of a rank did not work: of the rank with the most.
    pub layers_rail_down: u64,
    /// From a kernel's word to the last row of its experts.
    pub dispatch: Spread,
    /// From a kernel's word to the last value that came back.
    pub combine: Spread,
    /// A layer, with its kernels and its check.
    pub layer: Spread,
    /// A rank had no rail left.
    pub peer_lost: bool,
    /// The fate of a write is not known.
    pub uncertain: bool,
    /// The first thing that went wrong.
    pub failure: String,
    /// Lanes of all ranks that were left because of a fault, and opened again.
    pub failovers: u64,
    /// See [`Part::failovers`].
    pub returns: u64,
    /// Pieces that were sent again on another lane.
    pub pieces_again: u64,
    /// Each fault, and how often it struck.
    pub faults: Vec<Struck>,
    /// A rank is gone, and this is what one that is left saw.
    #[serde(skip)]
    pub alone: Option<Lost>,
}

impl Part {
    /// Of all ranks together.
    fn sum(parts: &[Self]) -> Self {
        let mut all = Self::default();
        all.seen.layers = parts.iter().map(|part| part.seen.layers).min().unwrap_or(0);
        for part in parts {
            add(&mut all.seen, &part.seen);
            all.imm_doubled += part.imm_doubled;
            all.layers_rail_down = all.layers_rail_down.max(part.layers_rail_down);
            all.dispatch = all.dispatch.largest(part.dispatch);
            all.combine = all.combine.largest(part.combine);
            all.layer = all.layer.largest(part.layer);
            all.peer_lost |= part.peer_lost;
            all.uncertain |= part.uncertain;
            if all.failure.is_empty() {
                all.failure.clone_from(&part.failure);
            }
            all.failovers += part.failovers;
            all.returns += part.returns;
            all.pieces_again += part.pieces_again;
            all.faults.extend(part.faults.iter().cloned());
            all.alone = all.alone.or_else(|| part.alone.clone());
        }
        all
    }
}

/// All but layers, which all ranks have alike.
fn add(all: &mut Seen, seen: &Seen) {
    all.tokens += seen.tokens;
    all.rows_own += seen.rows_own;
    all.rows_private += seen.rows_private;
    all.rows_contiguous += seen.rows_contiguous;
    all.rows_wrong += seen.rows_wrong;
    all.rows_missing += seen.rows_missing;
    all.values += seen.values;
    all.values_wrong += seen.values_wrong;
    all.values_missing += seen.values_missing;
    all.late_bytes += seen.late_bytes;
}

/// What came of it all.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Verdict {
    /// `clean`, `broken`, `peer lost`, `uncertain` or `not exercised`.
    pub verdict: &'static str,
    /// What figures are.
    pub clock: &'static str,
    /// Ranks, and layers that were asked for.
    pub ranks: u32,
    /// See [`Verdict::ranks`].
    pub layers_wanted: u32,
    /// Tokens of a rank in a layer at most, and their channels.
    pub tokens_max: u32,
    /// See [`Verdict::tokens_max`].
    pub hidden: u32,
    /// Experts of all ranks, and of a token at most.
    pub experts: u32,
    /// See [`Verdict::experts`].
    pub top_k: u32,
    /// Rows of a private buffer.
    pub private: u32,
    /// Seed of tokens and routes.
    pub seed: u64,
    /// Rails of each rank.
    pub rails: u32,
    /// What a rail carries in Gb/s, if it is known.
    pub rail_gbps: Option<f64>,
    /// What all ranks saw.
    #[serde(flatten)]
    pub part: Part,
}

impl Kind for Verdict {
    const NAME: &'static str = "shunt-moe-proxy";
    const VERSION: u32 = 1;
}

impl Verdict {
    /// Judges what all ranks saw.
    pub fn of(options: &Options, clock: &'static str, rail_gbps: Option<f64>, parts: &[Part]) -> Self {
        let part = Part::sum(parts);
        let is_excused = part.peer_lost || part.uncertain;
        let is_whole = part.seen.layers == u64::from(options.layers);
        let missed = part.faults.iter().any(|struck| struck.hits == 0);
        let verdict = match () {
            () if part.seen.wrong() + part.imm_doubled > 0 => "broken",
            () if !is_excused && (!part.failure.is_empty() || !is_whole) => "broken",
            () if part.peer_lost => "peer lost",
            () if part.uncertain => "uncertain",
            // A run that moved nothing shows nothing.
            () if part.seen.rows_private + part.seen.rows_contiguous == 0 => "broken",
            () if missed => "not exercised",
            () => "clean",
        };
        Self {
            verdict,
            clock,
            ranks: options.ranks,
            layers_wanted: options.layers,
            tokens_max: options.tokens,
            hidden: options.hidden,
            experts: options.experts,
            top_k: options.top_k,
            private: options.private,
            seed: options.seed,
            rails: options.nics.rails(),
            rail_gbps,
            part,
        }
    }

    /// Whether a rank prints and writes it for all: `is_first` where all are there.
    pub fn is_said_by(&self, rank: u32, is_first: bool) -> bool {
        self.part.alone.as_ref().map_or(is_first, |lost| lost.speaks(rank))
    }

    /// 0 clean, 3 where no rail to a rank was left or the fate of a write is not known, else 1.
    pub fn exit_status(&self) -> u8 {
        exit_status(self.verdict)
    }

    /// Why it is not clean, in the order in which it is judged.
    pub fn why(&self) -> String {
        if self.verdict == "clean" {
            return String::new();
        }
        let (part, seen) = (&self.part, &self.part.seen);
        let wrong = [
            ("rows wrong", seen.rows_wrong),
            ("rows missing", seen.rows_missing),
            ("values wrong", seen.values_wrong),
            ("values missing", seen.values_missing),
            ("late bytes", seen.late_bytes),
            ("immediates doubled", part.imm_doubled),
        ];
        let (want, got) = (u64::from(self.layers_wanted), seen.layers);
        let one = |line: Option<String>| line.into_iter().collect();
        let moved = seen.rows_private + seen.rows_contiguous;
        let unknown =
            part.uncertain.then(|| "writes of unknown fate: expected 0, got one or more".to_owned());
        why::first([
            why::none_of(&wrong),
            one((!part.failure.is_empty()).then(|| part.failure.clone())),
            one(part.peer_lost.then(|| "rails that work: expected one or more, got none".to_owned())),
            one(unknown),
            one((got != want).then(|| format!("layers: expected {want}, got {got}"))),
            one((moved == 0).then(|| "rows from other ranks: expected one or more, got 0".to_owned())),
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

    #[test]
    fn percentiles_are_of_the_layers() {
        let spread = Spread::from((1..=200).rev().map(|us| us * 1000).collect::<Vec<u64>>());
        assert_eq!(spread, Spread { p50: 100.0, p99: 198.0, max: 200.0 });
        assert_eq!(Spread::from(Vec::new()), Spread::default());
    }
}
