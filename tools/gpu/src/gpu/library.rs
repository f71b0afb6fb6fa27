//! The device library as others use it: assembled for a prefix, as PTX, and its machine code.

use super::audit::Module;
use super::parts::{ARCHES, Arch, KERNELS, LIBRARY, PARTS};
use super::toolchain::{self, Toolchain};
use super::wheels::Toolkit;
use super::{preserve, sass};
use anyhow::{Context, Result};
use shunt_task::sh;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Registers that the device library of the prefix takes at most: a kernel of 1024 threads has no more for each, and
/// what it calls must do with as many.
const REGISTERS: usize = 64;

/// The device library's functions for all architectures, assembled by this toolkit: objects in `folder`.
pub fn device_library(toolkit: &Toolkit, folder: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
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
pub fn machine_code(toolkit: &Toolkit, object: &Path) -> Result<BTreeMap<String, sass::Code>> {
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

/// The device library's functions as bitcode, by this version of rustc: for sm_80, which is in all the others.
pub fn device_library_bitcode(rust: &str) -> Result<PathBuf> {
    let part = PARTS.iter().find(|known| known.name == LIBRARY).context("the library is a part")?;
    toolchain::build_as(&toolchain::BITCODE, &Toolchain::find(Some(rust))?, part, &ARCHES[0])
}

fn ptx_of(part: &str, name: &str) -> Result<PathBuf> {
    let arch = ARCHES.iter().find(|arch| arch.name == name);
    let part = PARTS.iter().find(|known| known.name == part).context("a part of the list")?;
    toolchain::build(&Toolchain::find(None)?, part, arch.with_context(|| format!("{name} is not built"))?)
}
