//! `cargo xtask gpu`: builds the kernels for NVIDIA GPUs without CUDA, and audits what came out.

mod assemble;
mod audit;
mod bounds;
mod cplusplus;
mod divergence;
mod example;
mod families;
mod fatbin;
mod flow;
mod header;
pub mod pack;
mod preserve;
mod run;
pub mod sass;
mod table;
mod toolchain;
pub mod wheels;

use anyhow::{Context, Result, bail};
use assemble::Object;
use audit::Module;
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::PathBuf;
use table::{Row, Table};
use toolchain::Toolchain;
use wheels::Toolkit;

pub const SUMMARY: &str = "build the device code for sm_80, sm_90, sm_100, audit it, count its machine code";
pub const HELP: &str = "gpu [run [--packed DIR] [--only ROW]] [--arch sm_NN]... [--bless] [--toolchain NAME]
gpu pack --out DIR [--no-sanitizer] [--arch sm_NN]... [--toolchain NAME]
gpu audit FILE.ptx...

Builds `kernels/` for nvptx64-nvidia-cuda into <target>/gpu/<arch>/: shunt_kernels, the entry points, and shunt_device,
the functions that programs in other languages call, each as .ptx, .o (relocatable) and .sass, the kernels linked into a
.cubin as well. (The .saving.ptx of the functions has cold ones save the registers of their callers.)
All architectures of the functions go into <target>/gpu/lib/libshunt_device.a, with their header beside
it, and kernels/cuda/calls.cu is compiled by nvcc, linked with it and started. Then examples/rust-kernel, a crate of its
own, is built by the lines of its README, and layout and device are packed as they would be published and built so.

No CUDA need be installed: ptxas, nvlink, nvdisasm and nvcc are fetched as Python packages into <target>/gpu-tools. A
nightly with rust-src is needed; rust-src is added through rustup if it is missing. Without a nightly the pinned stable
is used with RUSTC_BOOTSTRAP=1.

Fails on: an external function, a stack, a call that can panic, an atomic that is none of Platform's, no entry point,
an aligned barrier, a barrier or an operation of a full warp that only some of its threads may reach, a
spill or a stack on the no-fault path of any of them, a header that is not what the source says or what was compiled,
a program in CUDA C++ that does not link, an entry point that accesses memory more or less often than its twin without
fault tolerance (NAME_ft_off) or has lost it, a no-fault path over its budget (docs/GPU.md; sm_90), and anything worse
than the committed table kernels/sass.txt. If the compilers are not those of the table, what is worse is only said.

Columns, for each entry point and library function, all for its no-fault path: the function and every function it
reaches through calls, but for those that are cold. Cold is what the device crate never inlines and calls only when
there is something to wait for, to repair or to report: by name, `*_slow` and the list in tools/gpu/src/gpu/sass.rs.
  sass        machine instructions; the branch to itself and the NOPs behind the last one left out
  registers   of a thread
  loads, stores, atomics   accesses to global memory; constant and shared memory are none
  barriers    fences and barriers of a block
  stack, spills   bytes: 0, or it fails
  cold-stack  bytes that the deepest cold call takes: registers that the calling convention has a function save

  run               after that run on this machine's GPU all that needs one, and print one table: the program in CUDA
                    C++; those in DeepEP's roles (of the prefix, which it makes); NVSHMEM's families and the prefix's
                    examples that measure, as jobs of two PEs that share the GPU, with ports that go down and without
                    fault tolerance as well (--only families); all kernels' scenarios, every byte;
                    layers of MoE among 2 and 4 PEs, and of normal mode between 2 nodes of 2, without a fault and
                    while a rail fails; a graph that is captured once, across a fault and a switch-back;
                    rate and latency with fault tolerance and without; error completion to backup doorbell; shmem_put_bw
                    --device gpu over the fault menu; compute-sanitizer (fetched) over the library calls and a scenario
                    of each entry point. A row that takes longer than 2 minutes (10: gpu_check, compute-sanitizer) is
                    killed and has failed. Without a GPU every row says that it was not run, and it fails before it
                    builds
  --only ROW        of these only the rows whose name holds ROW
  pack --out DIR    all that these rows start, in a folder for a machine that has a GPU, and neither compilers nor a
                    network: DIR/run.sh [--only ROW] runs them there. compute-sanitizer is among it, most of its size,
                    but with --no-sanitizer
  audit FILE.ptx... read PTX and print what the audit finds in it; builds nothing
  --packed DIR      run what such a folder has, and build nothing (what its run.sh does)
  --arch sm_NN      only this one; may be repeated
  --bless           write the header, and the table instead of comparing with it
  --toolchain NAME  use this rustup toolchain";

