//! What the tasks of `cargo xtask` share.

pub mod ports;
pub mod sh;
pub mod stages;

/// One task of `cargo xtask`.
pub struct Task {
    /// Its name on the command line.
    pub name: &'static str,
    /// A line for the list of tasks.
    pub summary: &'static str,
    /// All its options.
    pub help: &'static str,
    /// What it does with its arguments.
    pub run: fn(&[String]) -> anyhow::Result<()>,
}
