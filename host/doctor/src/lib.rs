//! What a machine has for GPU-initiated RDMA, what is missing, and what to do about it.
//!
//! Every check reads files below a root, so that a copy of another machine's is judged as well as this one. Where a
//! fact comes from stands at its check. On this machine itself, libraries are loaded and NICs opened once with DEVX and
//! asked what they can do. Nothing is changed.

mod fabric;
pub mod first_day;
mod gpu;
mod nic;
mod system;

use shunt_topology::discover::{Inventory, SysRoot};
use shunt_topology::topology::Topology;
use shunt_topology::topology::select::Selection;

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, less well than it could, or it may not.
    Warn,
    /// Hardware cannot be used like this.
    Missing,
    /// Cannot be read from here: somebody has to look.
    ByHand,
    /// Says nothing on this machine.
    NotApplicable,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Missing => "missing",
            Self::ByHand => "look",
            Self::NotApplicable => "n/a",
        })
    }
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// RDMA devices and their driver.
    Nic,
    /// GPUs and their driver.
    Gpu,
    /// PCIe, memory, rights.
    System,
    /// What lies between machines.
    Fabric,
}

impl std::fmt::Display for Area {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Nic => "NIC",
            Self::Gpu => "GPU",
            Self::System => "PCIe, memory, rights",
            Self::Fabric => "network",
        })
    }
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it is about.
    pub area: Area,
    /// Name, the same on every machine.
    pub name: &'static str,
    /// Result.
    pub verdict: Verdict,
    /// What was met.
    pub met: String,
    /// What to do; empty where nothing is to be done.
    pub fix: String,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, met: impl Into<String>) -> Self {
        Self { area: Area::System, name, verdict, met: met.into(), fix: String::new() }
    }

    fn ok(name: &'static str, met: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, met)
    }

    fn not_applicable(name: &'static str, why: impl Into<String>) -> Self {
        Self::new(name, Verdict::NotApplicable, why)
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }
}

/// What the checks look at.
pub struct Machine<'a> {
    /// Where files are read from.
    pub root: &'a SysRoot,
    /// The environment.
    pub lookup: &'a dyn Fn(&str) -> Option<String>,
    /// What was found.
    pub inventory: &'a Inventory,
    /// How it was ranked.
    pub topology: &'a Topology,
    /// What the environment wishes.
    pub selection: &'a Selection,
}

impl Machine<'_> {
    fn read(&self, path: &str) -> Option<String> {
        self.root.read(path)
    }

    /// The value of a line `name: value`, or `name value`, of a file.
    fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.read(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().to_owned())
    }

    fn module(&self, name: &str) -> bool {
        self.root.exists(&format!("sys/module/{name}"))
    }

    fn has_nic(&self) -> bool {
        !self.topology.rails.is_empty() || !self.topology.set_aside.is_empty()
    }

    fn has_gpu(&self) -> bool {
        !self.inventory.gpus.is_empty()
    }
}

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

/// `a, b, c and 5 more`.
fn short_list(names: &[String]) -> String {
    const SHOWN: usize = 4;
    match names.len() {
        0 => "none".into(),
        n if n <= SHOWN + 1 => names.join(", "),
        n => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
    }
}