/// An architecture and the PTX version it needs: 8.3 has everything the inline assembly uses, but ptxas takes sm_100
/// from 8.6 on.
#[derive(Debug, PartialEq, Eq)]
pub struct Arch {
    name: &'static str,
    feature: &'static str,
}

const ARCHES: &[Arch] = &[
    Arch { name: "sm_80", feature: "ptx83" },
    Arch { name: "sm_90", feature: "ptx83" },
    Arch { name: "sm_100", feature: "ptx86" },
];

/// What is built from `kernels/`.
pub struct Part {
    name: &'static str,
    /// What cargo is told beside the rest.
    cargo: &'static [&'static str],
}

/// Entry points, linked into a cubin for a driver to load.
const KERNELS: &str = "shunt_kernels";
/// Functions, relocatable, for programs in other languages.
const LIBRARY: &str = "shunt_device";

/// What names of entry points without fault tolerance hold.
const PLAIN: &str = "_ft_off";

const PARTS: &[Part] =
    &[Part { name: KERNELS, cargo: &[] }, Part { name: LIBRARY, cargo: &["--features", "library"] }];

#[derive(Default)]
struct Options {
    arches: Vec<&'static Arch>,
    bless: bool,
    run: bool,
    only: Option<String>,
    packed: Option<PathBuf>,
    pack: bool,
    out: Option<PathBuf>,
    no_sanitizer: bool,
    toolchain: Option<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bless" => options.bless = true,
                "run" => options.run = true,
                "pack" => options.pack = true,
                "--only" => options.only = Some(args.next().context("--only needs a row's name")?.clone()),
                "--packed" => {
                    options.packed = Some(args.next().context("--packed needs a folder")?.into());
                }
                "--out" => options.out = Some(args.next().context("--out needs a folder")?.into()),
                "--no-sanitizer" => options.no_sanitizer = true,
                "--toolchain" => {
                    options.toolchain = Some(args.next().context("--toolchain needs a name")?.clone());
                }
                "--arch" => {
                    let name = args.next().context("--arch needs a name, for example sm_90")?;
                    let known: Vec<&str> = ARCHES.iter().map(|arch| arch.name).collect();
                    let arch = ARCHES.iter().find(|arch| arch.name == name);
                    options
                        .arches
                        .push(arch.with_context(|| format!("{name} is none of {}", known.join(" ")))?);
                }
                other => bail!("unknown argument '{other}'"),
            }
        }
        if (options.only.is_some() || options.packed.is_some()) && !options.run {
            bail!("--only and --packed are of `gpu run`: add run");
        }
        if options.pack != options.out.is_some() || options.pack && options.run {
            bail!("a folder is packed by `gpu pack --out DIR`, and run by its own script");
        }
        if options.no_sanitizer && !options.pack {
            bail!("--no-sanitizer is of `gpu pack`");
        }
        if options.arches.is_empty() {
            options.arches = ARCHES.iter().collect();
        } else if options.bless {
            bail!("--bless writes the whole table: it takes no --arch");
        }
        Ok(options)
    }
}

/// What the audit finds in PTX text, one line each.
fn audit_text(text: &str) -> Result<Vec<String>> {
    let mut faults = Module::parse(text).faults();
    faults.extend(divergence::findings(&flow::read(text)?));
    Ok(faults)
}

fn audit_files(files: &[String]) -> Result<()> {
    if files.is_empty() {
        return sh::usage("gpu audit: expected a PTX file, got none".to_owned());
    }
    let mut count = 0;
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
        let faults = audit_text(&text).with_context(|| file.clone())?;
        faults.iter().for_each(|fault| println!("{file}: {fault}"));
        count += faults.len();
    }
    if count != 0 {
        bail!("{count} faults");
    }
    println!("no faults in {} files", files.len());
    Ok(())
}

