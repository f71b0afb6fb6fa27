//! A check and its result, and what checks look at.

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
    pub(crate) fn new(name: &'static str, verdict: Verdict, met: impl Into<String>) -> Self {
        Self { area: Area::System, name, verdict, met: met.into(), fix: String::new() }
    }

    pub(crate) fn ok(name: &'static str, met: impl Into<String>) -> Self {
        Self::new(name, Verdict::Ok, met)
    }

    pub(crate) fn not_applicable(name: &'static str, why: impl Into<String>) -> Self {
        Self::new(name, Verdict::NotApplicable, why)
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
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
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        self.root.read(path)
    }

    /// The value of a line `name: value`, or `name value`, of a file.
    pub(crate) fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.read(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().to_owned())
    }

    pub(crate) fn module(&self, name: &str) -> bool {
        self.root.exists(&format!("sys/module/{name}"))
    }

    pub(crate) fn has_nic(&self) -> bool {
        !self.topology.rails.is_empty() || !self.topology.set_aside.is_empty()
    }

    pub(crate) fn has_gpu(&self) -> bool {
        !self.inventory.gpus.is_empty()
    }
}

/// `a, b, c and 5 more`.
pub(crate) fn short_list(names: &[String]) -> String {
    const SHOWN: usize = 4;
    match names.len() {
        0 => "none".into(),
        n if n <= SHOWN + 1 => names.join(", "),
        n => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
    }
}
