//! `cargo xtask soft-rdma` and `pyverbs`: unmodified RDMA programs on soft NICs.

mod cases;
mod pyverbs;
mod run;

use shunt_task::Task;

pub use run::{listens_at, stage};

/// The tasks.
pub const TASKS: [Task; 2] = [
    Task { name: "soft-rdma", summary: run::SUMMARY, help: run::HELP, run: run::run },
    Task { name: "pyverbs", summary: pyverbs::SUMMARY, help: pyverbs::HELP, run: pyverbs::run },
];
