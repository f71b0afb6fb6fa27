//! Who this process is, by the variables of the launcher that started it. Pure.

use super::nodes::first_node;
use thiserror::Error;

/// Added to torchrun's port, which its own store listens at.
const AFTER_MASTER: u32 = 1;
/// First port that jobs of srun take, and how many there are.
const SLURM_PORTS: (u64, u64) = (20_000, 20_000);
/// Steps from here on are no srun's: a batch script, an interactive shell.
const SLURM_STEPS: u32 = 0xffff_fff0;

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Who started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `shunt run`, or variables of ours set by hand.
    Shunt,
    /// torchrun.
    Torch,
    /// Open MPI's.
    OpenMpi,
    /// One that speaks PMIx: prterun, `srun --mpi=pmix`.
    Pmix,
    /// One that sets `PMI_RANK` and `PMI_SIZE`: Hydra, `srun --mpi=pmi2`.
    Pmi,
    /// srun.
    Slurm,
    /// Kubernetes, a job whose completions are indexed.
    Kubernetes,
}

impl Launcher {
    /// In order of precedence. A launcher of MPI in a job of Slurm's leaves its variables there, which speak of other
    /// processes; torchrun may be started by either.
    pub const ALL: [Self; 7] =
        [Self::Shunt, Self::Torch, Self::OpenMpi, Self::Pmix, Self::Pmi, Self::Slurm, Self::Kubernetes];

    /// The variables by which it is known.
    pub const fn variables(self) -> [&'static str; 2] {
        match self {
            Self::Shunt => ["SHUNT_RANK", "SHUNT_WORLD"],
            Self::Torch => ["RANK", "WORLD_SIZE"],
            Self::OpenMpi => ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
            Self::Pmix => ["PMIX_RANK", "PMIX_NAMESPACE"],
            Self::Pmi => ["PMI_RANK", "PMI_SIZE"],
            Self::Slurm => ["SLURM_PROCID", "SLURM_STEP_ID"],
            Self::Kubernetes => ["JOB_COMPLETION_INDEX", "SHUNT_WORLD"],
        }
    }

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shunt => "shunt run",
            Self::Torch => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Pmix => "PMIx",
            Self::Pmi => "PMI",
            Self::Slurm => "srun",
            Self::Kubernetes => "Kubernetes",
        }
    }

    fn started(self, lookup: Lookup<'_>) -> bool {
        let set = self.variables().into_iter().all(|name| lookup(name).is_some());
        match self {
            // What a batch script starts by itself is no part of a job, whatever its allocation.
            Self::Slurm => {
                let step = lookup("SLURM_STEP_ID").and_then(|step| step.trim().parse::<u32>().ok());
                set && step.is_some_and(|step| step < SLURM_STEPS)
            }
            _ => set,
        }
    }

    fn world(self, lookup: Lookup<'_>) -> Result<Option<u32>, LauncherError> {
        match self {
            // It tells those who ask by its library.
            Self::Pmix => Ok(None),
            Self::Slurm if lookup("SLURM_STEP_NUM_TASKS").is_some() => {
                number(self, "SLURM_STEP_NUM_TASKS", lookup).map(Some)
            }
            Self::Slurm => number(self, "SLURM_NTASKS", lookup).map(Some),
            _ => number(self, self.variables()[1], lookup).map(Some),
        }
    }
}

/// What a launcher's variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Who.
    pub launcher: Launcher,
    /// This process.
    pub rank: u32,
    /// Processes; `None`: PMIx knows.
    pub world: Option<u32>,
    /// Where rank 0 listens, if that can be known.
    pub root: Option<String>,
    /// What tells this job from others of the same launcher.
    pub id: String,
}

/// A launcher's variables make no sense.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LauncherError {
    /// One of them.
    #[error("{launcher} gives {name}={met:?}: expected {want}")]
    Variable {
        /// Who.
        launcher: &'static str,
        /// Variable.
        name: &'static str,
        /// What it holds; empty: it is not set.
        met: String,
        /// What would do.
        want: &'static str,
    },
    /// A job of one inside one of many: as many jobs by themselves, each of which would look well.
    #[error(
        "{inner} says that this is rank 0 of 1, {outer} says rank {rank} of {world}: each process would be a job by \
         itself; unset {first} and {second}, or start all ranks by one launcher"
    )]
    Unconnected {
        /// Who says 1.
        inner: &'static str,
        /// Who says more.
        outer: &'static str,
        /// Rank by that one.
        rank: u32,
        /// Processes by that one.
        world: u32,
        /// Variable of the first.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A pod of an indexed job, and nothing else.
    #[error(
        "JOB_COMPLETION_INDEX={index} is set, but not how many processes there are nor where rank 0 listens: expected \
         SHUNT_WORLD and SHUNT_ROOT=HOST:PORT, the same for all; SHUNT_WORLD=1 is a job by itself"
    )]
    Pod {
        /// Its index.
        index: String,
    },
}

