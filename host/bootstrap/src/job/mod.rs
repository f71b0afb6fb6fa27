//! Who this process is in its job: rank, world, and how to find the others, from flags and environment. Pure until the
//! job is joined, but for a launcher that tells the size of a job by its library alone.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`launcher`] | which launcher started this process, and what its variables say |
//! | [`nodes`] | Slurm's lists of nodes |
//! | [`pmi`], [`pmix`] | launchers that carry rank 0's unique id |

pub mod launcher;
pub mod nodes;
pub mod pmi;
pub mod pmix;

pub use crate::WORLD_MAX;
pub use launcher::{Launcher, LauncherError};
pub use pmix::PmixError;
pub use shunt_settings::FABRIC;

use crate::tcp::address::{self, RootAddress};
use crate::tcp::error::{SecretError, UniqueIdError};
use crate::tcp::interface::InterfaceSpec;
use crate::tcp::secret::{self, Secret};
use crate::tcp::{JoinError, JoinOptions, UniqueId, listener_from_fd};

use shunt_settings::{ConfigError, Lookup};
use std::fmt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Variable that names the interface.
const INTERFACE: &str = "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME";

/// What was given on the command line; it wins over the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--rank`
    pub rank: Option<u32>,
    /// `--world`
    pub world: Option<u32>,
    /// `--root`
    pub root: Option<String>,
}

/// The variable that names a file with the secret.
const SECRET_FILE: &str = "SHUNT_SECRET_FILE";

/// Where the job secret comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// Text, from `SHUNT_SECRET`.
    Text(String),
    /// A file, from `SHUNT_SECRET_FILE`.
    File(PathBuf),
    /// This user's own, made at first use in the runtime directory.
    User(PathBuf),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(..)"),
            Self::File(path) => write!(f, "File({path:?})"),
            Self::User(path) => write!(f, "User({path:?})"),
        }
    }
}

impl SecretSource {
    /// Reads or makes it.
    pub fn load(&self) -> Result<Secret, SecretError> {
        match self {
            Self::Text(text) => Secret::from_text(text),
            Self::File(path) => Secret::from_file(path)
                .map_err(|error| SecretError::Named { variable: SECRET_FILE, error: Box::new(error) }),
            Self::User(directory) => Secret::of_user(directory),
        }
    }
}

/// How the processes of a job find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// At rank 0's address.
    Root {
        /// Where rank 0 listens.
        root: RootAddress,
        /// Rank 0 only: its listening socket, inherited.
        fd: Option<i32>,
        /// Job secret.
        secret: SecretSource,
        /// What tells this job from others that have the same secret; a part of the key.
        id: String,
    },
    /// The launcher keeps rank 0's unique id, by PMI-1 on this descriptor.
    Pmi(i32),
    /// The same by PMIx.
    Pmix,
}

/// A process's place in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Who says so.
    pub launcher: Launcher,
    /// This process.
    pub rank: u32,
    /// Processes in the job.
    pub world: u32,
    /// How they find each other.
    pub meeting: Meeting,
    /// Soft fabric shared by the processes of one machine, if one was named.
    pub fabric: Option<String>,
    /// Interface of bootstrap and agents.
    pub interface: Option<InterfaceSpec>,
}

/// What it takes to join a job.
#[derive(Debug)]
pub struct Joining {
    /// For [`TcpNet::join`](crate::tcp::TcpNet::join).
    pub options: JoinOptions,
    /// Soft fabric of the processes of one machine.
    pub fabric: String,
    /// Whether its name was made up for this job: nobody else knows it.
    pub made_up: bool,
}

