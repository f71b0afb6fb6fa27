//! NVIDIA's programs, fetched as Python packages into the target folder: nothing of CUDA need be installed.

use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages and their versions, all of one toolkit: nvlink takes no object of an assembler newer than itself, and the
/// table of machine code is that of one assembler.
const WHEELS: &[&str] = &[
    "nvidia-cuda-nvcc==13.5.37",
    "nvidia-cuda-crt==13.5.37",
    "nvidia-nvvm==13.5.37",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-nvdisasm==13.5.37",
];

/// Looks for errors of memory and of synchronisation while a program runs on a GPU.
const SANITIZER: &[&str] = &["nvidia-cuda-sanitizer-api==13.5.25"];

/// Names the packages that a folder holds.
const LIST: &str = "packages.txt";

/// A folder below the target folder that holds these packages; fetched unless it is there.
pub fn fetch(folder: &str, wheels: &[&str]) -> Result<PathBuf> {
    let home = sh::target_dir().join(folder);
    let list = wheels.join("\n");
    if std::fs::read_to_string(home.join(LIST)).is_ok_and(|have| have == list) {
        return Ok(home);
    }
    if !sh::exists("python3") {
        bail!("NVIDIA's tools come as Python packages, and there is no python3 to fetch them with");
    }
    let part = home.with_extension("part");
    for old in [&part, &home] {
        if old.is_dir() {
            std::fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
    }
    println!("fetching {}", wheels.join(" "));
    let mut pip = sh::command("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target"]);
    sh::capture(pip.arg(&part).args(wheels)).context(
        "cannot fetch NVIDIA's tools: `python3 -m pip` and a network with Python's package index are needed",
    )?;
    std::fs::write(part.join(LIST), list)?;
    std::fs::rename(&part, &home)?;
    Ok(home)
}

/// compute-sanitizer, fetched if it is not there.
pub fn sanitizer() -> Result<PathBuf> {
    let home = fetch("gpu-sanitizer", SANITIZER)?;
    find_file(&home, "compute-sanitizer")
        .with_context(|| format!("no compute-sanitizer in {}", home.display()))
}

/// The toolkit: a folder with `bin`, `include`, `lib` and `nvvm`.
pub struct Toolkit {
    root: PathBuf,
}

impl Toolkit {
    /// The toolkit of these versions, fetched if it is not there.
    pub fn fetch() -> Result<Self> {
        Self::in_folder(&fetch("gpu-tools", WHEELS)?)
    }

    /// The same where it is there already: nothing is fetched.
    ///
    /// # Errors
    /// It is not.
    pub fn present() -> Result<Self> {
        let [home, cccl] = ["gpu-tools", "gpu-cccl"].map(|name| sh::target_dir().join(name));
        if let Some(missing) = [&home, &cccl].into_iter().find(|folder| !folder.is_dir()) {
            bail!("there is no {}: run `cargo xtask prefix`, which fetches it", missing.display());
        }
        Self::in_folder(&home)
    }

    /// An installed one, or a folder of wheels.
    pub fn in_folder(home: &Path) -> Result<Self> {
        let nvcc =
            find_file(home, "nvcc").with_context(|| format!("there is no nvcc in {}", home.display()))?;
        let root = nvcc.parent().and_then(Path::parent).context("nvcc is in no bin folder")?.to_path_buf();
        for program in ["ptxas", "nvlink", "nvdisasm", "fatbinary"] {
            if !root.join("bin").join(program).is_file() {
                bail!(
                    "there is no {program} in {}: remove that folder to fetch it again",
                    root.join("bin").display()
                );
            }
        }
        Ok(Self { root })
    }

    /// One of its programs. nvcc starts others by name.
    pub fn program(&self, name: &str) -> Command {
        let bin = self.root.join("bin");
        let mut command = sh::command(&bin.join(name).to_string_lossy());
        let path = std::env::var_os("PATH").unwrap_or_default();
        let with_ours = std::iter::once(bin).chain(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(with_ours) {
            command.env("PATH", path);
        }
        command
    }

    /// True if the C++ library that its headers include is among them; as wheels it is another package.
    pub fn has_own_cccl(&self) -> bool {
        self.include().join("nv/target").is_file() || self.include().join("cccl/nv/target").is_file()
    }

    /// Its headers.
    pub fn include(&self) -> PathBuf {
        self.root.join("include")
    }

    /// True if cold functions can be asked to save registers: the directive came with CUDA 13.
    pub fn saves_registers(&self) -> bool {
        let version = self.version();
        let major = version.split(" V").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        major.is_some_and(|major| major >= 13)
    }

    /// The assembler's own name and version.
    pub fn version(&self) -> String {
        let text = sh::stdout_of(self.program("ptxas").arg("--version")).unwrap_or_default();
        let line = text.lines().find(|line| line.contains("release")).unwrap_or("unknown version");
        format!("ptxas {}", line.rsplit(',').next().unwrap_or(line).trim())
    }
}

/// Depth-first search for a file; wheels move theirs from release to release.
pub fn find_file(dir: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            if let Some(found) = find_file(&path, name) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|file| file == name) {
            return Some(path);
        }
    }
    None
}
