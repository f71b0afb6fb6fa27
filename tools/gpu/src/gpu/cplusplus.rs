//! The device library as programs in other languages link it: a fat binary over the architectures, a static archive
//! around it, and a program in CUDA C++ that is compiled and linked with it.

use super::assemble::Object;
use super::parts::{Arch, LIBRARY};
use super::wheels::Toolkit;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};

/// Makes `<target>/gpu/lib/libshunt_device.a` and the fat binary beside it.
pub fn archive(toolkit: &Toolkit, objects: &[(&Arch, Object)]) -> Result<PathBuf> {
    let lib = sh::target_dir().join("gpu/lib");
    std::fs::create_dir_all(&lib)?;
    let fatbin = lib.join(LIBRARY).with_extension("fatbin");
    let mut command = toolkit.program("fatbinary");
    command.args(["-64", "--device-c"]).arg(format!("--create={}", fatbin.display()));
    for (arch, object) in objects {
        let number = arch.name.trim_start_matches("sm_");
        command.arg(format!("--image3=kind=elf,sm={number},file={}", object.path.display()));
    }
    sh::capture(&mut command)?;
    let carrier = lib.join("archive.o");
    let mut command = sh::command("cc");
    command.args(["-c", "-O2", "-fPIC", "-Wall", "-Werror", "kernels/cuda/archive.c"]);
    command.arg(format!("-DSHUNT_FATBIN=\"{}\"", fatbin.display())).arg("-o").arg(&carrier);
    sh::capture(&mut command).context("the archive needs a C compiler")?;
    let archive = lib.join(format!("lib{LIBRARY}.a"));
    if archive.exists() {
        std::fs::remove_file(&archive)?;
    }
    sh::capture(sh::command("ar").arg("rcs").arg(&archive).arg(&carrier))?;
    std::fs::copy(sh::root().join("kernels/include/shunt_device.h"), lib.join("shunt_device.h"))?;
    Ok(archive)
}

/// Compiles our program in CUDA C++, links its device code with the archive's, and starts it.
pub fn program(toolkit: &Toolkit, archive: &Path, arches: &[&Arch]) -> Result<()> {
    let lib = archive.parent().context("the archive is in a folder")?;
    let program = lib.with_file_name("calls");
    let mut command = toolkit.program("nvcc");
    command.args([
        "-rdc=true",
        "-std=c++17",
        "-O2",
        "-Xcompiler",
        "-Wall,-Werror",
        "-Werror",
        "all-warnings",
    ]);
    for arch in arches {
        let number = arch.name.trim_start_matches("sm_");
        command.arg("-gencode").arg(format!("arch=compute_{number},code=sm_{number}"));
    }
    command.arg("kernels/cuda/calls.cu").arg("-I").arg("kernels/include").arg("-L").arg(lib);
    command.arg(format!("-l{LIBRARY}")).arg("-o").arg(&program);
    sh::capture(&mut command).context("CUDA C++ does not link with the device library")?;
    let output =
        sh::command(&program.to_string_lossy()).output().context("the linked program does not start")?;
    let said = String::from_utf8_lossy(&output.stdout);
    // On a machine without a GPU the runtime says so; with one, every call must answer.
    match output.status.code() {
        Some(0 | 2) => print!("{said}"),
        _ => bail!("{} ended with {}: {said}", program.display(), output.status),
    }
    println!("linked {} for {}", program.display(), names(arches));
    Ok(())
}

fn names(arches: &[&Arch]) -> String {
    arches.iter().map(|arch| arch.name).collect::<Vec<_>>().join(" ")
}