/// What was typed or set makes no job. Exit status 2.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum JobError {
    /// A variable.
    #[error(transparent)]
    Variable(#[from] ConfigError),
    /// `--root`.
    #[error("--root: {0}")]
    Root(#[from] address::AddressError),
    /// A part is missing.
    #[error(
        "{have} is given, {missing} is not; rank, world and root belong together \
             (--rank, --world and --root, or SHUNT_RANK, SHUNT_WORLD and SHUNT_ROOT)"
    )]
    Missing {
        /// Part that is there.
        have: &'static str,
        /// Part that is not.
        missing: &'static str,
    },
    /// A launcher's variables.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// PMIx does not say how many processes there are.
    #[error("PMIx: {0}")]
    Pmix(#[from] PmixError),
    /// Rank and size are known, rank 0's address is not.
    #[error(
        "{launcher} says that this is rank {rank} of {world}, but not where rank 0 listens; set SHUNT_ROOT=HOST:PORT, \
         the same for all, or start with a unique id"
    )]
    NoRoot {
        /// Who.
        launcher: &'static str,
        /// This process.
        rank: u32,
        /// Processes.
        world: u32,
    },
    /// No such rank.
    #[error("rank: expected 0 to {} in a world of {world}, got {rank}", world.saturating_sub(1))]
    Rank {
        /// Rank.
        rank: u32,
        /// World.
        world: u32,
    },
    /// No such world.
    #[error("world: expected 1 to {}, got {met}", WORLD_MAX)]
    World {
        /// What was met.
        met: u32,
    },
    /// Two secrets.
    #[error("SHUNT_SECRET and SHUNT_SECRET_FILE are both set; set only one of them")]
    TwoSecrets,
    /// No secret for a root that others can reach.
    #[error(
        "root {root} can be reached from other machines; set SHUNT_SECRET or SHUNT_SECRET_FILE to the same secret in \
         all processes"
    )]
    NoSecret {
        /// Root address.
        root: RootAddress,
    },
    /// A descriptor for somebody who does not listen.
    #[error("SHUNT_ROOT_FD is set on rank {rank}; only rank 0 listens there")]
    RootFd {
        /// Rank.
        rank: u32,
    },
}

/// A name for a soft fabric: it becomes part of a socket's name.
pub fn check_fabric_name(name: &str) -> Result<&str, &'static str> {
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    match letters && (1..=32).contains(&name.len()) && !name.starts_with('.') {
        true => Ok(name),
        false => Err("expected 1 to 32 letters, digits, dots, dashes or underscores, no dot in front"),
    }
}

/// Whether the variables that `lookup` knows may hold what they hold, each by itself.
pub fn check(lookup: &dyn Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
    let env = Lookup(lookup);
    env.number("SHUNT_RANK", 0..=WORLD_MAX - 1)?;
    env.number("SHUNT_WORLD", 1..=WORLD_MAX)?;
    shunt_settings::local_rank(lookup)?;
    env.parse("SHUNT_ROOT", |text| text.parse::<RootAddress>().ok())?;
    env.number("SHUNT_ROOT_FD", 0..=i32::MAX as u32)?;
    env.parse("SHUNT_FABRIC", |text| check_fabric_name(text).ok().map(|_| ()))?;
    env.parse(INTERFACE, |text| text.parse::<InterfaceSpec>().ok())?;
    let file = env.parse(SECRET_FILE, |text| Secret::from_file(Path::new(text)).ok());
    // A file that is missing and one that others can read are mended in different ways.
    let why = |met: String| Secret::from_file(Path::new(&met)).err().map_or(met, |error| error.to_string());
    file.map_err(|error| ConfigError { met: why(error.met), ..error })?;
    let secret = env.parse("SHUNT_SECRET", |text| Secret::from_text(text).ok());
    // What is wrong with a secret is said without saying the secret.
    secret.map(|_| ()).map_err(|error| ConfigError { met: "(hidden)".into(), ..error })
}

