//! `cargo xtask gpu`, `ptx`, `prefix` and `transport`: device code built, held against its tables and packed; the
//! folder that programs take in NVSHMEM's place.

mod gpu;
mod prefix;
mod ptx;
mod transport;

use shunt_task::Task;

pub use gpu::stage as gpu_stage;
pub use prefix::wheel::library as nvshmem_library;
pub use prefix::{night as prefix_night, stage as prefix_stage};
pub use ptx::{night as ptx_night, stage as ptx_stage};

/// The tasks.
pub const TASKS: [Task; 4] = [
    Task { name: "gpu", summary: gpu::SUMMARY, help: gpu::HELP, run: gpu::run },
    Task { name: "ptx", summary: ptx::SUMMARY, help: ptx::HELP, run: ptx::run },
    Task { name: "prefix", summary: prefix::SUMMARY, help: prefix::HELP, run: prefix::run },
    Task { name: "transport", summary: transport::SUMMARY, help: transport::HELP, run: transport::run },
];
