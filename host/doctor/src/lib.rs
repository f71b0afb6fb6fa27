//! What a machine has for GPU-initiated RDMA, what is missing, and what to do about it.
//!
//! Every check reads files below a root, so that a copy of another machine's is judged as well as this one. Where a
//! fact comes from stands at its check. On this machine itself, libraries are loaded and NICs opened once with DEVX and
//! asked what they can do. Nothing is changed.

mod check;
mod fabric;
pub mod first_day;
mod gpu;
mod nic;
mod system;

pub use check::{Area, Check, Machine, Verdict};

/// Runs every check.
pub fn examine(machine: &Machine<'_>) -> Vec<Check> {
    let areas: [(Area, Vec<Check>); 4] = [
        (Area::Nic, nic::checks(machine)),
        (Area::Gpu, gpu::checks(machine)),
        (Area::System, system::checks(machine)),
        (Area::Fabric, fabric::checks(machine)),
    ];
    let mark =
        |(area, checks): (Area, Vec<Check>)| checks.into_iter().map(move |check| Check { area, ..check });
    let mut checks: Vec<Check> = areas.into_iter().flat_map(mark).collect();
    if let Some(folder) = missing_modules(machine) {
        for check in checks.iter_mut().filter(|check| check.fix.contains("modprobe ")) {
            check.fix = format!(
                "/{folder} is missing: the kernel has no modules here, modprobe finds none; a kernel with \
                 its modules, or in a container the host's; then: {}",
                check.fix
            );
        }
    }
    checks
}

/// The folder of the running kernel's modules, if it is not there.
fn missing_modules(machine: &Machine<'_>) -> Option<String> {
    let release = machine.read("proc/sys/kernel/osrelease").filter(|release| !release.is_empty())?;
    let folder = format!("lib/modules/{release}");
    // A copy of sys/ and proc/ alone says nothing about it.
    (machine.root.exists("lib") && !machine.root.exists(&folder)).then_some(folder)
}
