//! `--private-sweep`: how long dispatch takes with private buffers of several sizes.

use crate::options::Options;
use crate::run::run;
use crate::verdict::{Spread, Verdict};
use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_figures::say;
use shunt_json::Kind;
use shunt_moe_proxy::buffers::Buffers;
use shunt_moe_proxy::model::Model;
use shunt_transfer::Node;
use std::sync::Arc;

/// Rows of a private buffer.
const SIZES: [u32; 10] = [0, 4, 8, 16, 24, 32, 48, 64, 128, 256];

/// A row of the table.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Row {
    /// Rows of a private buffer.
    pub private: u32,
    /// From a kernel's word to the last row of its experts.
    pub dispatch: Spread,
    /// From a kernel's word to the last value that came back.
    pub combine: Spread,
    /// Rows that came by private buffers, and by contiguous ones.
    pub rows_private: u64,
    /// See [`Row::rows_private`].
    pub rows_contiguous: u64,
    /// Rows, values and bytes that were wrong, missing or late, and immediates that came twice.
    pub wrong: u64,
    /// Lanes that were left, though nothing was made to fail: the machine was busy.
    pub failovers: u64,
}

/// The table.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Sweep {
    /// The worst of the rows' verdicts.
    pub verdict: &'static str,
    /// What figures are.
    pub clock: &'static str,
    /// What a rail carries in Gb/s, if it is known.
    pub rail_gbps: Option<f64>,
    /// Layers of each row.
    pub layers: u32,
    /// In the order of measurement.
    pub rows: Vec<Row>,
}

impl Kind for Sweep {
    const NAME: &'static str = "shunt-moe-sweep";
    const VERSION: u32 = 1;
}

/// Runs all rows. Rank 0 prints each as it is known, and where it is gone the first that is left. All ranks answer with
/// the same, and with whether they print.
///
/// # Errors
/// A rank does not answer, or a call is refused.
pub fn measure(
    options: &Options,
    buffers: Buffers,
    model: &Model,
    node: &Arc<Node>,
    (clock, rail_gbps): (&'static str, Option<f64>),
) -> Result<(Sweep, bool)> {
    let mut is_first = node.end() == 0;
    if is_first {
        say!("{clock}, {} layers a row, microseconds at the slowest rank", options.layers);
        say!(
            "{:>7}  {:>12}  {:>12}  {:>12}  {:>9}",
            "private",
            "dispatch p50",
            "dispatch p99",
            "combine p50",
            "% private"
        );
    }
    let mut sweep = Sweep { verdict: "clean", clock, rail_gbps, layers: options.layers, rows: Vec::new() };
    // One that holds all rows is the last.
    let most = buffers.rows_max();
    let enough = SIZES.iter().position(|size| u64::from(*size) >= most).unwrap_or(SIZES.len() - 1);
    for private in &SIZES[..=enough] {
        let parts = run(options, Buffers { private: *private, ..buffers }, model, node)?;
        let judged = Verdict::of(options, clock, rail_gbps, &parts);
        let why = judged.why();
        is_first = judged.is_said_by(node.end(), is_first);
        let Verdict { verdict, part, .. } = judged;
        let (seen, dispatch, combine) = (&part.seen, part.dispatch, part.combine);
        let (rows_private, rows_contiguous) = (seen.rows_private, seen.rows_contiguous);
        if is_first {
            let share = 100.0 * rows_private as f64 / (rows_private + rows_contiguous).max(1) as f64;
            let (p50, p99) = (dispatch.p50, dispatch.p99);
            say!("{private:>7}  {p50:>12.0}  {p99:>12.0}  {:>12.0}  {share:>9.1}", combine.p50);
        }
        sweep.rows.push(Row {
            private: *private,
            dispatch,
            combine,
            rows_private,
            rows_contiguous,
            wrong: seen.wrong() + part.imm_doubled,
            failovers: part.failovers,
        });
        if verdict != "clean" {
            sweep.verdict = verdict;
            if is_first {
                shunt::host::complain!("moe_proxy: private {private}: {verdict}: {why}");
            }
            break;
        }
    }
    if is_first {
        say!("verdict: {}", sweep.verdict);
    }
    Ok((sweep, is_first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Sweep::NAME, &shunt_json::schema::<Sweep>());
    }
}
