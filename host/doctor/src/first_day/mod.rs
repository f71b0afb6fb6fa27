//! The first day on a machine: what one NIC shows when it is used, as rows of a report. What needs processes is the
//! command's part; files are read by the other checks.

mod nic;
mod times;

pub use nic::{Capabilities, NicReport, Rounds, ask, ask_device, not_used, use_device, use_nic};
pub use times::{CommandTimes, Histogram, TimedDevx};

/// What a row came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// It works, less well than it could, or it may not.
    Warn,
    /// It does not work.
    Fail,
    /// Nobody knows: it was not tried.
    NotRun,
}

impl Outcome {
    /// All, in the order of a summary.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Warn, Self::Fail, Self::NotRun];
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::NotRun => "not run",
        })
    }
}

/// One row of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was tried.
    pub name: String,
    /// What it came to.
    pub outcome: Outcome,
    /// What was seen, or why it was not run.
    pub met: String,
    /// What to do; empty where nothing is to be done.
    pub todo: String,
}

impl Row {
    /// A row with nothing to do.
    pub fn new(name: impl Into<String>, outcome: Outcome, met: impl Into<String>) -> Self {
        Self { name: name.into(), outcome, met: met.into(), todo: String::new() }
    }

    /// What to do.
    #[must_use]
    pub fn todo(mut self, todo: impl Into<String>) -> Self {
        self.todo = todo.into();
        self
    }
}