impl Job {
    /// The job this process belongs to: that of the flags, else that of our own variables, else that of its launcher
    /// ([`Launcher::ALL`] is the order). `None`: none of them names one, or a launcher says that it is alone. Asks PMIx
    /// for the size of the job where nobody else knows it; all else is pure.
    ///
    /// # Errors
    /// What is set makes no job.
    pub fn from_lookup(
        flags: &Flags,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, JobError> {
        let env = Lookup(lookup);
        let flagged = flags.rank.is_some() || flags.world.is_some() || flags.root.is_some();
        let found = if flagged { None } else { launcher::find(lookup)? };
        let (launcher, rank, world, root, id) = match found {
            Some(place) if place.launcher != Launcher::Shunt => {
                let world = place.world.map_or_else(pmix::size, Ok)?;
                if world == 1 {
                    return Ok(None);
                }
                let root = place.root.map(|text| parse_root(&text)).transpose()?;
                (place.launcher, place.rank, world, root, place.id)
            }
            _ => {
                let rank = flags.rank.or(env.number("SHUNT_RANK", 0..=WORLD_MAX - 1)?);
                let world = flags.world.or(env.number("SHUNT_WORLD", 1..=WORLD_MAX)?);
                let root = match &flags.root {
                    Some(text) => Some(text.parse::<RootAddress>()?),
                    None => env.parse("SHUNT_ROOT", |text| text.parse().ok())?,
                };
                match (rank, world, root) {
                    (None, None, None) => return Ok(None),
                    (Some(rank), Some(world), Some(root)) => {
                        (Launcher::Shunt, rank, world, Some(root), String::new())
                    }
                    (rank, world, root) => {
                        return Err(incomplete(rank.is_some(), world.is_some(), root.is_some()));
                    }
                }
            }
        };
        if !(1..=WORLD_MAX).contains(&world) {
            return Err(JobError::World { met: world });
        }
        if rank >= world {
            return Err(JobError::Rank { rank, world });
        }
        let meeting = match root {
            Some(root) => at_root(launcher, rank, root, id, lookup)?,
            None => by_launcher(launcher, rank, world, lookup)?,
        };
        let fabric = env.parse("SHUNT_FABRIC", |text| check_fabric_name(text).ok().map(str::to_owned))?;
        let interface = env.parse(INTERFACE, |text| text.parse().ok())?;
        Ok(Some(Self { launcher, rank, world, meeting, fabric, interface }))
    }

    /// As [`Job::from_lookup`], with the process's environment.
    pub fn from_env(flags: &Flags) -> Result<Option<Self>, JobError> {
        Self::from_lookup(flags, &|name| std::env::var(name).ok())
    }

    /// What it takes to join: loads the secret and takes over the inherited socket, or asks the launcher for rank 0's
    /// unique id. Once only: the socket is gone then.
    ///
    /// # Errors
    /// The secret or the socket cannot be had, or the launcher does not answer.
    pub fn join(&self) -> Result<Joining, JoinError> {
        let (mut options, made_up) = match &self.meeting {
            Meeting::Root { root, fd, secret, id } => {
                let secret = secret.load()?;
                let secret = if id.is_empty() { secret } else { secret.of_job(id) };
                let mut options = JoinOptions::new(self.rank, self.world, root.clone(), secret);
                options.listener = fd.map(|fd| listener_from_fd(fd, root)).transpose()?;
                // Two shells share the usual one.
                let usual = self.launcher == Launcher::Shunt;
                (
                    options,
                    if usual { FABRIC.to_owned() } else { format!("job-{}", sum(&format!("{id} {root}"))) },
                )
            }
            Meeting::Pmi(_) | Meeting::Pmix => {
                let made = match self.rank {
                    0 => Some(UniqueId::create(self.interface.as_ref())?),
                    _ => None,
                };
                let text = made.as_ref().map(|(id, _)| id.to_text());
                let id = self.carried(text)?;
                let mut options = JoinOptions::new(self.rank, self.world, id.root(), id.secret());
                options.listener = made.map(|(_, listener)| listener);
                (options, format!("uid-{}", sum(&id.to_text())))
            }
        };
        options.interface = self.interface.clone();
        let own = self.launcher == Launcher::Shunt || self.fabric.is_some();
        Ok(Joining { options, fabric: self.fabric.clone().unwrap_or(made_up), made_up: !own })
    }

    /// Rank 0's unique id, which the launcher carries.
    fn carried(&self, mine: Option<String>) -> Result<UniqueId, JoinError> {
        let launcher = self.launcher.name();
        let failed = |detail: String| JoinError::Launcher { launcher, detail };
        let text = match self.meeting {
            Meeting::Pmi(fd) => pmi::exchange_at(fd, mine.as_deref()).map_err(|e| failed(e.to_string())),
            _ => pmix::exchange(mine).map_err(|e| failed(e.to_string())),
        };
        text?.parse().map_err(|error: UniqueIdError| failed(error.to_string()))
    }
}

/// The address that a launcher's variables come to.
fn parse_root(text: &str) -> Result<RootAddress, JobError> {
    Ok(text.parse::<RootAddress>()?)
}

/// Eight hexadecimal digits of a text.
fn sum(text: &str) -> String {
    secret::digest(text.as_bytes())[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn at_root(
    launcher: Launcher,
    rank: u32,
    root: RootAddress,
    id: String,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Meeting, JobError> {
    let fd = match launcher {
        Launcher::Shunt => Lookup(lookup).number("SHUNT_ROOT_FD", 0..=i32::MAX as u32)?.map(|fd| fd as i32),
        // It would be another job's.
        _ => None,
    };
    if fd.is_some() && rank != 0 {
        return Err(JobError::RootFd { rank });
    }
    Ok(Meeting::Root { secret: secret_source(&root, lookup)?, root, fd, id })
}

/// The launcher tells no address: does it carry a unique id?
fn by_launcher(
    launcher: Launcher,
    rank: u32,
    world: u32,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Meeting, JobError> {
    let pmix = Launcher::Pmix.variables().into_iter().all(|name| lookup(name).is_some());
    let fd = lookup("PMI_FD").and_then(|fd| fd.trim().parse::<i32>().ok()).filter(|fd| *fd > 2);
    match (launcher, fd) {
        (Launcher::Pmix | Launcher::OpenMpi, _) if pmix => Ok(Meeting::Pmix),
        (Launcher::Pmi, Some(fd)) => Ok(Meeting::Pmi(fd)),
        _ => Err(JobError::NoRoot { launcher: launcher.name(), rank, world }),
    }
}

fn incomplete(rank: bool, world: bool, root: bool) -> JobError {
    let parts = [(rank, "rank"), (world, "world"), (root, "root")];
    let find = |given: bool| parts.iter().find(|part| part.0 == given).map_or("", |part| part.1);
    JobError::Missing { have: find(true), missing: find(false) }
}

/// Where the secret comes from of what meets at an address.
///
/// # Errors
/// Two are set; none is, and other machines reach the address.
pub fn secret_source(
    root: &RootAddress,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<SecretSource, JobError> {
    let env = Lookup(lookup);
    let text = env.parse("SHUNT_SECRET", |text| Secret::from_text(text).ok().map(|_| text.to_owned()));
    // The secret itself must not stand in an error.
    let text = text.map_err(|error| ConfigError { met: "..".to_owned(), ..error })?;
    let file = env.parse(SECRET_FILE, |path| (!path.is_empty()).then(|| PathBuf::from(path)))?;
    match (text, file) {
        (Some(_), Some(_)) => Err(JobError::TwoSecrets),
        (Some(text), None) => Ok(SecretSource::Text(text)),
        (None, Some(path)) => Ok(SecretSource::File(path)),
        (None, None) if root.is_loopback() => Ok(SecretSource::User(secret::runtime_directory(lookup))),
        (None, None) => Err(JobError::NoSecret { root: root.clone() }),
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
