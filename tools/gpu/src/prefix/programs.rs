//! Programs in CUDA C++ over the device functions, one a family: each compiled and linked, host and device, with our
//! prefix and with NVSHMEM's, from one source.

use super::device::nvcc;
use super::wheel;
use crate::gpu::wheels::Toolkit;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where they are.
const FOLDERS: [&str; 2] = ["nvshmem-compat/programs", "nvshmem-compat/examples"];
/// Of the wheel's one architecture: what links for one links for the others.
const ARCH: &str = "sm_90";
/// All that the device library is for.
pub const ARCHES: [&str; 3] = ["sm_80", "sm_90", "sm_100"];
/// Programs that count what is wrong, one a family.
pub const FAMILIES: [&str; 9] =
    ["rma", "amo", "signal", "wait", "order", "collective", "qp", "teams", "stream"];
/// Programs that measure, with NVSHMEM's options and tables.
pub const MEASURES: [&str; 3] = ["shmem_put_bw", "shmem_put_latency", "shmem_atomic_bw"];

fn folder() -> PathBuf {
    sh::target_dir().join("prefix-device/programs")
}

/// Where one is that links our prefix.
pub fn program(name: &str) -> PathBuf {
    folder().join(format!("{name}-{OURS}"))
}

/// A source, and against what.
struct Job<'a> {
    source: PathBuf,
    whose: &'static str,
    prefix: PathBuf,
    arches: &'a [&'a str],
}

impl Job<'_> {
    fn name(&self) -> String {
        self.source.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn nvcc(&self, toolkit: &Toolkit) -> Result<Command> {
        let mut command = nvcc(toolkit, &self.prefix.join("include"), self.arches)?;
        // A program carries the device library once for each architecture.
        command.args(["-Xfatbin", "-compress-all"]);
        Ok(command)
    }

    /// Compiles and links; ours is started too.
    fn run(&self, toolkit: &Toolkit) -> Result<()> {
        let name = self.name();
        std::fs::create_dir_all(folder())?;
        let file = format!("{name}-{}", self.whose);
        let (object, program) = (folder().join(&file).with_extension("o"), folder().join(&file));
        let mut command = self.nvcc(toolkit)?;
        let measures = self.whose == OURS && MEASURES.contains(&name.as_str());
        if !measures {
            // What is asked is whether they link, and are right: neither compiler nor assembler need try hard.
            command.args(["-Xptxas", "-O0"]);
            // Older compilers do not know it; NVSHMEM's collectives take minutes without.
            if toolkit.saves_registers() {
                command.arg("-Ofc=max");
            }
        }
        if self.whose == OURS {
            command.args(["-Xcompiler", "-Wall,-Werror", "-Werror", "all-warnings"]);
        }
        sh::capture(command.arg("-c").arg(&self.source).arg("-o").arg(&object)).with_context(|| {
            format!("{name} does not compile with the headers of the prefix ({})", self.whose)
        })?;
        let lib = self.prefix.join("lib");
        let mut command = self.nvcc(toolkit)?;
        command.arg(&object).arg("-L").arg(&lib).arg("-lnvshmem_device");
        // The wheel has no name without a version, and nvcc does not know such a file.
        command.arg("-Xlinker").arg(lib.join("libnvshmem_host.so.3")).args(["-lpthread", "-ldl"]);
        command.arg("-Xlinker").arg(format!("-rpath={}", lib.display()));
        sh::capture(command.arg("-o").arg(&program))
            .with_context(|| format!("{name} does not link with the prefix ({})", self.whose))?;
        if self.whose == OURS { starts(&name, &program) } else { Ok(()) }
    }
}

/// A program is there and finds its libraries: without a GPU it says so.
fn starts(name: &str, program: &Path) -> Result<()> {
    let output = sh::command(&program.to_string_lossy()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() != Some(2) || !said.contains("no GPU") {
        print!("{said}");
        if !output.status.success() {
            bail!("{name} ended with {}", output.status);
        }
    }
    Ok(())
}

const OURS: &str = "ours";

fn sources() -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for folder in FOLDERS {
        let folder = sh::root().join(folder);
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            sources.push(entry?.path());
        }
    }
    sources.retain(|source| source.extension().is_some_and(|end| end == "cu"));
    sources.sort();
    Ok(sources)
}

/// Those that link our prefix, for these architectures.
pub fn link_ours(out: &Path, toolkit: &Toolkit, arches: &[&str]) -> Result<()> {
    let job = |source| Job { source, whose: OURS, prefix: out.to_path_buf(), arches };
    let jobs: Vec<Job> = sources()?.into_iter().map(job).collect();
    two_at_a_time(&jobs, toolkit)?;
    println!("linked {} programs with our prefix for {}", jobs.len(), arches.join(" "));
    Ok(())
}

/// All of them, ours for all architectures; answers with how many were linked.
pub fn link_all(out: &Path, toolkit: &Toolkit) -> Result<usize> {
    let theirs = wheel::folder()?;
    let mut jobs = Vec::new();
    for source in sources()? {
        jobs.push(Job { source: source.clone(), whose: OURS, prefix: out.to_path_buf(), arches: &ARCHES });
        jobs.push(Job { source, whose: "wheel", prefix: theirs.clone(), arches: &[ARCH] });
    }
    two_at_a_time(&jobs, toolkit)?;
    println!("linked {} programs, each with our prefix and with NVSHMEM's", jobs.len() / 2);
    Ok(jobs.len())
}

fn two_at_a_time(jobs: &[Job], toolkit: &Toolkit) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = job.run(toolkit) {
                        failed.lock().expect("no panic under this lock").push(format!("{error:#}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic under this lock");
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that is in no list would be linked, and never run on a GPU.
    #[test]
    fn every_program_is_a_familys_or_measures() {
        let mut listed: Vec<&str> = FAMILIES.into_iter().chain(MEASURES).collect();
        listed.sort_unstable();
        let mut there: Vec<String> = sources()
            .unwrap()
            .iter()
            .map(|source| source.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        there.sort_unstable();
        assert_eq!(there, listed);
    }
}
