//! `shunt soft-rdma run`: becomes the program, with the library and what it reads in its environment.

use super::elf;
use crate::run::{fabric_name, lookup};
use crate::{libraries, print};
use clap::Args;
use shunt_figures::units::whole;
use shunt_soft_machine::log::Level;
use shunt_soft_machine::settings::{self, Settings};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use thiserror::Error;

/// The library that is put into the program.
const LIBRARY: &str = "libshunt_soft_rdma.so";
const PRELOAD: &str = "LD_PRELOAD";

/// Run a program with soft RDMA devices mlx5_0, mlx5_1, .. or efa_0, efa_1, ..
///
/// The program is this process from then on: signals go to it, and the exit status is its own. Programs that run like
/// this on one machine reach each other. What is not given is taken from the environment.
#[derive(Args)]
#[command(after_help = "\
Examples:
  shunt soft-rdma run -- ibv_devinfo -v
  shunt soft-rdma run --nics 2 --fault 1s:mlx5_0:down=300ms -- ib_write_bw -d mlx5_0
  shunt soft-rdma run --fabric lab -- ib_write_bw -d mlx5_0 localhost
  shunt soft-rdma run --nic efa -- fi_pingpong -p efa
  shunt run -n 2 -- shunt soft-rdma run --nics 2 -- PROG
Static programs, and programs that run with another user's rights, get no devices: they are refused.
Exit status: the program's; 2 if it was not started.")]
pub struct Arguments {
    /// NICs [default: as many as addresses are given, or 1]
    #[arg(long, value_name = "N", value_parser = whole(1..=settings::MOST_NICS as u32))]
    nics: Option<u32>,
    /// Whose devices they are: mlx5, efa (a soft EFA) [default: mlx5]
    #[arg(long, value_name = "KIND", value_parser = something)]
    nic: Option<String>,
    /// Programs of one fabric reach each other [default: SHUNT_FABRIC, or default]
    #[arg(long, value_name = "NAME", value_parser = fabric_name)]
    fabric: Option<String>,
    /// RoCE v2 over UDP instead of the machine's fabric: an IPv4 address of this machine for each NIC
    #[arg(long, value_name = "ADDR,..", value_parser = something)]
    roce: Option<String>,
    /// Rate of each port [default: unlimited]
    #[arg(long, value_name = "G", value_parser = something)]
    rail_gbps: Option<String>,
    /// What kind of device each NIC is: soft, cx5, cx6dx, cx7, bf3, vf, ib-ar, strict [default: soft]
    #[arg(long, value_name = "DEVICE", value_parser = something)]
    profile: Option<String>,
    /// Let something go wrong: so long after the first device is opened, or when so many packets have left the port
    /// (4000packets); repeatable
    #[arg(long = "fault", value_name = "WHEN:NIC:FAULT", value_parser = something)]
    faults: Vec<String>,
    /// Write packets to FILE, for Wireshark: RoCE v1 frames (Ethernet and GRH), RoCE v2 with --roce
    ///
    /// One file a process: %p in the name stands for the process's number. A file that is there is overwritten.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// What is told on stderr: off, error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    log: Option<Level>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROG ARGS")]
    command: Vec<OsString>,
}

/// An empty variable counts as not set; an empty option is a mistake.
fn something(text: &str) -> Result<String, String> {
    match text.trim_matches([' ', ';']) {
        "" => Err("nothing is in it; leave the option out, or give it a value".into()),
        _ => Ok(text.to_owned()),
    }
}

fn level(text: &str) -> Result<Level, String> {
    text.parse().map_err(|()| "expected one of off, error, warn, info, debug, trace".into())
}