pub fn run(args: &[String]) -> Result<()> {
    if let [first, files @ ..] = args
        && first == "audit"
    {
        return audit_files(files);
    }
    let options = Options::parse(args).or_else(|error| sh::usage(format!("{error:#}")))?;
    let here = if options.run { Some(run::find(options.only.as_deref())?) } else { None };
    if let (Some(here), Some(packed)) = (&here, &options.packed) {
        return run::everything(here, options.only.as_deref(), Some(packed), &options.arches);
    }
    let mut gpu = Gpu::start(&options)?;
    header::make(options.bless)?;
    let mut library = Vec::new();
    for arch in &options.arches {
        println!("\n{}", table::head());
        for part in PARTS {
            let object = gpu.build(part, arch)?;
            library.extend(object.filter(|_| part.name == LIBRARY).map(|object| (*arch, object)));
        }
    }
    gpu.faults.extend(bounds::unlike_twins(&gpu.rows));
    gpu.faults.extend(bounds::over_budget(&gpu.rows));
    gpu.compare(options.bless)?;
    if !gpu.faults.is_empty() {
        println!();
        gpu.faults.iter().for_each(|fault| println!("fault: {fault}"));
        bail!("{} faults in the device code", gpu.faults.len());
    }
    let archive = cplusplus::archive(&gpu.toolkit, &library)?;
    cplusplus::program(&gpu.toolkit, &archive, &options.arches)?;
    example::build(&gpu.toolchain, &gpu.toolkit)?;
    example::package()?;
    if let Some(out) = &options.out {
        return pack::pack(&sh::root().join(out), &options.arches, !options.no_sanitizer);
    }
    here.map_or(Ok(()), |here| run::everything(&here, options.only.as_deref(), None, &options.arches))
}

/// Registers that the device library of the prefix takes at most: a kernel of 1024 threads has no more for each, and
/// what it calls must do with as many.
const REGISTERS: usize = 64;

/// The device library's functions for all architectures, assembled by this toolkit: objects in `folder`.
pub fn device_library(toolkit: &Toolkit, folder: &std::path::Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let toolchain = Toolchain::find(None)?;
    let part = PARTS.iter().find(|part| part.name == LIBRARY).context("the library is a part")?;
    let assemble = |arch: &'static Arch, mut ptx: PathBuf| {
        let object = folder.join(arch.name).with_extension("o");
        if toolkit.saves_registers() {
            let text = std::fs::read_to_string(&ptx)?;
            ptx = folder.join(arch.name).with_extension("ptx");
            std::fs::write(&ptx, preserve::with_directives(&text, &Module::parse(&text), REGISTERS))?;
        }
        let mut command = toolkit.program("ptxas");
        command.args(["-c", "-arch", arch.name, &format!("-maxrregcount={REGISTERS}")]);
        sh::capture(command.arg(&ptx).arg("-o").arg(&object))?;
        Ok((arch.name, object))
    };
    // Cargo compiles one after another; ptxas takes one core for each.
    let built: Vec<_> = ARCHES
        .iter()
        .map(|arch| Ok((arch, toolchain::build(&toolchain, part, arch)?)))
        .collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        let jobs: Vec<_> =
            built.into_iter().map(|(arch, ptx)| scope.spawn(move || assemble(arch, ptx))).collect();
        jobs.into_iter().map(|job| job.join().expect("an assembler does not panic")).collect()
    })
}

/// The compilers that a table of machine code is made by.
pub fn compilers(toolkit: &Toolkit) -> Result<String> {
    Ok(format!("{}, {}", Toolchain::find(None)?.describe(), toolkit.version()))
}

/// The functions of an object.
pub fn machine_code(
    toolkit: &Toolkit,
    object: &std::path::Path,
) -> Result<std::collections::BTreeMap<String, sass::Code>> {
    let listing = sh::stdout_of(toolkit.program("nvdisasm").arg("-c").arg(object));
    Ok(sass::read(&listing.with_context(|| format!("nvdisasm cannot read {}", object.display()))?))
}

/// The PTX of the device library's functions for one architecture.
pub fn device_library_ptx(arch: &str) -> Result<PathBuf> {
    ptx_of(LIBRARY, arch)
}

/// The PTX of the entry points for one architecture.
pub fn kernels_ptx(arch: &str) -> Result<PathBuf> {
    ptx_of(KERNELS, arch)
}

fn ptx_of(part: &str, name: &str) -> Result<PathBuf> {
    let arch = ARCHES.iter().find(|arch| arch.name == name);
    let part = PARTS.iter().find(|known| known.name == part).context("a part of the list")?;
    toolchain::build(&Toolchain::find(None)?, part, arch.with_context(|| format!("{name} is not built"))?)
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    run(&[]).map(|()| Count::of(1, 0))
}

/// A build and what it found.
struct Gpu {
    toolchain: Toolchain,
    toolkit: Toolkit,
    rows: Vec<Row>,
    faults: Vec<String>,
}

