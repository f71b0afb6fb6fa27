//! Who this process is, by the variables of the launcher that started it: `shunt run`, torchrun, srun, or a launcher of
//! MPI that gives rank and size. Pure.

use crate::nodes::first_node;
use shunt_host::job::{Flags, Job, JobError};
use thiserror::Error;

/// Added to torchrun's port, which its own store listens at.
const AFTER_MASTER: u32 = 1;
/// First port that jobs of srun take, and how many there are.
const SLURM_PORTS: (u64, u64) = (20_000, 20_000);

/// Who started this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `shunt run`, or variables of ours set by hand.
    Shunt,
    /// torchrun.
    Torch,
    /// srun.
    Slurm,
    /// A launcher that sets `PMI_RANK` and `PMI_SIZE`.
    Pmi,
    /// Open MPI's.
    OpenMpi,
}

impl Launcher {
    /// In this order: a launcher of MPI in a job of Slurm's leaves its variables there, which speak of other processes.
    const ALL: [Self; 5] = [Self::Shunt, Self::Torch, Self::OpenMpi, Self::Pmi, Self::Slurm];

    /// Variables with rank and size.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Shunt => ("SHUNT_RANK", "SHUNT_WORLD"),
            Self::Torch => ("RANK", "WORLD_SIZE"),
            Self::Slurm => ("SLURM_PROCID", "SLURM_NTASKS"),
            Self::Pmi => ("PMI_RANK", "PMI_SIZE"),
            Self::OpenMpi => ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        }
    }

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shunt => "shunt run",
            Self::Torch => "torchrun",
            Self::Slurm => "srun",
            Self::Pmi => "PMI",
            Self::OpenMpi => "Open MPI",
        }
    }
}

/// Why it is not known who this process is.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PlaceError {
    /// The variables make no job.
    #[error(transparent)]
    Job(#[from] JobError),
    /// One of a launcher's variables makes no sense.
    #[error("{launcher} gives {name}={met:?}; {want} is right")]
    Variable {
        /// Who.
        launcher: &'static str,
        /// Variable.
        name: &'static str,
        /// What it holds; empty: it is not set.
        met: String,
        /// What would be right.
        want: &'static str,
    },
    /// Rank and size are known, rank 0's address is not.
    #[error(
        "{launcher} says that this is PE {rank} of {world}, but not where PE 0 listens; set SHUNT_ROOT=HOST:PORT, the \
         same for all, or start with a unique id"
    )]
    NoRoot {
        /// Who.
        launcher: &'static str,
        /// This process.
        rank: u32,
        /// Processes.
        world: u32,
    },
}

