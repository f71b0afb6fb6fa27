//! `shunt path`: takes paths of a running job out, and brings them back.

use crate::print;
use clap::{Args, Subcommand};
use shunt_host::events::control::{Order, Paths, Verb, give};
use shunt_host::events::page::{PageReader, folder_of, pages_in};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An agent looks for orders every few milliseconds; one that is held up longer is as good as silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Take paths of a running job out, or bring them back.
#[derive(Subcommand)]
#[command(after_help = "Exit status: 0 the agent does it, 1 it does not, or there is none, 2 bad usage.")]
pub enum Command {
    /// Take paths out: those in use are drained first, and none is recreated until it is readmitted
    Retire(Arguments),
    /// Bring paths back: recreated, probed, and used again after the recovery window
    Readmit(Arguments),
}

/// Which paths.
#[derive(Args)]
pub struct Arguments {
    /// Path, as 0.1>2.1 (PE 0, its rail 1, to PE 2, its rail 1; quote it), or 0.1 for all paths over that rail
    #[arg(value_name = "PATH")]
    paths: Paths,
    /// PID, if several jobs of this user have a PE with this number
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Folder of the status pages [default: this user's, /dev/shm/shunt-UID]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs it; gives the exit status.
pub fn run(command: &Command) -> u8 {
    let (verb, arguments) = match command {
        Command::Retire(arguments) => (Verb::Retire, arguments),
        Command::Readmit(arguments) => (Verb::Readmit, arguments),
    };
    let folder = arguments.dir.clone().unwrap_or_else(|| folder_of(nix::unistd::geteuid().as_raw()));
    let order = Order { verb, paths: arguments.paths };
    let result = page_of(&folder, arguments.paths.pe, arguments.pid)
        .and_then(|page| give(&page, order, PATIENCE).map_err(|error| error.to_string()));
    match result {
        Ok(answer) => print::stdout(&format!("{}: {answer}\n", arguments.paths), 0),
        Err(error) => {
            shunt_host::complain!("error: {error}");
            1
        }
    }
}

/// What to do where a PE is not found.
const LISTED: &str = "`shunt status` lists the PEs that run here";

/// The status page of the one PE of this number that runs here.
fn page_of(folder: &Path, pe: u32, pid: Option<u32>) -> Result<PathBuf, String> {
    let mut met: Vec<(u32, PathBuf)> = Vec::new();
    for path in pages_in(folder) {
        let Ok(reader) = PageReader::open(&path) else { continue };
        let Ok(page) = reader.page() else { continue };
        if page.pe == pe && reader.is_alive() && pid.is_none_or(|pid| pid == page.pid) {
            met.push((page.pid, path));
        }
    }
    match met.as_slice() {
        [(_, path)] => Ok(path.clone()),
        [] => Err(match pid {
            Some(pid) => {
                format!("process {pid} has no PE {pe} with a status page in {}; {LISTED}", folder.display())
            }
            None => format!("no PE {pe} with a status page in {}; {LISTED}", folder.display()),
        }),
        several => {
            let pids: Vec<String> = several.iter().map(|(pid, _)| pid.to_string()).collect();
            Err(format!("processes {} have a PE {pe}; say which with --pid", pids.join(", ")))
        }
    }
}
