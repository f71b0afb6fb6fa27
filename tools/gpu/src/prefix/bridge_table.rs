//! The committed table of what the functions of `ibgda_device.cuh` take: read, written, and held against a build.

use crate::gpu::sass::Code;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::fmt;

/// Where it is.
const FILE: &str = "deep-ep-bridge/sass.txt";
/// Columns, in order.
const COLUMNS: [&str; 5] = ["sass", "loads", "stores", "atomics", "barriers"];

/// One function on one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    pub arch: String,
    pub name: String,
    /// By column.
    values: [usize; COLUMNS.len()],
}

impl Counts {
    /// What a path takes.
    pub fn new(arch: &str, name: &str, code: &Code) -> Self {
        let values = [code.instructions, code.loads, code.stores, code.atomics, code.barriers];
        Self { arch: arch.to_owned(), name: name.to_owned(), values }
    }

    /// The line over the columns.
    pub fn head() -> String {
        let columns: Vec<String> = COLUMNS.iter().map(|column| format!("{column:>9}")).collect();
        format!("{:7} {:28}{}", "arch", "function", columns.concat())
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:7} {:28}", self.arch, self.name)?;
        self.values.iter().try_for_each(|value| write!(f, "{value:>9}"))
    }
}

/// A table and the compilers that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    compilers: String,
    rows: Vec<Counts>,
}

impl Table {
    /// Holds a build against the committed table, or makes it the table.
    ///
    /// # Errors
    /// Something is worse than the table says, or not in it, and the compilers are those of the table.
    pub fn settle(compilers: String, rows: Vec<Counts>, bless: bool) -> Result<()> {
        let (built, path) = (Self { compilers, rows }, sh::root().join(FILE));
        if bless {
            std::fs::write(&path, built.to_string()).with_context(|| format!("cannot write {FILE}"))?;
            println!("wrote {FILE}");
            return Ok(());
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {FILE}"))?;
        let table = Self::parse(&text)?;
        let worse = table.worse(&built.rows);
        if table.compilers != built.compilers {
            println!("{FILE} was made by {}: what differs is not held against it", table.compilers);
            worse.iter().for_each(|line| println!("  {line}"));
        } else if !worse.is_empty() {
            bail!("worse than {FILE} (--deep-ep --bless writes it): {}", worse.join("; "));
        }
        Ok(())
    }

    fn parse(text: &str) -> Result<Self> {
        let mut table = Self { compilers: String::new(), rows: Vec::new() };
        for line in text.lines() {
            if let Some(compilers) = line.strip_prefix("# compilers: ") {
                table.compilers = compilers.to_owned();
            }
            if line.starts_with('#') || line.starts_with("arch") || line.trim().is_empty() {
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let numbers: Option<Vec<usize>> = words.iter().skip(2).map(|word| word.parse().ok()).collect();
            let values = numbers.and_then(|numbers| <[usize; COLUMNS.len()]>::try_from(numbers).ok());
            let values = values.with_context(|| format!("{FILE}: '{line}' is no row"))?;
            table.rows.push(Counts { arch: words[0].to_owned(), name: words[1].to_owned(), values });
        }
        Ok(table)
    }

    /// What takes more than the table says, is not in it, or is there no more.
    fn worse(&self, built: &[Counts]) -> Vec<String> {
        let same = |a: &Counts, b: &Counts| a.arch == b.arch && a.name == b.name;
        let mut worse = Vec::new();
        for row in built {
            let Some(had) = self.rows.iter().find(|had| same(had, row)) else {
                worse.push(format!("{} {}: not in the table", row.arch, row.name));
                continue;
            };
            let columns = COLUMNS.iter().zip(had.values.iter().zip(&row.values));
            for (column, (had, have)) in columns.filter(|(_, (had, have))| have > had) {
                worse.push(format!("{} {}: {column} {had} -> {have}", row.arch, row.name));
            }
        }
        let gone = self.rows.iter().filter(|had| !built.iter().any(|row| same(had, row)));
        worse.extend(gone.map(|had| format!("{} {}: in the table, but not built", had.arch, had.name)));
        worse
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Machine code of each function of ibgda_device.cuh with what it reaches in the device library, on"
        )?;
        writeln!(
            f,
            "# its no-fault path. Made by `cargo xtask prefix --deep-ep --bless`; counted as `cargo xtask gpu`"
        )?;
        writeln!(f, "# counts. `look` stands behind a signal unless SHUNT_DEEP_EP_CHECK_NS is 0.")?;
        writeln!(f, "# compilers: {}\n{}", self.compilers, Counts::head())?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(arch: &str, name: &str, sass: usize) -> Counts {
        Counts { arch: arch.into(), name: name.into(), values: [sass, 9, 7, 3, 8] }
    }

    #[test]
    fn what_is_written_is_read() {
        let table = Table { compilers: "rustc 1, ptxas 2".into(), rows: vec![row("sm_90", "put", 336)] };
        assert_eq!(Table::parse(&table.to_string()).unwrap(), table);
        assert!(
            Table::parse("sm_90 put 1 2 3 4").is_err() && Table::parse("sm_90 put 1 2 3 4 many").is_err()
        );
        assert!(Table::parse("sm_90").is_err());
    }

    #[test]
    fn more_is_worse_and_nothing_comes_or_goes_unseen() {
        let table = Table { compilers: String::new(), rows: vec![row("sm_90", "put", 336)] };
        assert!(table.worse(&[row("sm_90", "put", 336)]).is_empty());
        assert!(table.worse(&[row("sm_90", "put", 300)]).is_empty());
        assert_eq!(table.worse(&[row("sm_90", "put", 337)]), ["sm_90 put: sass 336 -> 337"]);
        assert_eq!(table.worse(&[row("sm_100", "put", 1)]).len(), 2);
    }
}