/// Who started this process; `None`: nobody, so it is alone.
///
/// # Errors
/// The variables make no sense, or those of two launchers contradict each other.
pub fn find(lookup: Lookup<'_>) -> Result<Option<Place>, LauncherError> {
    let mut started = Launcher::ALL.into_iter().filter(|launcher| launcher.started(lookup));
    let Some(launcher) = started.next() else {
        return match lookup("JOB_COMPLETION_INDEX") {
            Some(index) if lookup("SHUNT_WORLD").is_none() => Err(LauncherError::Pod { index }),
            _ => Ok(None),
        };
    };
    let rank = number(launcher, launcher.variables()[0], lookup)?;
    let world = launcher.world(lookup)?;
    if world == Some(1) {
        for outer in started.filter(|outer| *outer != Launcher::Kubernetes) {
            // PMIx does not say how many there are here, but a rank above 0 has others.
            let rank = number(outer, outer.variables()[0], lookup)?;
            let world = outer.world(lookup)?.unwrap_or(rank + 1);
            if world > 1 {
                let [first, second] = launcher.variables();
                let (inner, outer) = (launcher.name(), outer.name());
                return Err(LauncherError::Unconnected { inner, outer, rank, world, first, second });
            }
        }
    }
    let root = match lookup("SHUNT_ROOT") {
        Some(root) => Some(root),
        None if world == Some(1) => None,
        None => root_of(launcher, lookup)?,
    };
    Ok(Some(Place { launcher, rank, world, root, id: id_of(launcher, lookup) }))
}

/// What tells a job from others of the same launcher, as each of its processes knows it.
fn id_of(launcher: Launcher, lookup: Lookup<'_>) -> String {
    let text = |name: &str| lookup(name).unwrap_or_default();
    let words: &[&str] = match launcher {
        Launcher::Shunt | Launcher::Pmi | Launcher::Kubernetes => return String::new(),
        Launcher::Torch => &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"],
        Launcher::OpenMpi | Launcher::Pmix => &["PMIX_NAMESPACE"],
        Launcher::Slurm => &["SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID"],
    };
    let words: Vec<String> = words.iter().map(|name| text(name)).collect();
    format!("{} {}", launcher.name(), words.join(" "))
}

/// Where rank 0 listens, as far as the launcher says. All ranks on one machine meet at its loopback.
fn root_of(launcher: Launcher, lookup: Lookup<'_>) -> Result<Option<String>, LauncherError> {
    let bracketed = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let here = "127.0.0.1".to_owned();
    match launcher {
        Launcher::Torch => {
            let host = lookup("MASTER_ADDR").filter(|host| !host.trim().is_empty());
            let Some(host) = host else {
                return Err(missing(launcher, "MASTER_ADDR", "the address of rank 0's machine"));
            };
            let port = number(launcher, "MASTER_PORT", lookup)? + AFTER_MASTER;
            let alone = lookup("LOCAL_WORLD_SIZE").is_some_and(|size| lookup("WORLD_SIZE") == Some(size));
            Ok(Some(format!("{}:{port}", if alone { here } else { bracketed(host.trim()) })))
        }
        Launcher::Slurm => {
            let list = lookup("SLURM_STEP_NODELIST").or_else(|| lookup("SLURM_JOB_NODELIST"));
            let Some(list) = list else {
                return Err(missing(launcher, "SLURM_STEP_NODELIST", "a list of nodes"));
            };
            let Some(host) = first_node(&list) else {
                let (name, want) = ("SLURM_STEP_NODELIST", "a list of nodes, such as n[01-04,7]");
                return Err(LauncherError::Variable { launcher: launcher.name(), name, met: list, want });
            };
            let job: u64 = number(launcher, "SLURM_JOB_ID", lookup)?.into();
            let step: u64 = number(launcher, "SLURM_STEP_ID", lookup)?.into();
            let port = SLURM_PORTS.0 + (job * 31 + step) % SLURM_PORTS.1;
            let alone = lookup("SLURM_STEP_NUM_NODES").is_some_and(|nodes| nodes.trim() == "1");
            Ok(Some(format!("{}:{port}", if alone { here } else { bracketed(&host) })))
        }
        Launcher::Shunt | Launcher::Kubernetes | Launcher::Pmi | Launcher::Pmix | Launcher::OpenMpi => {
            Ok(None)
        }
    }
}

fn missing(launcher: Launcher, name: &'static str, want: &'static str) -> LauncherError {
    LauncherError::Variable { launcher: launcher.name(), name, met: String::new(), want }
}

fn number(launcher: Launcher, name: &'static str, lookup: Lookup<'_>) -> Result<u32, LauncherError> {
    let met = lookup(name).unwrap_or_default();
    let (launcher, want) = (launcher.name(), "a whole number");
    met.trim().parse().map_err(|_| LauncherError::Variable { launcher, name, met, want })
}

#[cfg(test)]
#[path = "launcher_tests.rs"]
mod tests;
