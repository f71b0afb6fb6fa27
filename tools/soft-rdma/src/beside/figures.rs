//! What the three systems say of themselves, in one unit, and what is asked of the figures. Pure.

/// MB of a MiB.
const MIB: f64 = 1.048_576;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// `ib_write_bw` of perftest.
    Perftest,
    /// Mooncake's transfer engine, by its wheel for Python.
    Mooncake,
    /// `transfer_bw`.
    Ours,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who writes.
    pub system: System,
    /// What is written, as the table has it.
    pub what: &'static str,
    /// NICs of each end.
    pub nics: u32,
}

const fn row(system: System, what: &'static str, nics: u32) -> Row {
    Row { system, what, nics }
}

const RAW: Row = row(System::Perftest, "writes of 1 MiB", 1);
const SINGLE: Row = row(System::Ours, "writes of 1 MiB", 1);
const THEIRS: [Row; 2] =
    [row(System::Mooncake, "blocks of 64 KiB", 1), row(System::Mooncake, "blocks of 64 KiB", 2)];
const PAGED: [Row; 2] = [row(System::Ours, "pages of 64 KiB", 1), row(System::Ours, "pages of 64 KiB", 2)];

/// All rows, in the order of a round: what is compared follows each other.
pub const ROWS: [Row; 6] = [RAW, SINGLE, THEIRS[0], PAGED[0], THEIRS[1], PAGED[1]];

/// A row of ours, the row it is held against, and the least part of it.
pub const GOALS: [(Row, Row, f64); 3] =
    [(SINGLE, RAW, 0.95), (PAGED[0], THEIRS[0], 1.0), (PAGED[1], THEIRS[1], 1.0)];

impl System {
    /// As the table names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Perftest => "ib_write_bw",
            Self::Mooncake => "Mooncake",
            Self::Ours => "transfer_bw",
        }
    }

    /// MB/s of what a run said. None where it said no rate.
    pub fn rate(self, said: &str) -> Option<f64> {
        match self {
            // The last line with five numbers: bytes, iterations, peak, mean, messages.
            Self::Perftest => said.lines().rev().find_map(mean).map(|mean| mean * MIB),
            Self::Mooncake => number(said, "mb_s"),
            Self::Ours => number(said, "gb_s").map(|gb_s| gb_s * 1e3),
        }
    }

    /// What a run must have said: all bytes were as they were sent. perftest looks at none.
    pub const fn proof(self) -> Option<&'static str> {
        match self {
            Self::Perftest => None,
            Self::Mooncake => Some("\"wrong\": 0, \"failed\": 0"),
            Self::Ours => Some("\"verdict\": \"clean\""),
        }
    }
}

fn mean(line: &str) -> Option<f64> {
    let numbers: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    (numbers.len() == 5).then(|| numbers[3])
}

/// The first number of a name in a JSON text.
fn number(text: &str, name: &str) -> Option<f64> {
    let (_, behind) = text.split_once(&format!("\"{name}\":"))?;
    behind.split([',', '}', '\n']).next()?.trim().parse().ok()
}

/// The one in the middle, of an even number the lower one.
pub fn median(rates: &[f64]) -> Option<f64> {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len().saturating_sub(1) / 2).copied()
}

/// A row of the table: its rates in the order of the rounds, and their median.
pub fn line(row: Row, rates: &[f64]) -> String {
    let each: Vec<String> = rates.iter().map(|rate| format!("{rate:7.1}")).collect();
    let median = median(rates).map_or_else(|| "not run".to_owned(), |median| format!("{median:.1}"));
    format!("{:12} {:17} {:>4}  {median:>7}  {}", row.system.name(), row.what, row.nics, each.join(" "))
}

/// Whether a goal is reached: its line, and that. None where one of both was not run.
pub fn goal(ours: &[f64], theirs: &[f64], goal: (Row, Row, f64)) -> Option<(String, bool)> {
    let (row, other, least) = goal;
    let ratio = median(ours)? / median(theirs)?;
    let word = if ratio >= least { "reached" } else { "MISSED" };
    let (name, theirs, nics) = (row.system.name(), other.system.name(), row.nics);
    let line =
        format!("{name}, {}, NICs {nics}: {ratio:.3} of {theirs}, {least:.2} wanted: {word}", row.what);
    Some((line, ratio >= least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_one_unit() {
        let said = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n \
                    1048576    330              0.00               100.00               0.000104\n----\n";
        assert_eq!(System::Perftest.rate(said).map(|rate| (rate * 1e4).round()), Some(1_048_576.0));
        assert_eq!(System::Perftest.rate("local address: LID 0000 QPN 0x0001\n"), None);
        assert_eq!(System::Mooncake.rate("{\"block\": 65536, \"mb_s\": 48.5}\n"), Some(48.5));
        assert_eq!(System::Ours.rate("{\n  \"gb_s\": 0.125,\n  \"mode\": \"paged\"\n}"), Some(125.0));
        assert_eq!(System::Ours.rate(""), None);
    }

    #[test]
    fn a_goal_is_a_ratio_of_medians() {
        assert_eq!(
            (median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0]), median(&[])),
            (Some(2.0), Some(1.0), None)
        );
        let reached = |ours: &[f64], theirs: &[f64]| goal(ours, theirs, GOALS[0]).map(|(_, is)| is);
        assert_eq!(reached(&[95.0, 1.0, 99.0], &[100.0]), Some(true));
        assert_eq!(reached(&[94.9], &[100.0]), Some(false));
        assert_eq!(reached(&[94.9], &[]), None);
    }

    #[test]
    fn each_goal_holds_rows_of_the_table_on_as_many_nics() {
        for (ours, theirs, _) in GOALS {
            assert!(ours.system == System::Ours && theirs.system != System::Ours && ours.nics == theirs.nics);
            assert!(ROWS.contains(&ours) && ROWS.contains(&theirs));
        }
    }
}
