//! Programs in CUDA C++ over the device functions, one a family: each compiled and linked, host and device, with our
//! prefix and with NVSHMEM's, from one source.

use super::device::nvcc;
use super::wheel;
use crate::gpu::wheels::Toolkit;
use crate::sh;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where they are.
const FOLDERS: [&str; 2] = ["nvshmem-compat/programs", "nvshmem-compat/examples"];
/// One architecture: what links for one links for the others.
const ARCH: &str = "sm_90";

/// A source, and against what.
struct Job {
    source: PathBuf,
    whose: &'static str,
    prefix: PathBuf,
}

impl Job {
    /// Compiles and links; ours is started too.
    fn run(&self, toolkit: &Toolkit) -> Result<()> {
        let name = self.source.file_stem().unwrap_or_default().to_string_lossy();
        let folder = sh::target_dir().join("prefix-device/programs");
        std::fs::create_dir_all(&folder)?;
        let (object, program) =
            (folder.join(format!("{name}-{}.o", self.whose)), folder.join(format!("{name}-{}", self.whose)));
        let mut command = nvcc(toolkit, &self.prefix.join("include"), &[ARCH])?;
        // What is asked is whether they link: neither compiler nor assembler need try hard.
        command.args(["-Xptxas", "-O0"]);
        // Older compilers do not know it; NVSHMEM's collectives take minutes without.
        if toolkit.saves_registers() {
            command.arg("-Ofc=max");
        }
        if self.whose == OURS {
            command.args(["-Xcompiler", "-Wall,-Werror", "-Werror", "all-warnings"]);
        }
        sh::capture(command.arg("-c").arg(&self.source).arg("-o").arg(&object)).with_context(|| {
            format!("{name} does not compile with the headers of the prefix ({})", self.whose)
        })?;
        let lib = self.prefix.join("lib");
        let mut command = nvcc(toolkit, &self.prefix.join("include"), &[ARCH])?;
        command.arg(&object).arg("-L").arg(&lib).arg("-lnvshmem_device");
        // The wheel has no name without a version, and nvcc does not know such a file.
        command.arg("-Xlinker").arg(lib.join("libnvshmem_host.so.3")).args(["-lpthread", "-ldl"]);
        command.arg("-Xlinker").arg(format!("-rpath={}", lib.display()));
        sh::capture(command.arg("-o").arg(&program))
            .with_context(|| format!("{name} does not link with the prefix ({})", self.whose))?;
        if self.whose == OURS {
            let output = sh::command(&program.to_string_lossy()).output()?;
            let said = String::from_utf8_lossy(&output.stdout);
            // Without a GPU each says so.
            if output.status.code() != Some(2) || !said.contains("no GPU") {
                print!("{said}");
                if !output.status.success() {
                    bail!("{name} ended with {}", output.status);
                }
            }
        }
        Ok(())
    }
}

const OURS: &str = "ours";

/// All of them, two at a time; answers with how many were linked.
pub fn link_all(out: &Path, toolkit: &Toolkit) -> Result<usize> {
    let theirs = wheel::folder()?;
    let mut jobs = Vec::new();
    for folder in FOLDERS {
        let folder = sh::root().join(folder);
        for entry in
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
        {
            let source = entry?.path();
            if source.extension().is_some_and(|end| end == "cu") {
                jobs.push(Job { source: source.clone(), whose: OURS, prefix: out.to_path_buf() });
                jobs.push(Job { source, whose: "wheel", prefix: theirs.clone() });
            }
        }
    }
    if jobs.is_empty() {
        bail!("there is no program in {FOLDERS:?}");
    }
    jobs.sort_by(|a, b| (&a.source, a.whose).cmp(&(&b.source, b.whose)));
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
    println!("linked {} programs, each with our prefix and with NVSHMEM's", jobs.len() / 2);
    Ok(jobs.len())
}
