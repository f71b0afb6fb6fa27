//! `cargo xtask ptx`: builds the kernels for NVIDIA GPUs without CUDA, and audits what came out.

use crate::ptx_audit::Module;
use crate::ptxas::{Tools, Usage};
use crate::sh;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const SUMMARY: &str = "build the kernels as PTX for sm_80, sm_90, sm_100 and audit them";
pub const HELP: &str = "ptx [--arch sm_NN]... [--ptxas | --try-ptxas] [--toolchain NAME]

Builds `kernels/` for nvptx64-nvidia-cuda into <target>/ptx/<arch>/shunt.ptx. No CUDA and no linker are
needed: a nightly with rust-src is, and rust-src is added through rustup if it is missing. Without a nightly
the pinned stable is used with RUSTC_BOOTSTRAP=1.

Fails on: an external function, a stack, a call that can panic, no entry point.

  --arch sm_NN      only this one; may be repeated
  --ptxas           assemble too; if ptxas is not installed, fetch its wheel into <target>/ptx-venv
  --try-ptxas       the same, but without pip or a network say so and go on
  --toolchain NAME  use this rustup toolchain";

const TARGET: &str = "nvptx64-nvidia-cuda";

/// Architectures, each with the PTX version it needs: 8.3 has everything the inline assembly uses, but ptxas
/// takes sm_100 from 8.6 on.
const ARCHES: &[(&str, &str)] = &[("sm_80", "ptx83"), ("sm_90", "ptx83"), ("sm_100", "ptx86")];

/// What to do about ptxas.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Assemble {
    IfPresent,
    Try,
    Require,
}

struct Options {
    arches: Vec<(&'static str, &'static str)>,
    assemble: Assemble,
    toolchain: Option<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self { arches: Vec::new(), assemble: Assemble::IfPresent, toolchain: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--ptxas" => options.assemble = Assemble::Require,
                "--try-ptxas" => options.assemble = Assemble::Try,
                "--toolchain" => {
                    options.toolchain = Some(args.next().context("--toolchain needs a name")?.clone());
                }
                "--arch" => {
                    let name = args.next().context("--arch needs a name, for example sm_90")?;
                    let known = ARCHES.iter().find(|(arch, _)| arch == name);
                    options.arches.push(*known.with_context(|| format!("{name} is none of {ARCHES:?}"))?);
                }
                other => bail!("unknown argument '{other}'"),
            }
        }
        if options.arches.is_empty() {
            options.arches = ARCHES.to_vec();
        }
        Ok(options)
    }
}

pub fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args).or_else(|error| sh::usage(format!("{error:#}")))?;
    let toolchain = Toolchain::find(options.toolchain.as_deref())?;
    println!("compiler: {}", toolchain.describe());
    let tools = match options.assemble {
        Assemble::Require => Some(Tools::require()?),
        Assemble::IfPresent => Tools::present(),
        Assemble::Try => Tools::require().map_err(|error| println!("skipped: assembling: {error:#}")).ok(),
    };
    match &tools {
        Some(tools) => println!("assembler: {}", tools.version()),
        None => println!("assembler: none (no registers below; --ptxas fetches one)"),
    }
    let mut faults = 0;
    for (arch, feature) in &options.arches {
        let ptx = build(&toolchain, arch, feature)?;
        let text = std::fs::read_to_string(&ptx).with_context(|| format!("no PTX at {}", ptx.display()))?;
        let module = Module::parse(&text);
        let mut found = module.faults();
        // What the audit refuses, ptxas may refuse for a reason that says less: show both.
        let assembled = tools.as_ref().map(|tools| tools.assemble(&ptx, arch)).transpose();
        let usage = assembled.unwrap_or_else(|error| {
            found.push(format!("{error:#}"));
            None
        });
        let usage = usage.unwrap_or_default();
        print_table(arch, &ptx, &module, &usage);
        for (name, used) in &usage {
            if used.stack != 0 || used.spills != 0 {
                found.push(format!(
                    "{name}: ptxas uses {} bytes of stack, {} spilled",
                    used.stack, used.spills
                ));
            }
        }
        for fault in &found {
            println!("  fault: {fault}");
        }
        faults += found.len();
    }
    if faults != 0 {
        bail!("{faults} faults in the PTX");
    }
    Ok(())
}

/// A compiler with the sources of `core`.
struct Toolchain {
    name: Option<String>,
    bootstrap: bool,
}