/// Why the program is not started.
#[derive(Debug, Error)]
enum RunError {
    #[error(transparent)]
    NotFound(#[from] lookup::NotFound),
    #[error(transparent)]
    NoPreload(#[from] elf::NoPreload),
    #[error(transparent)]
    Setting(#[from] settings::SettingError),
    #[error("{0:?} is not there; build it with `cargo build --release`, or name it in SHUNT_SOFT_RDMA_LIB")]
    NoLibrary(PathBuf),
    #[error("{0:?} is a directory; expected the library itself, libshunt_soft_rdma.so")]
    LibraryDirectory(PathBuf),
    #[error("no interface of this machine has the address {0} (--roce); `ip address` lists those there are")]
    NotLocal(Ipv4Addr),
    #[error("packets cannot be written to {0:?} (--pcap): {1}")]
    Capture(PathBuf, &'static str),
    #[error(
        "{0:?}: the loader takes no path with a colon or a blank; move the library, or name it in SHUNT_SOFT_RDMA_LIB"
    )]
    LibraryPath(PathBuf),
    #[error("{path:?} cannot be started: {cause}")]
    Start { path: PathBuf, cause: std::io::Error },
}

/// Becomes the program; comes back with an exit status only if that fails.
pub fn run(arguments: &Arguments) -> u8 {
    match prepare(arguments) {
        Ok(mut command) => {
            let cause = command.exec();
            print::usage(&RunError::Start { path: command.get_program().into(), cause })
        }
        Err(error) => print::usage(&error),
    }
}

fn prepare(arguments: &Arguments) -> Result<Command, RunError> {
    let set = variables(arguments);
    // Said now, not from inside a program whose output somebody reads by machine.
    let value = |name: &'static str| {
        let given = set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        given.or_else(|| std::env::var_os(name))
    };
    check(&Settings::read(value)?)?;
    let program = lookup::find(&arguments.command[0])?;
    elf::check(&program)?;
    let library = library()?;
    elf::check_library(&library)?;
    let mut command = Command::new(&program);
    command.args(&arguments.command[1..]).arg0(&arguments.command[0]).envs(set);
    command.env(PRELOAD, preload(&library, std::env::var_os(PRELOAD))?);
    Ok(command)
}

/// What the machine says to the settings.
fn check(settings: &Settings) -> Result<(), RunError> {
    for address in &settings.roce {
        let bound = UdpSocket::bind((*address, 0));
        if bound.is_err_and(|cause| cause.kind() == ErrorKind::AddrNotAvailable) {
            return Err(RunError::NotLocal(*address));
        }
    }
    let Some(path) = &settings.pcap else { return Ok(()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Where the number of a process is part of the folder's name, the process will see.
    let known = !folder.to_string_lossy().contains("%p");
    match path {
        path if path.is_dir() => Err(RunError::Capture(path.clone(), "it is a directory")),
        path if known && !folder.is_dir() => {
            Err(RunError::Capture(path.clone(), "its directory is not there"))
        }
        _ => Ok(()),
    }
}

/// What the program's environment says beyond this one's.
fn variables(arguments: &Arguments) -> Vec<(&'static str, OsString)> {
    let faults = (!arguments.faults.is_empty()).then(|| arguments.faults.join(";"));
    let all = [
        (settings::NICS, arguments.nics.map(|nics| nics.to_string().into())),
        (settings::KIND, arguments.nic.clone().map(OsString::from)),
        (settings::FABRIC, arguments.fabric.clone().map(OsString::from)),
        (settings::ROCE, arguments.roce.clone().map(OsString::from)),
        (settings::RAIL_GBPS, arguments.rail_gbps.clone().map(OsString::from)),
        (settings::PROFILE, arguments.profile.clone().map(OsString::from)),
        (settings::FAULTS, faults.map(OsString::from)),
        (settings::PCAP, arguments.pcap.clone().map(OsString::from)),
        (settings::LOG, arguments.log.map(|level| level.to_string().into())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Finds the library: named, or beside this program, or where a package puts it.
fn library() -> Result<PathBuf, RunError> {
    let named = std::env::var_os(settings::LIBRARY).filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = named.unwrap_or_else(|| libraries::own(LIBRARY));
    // The program may go to another directory before it starts one of its own.
    if path.is_dir() {
        return Err(RunError::LibraryDirectory(path));
    }
    path.canonicalize().ok().ok_or(RunError::NoLibrary(path))
}

/// The library before what is put into programs anyway.
fn preload(library: &Path, before: Option<OsString>) -> Result<OsString, RunError> {
    if library.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':' | b' ' | b'\t' | b'\n')) {
        return Err(RunError::LibraryPath(library.into()));
    }
    let mut value = library.as_os_str().to_owned();
    let others = before.unwrap_or_default();
    let is_it = |path: &OsStr| Path::new(path) == library;
    for other in others.as_bytes().split(|byte| matches!(byte, b':' | b' ')).map(OsStr::from_bytes) {
        if !other.is_empty() && !is_it(other) {
            value.push(":");
            value.push(other);
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_once() {
        let library = Path::new("/x/libshunt_soft_rdma.so");
        let with = |before: &str| preload(library, Some(before.into())).unwrap().into_string().unwrap();
        assert_eq!(preload(library, None).unwrap(), *library.as_os_str());
        assert_eq!(with("/a.so:/b.so /c.so"), "/x/libshunt_soft_rdma.so:/a.so:/b.so:/c.so");
        assert_eq!(with("/a.so:/x/libshunt_soft_rdma.so:"), "/x/libshunt_soft_rdma.so:/a.so");
        assert!(matches!(preload(Path::new("/a b/c.so"), None), Err(RunError::LibraryPath(_))));
    }
}
