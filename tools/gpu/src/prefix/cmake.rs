//! The prefix found by CMake, as projects for NVSHMEM find it: a program of the host, and one with kernels.

use super::layout::cccl;
use crate::gpu::wheels::Toolkit;
use anyhow::Result;
use shunt_task::sh;
use std::path::Path;

/// The project.
const PROJECT: &str = "nvshmem-compat/conformance/cmake";

/// Builds it, and runs the program of the host; answers with how many programs were linked. Nothing where there is no
/// CMake.
pub fn project(out: &Path, toolkit: &Toolkit) -> Result<usize> {
    if !sh::exists("cmake") {
        println!("no cmake: its targets were not tried");
        return Ok(0);
    }
    let build = sh::target_dir().join("prefix-cmake");
    if build.is_dir() {
        std::fs::remove_dir_all(&build)?;
    }
    let mut configure = sh::command("cmake");
    configure.args(["-S", PROJECT, "-DWITH_CUDA=1", "-DCMAKE_CUDA_ARCHITECTURES=90", "-B"]).arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", out.display()));
    configure
        .arg(format!("-DCMAKE_CUDA_COMPILER={}", toolkit.program("nvcc").get_program().to_string_lossy()));
    if !toolkit.has_own_cccl() {
        configure.arg(format!("-DCCCL={}", cccl()?.display()));
    }
    sh::capture(&mut configure)?;
    sh::capture(sh::command("cmake").arg("--build").arg(&build))?;
    sh::capture(
        sh::command(&build.join("odd").to_string_lossy()).arg("alone").env("NVSHMEM_SYMMETRIC_SIZE", "1M"),
    )?;
    println!("CMake: a program of the host and one with kernels");
    Ok(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// pplx-kernels and NVSHMEM's measurements ask for the second, which there was not.
    #[test]
    fn the_targets_are_those_that_projects_name() {
        let text =
            std::fs::read_to_string(sh::root().join("nvshmem-compat/package/NVSHMEMConfig.cmake")).unwrap();
        for target in ["nvshmem_host SHARED", "nvshmem_device STATIC", "nvshmem INTERFACE"] {
            assert!(text.contains(&format!("add_library(nvshmem::{target} IMPORTED)")), "{target}");
        }
    }
}
