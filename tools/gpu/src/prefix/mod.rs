//! `cargo xtask prefix`: a folder that programs take in NVSHMEM's place, and what of NVSHMEM's interface is in it.

mod bitcode;
mod bridge;
mod bridge_table;
mod cmake;
mod coverage;
mod cuda12;
mod device;
mod device_coverage;
mod family;
mod layout;
mod mpi;
mod programs;
pub mod transfer;
pub mod wheel;

use crate::gpu::wheels::Toolkit;
use anyhow::{Context, Result};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub const SUMMARY: &str =
    "make the folder that NVSHMEM_DIR names; --coverage: what of NVSHMEM's interface is there";
pub const HELP: &str = "prefix [--out DIR] [--debug] [--host] [--cuda-home DIR]
       [--coverage] [--bless] [--wheel] [--link] [--programs] [--arch sm_NN]... [--deep-ep] [--cmake]
       [--bitcode] [--triton VERSION]...

Builds the host library (release) and makes
  DIR/include                      nvshmem.h, nvshmemx.h, shunt_nvshmem.h
  DIR/lib/libshunt_nvshmem.so.3    and NVSHMEM's names for it: libnvshmem_host.so, libnvshmem_host.so.3
  DIR/lib/cmake/nvshmem            find_package(NVSHMEM): targets nvshmem::nvshmem, nvshmem_host, nvshmem_device
  DIR/lib/pkgconfig/nvshmem.pc
  DIR/lib/libshunt_transfer.so.0   the transfer engine for C: include/shunt_transfer.h, pkg-config shunt-transfer,
                                   find_package(ShuntTransfer)
  DIR/lib/libnvshmem_device.a      Shunt's device code, relocatable, for nvcc -rdc=true
  DIR/lib/nvshmem_bootstrap_mpi.so.3  where an mpicc is found
  DIR/share/shunt/examples         programs in CUDA C++
  DIR/share/shunt/deep-ep          ibgda_device.cuh, for the place of DeepEP's file of this name
nvcc and ptxas of CUDA 13 are fetched as Python packages, unless --cuda-home names a toolkit.

  --out DIR   where; default target/prefix
  --debug     the library of a debug build
  --host      no device library
  --cuda-home DIR  assemble the device library with the ptxas of the toolkit there: nvlink refuses objects of a newer
              one
  --coverage  hold the library's functions against those of NVSHMEM 3.8.0 (nvshmem-compat/nvshmem-3.8.0.txt) and the
              table in docs/COMPAT.md against both; each function that is not there needs a reason.
              Without --host the same for device functions (nvshmem-compat/nvshmem-3.8.0-device.txt)
  --bless     rewrite that table; with --deep-ep that of machine code
  --wheel     fetch the wheel nvidia-nvshmem-cu13 into target/ and hold against it the committed list, and layouts of
              structures and values of constants
  --link      compile and link a program for each family of device functions with this folder and with that wheel
  --programs  compile and link these with this folder alone, for all architectures or those that --arch names: what
              `cargo xtask gpu run` starts
  --cmake     build a project that finds the folder by CMake, where there is one
  --bitcode   make DIR/lib/libnvshmem_device.bc as well: bitcode of the device functions, for Triton and other compilers
              that link it; and link a kernel with it. A clang of 14 to 20 and rustup are needed
  --triton V  the same, and have this version of Triton, fetched as a Python package, compile a kernel with it
  --deep-ep   compile and link our kernels in DeepEP's roles with ibgda_device.cuh, and hold the machine code of its
              functions against deep-ep-bridge/sass.txt";

pub use bridge::{JOB as DEEP_EP_JOB, program as deep_ep_program, programs as deep_ep_programs};
pub use coverage::exported;
pub use device::nvcc;
pub use programs::{ARCHES, FAMILIES, MEASURES, program};

