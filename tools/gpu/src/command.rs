//! `cargo xtask gpu`: builds the kernels for NVIDIA GPUs without CUDA and audits what came out; runs and packs what
//! needs a GPU.

use crate::gpu::parts::{ARCHES, Arch};
use crate::gpu::{build, findings};
use crate::on_gpu::{pack, rows};
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use shunt_task::stages::Count;
use std::path::PathBuf;

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

fn audit_files(files: &[String]) -> Result<()> {
    if files.is_empty() {
        return sh::usage("gpu audit: expected a PTX file, got none".to_owned());
    }
    let mut count = 0;
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
        let faults = findings::of_text(&text).with_context(|| file.clone())?;
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
    let here = if options.run { Some(rows::find(options.only.as_deref())?) } else { None };
    if let (Some(here), Some(packed)) = (&here, &options.packed) {
        return rows::everything(here, options.only.as_deref(), Some(packed), &options.arches);
    }
    build::all(&options.arches, options.bless, options.toolchain.as_deref())?;
    if let Some(out) = &options.out {
        return pack::pack(&sh::root().join(out), &options.arches, !options.no_sanitizer);
    }
    here.map_or(Ok(()), |here| rows::everything(&here, options.only.as_deref(), None, &options.arches))
}

/// The stage of `cargo xtask ci`.
pub fn stage() -> Result<Count> {
    run(&[]).map(|()| Count::of(1, 0))
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
