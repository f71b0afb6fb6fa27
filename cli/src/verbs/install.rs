//! The library in libibverbs' place, and the real one beside it under the name that it is needed by.

use crate::{libraries, print};
use clap::Args;
use shunt_verbs::real;
use shunt_verbs_directory as directory;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What `cargo build` makes.
const LIBRARY: &str = "libshunt_verbs.so";
/// The name that programs ask for.
pub const PUBLIC: &str = "libibverbs.so.1";

/// Put the library into a folder: for LD_PRELOAD=DIR/libibverbs.so.1, or LD_LIBRARY_PATH=DIR
///
/// The folder gets a copy of the library under libibverbs' name, and a link to the real one, which it needs.
#[derive(Args)]
#[command(after_help = "Exit status: 0 done, 2 it cannot be.")]
pub struct Arguments {
    /// Folder; made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Print what `shunt verbs run` would set, for launchers: eval "$(shunt verbs env)"
#[derive(Args)]
pub struct EnvArguments {}

/// Why there is none.
#[derive(Debug, Error)]
pub enum InstallError {
    /// It was not built.
    #[error(
        "{0:?}: expected the library beside this program, got none; build it with `cargo build --release`"
    )]
    NoLibrary(PathBuf),
    /// rdma-core is not there.
    #[error(
        "libibverbs.so.1: expected it in the loader's folders, got none; install libibverbs1 (Debian, Ubuntu) or \
         libibverbs (RHEL, Fedora)"
    )]
    NoReal,
    /// The loader would not find it.
    #[error("{0:?}: the loader takes no path with a colon or a blank; choose another folder")]
    Path(PathBuf),
    /// The system refused.
    #[error("{path:?}: {cause}; name a folder that can be made and that this user may write")]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        cause: std::io::Error,
    },
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let made = std::fs::create_dir_all(&arguments.folder);
    let failed = |cause| InstallError::Io { path: arguments.folder.clone(), cause };
    match made.map_err(failed).and_then(|()| install(&arguments.folder)) {
        Ok(library) => print::stdout(&format!("LD_PRELOAD={}\n", library.display()), 0),
        Err(error) => print::usage(&error),
    }
}

/// Prints the variables.
pub fn env(_arguments: &EnvArguments) -> u8 {
    match of_this_user() {
        Ok(library) => print::stdout(&format!("export LD_PRELOAD={}\n", preload(&library)), 0),
        Err(error) => print::usage(&error),
    }
}

/// The library before what is put into programs anyway.
pub fn preload(library: &Path) -> String {
    let before = std::env::var("LD_PRELOAD").unwrap_or_default();
    let ours = library.display().to_string();
    let others = before.split([':', ' ']).filter(|one| !one.is_empty() && *one != ours);
    // An interposer of the C library comes before: it is what opens devices.
    others.map(str::to_owned).chain([ours.clone()]).collect::<Vec<_>>().join(":")
}

/// The library in this user's runtime folder, installed there if it is not, or another one.
///
/// # Errors
/// It cannot be.
pub fn of_this_user() -> Result<PathBuf, InstallError> {
    let path = directory::runtime_directory();
    let failed = |cause| InstallError::Io { path: path.clone(), cause };
    directory::private(&path).map_err(failed)?;
    let folder = path.join("verbs-lib");
    directory::private(&folder).map_err(failed)?;
    install(&folder)
}

/// Finds the real library: where the loader finds it, or under one of ours.
fn real_library() -> Result<PathBuf, InstallError> {
    shunt_verbs::real::locate().ok_or(InstallError::NoReal)
}

fn built() -> Result<PathBuf, InstallError> {
    let path = libraries::own(LIBRARY);
    if path.is_file() { Ok(path) } else { Err(InstallError::NoLibrary(path)) }
}

/// Installs into a folder; answers with the library's path there.
fn install(folder: &Path) -> Result<PathBuf, InstallError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |cause| InstallError::Io { path, cause }
    };
    let folder = folder.canonicalize().map_err(io(folder))?;
    if folder.to_string_lossy().contains([':', ' ', '\t', '\n']) {
        return Err(InstallError::Path(folder));
    }
    let (built, library, behind) = (built()?, folder.join(PUBLIC), folder.join(real::NAME));
    // Programs that run keep the file that they have: a fresh one takes its name.
    if std::fs::read(&built).map_err(io(&built))? != std::fs::read(&library).unwrap_or_default() {
        let fresh = folder.join(format!("{PUBLIC}.{}", std::process::id()));
        std::fs::copy(&built, &fresh).map_err(io(&fresh))?;
        std::fs::rename(&fresh, &library).map_err(io(&library))?;
    }
    let target = real_library()?;
    if std::fs::read_link(&behind).ok().as_deref() != Some(&*target) {
        let fresh = folder.join(format!("{}.{}", real::NAME, std::process::id()));
        let _ = std::fs::remove_file(&fresh);
        symlink(&target, &fresh).map_err(io(&fresh))?;
        std::fs::rename(&fresh, &behind).map_err(io(&behind))?;
    }
    Ok(library)
}
