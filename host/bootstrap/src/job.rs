//! Who this process is in its job: rank, world, root and secret, from flags and environment. Pure until the job is
//! joined.

pub use crate::WORLD_MAX;
pub use shunt_settings::FABRIC;

use crate::tcp::address::{self, RootAddress};
use crate::tcp::error::SecretError;
use crate::tcp::interface::InterfaceSpec;
use crate::tcp::secret::{self, Secret};
use crate::tcp::{JoinError, JoinOptions, listener_from_fd};

use shunt_settings::{ConfigError, Lookup};
use std::fmt;
use std::path::PathBuf;
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
            Self::File(path) => Secret::from_file(path),
            Self::User(directory) => Secret::of_user(directory),
        }
    }
}

/// A process's place in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// This process.
    pub rank: u32,
    /// Processes in the job.
    pub world: u32,
    /// Where rank 0 listens.
    pub root: RootAddress,
    /// Rank 0 only: its listening socket, inherited.
    pub root_fd: Option<i32>,
    /// Job secret.
    pub secret: SecretSource,
    /// Soft fabric shared by the processes of one machine.
    pub fabric: String,
    /// Interface of bootstrap and agents.
    pub interface: Option<InterfaceSpec>,
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
    #[error("{have} is given, {missing} is not; rank, world and root belong together")]
    Missing {
        /// Part that is there.
        have: &'static str,
        /// Part that is not.
        missing: &'static str,
    },
    /// No such rank.
    #[error("rank is {rank} in a world of {world}; a rank from 0 to {} is right", world.saturating_sub(1))]
    Rank {
        /// Rank.
        rank: u32,
        /// World.
        world: u32,
    },
    /// No such world.
    #[error("world is {met}; a number from 1 to {} is right", WORLD_MAX)]
    World {
        /// What was met.
        met: u32,
    },
    /// Two secrets.
    #[error("SHUNT_SECRET and SHUNT_SECRET_FILE are both set; one of them is right")]
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
        false => Err("1 to 32 letters, digits, dots, dashes or underscores are right, no dot in front"),
    }
}

/// Whether the variables that `lookup` knows may hold what they hold, each by itself.
pub fn check(lookup: &dyn Fn(&str) -> Option<String>) -> Result<(), ConfigError> {
    let env = Lookup(lookup);
    env.number("SHUNT_RANK", 0..=WORLD_MAX - 1)?;
    env.number("SHUNT_WORLD", 1..=WORLD_MAX)?;
    env.parse("SHUNT_ROOT", |text| text.parse::<RootAddress>().ok())?;
    env.number("SHUNT_ROOT_FD", 0..=i32::MAX as u32)?;
    env.parse("SHUNT_FABRIC", |text| check_fabric_name(text).ok().map(|_| ()))?;
    env.parse(INTERFACE, |text| text.parse::<InterfaceSpec>().ok())?;
    env.parse("SHUNT_SECRET_FILE", |text| Secret::from_file(&PathBuf::from(text)).ok())?;
    let secret = env.parse("SHUNT_SECRET", |text| Secret::from_text(text).ok());
    // What is wrong with a secret is said without saying the secret.
    secret.map(|_| ()).map_err(|error| ConfigError { met: "(hidden)".into(), ..error })
}

