//! What the environment says of a run. A variable that is set is honoured or refused, never ignored; a flag of the same
//! meaning wins.

use crate::usage::Usage;
use shunt_host::config::{EnvConfig, VARIABLES, check};

/// How variables are looked up.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Settings from the environment, and which of them somebody made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// All settings.
    pub config: EnvConfig,
    /// Whether failures switch paths, if somebody says.
    pub fault_tolerance: Option<bool>,
    /// How long a path may be silent, if given.
    pub suspect: Option<u64>,
    /// The least of it, if somebody says.
    pub suspect_floor: Option<u64>,
    /// Backup paths, if somebody says.
    pub backups: Option<u32>,
    /// log2 of the rings' depth, if somebody says.
    pub log_depth: Option<u32>,
    /// Channels to each peer, if somebody says.
    pub channels: Option<u32>,
    /// perftest's machine-readable lines.
    pub machine_readable: bool,
}

/// perftest's own variable.
const MACHINE_READABLE: &str = "NVSHMEM_MACHINE_READABLE_OUTPUT";

impl Environment {
    /// Reads all that this program understands.
    ///
    /// # Errors
    /// What was given and what is expected.
    pub fn read(lookup: Lookup<'_>) -> Result<Self, Usage> {
        for variable in VARIABLES {
            // Those of the job and of what is watched as well, which others read later.
            let met = lookup(variable.name).map(|value| check(variable.name, &value));
            met.unwrap_or(Ok(())).map_err(|error| Usage::Bad(error.to_string()))?;
        }
        let config = EnvConfig::from_lookup(lookup).map_err(|error| Usage::Bad(error.to_string()))?;
        let set = |name: &str| lookup(name).is_some();
        let machine_readable = match lookup(MACHINE_READABLE).as_deref().map(str::trim) {
            None => false,
            Some(text) => boolean(text).ok_or_else(|| {
                Usage::Bad(format!(
                    "{MACHINE_READABLE}: expected 0, 1, true, false, yes, no, on or off, got {text:?}"
                ))
            })?,
        };
        Ok(Self {
            fault_tolerance: set("NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE").then_some(config.fault_tolerance),
            suspect: set("SHUNT_SUSPECT").then_some(config.suspect_ns),
            suspect_floor: set("SHUNT_SUSPECT_FLOOR").then_some(config.suspect_floor_ns),
            backups: set("SHUNT_BACKUPS").then_some(config.backups),
            log_depth: set("NVSHMEM_QP_DEPTH").then_some(config.log_depth),
            channels: set("NVSHMEM_IBGDA_NUM_RC_PER_PE").then_some(config.channels_per_pe),
            machine_readable,
            config,
        })
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// The process's environment. A value that is not UTF-8 is shown as far as it can be, and nothing takes it
/// for right.
pub fn of_process(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