impl Toolchain {
    /// The nightly if there is one, else the pinned stable as its own nightly; rust-src added where it is
    /// missing.
    fn find(asked: Option<&str>) -> Result<Self> {
        let list = sh::stdout_of(sh::command("rustup").args(["toolchain", "list"])).unwrap_or_default();
        let nightly = list.lines().filter_map(|line| line.split_whitespace().next());
        let nightly = nightly.filter(|name| name.starts_with("nightly")).min_by_key(|name| name.len());
        let name = asked.or(nightly).map(str::to_owned);
        let bootstrap = !name.as_deref().is_some_and(|name| name.starts_with("nightly"));
        let toolchain = Self { name, bootstrap };
        if !toolchain.has_sources() {
            let mut add = sh::command("rustup");
            add.args(["component", "add", "rust-src"]);
            if let Some(name) = &toolchain.name {
                add.args(["--toolchain", name]);
            }
            sh::capture(&mut add).context("the PTX build needs rust-src, and rustup could not add it")?;
            if !toolchain.has_sources() {
                bail!("rustup added rust-src, but {} has no sources of core", toolchain.describe());
            }
        }
        Ok(toolchain)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = sh::command(program);
        if let Some(name) = &self.name {
            command.env("RUSTUP_TOOLCHAIN", name);
        }
        if self.bootstrap {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }

    fn has_sources(&self) -> bool {
        let sysroot = sh::stdout_of(self.command("rustc").args(["--print", "sysroot"])).unwrap_or_default();
        Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file()
    }

    fn describe(&self) -> String {
        let version = sh::stdout_of(self.command("rustc").arg("--version")).unwrap_or_default();
        let how = if self.bootstrap { " with RUSTC_BOOTSTRAP=1" } else { "" };
        format!("{}{how}", version.trim())
    }
}

/// Compiles the kernels for one architecture; returns the PTX file.
fn build(toolchain: &Toolchain, arch: &str, feature: &str) -> Result<PathBuf> {
    let results = sh::target_dir().join("ptx");
    let out = results.join(arch).join("shunt.ptx");
    std::fs::create_dir_all(results.join(arch))?;
    // Cargo's own folder: it cleans none that it did not make.
    let work = results.join("build");
    if !out.is_file() && work.is_dir() {
        // Cargo does not know of the file, so it would find nothing to do.
        let mut clean = toolchain.command("cargo");
        clean
            .args(["clean", "-p", "shunt-kernels", "--target", TARGET, "--release", "--target-dir"])
            .arg(&work);
        sh::capture(&mut clean)?;
    }
    let mut command = toolchain.command("cargo");
    command
        .args(["rustc", "-p", "shunt-kernels", "--lib", "--release", "-Zbuild-std=core", "--target", TARGET])
        .arg("--target-dir")
        .arg(&work)
        .args(["--", "-C"])
        .arg(format!("target-cpu={arch}"))
        .arg("-C")
        .arg(format!("target-feature=+{feature}"))
        // Line tables make ptxas build for a debugger.
        .args(["-C", "debuginfo=0", "-C", "panic=abort"])
        .arg(format!("--emit=asm={}", out.display()));
    let output = sh::capture(&mut command)?;
    for warning in own_warnings(&String::from_utf8_lossy(&output.stderr)) {
        println!("  {warning}");
    }
    Ok(out)
}

/// Warnings that name one of our files, a line each: that of the target feature is known and says nothing
/// new.
fn own_warnings(stderr: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut title = "";
    for line in stderr.lines() {
        if line.starts_with("warning: ") {
            title = line;
        } else if let Some(place) = line.trim_start().strip_prefix("--> ")
            && !title.is_empty()
        {
            out.push(format!("{title} ({place})"));
            title = "";
        }
    }
    out
}

fn print_table(arch: &str, ptx: &Path, module: &Module, usage: &BTreeMap<String, Usage>) {
    println!("\n{arch}  {}", ptx.display());
    println!(
        "  {:28} {:>6} {:>6} {:>6} {:>7} {:>6} {:>10} {:>6} {:>6}",
        "entry", "PTX", "loads", "stores", "atomics", "calls", "registers", "spills", "SASS"
    );
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    for function in module.functions.iter().filter(|function| module.reachable(&function.name)) {
        let used = usage.get(&function.name);
        println!(
            "  {:28} {:>6} {:>6} {:>6} {:>7} {:>6} {:>10} {:>6} {:>6}",
            if function.entry { function.name.clone() } else { format!("({})", short(&function.name)) },
            function.instructions,
            function.loads,
            function.stores,
            function.atomics,
            function.calls.len(),
            number(used.filter(|_| function.entry).map(|used| used.registers.into())),
            number(used.filter(|_| function.entry).map(|used| used.spills.into())),
            number(used.and_then(|used| used.sass).map(|count| count as u64)),
        );
    }
}

/// The last part of a Rust path, demangled, without what it is generic over.
fn short(symbol: &str) -> String {
    let full = format!("{:#}", rustc_demangle::demangle(symbol));
    let mut plain = String::new();
    let mut depth = 0usize;
    for c in full.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain.rsplit("::").next().unwrap_or(&plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn all_architectures_unless_some_are_named() {
        assert_eq!(parse(&[]).unwrap().arches, ARCHES);
        assert_eq!(parse(&["--arch", "sm_90"]).unwrap().arches, [("sm_90", "ptx83")]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for args in [&["--arch", "sm_10"][..], &["--arch"], &["--toolchain"], &["--nvcc"]] {
            assert!(parse(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn names_are_short() {
        assert_eq!(short("shunt_put_lane"), "shunt_put_lane");
        assert_eq!(short("_RNvNtNtCsk1KesSCTqGJ_4core9panicking11panic_const23panic_const_rem_by_zero"), {
            "panic_const_rem_by_zero"
        });
    }

    #[test]
    fn only_our_own_warnings_are_shown() {
        let text = "warning: unstable feature specified\n  = note\n\n\
                    warning: unused variable\n --> kernels/src/put.rs:3:1\n\n\
                    warning: `x` generated 1 warning";
        assert_eq!(own_warnings(text), ["warning: unused variable (kernels/src/put.rs:3:1)"]);
    }
}