impl Job {
    /// The job this process belongs to; `None` if neither flags nor environment name one.
    pub fn from_lookup(
        flags: &Flags,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, JobError> {
        let env = Lookup(lookup);
        let rank = flags.rank.or(env.number("SHUNT_RANK", 0..=WORLD_MAX - 1)?);
        let world = flags.world.or(env.number("SHUNT_WORLD", 1..=WORLD_MAX)?);
        let root = match &flags.root {
            Some(text) => Some(text.parse::<RootAddress>()?),
            None => env.parse("SHUNT_ROOT", |text| text.parse().ok())?,
        };
        let (rank, world, root) = match (rank, world, root) {
            (None, None, None) => return Ok(None),
            (Some(rank), Some(world), Some(root)) => (rank, world, root),
            (rank, world, root) => return Err(incomplete(rank.is_some(), world.is_some(), root.is_some())),
        };
        if !(1..=WORLD_MAX).contains(&world) {
            return Err(JobError::World { met: world });
        }
        if rank >= world {
            return Err(JobError::Rank { rank, world });
        }
        let root_fd = env.number("SHUNT_ROOT_FD", 0..=i32::MAX as u32)?.map(|fd| fd as i32);
        if root_fd.is_some() && rank != 0 {
            return Err(JobError::RootFd { rank });
        }
        Ok(Some(Self {
            rank,
            world,
            root_fd,
            secret: secret_source(&root, lookup)?,
            fabric: Self::fabric_from_lookup(lookup)?,
            interface: env.parse(INTERFACE, |text| text.parse().ok())?,
            root,
        }))
    }

    /// As [`Job::from_lookup`], with the process's environment.
    pub fn from_env(flags: &Flags) -> Result<Option<Self>, JobError> {
        Self::from_lookup(flags, &|name| std::env::var(name).ok())
    }

    /// The soft fabric named in the environment, else the default one.
    pub fn fabric_from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, JobError> {
        let name =
            Lookup(lookup).parse("SHUNT_FABRIC", |text| check_fabric_name(text).ok().map(str::to_owned))?;
        Ok(name.unwrap_or_else(|| FABRIC.to_owned()))
    }

    /// What it takes to join: loads the secret and takes over the inherited socket. Once only: the socket is gone then.
    pub fn join_options(&self) -> Result<JoinOptions, JoinError> {
        let mut options = JoinOptions::new(self.rank, self.world, self.root.clone(), self.secret.load()?);
        options.interface = self.interface.clone();
        options.listener = self.root_fd.map(|fd| listener_from_fd(fd, &self.root)).transpose()?;
        Ok(options)
    }
}

fn incomplete(rank: bool, world: bool, root: bool) -> JobError {
    let parts = [(rank, "rank"), (world, "world"), (root, "root")];
    let find = |given: bool| parts.iter().find(|part| part.0 == given).map_or("", |part| part.1);
    JobError::Missing { have: find(true), missing: find(false) }
}

fn secret_source(
    root: &RootAddress,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<SecretSource, JobError> {
    let env = Lookup(lookup);
    let text = env.parse("SHUNT_SECRET", |text| Secret::from_text(text).ok().map(|_| text.to_owned()));
    // The secret itself must not stand in an error.
    let text = text.map_err(|error| ConfigError { met: "..".to_owned(), ..error })?;
    let file = env.parse("SHUNT_SECRET_FILE", |path| (!path.is_empty()).then(|| PathBuf::from(path)))?;
    match (text, file) {
        (Some(_), Some(_)) => Err(JobError::TwoSecrets),
        (Some(text), None) => Ok(SecretSource::Text(text)),
        (None, Some(path)) => Ok(SecretSource::File(path)),
        (None, None) if root.is_loopback() => Ok(SecretSource::User(secret::runtime_directory(lookup))),
        (None, None) => Err(JobError::NoSecret { root: root.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case<'a> = (&'a Flags, &'a [(&'a str, &'a str)], &'a str);

    const SECRET: (&str, &str) = ("SHUNT_SECRET", "0123456789abcdef");

    fn with(flags: &Flags, pairs: &[(&str, &str)]) -> Result<Option<Job>, JobError> {
        Job::from_lookup(flags, &|name| {
            pairs.iter().find(|(have, _)| *have == name).map(|(_, value)| value.to_string())
        })
    }

    fn flags(rank: u32, world: u32, root: &str) -> Flags {
        Flags { rank: Some(rank), world: Some(world), root: Some(root.to_owned()) }
    }

    #[test]
    fn nothing_given_is_no_job() {
        assert_eq!(with(&Flags::default(), &[]), Ok(None));
        assert_eq!(with(&Flags::default(), &[SECRET, ("SHUNT_FABRIC", "x")]), Ok(None));
    }

    #[test]
    fn flags_win_over_the_environment() {
        let env = [("SHUNT_RANK", "0"), ("SHUNT_WORLD", "2"), ("SHUNT_ROOT", "10.0.0.1:70"), SECRET];
        let job = with(&Flags::default(), &env).unwrap().unwrap();
        assert_eq!((job.rank, job.world, job.root.to_string()), (0, 2, "10.0.0.1:70".to_owned()));
        assert_eq!((job.fabric.as_str(), job.root_fd), (FABRIC, None));
        let job = with(&flags(3, 4, "[::1]:9"), &env).unwrap().unwrap();
        assert_eq!((job.rank, job.world, job.root.to_string()), (3, 4, "[::1]:9".to_owned()));
        assert!(!format!("{job:?}").contains(SECRET.1));
    }

    #[test]
    fn what_belongs_to_a_launcher() {
        let env =
            [("SHUNT_ROOT_FD", "5"), ("SHUNT_FABRIC", "run-1"), ("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "^lo")];
        let job = with(&flags(0, 2, "127.0.0.1:9"), &env).unwrap().unwrap();
        assert_eq!((job.fabric.as_str(), job.root_fd), ("run-1", Some(5)));
        assert_eq!(job.interface, Some("^lo".parse().unwrap()));
        assert!(matches!(job.secret, SecretSource::User(_)));
    }

    #[test]
    fn what_makes_no_job_is_refused_with_what_would() {
        let none = Flags::default();
        let only_rank = Flags { rank: Some(0), ..Flags::default() };
        let here = "127.0.0.1:9";
        let file = ("SHUNT_SECRET_FILE", "/x");
        let cases: [Case; 14] = [
            (&only_rank, &[], "rank is given, world is not"),
            (&only_rank, &[("SHUNT_WORLD", "2")], "rank is given, root is not"),
            (&none, &[("SHUNT_ROOT", here)], "root is given, rank is not"),
            (&none, &[("SHUNT_RANK", "one")], "SHUNT_RANK: expected"),
            (&none, &[("SHUNT_WORLD", "0")], "SHUNT_WORLD: expected"),
            (&none, &[("SHUNT_ROOT", "here")], "HOST:PORT"),
            (&flags(2, 2, here), &[], "a rank from 0 to 1 is right"),
            (&flags(0, 0, here), &[], "a number from 1 to 4096 is right"),
            (&flags(0, 1, "nowhere"), &[], "--root: root address \"nowhere\""),
            (&flags(0, 2, "10.0.0.1:9"), &[], "set SHUNT_SECRET or SHUNT_SECRET_FILE"),
            (&flags(0, 2, here), &[SECRET, file], "both set"),
            (&flags(0, 2, here), &[("SHUNT_SECRET", "short")], "at least 16 characters"),
            (&flags(1, 2, here), &[("SHUNT_ROOT_FD", "3")], "only rank 0 listens"),
            (&flags(0, 2, here), &[("SHUNT_FABRIC", "../x")], "letters, digits"),
        ];
        for (flags, env, want) in cases {
            let error = with(flags, env).unwrap_err().to_string();
            assert!(error.contains(want), "{error} does not say {want}");
            assert!(!error.contains("\"short\""), "{error}");
        }
    }
}
