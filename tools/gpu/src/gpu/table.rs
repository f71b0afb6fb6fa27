//! The committed table of machine code: read, written, and held against what was just built.

use anyhow::{Context, Result};
use shunt_task::sh;
use std::fmt;
use std::path::PathBuf;

/// Where it is.
const FILE: &str = "kernels/sass.txt";

/// Columns, in order.
pub const COLUMNS: [&str; 9] =
    ["sass", "registers", "loads", "stores", "atomics", "barriers", "stack", "spills", "cold-stack"];

/// One function on one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub arch: String,
    pub name: String,
    /// By column.
    pub values: [usize; COLUMNS.len()],
}

impl Row {
    /// The value of a column.
    pub fn value(&self, column: &str) -> usize {
        COLUMNS.iter().position(|have| *have == column).map_or(0, |at| self.values[at])
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7} {:36}", self.arch, self.name)?;
        self.values.iter().try_for_each(|value| write!(f, " {value:>10}"))
    }
}

/// The line over the columns.
pub fn head() -> String {
    let columns: Vec<String> = COLUMNS.iter().map(|column| format!("{column:>10}")).collect();
    format!("{:7} {:36} {}", "arch", "function", columns.join(" "))
}

/// A table and the compilers that made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub compilers: String,
    pub rows: Vec<Row>,
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Worse than the table says, or not in it.
    pub worse: Vec<String>,
    /// Better than the table says.
    pub better: Vec<String>,
}

impl Table {
    /// The committed one.
    pub fn committed() -> Result<Self> {
        let text = std::fs::read_to_string(path()).with_context(|| format!("cannot read {FILE}"))?;
        Self::parse(&text)
    }

    /// Writes it where the committed one is.
    pub fn commit(&self) -> Result<()> {
        std::fs::write(path(), self.to_string()).with_context(|| format!("cannot write {FILE}"))?;
        println!("wrote {FILE}");
        Ok(())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut table = Self::default();
        for line in text.lines() {
            if let Some(compilers) = line.strip_prefix("# compilers: ") {
                table.compilers = compilers.to_owned();
            }
            if line.starts_with('#') || line.starts_with("arch") || line.trim().is_empty() {
                continue;
            }
            let mut words = line.split_whitespace();
            let mut word =
                || words.next().with_context(|| format!("{FILE}: a column is missing in '{line}'"));
            let (arch, name) = (word()?.to_owned(), word()?.to_owned());
            let mut values = [0; COLUMNS.len()];
            for value in &mut values {
                *value = word()?.parse().with_context(|| format!("{FILE}: not a number in '{line}'"))?;
            }
            table.rows.push(Row { arch, name, values });
        }
        Ok(table)
    }

    /// What is worse and better in `built`. Rows of architectures that were not built are left alone.
    pub fn against(&self, built: &[Row]) -> Difference {
        let mut difference = Difference::default();
        for row in built {
            let Some(had) = self.rows.iter().find(|had| had.arch == row.arch && had.name == row.name) else {
                difference.worse.push(format!("{} {}: not in {FILE}", row.arch, row.name));
                continue;
            };
            for ((column, have), had) in COLUMNS.iter().zip(row.values).zip(had.values) {
                let line = || format!("{} {}: {column} {had} -> {have}", row.arch, row.name);
                match have.cmp(&had) {
                    std::cmp::Ordering::Greater => difference.worse.push(line()),
                    std::cmp::Ordering::Less => difference.better.push(line()),
                    std::cmp::Ordering::Equal => {}
                }
            }
        }
        for had in &self.rows {
            let arch_built = built.iter().any(|row| row.arch == had.arch);
            if arch_built && !built.iter().any(|row| row.arch == had.arch && row.name == had.name) {
                difference.worse.push(format!("{} {}: in {FILE}, but not built", had.arch, had.name));
            }
        }
        difference
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Machine code of each entry point and library function, on its no-fault path. Made by"
        )?;
        writeln!(
            f,
            "# `cargo xtask gpu --bless`; what the columns count stands in `cargo xtask gpu --help`."
        )?;
        writeln!(f, "# compilers: {}", self.compilers)?;
        writeln!(f, "{}", head())?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

fn path() -> PathBuf {
    sh::root().join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arch: &str, name: &str, sass: usize) -> Row {
        Row { arch: arch.to_owned(), name: name.to_owned(), values: [sass, 32, 12, 7, 4, 2, 0, 0, 96] }
    }

    #[test]
    fn what_is_written_is_read() {
        let table = Table { compilers: "rustc 1, ptxas 2".to_owned(), rows: vec![row("sm_90", "put", 336)] };
        assert_eq!(Table::parse(&table.to_string()).unwrap(), table);
        assert!(Table::parse("sm_90 put 1 2 3").is_err());
        assert!(Table::parse("sm_90 put 1 2 3 4 5 6 7 8 many").is_err());
    }

    #[test]
    fn more_is_worse_and_less_is_better() {
        let table =
            Table { rows: vec![row("sm_90", "put", 336), row("sm_80", "put", 300)], ..Table::default() };
        assert_eq!(table.against(&[row("sm_90", "put", 336)]), Difference::default());
        assert_eq!(table.against(&[row("sm_90", "put", 337)]).worse, ["sm_90 put: sass 336 -> 337"]);
        assert_eq!(table.against(&[row("sm_90", "put", 335)]).better, ["sm_90 put: sass 336 -> 335"]);
    }

    #[test]
    fn functions_do_not_come_and_go_unseen() {
        let table = Table { rows: vec![row("sm_90", "put", 336)], ..Table::default() };
        assert_eq!(table.against(&[row("sm_90", "get", 1)]).worse.len(), 2);
    }

    #[test]
    fn the_committed_table_is_one() {
        assert!(!Table::committed().unwrap().rows.is_empty());
    }
}
