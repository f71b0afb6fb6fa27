//! The device library in the prefix: Shunt's relocatable device code for all architectures, and beside it what the host
//! must register, in one archive that `nvcc -rdc=true` links.

use super::layout::cccl;
use crate::gpu::library;
use crate::gpu::wheels::Toolkit;
use anyhow::{Context, Result};
use shunt_task::sh;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its name, as NVSHMEM's.
const ARCHIVE: &str = "libnvshmem_device.a";
/// The host's part of it.
const HOST: &str = "nvshmem-compat/device/host.cu";

/// nvcc for code that is linked later, with our headers or others.
pub fn nvcc(toolkit: &Toolkit, headers: &Path, arches: &[&str]) -> Result<Command> {
    let mut command = toolkit.program("nvcc");
    // As many architectures at a time as there are cores.
    command.args(["-rdc=true", "-std=c++17", "-O2", "--threads", "0", "-I"]).arg(headers);
    if !toolkit.has_own_cccl() {
        command.arg("-isystem").arg(cccl()?);
    }
    for arch in arches {
        let number = arch.trim_start_matches("sm_");
        command.arg("-gencode").arg(format!("arch=compute_{number},code=sm_{number}"));
    }
    Ok(command)
}

/// Puts the device library and the headers of its functions into the prefix.
pub fn make(out: &Path, toolkit: &Toolkit) -> Result<PathBuf> {
    let work = sh::target_dir().join("prefix-device");
    std::fs::create_dir_all(&work)?;
    std::fs::copy(sh::root().join("kernels/include/shunt_device.h"), out.join("include/shunt_device.h"))?;
    let objects = library::device_library(toolkit, &work)?;
    let fatbin = work.join("shunt_device.fatbin");
    let mut command = toolkit.program("fatbinary");
    command.args(["-64", "--device-c"]).arg(format!("--create={}", fatbin.display()));
    for (arch, object) in &objects {
        let number = arch.trim_start_matches("sm_");
        command.arg(format!("--image3=kind=elf,sm={number},file={}", object.display()));
    }
    sh::capture(&mut command)?;
    let (carrier, host) = (work.join("shunt_device.o"), work.join("host.o"));
    let mut command = sh::command("cc");
    command.args(["-c", "-O2", "-fPIC", "-Wall", "-Werror", "kernels/cuda/archive.c"]);
    command.arg(format!("-DSHUNT_FATBIN=\"{}\"", fatbin.display())).arg("-o").arg(&carrier);
    sh::capture(&mut command).context("the archive needs a C compiler")?;
    let arches: Vec<&str> = objects.iter().map(|(arch, _)| *arch).collect();
    let mut command = nvcc(toolkit, &out.join("include"), &arches)?;
    command
        .args(["-Xcompiler", "-Wall,-Werror,-fPIC", "-Werror", "all-warnings", "-c", HOST, "-o"])
        .arg(&host);
    sh::capture(&mut command).with_context(|| format!("{HOST} does not compile"))?;
    let archive = out.join("lib").join(ARCHIVE);
    if archive.exists() {
        std::fs::remove_file(&archive)?;
    }
    sh::capture(sh::command("ar").arg("rcs").arg(&archive).args([&carrier, &host]))?;
    println!("device library: {} for {}, {}", archive.display(), arches.join(" "), toolkit.version());
    Ok(archive)
}
