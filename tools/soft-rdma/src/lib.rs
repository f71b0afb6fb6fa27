//! `cargo xtask soft-rdma`, `verbs`, `verbs-cost`, `pyverbs` and `beside`: unmodified RDMA programs on soft NICs.

mod beside;
mod case;
mod cases;
mod efa;
mod manager;
mod mooncake;
mod mpi;
mod pyverbs;
mod run;
mod ucx;
mod verbs;
mod verbs_cases;
mod verbs_cost;
mod verbs_stores;

use shunt_task::Task;

pub use case::told;
pub use mooncake::Missing;
pub use run::{listens_at, stage, wait};
pub use verbs::{mooncake_night, night as verbs_night, stage as verbs_stage};

/// The tasks.
pub const TASKS: [Task; 5] = [
    Task { name: "soft-rdma", summary: run::SUMMARY, help: run::HELP, run: run::run },
    Task { name: "verbs", summary: verbs::SUMMARY, help: verbs::HELP, run: verbs::run },
    Task { name: "verbs-cost", summary: verbs_cost::SUMMARY, help: verbs_cost::HELP, run: verbs_cost::run },
    Task { name: "pyverbs", summary: pyverbs::SUMMARY, help: pyverbs::HELP, run: pyverbs::run },
    Task { name: "beside", summary: beside::SUMMARY, help: beside::HELP, run: beside::run },
];