/// The job that the environment names; `None`: it names none, so this process is alone.
///
/// # Errors
/// What it names is no job.
pub fn place(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<(Launcher, Job)>, PlaceError> {
    let set =
        |launcher: &Launcher| lookup(launcher.names().0).is_some() && lookup(launcher.names().1).is_some();
    let Some(launcher) = Launcher::ALL.into_iter().find(set) else {
        // Half of our own variables is a mistake; those of others may be there for other reasons.
        return Ok(Job::from_lookup(&Flags::default(), lookup)?.map(|job| (Launcher::Shunt, job)));
    };
    if launcher == Launcher::Shunt {
        return Ok(Job::from_lookup(&Flags::default(), lookup)?.map(|job| (launcher, job)));
    }
    let (rank, world) =
        (number(launcher, launcher.names().0, lookup)?, number(launcher, launcher.names().1, lookup)?);
    if world == 1 {
        return Ok(None);
    }
    let root = match lookup("SHUNT_ROOT") {
        Some(root) => Some(root),
        None => root_of(launcher, lookup)?,
    };
    let Some(root) = root else {
        return Err(PlaceError::NoRoot { launcher: launcher.name(), rank, world });
    };
    let flags = Flags { rank: Some(rank), world: Some(world), root: Some(root) };
    let job = Job::from_lookup(&flags, &|name| match name {
        // They would speak of another job than the launcher's.
        "SHUNT_RANK" | "SHUNT_WORLD" | "SHUNT_ROOT" | "SHUNT_ROOT_FD" => None,
        name => lookup(name),
    })?;
    Ok(job.map(|job| (launcher, job)))
}

/// Where rank 0 listens, as far as the launcher says.
fn root_of(
    launcher: Launcher,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, PlaceError> {
    let bracketed = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    match launcher {
        Launcher::Torch => {
            let host = lookup("MASTER_ADDR").filter(|host| !host.trim().is_empty());
            let Some(host) = host else {
                return Err(missing(launcher, "MASTER_ADDR", "the address of rank 0's machine"));
            };
            let port = number(launcher, "MASTER_PORT", lookup)? + AFTER_MASTER;
            Ok(Some(format!("{}:{port}", bracketed(host.trim()))))
        }
        Launcher::Slurm => {
            let list = lookup("SLURM_STEP_NODELIST").or_else(|| lookup("SLURM_JOB_NODELIST"));
            let Some(list) = list else {
                return Err(missing(launcher, "SLURM_STEP_NODELIST", "a list of nodes"));
            };
            let Some(host) = first_node(&list) else {
                let (name, want) = ("SLURM_STEP_NODELIST", "a list of nodes, such as n[01-04,7]");
                return Err(PlaceError::Variable { launcher: launcher.name(), name, met: list, want });
            };
            let job: u64 = number(launcher, "SLURM_JOB_ID", lookup)?.into();
            let step = lookup("SLURM_STEP_ID").and_then(|step| step.trim().parse::<u32>().ok()).unwrap_or(0);
            let port = SLURM_PORTS.0 + (job * 31 + u64::from(step)) % SLURM_PORTS.1;
            Ok(Some(format!("{}:{port}", bracketed(&host))))
        }
        Launcher::Shunt | Launcher::Pmi | Launcher::OpenMpi => Ok(None),
    }
}

fn missing(launcher: Launcher, name: &'static str, want: &'static str) -> PlaceError {
    PlaceError::Variable { launcher: launcher.name(), name, met: String::new(), want }
}

fn number(
    launcher: Launcher,
    name: &'static str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<u32, PlaceError> {
    let met = lookup(name).unwrap_or_default();
    let (launcher, want) = (launcher.name(), "a whole number");
    met.trim().parse().map_err(|_| PlaceError::Variable { launcher, name, met, want })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: (&str, &str) = ("SHUNT_SECRET", "0123456789abcdef");
    const TORCH: [(&str, &str); 4] =
        [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "10.0.0.7"), ("MASTER_PORT", "29500")];

    fn with(pairs: &[(&str, &str)]) -> Result<Option<(Launcher, Job)>, PlaceError> {
        place(&|name| pairs.iter().find(|(have, _)| *have == name).map(|(_, value)| (*value).to_owned()))
    }

    fn root(pairs: &[(&str, &str)]) -> (Launcher, u32, u32, String) {
        let (launcher, job) = with(pairs).unwrap().unwrap();
        (launcher, job.rank, job.world, job.root.to_string())
    }

    #[test]
    fn nobody_started_it_or_it_is_alone() {
        assert_eq!(with(&[]), Ok(None));
        assert_eq!(with(&[("RANK", "0")]), Ok(None));
        assert_eq!(with(&[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok(None));
    }

    #[test]
    fn ours_win_over_all_others() {
        let ours = [("SHUNT_RANK", "2"), ("SHUNT_WORLD", "3"), ("SHUNT_ROOT", "127.0.0.1:9")];
        let met = root(&[&ours[..], &TORCH[..], &[("PMI_RANK", "0"), ("PMI_SIZE", "2")]].concat());
        assert_eq!(met, (Launcher::Shunt, 2, 3, "127.0.0.1:9".to_owned()));
        assert!(with(&ours[..2]).unwrap_err().to_string().contains("root is not"));
    }

    #[test]
    fn torchrun() {
        let met = root(&[&TORCH[..], &[SECRET]].concat());
        assert_eq!(met, (Launcher::Torch, 1, 4, "10.0.0.7:29501".to_owned()));
        let own = [&TORCH[..], &[SECRET, ("SHUNT_ROOT", "10.0.0.8:7")]].concat();
        assert_eq!(root(&own).3, "10.0.0.8:7");
        assert!(with(&TORCH).unwrap_err().to_string().contains("set SHUNT_SECRET"));
        assert!(with(&TORCH[..2]).unwrap_err().to_string().contains("torchrun gives MASTER_ADDR=\"\""));
        assert!(with(&TORCH[..3]).unwrap_err().to_string().contains("MASTER_PORT"));
    }

    #[test]
    fn srun() {
        let srun = [
            ("SLURM_PROCID", "3"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_STEP_NODELIST", "gpu[07-09,12]"),
            ("SLURM_JOB_ID", "100"),
            ("SLURM_STEP_ID", "2"),
            SECRET,
        ];
        assert_eq!(root(&srun), (Launcher::Slurm, 3, 4, "gpu07:23102".to_owned()));
        let other = [&srun[..2], &[("SLURM_JOB_NODELIST", "[")], &srun[3..]].concat();
        assert!(with(&other).unwrap_err().to_string().contains("a list of nodes"));
    }

    #[test]
    fn a_launcher_of_mpi_wins_over_the_job_it_runs_in() {
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        let root = ("SHUNT_ROOT", "localhost:7000");
        for pair in [("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")] {
            let (launcher, job) =
                with(&[&slurm[..], &[(pair.0, "3"), (pair.1, "4"), root]].concat()).unwrap().unwrap();
            assert!(matches!(launcher, Launcher::Pmi | Launcher::OpenMpi) && job.rank == 3);
        }
    }

    #[test]
    fn launchers_that_know_no_address_say_what_is_missing() {
        for pair in [("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")] {
            let pmi = [(pair.0, "1"), (pair.1, "2")];
            let error = with(&pmi).unwrap_err().to_string();
            assert!(error.contains("PE 1 of 2") && error.contains("SHUNT_ROOT"), "{error}");
            let met = root(&[&pmi[..], &[("SHUNT_ROOT", "localhost:7000")]].concat());
            assert_eq!((met.1, met.2, met.3), (1, 2, "localhost:7000".to_owned()));
        }
        assert!(with(&[("PMI_RANK", "one"), ("PMI_SIZE", "2")]).unwrap_err().to_string().contains("\"one\""));
    }
}
