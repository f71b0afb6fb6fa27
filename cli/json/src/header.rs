//! What every object begins with.

use crate::options::{Options, options};
use clap::CommandFactory;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// What every object begins with.
#[derive(Serialize, JsonSchema)]
pub struct Header {
    /// Kind of the object.
    pub schema: &'static str,
    /// Version of the kind.
    pub version: u32,
    /// Version of Shunt.
    pub shunt: &'static str,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Options with their values: those that were given, and those whose default is the same everywhere.
    pub options: Options,
    /// Variables named `SHUNT_..` and `NVSHMEM_..` that are set. A secret is `(hidden)`.
    pub environment: BTreeMap<String, String>,
    /// Where it ran.
    pub machine: Machine,
    /// When the program started, in nanoseconds since 1970.
    pub start_unix_ns: u64,
}

/// Where a program ran.
#[derive(Serialize, JsonSchema)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Operating system and release.
    pub system: String,
    /// Instruction set, as Rust names it.
    pub architecture: &'static str,
    /// Processors that this process may use.
    pub cores: usize,
}

impl Machine {
    fn here() -> Self {
        let named = nix::sys::utsname::uname().ok();
        let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
        let host = named.as_ref().map_or_else(String::new, |it| text(it.nodename()));
        let system = named.map_or_else(
            || std::env::consts::OS.to_owned(),
            |it| format!("{} {}", text(it.sysname()), text(it.release())),
        );
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        Self { host, system, architecture: std::env::consts::ARCH, cores }
    }
}

/// The one variable whose value must not stand in a file.
const SECRET: &str = "SHUNT_SECRET";
const HIDDEN: &str = "(hidden)";

/// What a program noted when it started.
static START: OnceLock<(Options, u64)> = OnceLock::new();

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Notes the start and the options of a program: its first call. A second one changes nothing.
pub fn begin<P: CommandFactory>() {
    START.get_or_init(|| (options::<P>(std::env::args_os()), now()));
}

/// What is set for us.
fn environment(all: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let text = |(name, value): (OsString, OsString)| {
        let name = name.to_string_lossy().into_owned();
        let value = if name == SECRET { HIDDEN.to_owned() } else { value.to_string_lossy().into_owned() };
        (name, value)
    };
    let ours = |(name, _): &(String, String)| name.starts_with("SHUNT_") || name.starts_with("NVSHMEM_");
    all.map(text).filter(ours).collect()
}

impl Header {
    pub(crate) fn new(schema: &'static str, version: u32) -> Self {
        let (options, start_unix_ns) = START.get_or_init(|| (Options::new(), now())).clone();
        let command = std::env::args_os().map(|word| word.to_string_lossy().into()).collect();
        let (shunt, machine) = (env!("CARGO_PKG_VERSION"), Machine::here());
        let environment = environment(std::env::vars_os());
        Self { schema, version, shunt, command, options, environment, machine, start_unix_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_ours_and_without_secrets() {
        let set =
            [("SHUNT_SECRET", "guess"), ("PATH", "/bin"), ("NVSHMEM_DEBUG", "INFO"), ("SHUNT_NIC", "soft")];
        let set = set.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let found: Vec<(String, String)> = environment(set.into_iter()).into_iter().collect();
        let expected = [("NVSHMEM_DEBUG", "INFO"), ("SHUNT_NIC", "soft"), ("SHUNT_SECRET", HIDDEN)];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
