//! The environment variables that are read, declared once, and how their values are parsed. Pure.

mod duration;
mod nic;
mod queues;
pub mod syntax;
mod unread;
mod variables;

pub use duration::{parse_duration, within};
pub use nic::NicKind;
pub use queues::QueuesKind;
pub use unread::{ELSEWHERE, nearest, unread};
pub use variables::{BOOLEAN, MACHINE_READABLE, TEN_MINUTES_NS, VARIABLES, Variable};

use std::ops::RangeInclusive;
use thiserror::Error;

/// Writes a line to standard error. A reader that is gone ends nothing, where `eprintln!` panics: a program goes on to
/// its exit status, and so does the process that a library is loaded into.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => {{
        let line = format!($($text)*) + "\n";
        // Nothing is left to tell of it.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }};
}

/// Name of the soft fabric where `SHUNT_FABRIC` is not set.
pub const FABRIC: &str = "default";

/// A variable whose value is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{variable}: expected {want}, got {met:?}")]
pub struct ConfigError {
    /// Variable.
    pub variable: String,
    /// What was met.
    pub met: String,
    /// What would be right.
    pub want: &'static str,
}

/// Reads variables through a function, the process's environment or a test's table, and parses their values.
pub struct Lookup<'a>(pub &'a dyn Fn(&str) -> Option<String>);

impl Lookup<'_> {
    /// The value of a variable of [`VARIABLES`]; `None` where it is not set.
    ///
    /// # Errors
    /// What `parse` does not take.
    ///
    /// # Panics
    /// If the table has no such variable.
    pub fn parse<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, ConfigError> {
        let Some(text) = (self.0)(name) else { return Ok(None) };
        let known = VARIABLES.iter().find(|variable| variable.name == name);
        let want = known.expect("each variable that is read stands in the table").values;
        match parse(text.trim()) {
            Some(value) => Ok(Some(value)),
            None => Err(ConfigError { variable: name.into(), met: text, want }),
        }
    }

    /// The same for a whole number within bounds.
    pub fn number(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, ConfigError> {
        self.parse(name, |text| text.parse().ok().filter(|value| range.contains(value)))
    }
}

/// Number of this process among those of its machine, by `SHUNT_LOCAL_RANK` or by its launcher; `None` where nobody
/// says it.
///
/// # Errors
/// `SHUNT_LOCAL_RANK` holds no number.
pub fn local_rank(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<u32>, ConfigError> {
    let ours = Lookup(lookup).number("SHUNT_LOCAL_RANK", 0..=4095)?;
    // torchrun, Open MPI, MPICH, srun.
    let theirs = ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
    let number = |name: &str| lookup(name).and_then(|text| text.trim().parse().ok());
    Ok(ours.or_else(|| theirs.into_iter().find_map(number)))
}

/// Yes or no: [`BOOLEAN`].
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" | "y" | "t" => Some(true),
        "0" | "false" | "no" | "off" | "n" | "f" => Some(false),
        _ => None,
    }
}
