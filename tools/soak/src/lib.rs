//! `cargo xtask soak`: the main program and perftest side by side for an hour, random faults in both.

mod faults;
mod jobs;
mod leak;
mod plot;
mod run;

use shunt_task::Task;

pub use run::run;

/// The task.
pub const TASK: Task = Task { name: "soak", summary: run::SUMMARY, help: run::HELP, run: run::run };
