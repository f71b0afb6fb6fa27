//! `libnvshmem_device.bc`: the headers' device functions under their C names and Shunt's own under them, as one module
//! of LLVM bitcode, for Triton and other compilers that link such a module into a kernel's.
//!
//! All of it is inside: who links bitcode assembles one module, and no linker of CUDA's comes behind it. clang compiles
//! the headers, an older rustc the library, since LLVM reads what is older than itself, and not what is newer.

use super::coverage::listed;
use super::device_coverage::{ABSENT, LIST};
use super::family::reason;
use crate::gpu::library::device_library_bitcode;
use crate::gpu::wheels::{self, Toolkit};
use anyhow::{Context, Error, Result, bail};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its name, as NVSHMEM's.
const BITCODE: &str = "libnvshmem_device.bc";
/// The oldest rustc that compiles the device code, with its LLVM tools: their version is the oldest that reads the
/// file.
const RUST: &str = "1.90.0";
/// Its LLVM.
const LLVM: u32 = 20;
/// Headers in the place of CUDA's, sources, and kernels that are linked with the file.
const SOURCES: &str = "nvshmem-compat/bitcode";
/// What the host writes into a module before its kernels run, as PTX has them.
const WORDS: [&str; 2] =
    [".visible .const .align 16 .b8 shunt_root[", ".visible .const .align 8 .b8 shunt_nvshmem_device_state["];

/// Functions that Triton-distributed (1512a81) and PyTorch's symmetric memory name. A name with `*` stands for each of
/// [`TYPES`], one that begins with `:` for itself, of a thread, a warp and a block.
const WANTED: &[&str] = &[
    "nvshmem_my_pe",
    "nvshmem_n_pes",
    "nvshmem_ptr",
    "nvshmemx_mc_ptr",
    "nvshmem_team_my_pe",
    "nvshmem_team_n_pes",
    "nvshmem_team_translate_pe",
    "nvshmem_int_p",
    "nvshmem_fence",
    "nvshmem_quiet",
    "nvshmemx_signal_op",
    "nvshmem_signal_wait_until",
    "nvshmem_longlong_wait_until",
    "nvshmem_team_sync",
    "nvshmemx_team_sync_warp",
    "nvshmemx_team_sync_block",
    ":barrier",
    ":barrier_all",
    ":sync_all",
    ":putmem",
    ":putmem_nbi",
    ":getmem",
    ":getmem_nbi",
    ":putmem_signal",
    ":putmem_signal_nbi",
    ":broadcastmem",
    ":alltoallmem",
    ":*_broadcast",
    ":*_fcollect",
    "nvshmem_*_sum_reduce",
    "nvshmem_*_prod_reduce",
    "nvshmem_*_min_reduce",
    "nvshmem_*_max_reduce",
];
const TYPES: [&str; 12] = [
    "bfloat16", "half", "float", "double", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64",
];

/// A tool that makes it is not there.
#[derive(Debug)]
struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BITCODE} cannot be made here: {}", self.0)
    }
}

impl std::error::Error for Missing {}

/// Names of [`WANTED`], each by itself.
fn wanted() -> BTreeSet<String> {
    let groups = |name: &str| match name.strip_prefix(':') {
        Some(name) => {
            vec![format!("nvshmem_{name}"), format!("nvshmemx_{name}_warp"), format!("nvshmemx_{name}_block")]
        }
        None => vec![name.to_owned()],
    };
    let types = |name: String| match name.contains('*') {
        true => TYPES.iter().map(|of| name.replace('*', of)).collect(),
        false => vec![name],
    };
    WANTED.iter().flat_map(|name| groups(name)).flat_map(types).collect()
}

/// What the file must define, and no more: NVSHMEM's device functions but those that have a reason.
fn names() -> Result<BTreeSet<String>> {
    Ok(listed(LIST)?.into_iter().filter(|name| reason(ABSENT, name).is_none()).collect())
}

/// A program of an LLVM.
struct Llvm {
    folder: PathBuf,
    version: u32,
}

