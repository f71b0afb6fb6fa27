//! `--table`: the rate of each kind and size of transfer, with one rail and more.

use crate::ends::both;
use crate::options::{Mode, Options, TABLE_PAGE};
use crate::rate;
use anyhow::{Result, ensure};
use schemars::JsonSchema;
use serde::Serialize;
use shunt_figures::say;
use shunt_figures::units::show_size;
use shunt_json::Kind;
use shunt_transfer::Place;
use shunt_transfer_program::options::Rails;
use shunt_transfer_program::{NicOptions, why};

/// Bytes of a page, and of a single write.
const PAGES: [u64; 6] = [4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, TABLE_PAGE];
const SINGLES: [u64; 4] = [64 << 10, 1 << 20, 4 << 20, 16 << 20];

/// A row of the table.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Row {
    /// Rails of each end.
    pub rails: u32,
    /// `paged` or `single`.
    pub mode: &'static str,
    /// Bytes of a page or single write.
    pub size: u64,
    /// Bytes of a transfer.
    pub transfer_bytes: u64,
    /// Bytes written a second, in GB.
    pub gb_s: f64,
    /// Of what the rails carry together, per cent; none where it is not known what they carry.
    pub of_rails: Option<f64>,
}

/// The table.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Table {
    /// `clean` or `broken`: whether every byte was as it was sent.
    pub verdict: &'static str,
    /// What figures are.
    pub clock: &'static str,
    /// What a rail carries in Gb/s, if it is known.
    pub rail_gbps: Option<f64>,
    /// In the order of measurement.
    pub rows: Vec<Row>,
    /// Pages that held other bytes than were sent.
    pub pages_wrong: u64,
}

impl Kind for Table {
    const NAME: &'static str = "shunt-transfer-table";
    const VERSION: u32 = 1;
}

impl Table {
    /// 0 if every byte was as it was sent, else 1.
    pub fn exit_status(&self) -> u8 {
        u8::from(self.verdict != "clean")
    }

    /// Why it is not clean.
    pub fn why(&self) -> String {
        why::first([why::none_of(&[("pages wrong", self.pages_wrong)])])
    }
}

/// Those of a list; of one number 1, 2, 4 and so on below it, then that.
fn rails(asked: &NicOptions) -> Vec<u32> {
    if let Some(several) = asked.rails.several() {
        return several.to_vec();
    }
    let most = asked.rails();
    let powers = std::iter::successors(Some(1), |rails| Some(rails * 2));
    powers.take_while(|rails| *rails < most).chain([most]).collect()
}

/// Measures all rows. Rank 0 prints each as it is known.
pub fn run(options: &Options, place: &Place) -> Result<Table> {
    let (nics, first) = (&place.nics, place.is_first());
    let (clock, rail_gbps) = (nics.time_label(), place.rail_gbps);
    if first {
        let each = rail_gbps.map_or_else(String::new, |gbps| format!(", {gbps} Gb/s a rail"));
        say!("{clock}{each}");
        say!("{:>5}  {:6}  {:>6}  {:>8}  {:>7}  {:>6}", "rails", "mode", "size", "transfer", "GB/s", "%");
    }
    let mut table = Table { verdict: "clean", clock, rail_gbps, rows: Vec::new(), pages_wrong: 0 };
    let paged = PAGES.map(|size| (Mode::Paged, "paged", size));
    let kinds = paged.into_iter().chain(SINGLES.map(|size| (Mode::Single, "single", size)));
    for rails in rails(&options.nics) {
        for (mode, name, size) in kinds.clone() {
            let nics = NicOptions { rails: Rails::of(rails), ..options.nics.clone() };
            let row = Options { nics, mode, size, ..options.clone() };
            let ends = both(place, move |member, nics| rate::run(&row, member, nics))?;
            ensure!(ends.len() == 2, "ends: expected 2, got {}", ends.len());
            let gb_s = ends[0].bytes as f64 / ends[0].took_ns.max(1) as f64;
            table.pages_wrong += ends[1].pages_wrong;
            let of_rails = rail_gbps.map(|gbps| 800.0 * gb_s / (gbps * f64::from(rails)));
            let transfer_bytes = Options { mode, size, ..options.clone() }.transfer_bytes();
            if first {
                let share = of_rails.map_or_else(|| "-".to_owned(), |share| format!("{share:.1}"));
                let (size, transfer) = (show_size(size), show_size(transfer_bytes));
                say!("{rails:>5}  {name:6}  {size:>6}  {transfer:>8}  {gb_s:>7.3}  {share:>6}");
            }
            table.rows.push(Row { rails, mode: name, size, transfer_bytes, gb_s, of_rails });
        }
    }
    if table.pages_wrong > 0 {
        table.verdict = "broken";
    }
    if first {
        say!("pages wrong {}  verdict: {}", table.pages_wrong, table.verdict);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Table::NAME, &shunt_json::schema::<Table>());
    }

    #[test]
    fn rails_double_up_to_what_was_asked_and_a_list_is_taken_as_it_is() {
        let of = |asked: &str| rails(&Options::parse_from(["transfer_bw", "--table", "--rails", asked]).nics);
        assert_eq!((of("1"), of("2"), of("4")), (vec![1], vec![1, 2], vec![1, 2, 4]));
        assert_eq!((of("3"), of("6")), (vec![1, 2, 3], vec![1, 2, 4, 6]));
        assert_eq!((of("1,3"), of("4,1,2")), (vec![1, 3], vec![4, 1, 2]));
    }
}