pub fn run(args: &[String]) -> Result<()> {
    let mut out = sh::target_dir().join("prefix");
    let (mut check, mut bless, mut compare, mut profile) = (false, false, false, Profile::Release);
    let (mut host_alone, mut link, mut deep_ep, mut by_cmake, mut cuda_home) =
        (false, false, false, false, None);
    let (mut device_programs, mut arches) = (false, Vec::new());
    let (mut with_bitcode, mut tritons) = (false, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--out" => out = folder("--out", args.next())?,
            "--host" => host_alone = true,
            "--link" => link = true,
            "--deep-ep" => deep_ep = true,
            "--cmake" => by_cmake = true,
            "--programs" => device_programs = true,
            "--arch" => match args.next().filter(|arch| ARCHES.contains(&arch.as_str())) {
                Some(arch) => arches.push(arch.as_str()),
                None => return sh::usage(format!("--arch needs one of {}", ARCHES.join(" "))),
            },
            "--cuda-home" => cuda_home = Some(folder("--cuda-home", args.next())?),
            "--bitcode" => with_bitcode = true,
            "--triton" => match args.next() {
                Some(version) => (with_bitcode, _) = (true, tritons.push(version.as_str())),
                None => return sh::usage("--triton needs a version, such as 3.6.0"),
            },
            "--debug" => profile = Profile::Debug,
            "--coverage" => check = true,
            "--bless" => bless = true,
            "--wheel" => compare = true,
            other => return sh::usage(format!("unknown argument '{other}'")),
        }
    }
    if compare {
        wheel::compare()?;
    }
    let library = make(&out, profile)?;
    transfer::install(&out, &profile.folder())?;
    let held = check || bless && !deep_ep;
    if held {
        coverage::check(&library, bless)?;
    }
    if host_alone && !compare && !with_bitcode {
        return Ok(());
    }
    let toolkit = cuda_home.map_or_else(Toolkit::fetch, |home| Toolkit::in_folder(&home))?;
    if compare {
        against_wheel(&out, &library, &toolkit)?;
    }
    if !host_alone {
        make_device(&out, &toolkit, held.then_some(bless))?;
    }
    if link {
        programs::link_all(&out, &toolkit)?;
        cuda12::link(&out)?;
    }
    if device_programs {
        programs::link_ours(&out, &toolkit, if arches.is_empty() { &ARCHES } else { &arches })?;
    }
    if by_cmake {
        cmake::project(&out, &toolkit)?;
    }
    if with_bitcode {
        bitcode::all(&out, &toolkit, &tritons)?;
    }
    if deep_ep {
        bridge::all(&out, &toolkit, bless)?;
    }
    Ok(())
}

/// The folder that an option names.
fn folder(option: &str, given: Option<&String>) -> Result<PathBuf> {
    match given {
        Some(dir) => Ok(sh::root().join(dir)),
        None => sh::usage(format!("{option} needs a folder")),
    }
}

/// The folder as a release has it.
pub fn make_release(out: &Path, device: bool) -> Result<()> {
    make(out, Profile::Workspace)?;
    if device {
        make_device(out, &Toolkit::fetch()?, None)?;
    }
    Ok(())
}

/// The package of the host library.
const LIBRARY: &str = "shunt-nvshmem-compat";

/// A part of the stage, and how long it took: nobody guesses where the time goes.
fn timed<T>(what: &str, part: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let result = part();
    println!("  {what}: {:.1} s", start.elapsed().as_secs_f64());
    result
}

/// What else there is to hold against the wheel, once the folder is there.
fn against_wheel(out: &Path, library: &Path, toolkit: &Toolkit) -> Result<()> {
    wheel::answers(library)?;
    layout::compare(&out.join("include"), toolkit)?;
    device_coverage::compare(covered(toolkit, &wheel::folder()?)?)
}

/// The device library, held against its list where that is asked for: with or without writing the table.
fn make_device(out: &Path, toolkit: &Toolkit, held: Option<bool>) -> Result<()> {
    device::make(out, toolkit)?;
    if let Some(bless) = held {
        device_coverage::check(covered(toolkit, out)?, bless)?;
    }
    Ok(())
}

/// A compiler with the headers of a folder, for one architecture: they are the same for all.
fn covered(toolkit: &Toolkit, folder: &Path) -> Result<std::process::Command> {
    nvcc(toolkit, &folder.join("include"), &["sm_90"])
}

/// The stage: the folder, its coverage, and a C and a C++ program that link it and run. `pack` packs the programs of
/// the families for a machine with a GPU, and answers with how many.
pub fn stage(pack: impl FnOnce() -> Result<usize>) -> Result<Count> {
    let out = sh::target_dir().join("prefix");
    let library = timed("host library and launcher", || make(&out, Profile::Workspace))?;
    coverage::check(&library, false)?;
    transfer::install(&out, &Profile::Workspace.folder())?;
    let transfers = timed("transfers in C", || transfer::try_page(&out, &launcher()))?;
    let toolkit = timed("toolkit", Toolkit::fetch)?;
    timed("device library", || device::make(&out, &toolkit))?;
    let ours = covered(&toolkit, &out)?;
    timed("device functions", || device_coverage::check(ours, false))?;
    let bridged = timed("DeepEP's kernels", || bridge::all(&out, &toolkit, false))?;
    let bitcode = timed("bitcode", || bitcode::stage(&out, &toolkit))?;
    let with_wheel = || -> Result<usize> {
        timed("wheel", wheel::compare)?;
        timed("headers and symbols of the wheel", || against_wheel(&out, &library, &toolkit))?;
        let linked = timed("programs of families", || programs::link_all(&out, &toolkit))?;
        let linked = linked + timed("packed for a GPU", pack)?;
        Ok(linked + timed("CUDA 12", || cuda12::link(&out))?)
    };
    let mut linked = 0;
    match with_wheel() {
        Ok(count) => linked = count,
        // No network is no failure of ours; a list that differs is.
        Err(error) if error.is::<wheel::Unreachable>() => println!("not held against the wheel: {error:#}"),
        Err(error) => return Err(error),
    }
    let by_cmake = timed("CMake", || cmake::project(&out, &toolkit))?;
    let launched = timed("under mpirun", || mpi::conformance(&out, &launcher(), &mpi::RUNS))?;
    let programs = timed("programs of the host", || host_programs(&out))?;
    let passed = 3 + transfers + programs + linked + bridged + launched + by_cmake + bitcode.passed;
    Ok(Count { passed, ..bitcode })
}