impl Llvm {
    /// That of a toolchain of Rust, if it has its component.
    fn of(toolchain: &str) -> Option<Self> {
        let rustc = || {
            let mut command = sh::command("rustc");
            command.env("RUSTUP_TOOLCHAIN", toolchain);
            command
        };
        let about = sh::stdout_of(rustc().arg("-vV"))?;
        let host = about.lines().find_map(|line| line.strip_prefix("host: "))?;
        let version = about.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
        let root = sh::stdout_of(rustc().args(["--print", "sysroot"]))?;
        let folder = Path::new(root.trim()).join("lib/rustlib").join(host).join("bin");
        let version = version.split('.').next()?.parse().ok()?;
        folder.join("llvm-link").is_file().then_some(Self { folder, version })
    }

    fn program(&self, name: &str) -> Command {
        sh::command(&self.folder.join(name).to_string_lossy())
    }
}

/// The LLVM of [`RUST`], which is installed where it is missing.
fn llvm() -> Result<Llvm> {
    if let Some(llvm) = Llvm::of(RUST) {
        return Ok(llvm);
    }
    let mut install = sh::command("rustup");
    install.args(["toolchain", "install", RUST, "--profile", "minimal"]);
    install.args(["--component", "rust-src", "--component", "llvm-tools"]);
    sh::capture(&mut install).map_err(|error| Error::new(Missing(format!("{error:#}"))))?;
    let missing = || Error::new(Missing(format!("rustup added no LLVM tools to Rust {RUST}")));
    Llvm::of(RUST).ok_or_else(missing)
}

/// A clang whose bitcode that LLVM reads.
fn clang() -> Result<String> {
    let version = |name: &String| {
        let said = sh::stdout_of(sh::command(name).arg("--version"))?;
        said.split("version ").nth(1)?.split('.').next()?.parse::<u32>().ok()
    };
    let named = (14..=LLVM).rev().map(|version| format!("clang-{version}"));
    let mut all = std::iter::once("clang".to_owned()).chain(named);
    let fits = |name: &String| version(name).is_some_and(|found| (14..=LLVM).contains(&found));
    let missing = || Error::new(Missing(format!("there is no clang of version 14 to {LLVM}")));
    all.find(fits).ok_or_else(missing)
}

/// Makes the file, links a kernel with it, and has these versions of Triton compile one.
pub fn all(out: &Path, toolkit: &Toolkit, tritons: &[&str]) -> Result<()> {
    let file = make(out)?;
    link(&file, toolkit)?;
    tritons.iter().try_for_each(|version| triton(&file, version))
}

/// The part of the stage: not run where a tool is missing.
pub fn stage(out: &Path, toolkit: &Toolkit) -> Result<Count> {
    match make(out) {
        Ok(file) => Ok(Count::of(1 + link(&file, toolkit)?, 0)),
        Err(error) if error.is::<Missing>() => {
            println!("skipped: {error:#}");
            Ok(Count { skipped: 1, ..Count::default() })
        }
        Err(error) => Err(error),
    }
}

