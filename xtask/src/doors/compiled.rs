//! The C and CUDA programs, linked with the library of the release build. The CUDA programs' kernels are functions of
//! the processor (`nvshmem-compat/native`).

use anyhow::{Context, Result};
use shunt_task::sh;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Families of `nvshmem-compat/programs`.
const FAMILIES: [&str; 9] = ["rma", "amo", "signal", "wait", "order", "collective", "qp", "teams", "stream"];

/// Compiles all of them; where they are.
pub fn all() -> Result<PathBuf> {
    let folder = sh::target_dir().join("ci/doors");
    std::fs::create_dir_all(&folder)?;
    for (library, name) in [
        ("libshunt_nvshmem.so", "libshunt_nvshmem.so.3"),
        ("libshunt_nvshmem.so", "libnvshmem_host.so.3"),
        ("libshunt_nvshmem_native.so", "libshunt_nvshmem_native.so"),
    ] {
        let built = sh::target_dir().join("release").join(library);
        std::fs::copy(&built, folder.join(name)).with_context(|| built.display().to_string())?;
    }
    let home = sh::root().join("nvshmem-compat");
    let mut command = sh::command("cc");
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
    command.arg(home.join("conformance/hosts/hosts.c")).arg("-I").arg(home.join("include"));
    link(&mut command, &folder, &["-l:libshunt_nvshmem.so.3"]);
    sh::capture(command.arg("-o").arg(folder.join("hosts")))?;
    object(&home, &home.join("native/host.cc"), &folder.join("host.o"))?;
    let made: Result<Vec<()>> = std::thread::scope(|scope| {
        let compile = |family: &'static str| {
            let (home, folder) = (&home, &folder);
            scope.spawn(move || program(home, folder, family))
        };
        let all = FAMILIES.map(compile);
        all.into_iter().map(|thread| thread.join().expect("compiling does not panic")).collect()
    });
    made.map(|_| folder)
}

fn program(home: &Path, folder: &Path, family: &str) -> Result<()> {
    let made = folder.join(format!("{family}.o"));
    object(home, &home.join(format!("programs/{family}.cu")), &made)?;
    let mut command = sh::command("c++");
    command.arg(folder.join("host.o")).arg(made).arg("-pthread");
    link(&mut command, folder, &["-l:libnvshmem_host.so.3", "-l:libshunt_nvshmem_native.so"]);
    sh::capture(command.arg("-o").arg(folder.join(family))).map(|_| ())
}

fn object(home: &Path, source: &Path, made: &Path) -> Result<()> {
    let mut command = sh::command("c++");
    command.args(["-x", "c++", "-std=c++17", "-O0", "-Wall", "-Wextra", "-Werror", "-c", "-D__CUDACC__"]);
    for include in ["native/include", "include", "../kernels/include"] {
        command.arg("-I").arg(home.join(include));
    }
    sh::capture(command.arg(source).arg("-o").arg(made)).map(|_| ())
}

/// By an old tag, which comes before `LD_LIBRARY_PATH`: cargo names the folder of debug builds there.
fn link(command: &mut Command, folder: &Path, libraries: &[&str]) {
    command
        .arg("-Wl,--disable-new-dtags")
        .arg("-L")
        .arg(folder)
        .args(libraries)
        .arg(format!("-Wl,-rpath,{}", folder.display()));
}
