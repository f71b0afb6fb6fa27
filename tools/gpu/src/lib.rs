//! `cargo xtask gpu`, `ptx`, `prefix`, `strangers` and `transport`: device code built, held against its tables and
//! packed; the folder that programs take in NVSHMEM's place, and programs of others that take it.

mod command;
mod gpu;
mod on_gpu;
mod prefix;
mod ptx;
mod strangers;
mod transport;

use anyhow::Result;
use shunt_task::Task;
use shunt_task::stages::Count;
use std::path::Path;

pub use command::stage as gpu_stage;
pub use prefix::night as prefix_night;
pub use prefix::wheel::{Unreachable, library as nvshmem_library};
pub use ptx::{night as ptx_night, stage as ptx_stage};
pub use transport::night as transport_night;

/// The tasks.
pub const TASKS: [Task; 5] = [
    Task { name: "gpu", summary: command::SUMMARY, help: command::HELP, run: command::run },
    Task { name: "ptx", summary: ptx::SUMMARY, help: ptx::HELP, run: ptx::run },
    Task { name: "prefix", summary: prefix::SUMMARY, help: prefix::HELP, run: prefix::run },
    Task { name: "strangers", summary: strangers::SUMMARY, help: strangers::HELP, run: strangers::run },
    Task { name: "transport", summary: transport::SUMMARY, help: transport::HELP, run: transport::run },
];

/// Makes the prefix in `out`, of a release build; with `device` the device library, for which compilers are fetched.
///
/// # Errors
/// What does not build.
pub fn make_prefix(out: &Path, device: bool) -> Result<()> {
    prefix::make_release(out, device)
}

/// The transfer engine for C, in a prefix or a package.
pub use prefix::transfer;

/// The stage of the prefix, whose programs are packed for a machine with a GPU as well.
///
/// # Errors
/// What does not build, link or run, or differs from its table.
pub fn prefix_stage() -> Result<Count> {
    prefix::stage(on_gpu::pack::check_prefix)
}