/// The launcher that the workspace's release build made.
fn launcher() -> PathBuf {
    sh::target_dir().join("release/shunt")
}

/// `cargo xtask night`: all families of the suite in jobs of 1, 2, 3, 4 and 8 under both launchers, a port down in
/// each; with an argument what the stage runs.
pub fn night(args: &[String]) -> Result<()> {
    let out = sh::target_dir().join("prefix");
    make(&out, Profile::Workspace)?;
    let runs = if args.is_empty() { mpi::NIGHT } else { mpi::RUNS };
    mpi::conformance(&out, &launcher(), &runs).map(|runs| println!("{runs} runs"))
}

/// A program in C and one in C++ that link the host library and run; answers with how many.
fn host_programs(out: &Path) -> Result<usize> {
    let folder = sh::root().join("nvshmem-compat/conformance");
    let programs = [("cc", "-std=gnu11", "odd/odd.c"), ("c++", "-std=c++17", "cpp/program.cc")];
    for (compiler, standard, source) in programs {
        let program = out.join("program");
        let mut command = sh::command(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Werror"]).arg(folder.join(source));
        let lib = out.join("lib");
        command.arg("-I").arg(out.join("include")).arg("-L").arg(&lib).arg("-lnvshmem_host").arg("-ldl");
        command.arg(format!("-Wl,-rpath,{}", lib.display())).arg("-o").arg(&program);
        sh::run(&mut command)?;
        sh::run(sh::command(&program.to_string_lossy()).arg("alone").env("NVSHMEM_SYMMETRIC_SIZE", "1M"))?;
        std::fs::remove_file(&program)?;
    }
    Ok(programs.len())
}

/// How the library is built.
#[derive(Clone, Copy)]
enum Profile {
    Release,
    Debug,
    /// Release, with all else there is, as another stage built it: alone it has other features of what it depends on,
    /// and would be built once more.
    Workspace,
}

impl Profile {
    /// Where cargo puts what it builds so.
    fn folder(self) -> PathBuf {
        let name = if matches!(self, Self::Debug) { "debug" } else { "release" };
        sh::target_dir().join(name)
    }
}

/// Makes the folder; answers with the library in it.
fn make(out: &Path, profile: Profile) -> Result<PathBuf> {
    let args: &[&str] = match profile {
        Profile::Release => &["--release", "-p", LIBRARY, "-p", transfer::PACKAGE],
        Profile::Debug => &["-p", LIBRARY, "-p", transfer::PACKAGE],
        Profile::Workspace => &["--release"],
    };
    sh::run(sh::cargo().args(["build"]).args(args))?;
    let built = profile.folder().join("libshunt_nvshmem.so");
    let crate_folder = sh::root().join("nvshmem-compat");
    copy_tree(&crate_folder.join("include"), &out.join("include"))?;
    let lib = out.join("lib");
    for folder in ["cmake/nvshmem", "pkgconfig"] {
        std::fs::create_dir_all(lib.join(folder))?;
    }
    let library = lib.join("libshunt_nvshmem.so.3");
    // Not written over: a program may run on the old one.
    let _ = std::fs::remove_file(&library);
    std::fs::copy(&built, &library).with_context(|| format!("cannot copy {}", built.display()))?;
    // What programs are linked with, and what those ask for that were linked with NVSHMEM.
    for name in ["libnvshmem_host.so", "libnvshmem_host.so.3"] {
        let name = lib.join(name);
        let _ = std::fs::remove_file(&name);
        std::os::unix::fs::symlink("libshunt_nvshmem.so.3", name)?;
    }
    let package = crate_folder.join("package");
    for (file, folder) in [
        ("NVSHMEMConfig.cmake", "cmake/nvshmem"),
        ("NVSHMEMConfigVersion.cmake", "cmake/nvshmem"),
        ("nvshmem.pc", "pkgconfig"),
    ] {
        std::fs::copy(package.join(file), lib.join(folder).join(file))?;
    }
    copy_tree(&crate_folder.join("examples"), &out.join("share/shunt/examples"))?;
    bridge::install(out)?;
    mpi::plugin(out)?;
    println!("prefix: {}", out.display());
    Ok(library)
}

/// Copies a folder of headers; what was there before and is no more goes.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if to.is_dir() {
        std::fs::remove_dir_all(to)?;
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