/// Makes the file in a prefix whose headers are there.
///
/// # Errors
/// [`Missing`], or something does not compile or link, or is not defined.
fn make(out: &Path) -> Result<PathBuf> {
    let (llvm, clang) = (llvm()?, clang()?);
    let work = sh::target_dir().join("prefix-bitcode");
    std::fs::create_dir_all(&work)?;
    let headers = work.join("headers.bc");
    let mut command = sh::command(&clang);
    command.args(["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "-nocudainc", "-nocudalib"]);
    command.args(["-std=c++17", "-O2", "-D__CUDACC__", "-Wall", "-Werror", "-Wno-return-type-c-linkage"]);
    command.arg("-isystem").arg(sh::root().join(SOURCES).join("include"));
    command
        .args(["-I", "kernels/include", "-I"])
        .arg(out.join("include"))
        .args(["-emit-llvm", "-c", "-o"])
        .arg(&headers);
    sh::capture(command.arg(format!("{SOURCES}/device.cu"))).context("the headers do not compile")?;

    let (library, joined) = (work.join("library.ll"), work.join("joined.ll"));
    let text = sh::stdout_of(llvm.program("llvm-dis").args(["-o", "-"]).arg(device_library_bitcode(RUST)?));
    std::fs::write(&library, of_library(&text.context("the library is no bitcode of its compiler's")?)?)?;
    sh::capture(llvm.program("llvm-link").arg("-S").args([&library, &headers]).arg("-o").arg(&joined))?;
    std::fs::write(&joined, finished(&std::fs::read_to_string(&joined)?))?;

    let (names, list, file) = (names()?, work.join("names"), out.join("lib").join(BITCODE));
    std::fs::write(&list, names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    let mut command = llvm.program("opt");
    command.arg("-passes=internalize,globaldce");
    command.arg(format!("-internalize-public-api-file={}", list.display()));
    sh::capture(command.arg(&joined).arg("-o").arg(&file))?;
    let (defined, undefined) = symbols(&llvm, &file)?;
    let wanted = wanted();
    let missing = wanted.difference(&defined);
    let differ: Vec<&String> =
        defined.symmetric_difference(&names).chain(&undefined).chain(missing).collect();
    if !differ.is_empty() {
        bail!("{BITCODE}: expected the functions of {LIST} and nothing undefined, got {differ:?}");
    }
    println!("{}: {} functions, for LLVM {LLVM} and later", file.display(), names.len());
    Ok(file)
}

/// Functions that a file defines for others, and names that it leaves to others.
fn symbols(llvm: &Llvm, file: &Path) -> Result<(BTreeSet<String>, BTreeSet<String>)> {
    let text = sh::stdout_of(llvm.program("llvm-nm").arg("--format=posix").arg(file));
    let (mut defined, mut undefined) = (BTreeSet::new(), BTreeSet::new());
    for line in text.context("llvm-nm cannot read it")?.lines() {
        match line.rsplit_once(": ").map_or(line, |(_, rest)| rest).split_whitespace().collect::<Vec<_>>()[..]
        {
            [name, "T" | "W", ..] => _ = defined.insert(name.to_owned()),
            [name, "U", ..] => _ = undefined.insert(name.to_owned()),
            _ => {}
        }
    }
    Ok((defined, undefined))
}

/// The library's text with the root of the device state defined, and with what may meet other lanes marked: rustc marks
/// none, and no pass may give lanes that meet a path each. The summary for a linker is left out.
fn of_library(text: &str) -> Result<String> {
    let (declared, defined) =
        ("module asm \".extern .const .align 16 .b8 shunt_root", "module asm \".visible");
    if text.matches(declared).count() != 1 {
        bail!("the library: expected one declaration of shunt_root, got {}", text.matches(declared).count());
    }
    let defined = declared.replace("module asm \".extern", defined);
    let mut out = String::with_capacity(text.len());
    for line in text.replace(declared, &defined).lines().filter(|line| !line.starts_with('^')) {
        let reads = line.contains("memory(none)") || line.contains("memory(read)");
        match line.split_once("{ ") {
            Some((group, rest)) if group.starts_with("attributes #") && !reads => {
                out += &format!("{group}{{ convergent {rest}\n");
            }
            _ => out += &format!("{line}\n"),
        }
    }
    Ok(out)
}

/// The module without what belongs to one architecture or one compilation: attributes of a processor, which keep
/// functions of others from being inlined, and flags, which another module may contradict. What clang keeps for its own
/// sake is kept for the host's, and a line says what the file is.
fn finished(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line.starts_with("attributes #") {
            let kept: Vec<&str> = line.split(' ').filter(|word| !word.starts_with('"')).collect();
            out += &format!("{}\n", kept.join(" "));
        } else if !["!llvm.module.flags", "!llvm.ident", "!nvvm"].iter().any(|start| line.starts_with(start))
        {
            out += &format!("{}\n", line.replace("@llvm.compiler.used", "@llvm.used"));
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let what =
        format!("Shunt {version}: device functions of NVSHMEM 3.8 for LLVM {LLVM}, sm_80, PTX 8.3 and later");
    out + &format!("!llvm.ident = !{{!1000000}}\n!1000000 = !{{!\"{what}\"}}\n")
}

/// Links a kernel with the file as Triton does, and assembles it, by each LLVM that a toolchain of Rust here has;
/// answers with how many.
fn link(file: &Path, toolkit: &Toolkit) -> Result<usize> {
    let list = sh::stdout_of(sh::command("rustup").args(["toolchain", "list"])).unwrap_or_default();
    let all = list.lines().filter_map(|line| Llvm::of(line.split_whitespace().next()?));
    let mut done = BTreeSet::new();
    for llvm in all.filter(|llvm| llvm.version >= LLVM) {
        if done.insert(llvm.version) {
            kernel(&llvm, file, toolkit).with_context(|| format!("LLVM {}", llvm.version))?;
        }
    }
    println!("linked a kernel with {BITCODE} by LLVM {done:?}");
    Ok(done.len())
}

fn kernel(llvm: &Llvm, file: &Path, toolkit: &Toolkit) -> Result<()> {
    let at = sh::target_dir().join("prefix-bitcode/kernel");
    let [linked, small, ptx, cubin] = ["linked.bc", "bc", "ptx", "cubin"].map(|end| at.with_extension(end));
    let mut command = llvm.program("llvm-link");
    command.args(["--only-needed", "--internalize"]).arg(format!("{SOURCES}/kernel.ll")).arg(file);
    sh::capture(command.arg("-o").arg(&linked))?;
    sh::capture(llvm.program("opt").arg("-O3").arg(&linked).arg("-o").arg(&small))?;
    for arch in super::ARCHES {
        let mut command = llvm.program("llc");
        command.args(["-O3", "-mattr=+ptx86", &format!("-mcpu={arch}")]).arg(&small).arg("-o").arg(&ptx);
        sh::capture(&mut command)?;
        let text = std::fs::read_to_string(&ptx)?;
        let missing: Vec<&str> = WORDS.into_iter().filter(|word| !text.contains(word)).collect();
        if !missing.is_empty() || text.contains(".extern") {
            bail!("the kernel: expected all defined, got {:?} left out of {}", missing, ptx.display());
        }
        let mut command = toolkit.program("ptxas");
        sh::capture(command.args(["-O1", "-arch", arch]).arg(&ptx).arg("-o").arg(&cubin))?;
    }
    Ok(())
}

/// Has a version of Triton, fetched as a Python package, compile a kernel that calls device functions.
fn triton(file: &Path, version: &str) -> Result<()> {
    let folder = format!("triton-{version}");
    let home = wheels::fetch(&folder, &[&format!("triton=={version}")])?;
    let mut command = sh::command("python3");
    command.arg(format!("{SOURCES}/kernel.py")).arg(file).env("PYTHONPATH", &home);
    sh::run(command.env("TRITON_CACHE_DIR", home.join("cache")).env("TRITON_ALWAYS_COMPILE", "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_name_is_among_what_is_there() {
        let (wanted, names) = (wanted(), names().unwrap());
        let missing: Vec<&String> = wanted.difference(&names).collect();
        assert!(missing.is_empty() && wanted.len() > 150, "{missing:?} of {}", wanted.len());
        for name in ["nvshmemx_putmem_signal_nbi_block", "nvshmem_int8_fcollect", "nvshmem_half_max_reduce"] {
            assert!(wanted.contains(name), "{name}");
        }
    }

    #[test]
    fn the_librarys_root_is_defined_once_and_what_meets_is_marked() {
        let root = "module asm \".extern .const .align 16 .b8 shunt_root[384];\"\n";
        let text = format!(
            "{root}attributes #0 = {{ noinline }}\nattributes #1 = {{ memory(none) }}\n^0 = module\n"
        );
        let made = of_library(&text).unwrap();
        let expect = "module asm \".visible .const .align 16 .b8 shunt_root[384];\"\n\
                      attributes #0 = { convergent noinline }\nattributes #1 = { memory(none) }\n";
        assert_eq!(made, expect);
        assert!(of_library("").is_err() && of_library(&format!("{root}{root}")).is_err());
    }

    #[test]
    fn attributes_of_a_processor_and_flags_are_left_out() {
        let made = finished(
            "@llvm.compiler.used = x\nattributes #0 = { convergent \"target-cpu\"=\"sm_80\" \
             \"target-features\"=\"+ptx42,+sm_80\" }\n!llvm.module.flags = !{!0}\n!0 = !{i32 1}\n",
        );
        assert!(
            made.starts_with("@llvm.used = x\nattributes #0 = { convergent }\n!0 = !{i32 1}\n!llvm.ident")
        );
    }
}
