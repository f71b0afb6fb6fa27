//! `cargo xtask night --only wheels`: the wheels of a release, for any Linux with glibc 2.28. What is in them, and the
//! tests of Python under each interpreter that this machine has.

use crate::python;
use anyhow::{Context, Result, bail};
use shunt_task::sh;
use std::path::{Path, PathBuf};

/// What links against the glibc of the wheels' tag, on any machine.
const LINKER: &str = "ziglang>=0.13";
/// The oldest glibc that a wheel runs with: that of its tag (PEP 600).
const GLIBC: (u32, u32) = (2, 28);
/// Minor versions of Python 3 that a wheel is for.
const MINORS: std::ops::RangeInclusive<u32> = 10..=14;

/// A processor: its name, its target, and its number in an ELF header (`e_machine`).
struct Machine {
    name: &'static str,
    target: &'static str,
    number: u16,
}

const MACHINES: [Machine; 2] = [
    Machine { name: "x86_64", target: "x86_64-unknown-linux-gnu", number: 62 },
    Machine { name: "aarch64", target: "aarch64-unknown-linux-gnu", number: 183 },
];

/// Makes both wheels and looks at them; the tests run with the one for this machine's processor.
pub fn night(_: &[String]) -> Result<()> {
    for machine in &MACHINES {
        has_target(machine.target)?;
    }
    let home = sh::target_dir().join("python");
    python::tools(&home, &[LINKER])?;
    let mut own = None;
    for machine in &MACHINES {
        let wheel = make(&home, machine)?;
        let library = unpacked(&home, machine, &wheel)?;
        inspect(&library, machine)?;
        let size = std::fs::metadata(&wheel)?.len();
        println!("  {}: {size} bytes", wheel.file_name().unwrap_or_default().to_string_lossy());
        if machine.name == std::env::consts::ARCH {
            own = Some(wheel);
        }
    }
    let own = own.with_context(|| format!("no wheel is for {}", std::env::consts::ARCH))?;
    let (found, missing) = interpreters();
    for (version, interpreter) in &found {
        let folder = home.join(format!("with-{version}"));
        let python = python::installed(interpreter, &folder, &own)?;
        let count = python::unit_tests(&python, &folder)?;
        println!("  Python {version}: {} tests, {} skipped", count.passed, count.skipped);
    }
    missing.iter().for_each(|version| println!("  skipped: Python {version} is not installed here"));
    if found.is_empty() {
        bail!("expected an interpreter of Python 3.10 or later, got none");
    }
    Ok(())
}

/// Whether the toolchain can compile for it. Asked before the first wheel, which takes minutes.
fn has_target(target: &str) -> Result<()> {
    let output = sh::capture(sh::command("rustc").args(["--print", "target-libdir", "--target", target]))?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !folder.is_dir() {
        bail!("{target}: expected its standard library, got none; rustup target add {target}");
    }
    Ok(())
}

/// The wheel for a processor.
fn make(home: &Path, machine: &Machine) -> Result<PathBuf> {
    let out = home.join(format!("release-{}", machine.name));
    let tag = format!("manylinux_{}_{}", GLIBC.0, GLIBC.1);
    let wheel = python::build(home, &out, |build| {
        build.args(["--strip", "--zig", "--target", machine.target, "--compatibility", &tag]);
        // What is built for an older glibc shares nothing with what is built for this machine.
        build.arg("--target-dir").arg(home.join("release-build"));
    })?;
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    let end = format!("-cp310-abi3-{tag}_{}.whl", machine.name);
    if !name.ends_with(&end) {
        bail!("the wheel's name: expected it to end with {end}, got {name}");
    }
    Ok(wheel)
}

/// Takes a wheel apart; its library.
fn unpacked(home: &Path, machine: &Machine, wheel: &Path) -> Result<PathBuf> {
    let folder = home.join(format!("unpacked-{}", machine.name));
    python::emptied(&folder)?;
    sh::capture(sh::command("python3").args(["-m", "zipfile", "-e"]).args([wheel, &folder]))?;
    let inside = folder.join("shunt_ep");
    for needed in ["py.typed", "_native.pyi", "__init__.py"] {
        if !inside.join(needed).is_file() {
            bail!("{}: expected shunt_ep/{needed} in it, got none", wheel.display());
        }
    }
    Ok(inside.join("_native.abi3.so"))
}

/// The library is for this processor, needs no later glibc, and carries no symbols for debuggers.
fn inspect(library: &Path, machine: &Machine) -> Result<()> {
    let bytes = std::fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let number = bytes.get(18..20).map(|at| u16::from_le_bytes([at[0], at[1]]));
    if !bytes.starts_with(b"\x7fELF") || number != Some(machine.number) {
        bail!("{}: expected ELF for machine {}, got {number:?}", library.display(), machine.number);
    }
    let said =
        sh::capture(sh::command("readelf").args(["--wide", "--version-info", "--sections"]).arg(library))?;
    let said = String::from_utf8_lossy(&said.stdout);
    let newest = glibc(&said).context("expected versions of glibc that it needs, got none")?;
    if newest > GLIBC {
        bail!("{}: expected glibc {GLIBC:?} to do, got a need of {newest:?}", library.display());
    }
    if [".symtab", ".debug_info"].iter().any(|section| said.contains(section)) {
        bail!("{}: expected no symbols for debuggers, got some", library.display());
    }
    println!("  {}: needs glibc {}.{}", machine.name, newest.0, newest.1);
    Ok(())
}

/// The newest version of glibc in what `readelf --version-info` prints.
fn glibc(said: &str) -> Option<(u32, u32)> {
    let versions = said.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let mut numbers = rest[..end].split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

/// Interpreters of this machine, on the path or of pyenv, with their versions; and the versions that it lacks.
fn interpreters() -> (Vec<(String, PathBuf)>, Vec<String>) {
    let pyenv = sh::exists("pyenv").then(|| sh::stdout_of(sh::command("pyenv").arg("root"))).flatten();
    let folders = pyenv.and_then(|root| std::fs::read_dir(Path::new(root.trim()).join("versions")).ok());
    let folders: Vec<PathBuf> = folders.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for version in MINORS.map(|minor| format!("3.{minor}")) {
        let name = format!("python{version}");
        let mut programs =
            folders.iter().map(|folder| folder.join("bin").join(&name)).chain([name.clone().into()]);
        // One of pyenv's names may stand for none.
        let starts = |program: &PathBuf| {
            sh::stdout_of(sh::command(&program.to_string_lossy()).args(["-c", "import venv, ensurepip"]))
                .is_some()
        };
        match programs.find(starts) {
            Some(program) => found.push((version, program)),
            None => missing.push(version),
        }
    }
    (found, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_compared_by_number() {
        let said =
            "Name: GLIBC_2.3.4  Flags\n Name: GLIBC_2.17\n 2 (GLIBC_2.2.5)   3 (GLIBC_2.9)\n GLIBC_PRIVATE";
        assert_eq!(glibc(said), Some((2, 17)));
        assert_eq!(glibc("GLIBCXX_3.4"), None);
    }
}
