//! What DeepEP's kernels post by, `deep-ep-bridge/include/ibgda_device.cuh`: our kernels in DeepEP's roles compiled and
//! linked with it and the prefix, and the machine code of each of its functions held against a table.

use super::bridge_table::{Counts, Table};
use super::device::nvcc;
use crate::gpu::wheels::Toolkit;
use crate::gpu::{library, sass};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The header, and where the prefix has it.
const HEADER: &str = "deep-ep-bridge/include/ibgda_device.cuh";
const SHARE: &str = "share/shunt/deep-ep";
/// Our kernels; the one whose functions are counted is no program.
const SOURCES: &str = "deep-ep-bridge/cuda";
const PROGRAMS: [&str; 4] = ["low_latency", "notify", "forward", JOB];
/// The one whose PEs reach each other.
pub const JOB: &str = "internode";
const COUNTED: &str = "counts";
/// Where DeepEP runs.
const ARCHES: [&str; 2] = ["sm_90", "sm_100"];
/// What DeepEP's own file takes for the same on sm_90, without fault tolerance and counted in the same way.
const BUDGETS: [(&str, usize); 3] =
    [("shunt_deep_ep_put", 336), ("shunt_deep_ep_signal", 224), ("shunt_deep_ep_quiet", 80)];

/// Puts the header into the prefix.
pub fn install(out: &Path) -> Result<()> {
    let folder = out.join(SHARE);
    std::fs::create_dir_all(&folder)?;
    let header = sh::root().join(HEADER);
    std::fs::copy(&header, folder.join("ibgda_device.cuh"))
        .with_context(|| format!("cannot copy {}", header.display()))?;
    Ok(())
}

/// One thing that nvcc makes.
enum Job {
    Program(&'static str),
    Counted(&'static str),
}

/// Where programs are, for those that run them on a GPU.
pub fn program(name: &str) -> PathBuf {
    work().join(name)
}

/// Their names.
pub fn programs() -> impl Iterator<Item = &'static str> {
    PROGRAMS.into_iter()
}

fn work() -> PathBuf {
    sh::target_dir().join("prefix-device/deep-ep")
}

/// Compiles, links and counts all; answers with how many. `bless`: the counts become the table.
pub fn all(out: &Path, toolkit: &Toolkit, bless: bool) -> Result<usize> {
    std::fs::create_dir_all(work())?;
    let jobs: Vec<Job> =
        PROGRAMS.into_iter().map(Job::Program).chain(ARCHES.into_iter().map(Job::Counted)).collect();
    two_at_a_time(&jobs, |job| match job {
        Job::Program(name) => link(out, toolkit, name),
        Job::Counted(arch) => compile(out, toolkit, arch),
    })?;
    let counts: Vec<Counts> =
        ARCHES.iter().map(|arch| count(toolkit, arch)).collect::<Result<Vec<_>>>()?.concat();
    println!("{}", Counts::head());
    for row in &counts {
        let budget = BUDGETS.iter().find(|(name, _)| row.arch == "sm_90" && *name == row.name);
        println!("{row}{}", budget.map_or(String::new(), |(_, sass)| format!("   DeepEP's own: {sass}")));
    }
    Table::settle(library::compilers(toolkit)?, counts, bless)?;
    println!("linked {} programs with {HEADER} for {}", PROGRAMS.len(), ARCHES.join(" "));
    Ok(jobs.len())
}

fn two_at_a_time(jobs: &[Job], run: impl Fn(&Job) -> Result<()> + Sync) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = run(job) {
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

fn source(name: &str) -> PathBuf {
    sh::root().join(SOURCES).join(name).with_extension("cu")
}

/// A program for all architectures, host and device, and started: without a GPU it says so.
fn link(out: &Path, toolkit: &Toolkit, name: &str) -> Result<()> {
    let (lib, program) = (out.join("lib"), program(name));
    let mut command = nvcc(toolkit, &out.join("include"), &ARCHES)?;
    command.arg("-I").arg(out.join(SHARE)).args(["-Xcompiler", "-Wall,-Werror", "-Werror", "all-warnings"]);
    // What is asked is whether they link: the assembler need not try hard.
    command.args(["-Xptxas", "-O0"]).arg(source(name)).arg("-L").arg(&lib).arg("-lnvshmem_device");
    command.arg("-Xlinker").arg(lib.join("libnvshmem_host.so.3")).args(["-lpthread", "-ldl"]);
    command.arg("-Xlinker").arg(format!("-rpath={}", lib.display())).arg("-o").arg(&program);
    sh::capture(&mut command)
        .with_context(|| format!("{name} does not link with {HEADER} and the prefix"))?;
    let output = sh::command(&program.to_string_lossy()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(2) if said.contains("no GPU") => Ok(()),
        Some(0) => {
            print!("{said}");
            Ok(())
        }
        _ => bail!("{name} ended with {}: {said}", output.status),
    }
}

fn cubin(arch: &str) -> PathBuf {
    work().join(format!("{COUNTED}-{arch}.cubin"))
}

fn compile(out: &Path, toolkit: &Toolkit, arch: &str) -> Result<()> {
    let mut command = nvcc(toolkit, &out.join("include"), &[arch])?;
    command.arg("-I").arg(out.join(SHARE)).args(["-DSHUNT_DEEP_EP_CHECK_NS=0", "-cubin"]);
    sh::capture(command.arg(source(COUNTED)).arg("-o").arg(cubin(arch)))
        .with_context(|| format!("{COUNTED} does not compile for {arch}"))?;
    Ok(())
}

/// Each kernel of `counts.cu` with what it reaches in the device library, cold functions left out.
fn count(toolkit: &Toolkit, arch: &str) -> Result<Vec<Counts>> {
    let library = sh::target_dir().join("prefix-device").join(arch).with_extension("o");
    let mut code = library::machine_code(toolkit, &cubin(arch))?;
    let roots: Vec<String> = code.keys().filter(|name| name.starts_with("shunt_deep_ep_")).cloned().collect();
    if roots.is_empty() {
        bail!("there is no kernel in {}", cubin(arch).display());
    }
    code.extend(library::machine_code(toolkit, &library)?);
    let known: BTreeMap<_, _> = code;
    Ok(roots.iter().map(|root| Counts::new(arch, root, &sass::no_fault_path(&known, root).0)).collect())
}