impl Gpu {
    fn start(options: &Options) -> Result<Self> {
        let toolchain = Toolchain::find(options.toolchain.as_deref())?;
        println!("compiler: {}", toolchain.describe());
        let toolkit = Toolkit::fetch()?;
        println!("assembler: {}", toolkit.version());
        Ok(Self { toolchain, toolkit, rows: Vec::new(), faults: Vec::new() })
    }

    /// One part for one architecture: PTX, audit, object, rows of the table.
    fn build(&mut self, part: &Part, arch: &Arch) -> Result<Option<Object>> {
        let ptx = toolchain::build(&self.toolchain, part, arch)?;
        let text = std::fs::read_to_string(&ptx).with_context(|| format!("no PTX at {}", ptx.display()))?;
        let module = Module::parse(&text);
        let mut faults = audit_text(&text).with_context(|| ptx.display().to_string())?;
        if part.name == LIBRARY {
            faults.extend(header::check(&module)?);
        }
        self.faults.extend(faults.iter().map(|fault| format!("{} {fault}", arch.name)));
        let source = ptx.with_extension("saving.ptx");
        let ptx = if part.name == LIBRARY {
            std::fs::write(&source, preserve::with_directives(&text, &module, preserve::ALL))?;
            &source
        } else {
            &ptx
        };
        // What the audit refuses, ptxas may refuse for a reason that says less.
        let object = match assemble::assemble(&self.toolkit, ptx, arch.name) {
            Ok(object) => object,
            Err(error) if !faults.is_empty() => {
                self.faults.push(format!("{error:#}"));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if part.name == KERNELS {
            assemble::link(&self.toolkit, &object, arch.name)?;
        }
        let mut roots: Vec<&str> = module.roots().map(|root| root.name.as_str()).collect();
        roots.sort_unstable();
        for root in roots {
            self.measure(&object, arch, root);
        }
        Ok(Some(object))
    }

    fn measure(&mut self, object: &Object, arch: &Arch, root: &str) {
        let (code, through) = sass::no_fault_path(&object.code, root);
        let usage = || {
            std::iter::once(root)
                .chain(through.iter().map(String::as_str))
                .filter_map(|at| object.usage.get(at))
        };
        let registers = usage().map(|usage| usage.registers as usize).max().unwrap_or_default();
        let stack = usage().map(|usage| usage.stack as usize).sum();
        let spills = usage().map(|usage| usage.spills as usize).sum::<usize>();
        let cold_stack = sass::stack(&object.code, &object.frames(), root) as usize;
        let row = Row {
            arch: arch.name.to_owned(),
            name: root.to_owned(),
            values: [
                code.instructions,
                if registers == 0 { code.registers } else { registers },
                code.loads,
                code.stores,
                code.atomics,
                code.barriers,
                stack,
                spills,
                cold_stack,
            ],
        };
        println!("{row}");
        if !through.is_empty() {
            let names: Vec<String> = through.iter().map(|name| sass::short(name)).collect();
            println!("{:44} with {}", "", names.join(", "));
        }
        self.faults.extend(bounds::stack(&row, code.local));
        self.rows.push(row);
    }

    /// Holds what was built against the committed table, or makes it the table.
    fn compare(&mut self, bless: bool) -> Result<()> {
        let compilers = format!("{}, {}", self.toolchain.describe(), self.toolkit.version());
        if bless {
            return Table { compilers, rows: self.rows.clone() }.commit();
        }
        let table = Table::committed()?;
        let difference = table.against(&self.rows);
        println!();
        for better in &difference.better {
            println!("better than the table (--bless writes it): {better}");
        }
        if table.compilers == compilers {
            self.faults.extend(difference.worse.iter().map(|worse| format!("worse than the table: {worse}")));
        } else {
            println!("the table was made by {}: what differs is not held against it", table.compilers);
            difference.worse.iter().for_each(|worse| println!("  {worse}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn all_architectures_unless_some_are_named() {
        assert_eq!(parse(&[]).unwrap().arches.len(), 3);
        assert_eq!(parse(&["--arch", "sm_90"]).unwrap().arches, [&ARCHES[1]]);
        assert!(parse(&["--bless"]).unwrap().bless);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for args in [
            &["--arch", "sm_10"][..],
            &["--arch"],
            &["--toolchain"],
            &["--nvcc"],
            &["--no-sanitizer"],
            &["--only", "graph"],
            &["run", "--only"],
            &["--packed", "folder"],
            &["pack"],
            &["--out", "folder"],
            &["run", "pack", "--out", "folder"],
            &["--bless", "--arch", "sm_90"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }
}
