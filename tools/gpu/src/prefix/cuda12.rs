//! CUDA 12: its packages hold no nvcc. The device library is assembled by its ptxas, a program's device code compiled
//! by its NVRTC, and both linked by its nvJitLink.

use super::layout::cccl;
use crate::gpu::{library, wheels};
use anyhow::{Context, Result};
use shunt_task::sh;
use std::path::Path;

/// Packages, all of one toolkit.
const WHEELS: &[&str] = &[
    "nvidia-cuda-nvcc-cu12==12.9.86",
    "nvidia-nvjitlink-cu12==12.9.86",
    "nvidia-cuda-nvrtc-cu12==12.9.86",
    "nvidia-cuda-runtime-cu12==12.9.79",
];
/// What compiles and links, in C; programs whose device code it takes.
const LINKER: &str = "nvshmem-compat/programs/nvrtc12.c";
const PROGRAMS: [&str; 3] = ["rma", "signal", "order"];
/// One architecture: what links for one links for the others.
const ARCH: &str = "sm_90";

/// Links device code of the programs with the device library, all by CUDA 12; answers with how many.
pub fn link(out: &Path) -> Result<usize> {
    let home = wheels::fetch("gpu-tools-12", WHEELS)?;
    let find = |name: &str| {
        wheels::find_file(&home, name).with_context(|| format!("there is no {name} in {}", home.display()))
    };
    let folder = sh::target_dir().join("prefix-device");
    let object = folder.join("cuda12.o");
    let ptx = library::device_library_ptx(ARCH)?;
    let mut command = sh::command(&find("ptxas")?.to_string_lossy());
    sh::capture(command.args(["-c", "-arch", ARCH]).arg(&ptx).arg("-o").arg(&object))
        .context("CUDA 12's ptxas does not take the device library")?;
    let linker = folder.join("nvrtc12");
    let mut command = sh::command("cc");
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", LINKER, "-ldl", "-o"]);
    sh::capture(command.arg(&linker))?;
    let runtime = find("cuda_runtime.h")?;
    for program in PROGRAMS {
        let mut command = sh::command(&linker.to_string_lossy());
        command.arg(find("libnvrtc.so.12")?).arg(find("libnvJitLink.so.12")?);
        command.arg(ARCH.trim_start_matches("sm_"));
        command.arg(format!("nvshmem-compat/programs/{program}.cu")).arg(&object);
        for headers in [&out.join("include"), runtime.parent().unwrap_or(&home), &cccl()?] {
            command.arg(format!("-I{}", headers.display()));
        }
        sh::capture(command.arg("-DSHUNT_NVSHMEM_DEFINE_STATE"))
            .with_context(|| format!("{program} does not link with CUDA 12"))?;
    }
    println!("CUDA 12: device library assembled, linked with the device code of {}", PROGRAMS.join(", "));
    Ok(PROGRAMS.len())
}
