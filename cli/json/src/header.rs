//! What every object begins with.

use crate::options::{Options, options};
use clap::CommandFactory;
use schemars::JsonSchema;
use serde::Serialize;
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
    /// Options with their values, defaults among them.
    pub options: Options,
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

/// What a program noted when it started.
static START: OnceLock<(Options, u64)> = OnceLock::new();

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Notes the start and the options of a program: its first call. A second one changes nothing.
pub fn begin<P: CommandFactory>() {
    START.get_or_init(|| (options::<P>(std::env::args_os()), now()));
}

impl Header {
    pub(crate) fn new(schema: &'static str, version: u32) -> Self {
        let (options, start_unix_ns) = START.get_or_init(|| (Options::new(), now())).clone();
        let command = std::env::args_os().map(|word| word.to_string_lossy().into()).collect();
        let (shunt, machine) = (env!("CARGO_PKG_VERSION"), Machine::here());
        Self { schema, version, shunt, command, options, machine, start_unix_ns }
    }
}
