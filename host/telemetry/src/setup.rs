//! Who watches the PEs of this process: what the environment asks for.

use super::Endpoint;
use super::jsonl::{BYTES_MAX, FileSink};
use super::notice::say;
use super::page::folder_of;
use shunt_settings::{ConfigError, Lookup, parse_bool};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watching {
    /// Timeline.
    pub events: Option<PathBuf>,
    /// Prometheus endpoint.
    pub metrics: Option<SocketAddr>,
    /// Folder of the status page.
    pub status: Option<PathBuf>,
    /// Name of the job.
    pub job: String,
}

impl Watching {
    /// Nobody watches.
    pub fn nobody() -> Self {
        Self { events: None, metrics: None, status: None, job: String::new() }
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
            job: lookup("SHUNT_FABRIC").unwrap_or_else(|| shunt_settings::FABRIC.to_owned()),
        })
    }

    /// What the process's environment asks for. What makes no sense is said once, and not asked for.
    pub fn from_env() -> Self {
        static SAID: Mutex<bool> = Mutex::new(false);
        Self::from_lookup(&|name| std::env::var(name).ok()).unwrap_or_else(|error| {
            if !std::mem::replace(&mut *SAID.lock().expect("no panic under this lock"), true) {
                say(&error.to_string());
            }
            Self::nobody()
        })
    }

    /// The timeline of a PE.
    pub fn timeline(&self, pe: u32, unix_ns: Option<u64>) -> Option<FileSink> {
        self.events.as_ref().map(|path| FileSink::new(file_of(path, pe), unix_ns, BYTES_MAX))
    }

    /// The endpoint of this process: made once, at the first address that is asked for. That the port is taken is said
    /// once; the job goes on.
    pub fn endpoint(&self) -> Option<Arc<Endpoint>> {
        static ENDPOINT: Mutex<Option<Option<Arc<Endpoint>>>> = Mutex::new(None);
        let address = self.metrics?;
        let mut endpoint = ENDPOINT.lock().expect("no panic under this lock");
        let made = endpoint.get_or_insert_with(|| match Endpoint::start(address) {
            Ok(endpoint) => Some(Arc::new(endpoint)),
            Err(error) => {
                say(&format!("no metrics: {error}"));
                None
            }
        });
        made.clone()
    }
}

/// The file of a PE: `%` stands for its number.
pub fn file_of(path: &Path, pe: u32) -> PathBuf {
    match path.to_str() {
        Some(text) => PathBuf::from(text.replace('%', &pe.to_string())),
        None => path.to_owned(),
    }
}
