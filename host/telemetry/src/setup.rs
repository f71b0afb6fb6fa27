//! Who watches the PEs of this process: what the environment asks for.

use super::Endpoint;
use super::jsonl::{BYTES_MAX, FileSink};
use super::notice::say;
use super::page::folder_of;
use shunt_settings::{ConfigError, Lookup, parse_bool};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once};

/// What names a job, the first that is set.
const JOBS: [&str; 4] = ["SHUNT_FABRIC", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE"];
/// Ports that are tried: several jobs may share a machine.
const PORTS: u16 = 64;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Timeline.
    pub events: Option<PathBuf>,
    /// Prometheus endpoint of the first process of this machine.
    pub metrics: Option<SocketAddr>,
    /// Number of this process among those of its machine, if that is known.
    pub local_rank: Option<u32>,
    /// Folder of the status page.
    pub status: Option<PathBuf>,
    /// Name of the job.
    pub job: String,
}

impl Watching {
    /// Nobody watches.
    pub fn nobody() -> Self {
        Self { events: None, metrics: None, local_rank: None, status: None, job: String::new() }
    }

    /// What the variables that `lookup` knows ask for.
    ///
    /// # Errors
    /// [`ConfigError`] with what was met and what would be right.
    pub fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let env = Lookup(lookup);
        let status = env.parse("SHUNT_STATUS", parse_bool)?.unwrap_or(true);
        Ok(Self {
            events: env.parse("SHUNT_EVENTS", |path| (!path.is_empty()).then(|| PathBuf::from(path)))?,
            metrics: env.parse("SHUNT_METRICS", |text| text.parse().ok())?,
            status: status.then(|| folder_of(nix::unistd::geteuid().as_raw())),
            local_rank: shunt_settings::local_rank(lookup)?,
            job: JOBS.into_iter().find_map(lookup).unwrap_or_else(|| shunt_settings::FABRIC.to_owned()),
        })
    }

    /// What the process's environment asks for. What makes no sense is said once, and not asked for. So are variables
    /// of ours that nothing reads.
    pub fn from_env() -> Self {
        static SAID: Once = Once::new();
        let asked = Self::from_lookup(&|name| std::env::var(name).ok());
        SAID.call_once(|| {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            let wrong = asked.as_ref().err().map(ToString::to_string);
            wrong.into_iter().chain(shunt_settings::unread(names)).for_each(|line| say(&line));
        });
        asked.unwrap_or_else(|_| Self::nobody())
    }

    /// The timeline of a PE.
    pub fn timeline(&self, pe: u32, unix_ns: Option<u64>) -> Option<FileSink> {
        self.events.as_ref().map(|path| FileSink::new(file_of(path, pe), unix_ns, BYTES_MAX))
    }

    /// The endpoint of this process: made once, at the address that is asked for, its port higher by the number of the
    /// process on its machine; where that is taken, at the next one that is free. Which one is told; that there is
    /// none is said once, and the job goes on.
    pub fn endpoint(&self) -> Option<Arc<Endpoint>> {
        static ENDPOINT: Mutex<Option<Option<Arc<Endpoint>>>> = Mutex::new(None);
        let address = self.metrics?;
        let mut endpoint = ENDPOINT.lock().expect("no panic under this lock");
        let made = endpoint.get_or_insert_with(|| match self.first_free(address) {
            Ok(endpoint) => {
                tracing::info!(target: "shunt", "metrics at http://{}/metrics", endpoint.address());
                Some(Arc::new(endpoint))
            }
            Err(error) => {
                say(&format!("no metrics: {error}"));
                None
            }
        });
        made.clone()
    }
}

impl Watching {
    /// An endpoint at the first port that is free, from that of this process on.
    fn first_free(&self, first: SocketAddr) -> Result<Endpoint, String> {
        let own =
            first.port().saturating_add(u16::try_from(self.local_rank.unwrap_or(0)).unwrap_or(u16::MAX));
        let ports = match first.port() {
            0 => 0..=0,
            _ => own..=own.saturating_add(PORTS - 1),
        };
        let mut refused = String::new();
        for port in ports {
            match Endpoint::of_job(SocketAddr::new(first.ip(), port), &self.job) {
                Ok(endpoint) => return Ok(endpoint),
                // What the port of this process met tells most.
                Err(error) if refused.is_empty() => refused = error.to_string(),
                Err(_) => {}
            }
        }
        Err(refused)
    }
}

/// The files of timelines of so many PEs that this process's environment asks for: what else is written must not go
/// there.
pub fn timelines(pes: u32) -> Vec<PathBuf> {
    let asked = Watching::from_lookup(&|name| std::env::var(name).ok());
    let events = asked.ok().and_then(|asked| asked.events);
    let mut files: Vec<_> = events.iter().flat_map(|path| (0..pes).map(|pe| file_of(path, pe))).collect();
    // Without a number in its name it is one.
    files.dedup();
    files
}

/// The file of a PE: `%` stands for its number.
pub fn file_of(path: &Path, pe: u32) -> PathBuf {
    match path.to_str() {
        Some(text) => PathBuf::from(text.replace('%', &pe.to_string())),
        None => path.to_owned(),
    }
}
