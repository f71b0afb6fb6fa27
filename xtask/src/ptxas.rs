//! ptxas and nvdisasm: found on the path or in a virtual environment, and read.

use crate::sh;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What ptxas makes of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of stack.
    pub stack: u32,
    /// Bytes spilled, stores and loads.
    pub spills: u32,
    /// Machine instructions without padding and without what it calls, if nvdisasm is there.
    pub sass: Option<usize>,
}

/// The tools at hand.
pub struct Tools {
    ptxas: PathBuf,
    nvdisasm: Option<PathBuf>,
}

/// Wheels that hold the tools. The second is a convenience: without it nothing is counted.
const PTXAS_WHEEL: &str = "nvidia-cuda-nvcc-cu12";
const NVDISASM_WHEEL: &str = "nvidia-cuda-nvdisasm";

fn venv_dir() -> PathBuf {
    sh::target_dir().join("ptx-venv")
}

impl Tools {
    /// Tools that are already here: on the path, or in the virtual environment of an earlier run.
    pub fn present() -> Option<Self> {
        let venv = venv_dir();
        let ptxas = on_path("ptxas").or_else(|| find_file(&venv, "ptxas"))?;
        Some(Self { ptxas, nvdisasm: on_path("nvdisasm").or_else(|| find_file(&venv, "nvdisasm")) })
    }

    /// The tools, fetched into a virtual environment if they are not here.
    pub fn require() -> Result<Self> {
        if let Some(tools) = Self::present() {
            return Ok(tools);
        }
        let venv = venv_dir();
        if !sh::exists("python3") {
            bail!("ptxas is not installed, and there is no python3 to fetch the wheel {PTXAS_WHEEL} with");
        }
        sh::capture(sh::command("python3").args(["-m", "venv"]).arg(&venv))
            .context("cannot make a virtual environment for ptxas (Debian: install python3-venv)")?;
        let pip = |wheel: &str| {
            let quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel];
            sh::capture(sh::command("/usr/bin/env").arg(venv.join("bin/python")).args(quiet))
        };
        pip(PTXAS_WHEEL)
            .with_context(|| format!("cannot install {PTXAS_WHEEL} (pip and a network are needed)"))?;
        if let Err(error) = pip(NVDISASM_WHEEL) {
            println!("no machine instruction counts: {error:#}");
        }
        Self::present().with_context(|| format!("{PTXAS_WHEEL} was installed but holds no ptxas"))
    }

    /// Assembles one PTX file and says what each function uses.
    ///
    /// Twice: as the driver would, where ptxas inlines every call into the kernels, for registers and spills;
    /// and relocatable, as a library is linked, where the slow paths stay apart and a kernel's instructions
    /// are those of its fast path.
    pub fn assemble(&self, ptx: &Path, arch: &str) -> Result<BTreeMap<String, Usage>> {
        let assemble = |options: &[&str], suffix: &str| {
            let object = ptx.with_extension(suffix);
            let mut command = sh::command(&self.ptxas.to_string_lossy());
            command.args(options).args(["-v", "-arch", arch]).arg(ptx).arg("-o").arg(&object);
            let output = sh::capture(&mut command)?;
            anyhow::Ok((object, String::from_utf8_lossy(&output.stderr).into_owned()))
        };
        let (_, text) = assemble(&[], "cubin")?;
        let mut usage = read_ptxas(&text);
        let (relocatable, _) = assemble(&["-c"], "o")?;
        if let Some(nvdisasm) = &self.nvdisasm {
            let mut command = sh::command(&nvdisasm.to_string_lossy());
            if let Some(text) = sh::stdout_of(command.arg("-c").arg(&relocatable)) {
                for (name, count) in read_sass(&text) {
                    usage.entry(name).or_default().sass = Some(count);
                }
            }
        }
        Ok(usage)
    }

    /// The assembler's own name and version, for the table's head.
    pub fn version(&self) -> String {
        let text = sh::stdout_of(sh::command(&self.ptxas.to_string_lossy()).arg("--version"));
        let text = text.unwrap_or_default();
        let line = text.lines().find(|line| line.contains("release")).unwrap_or("unknown version");
        format!("ptxas {}", line.rsplit(',').next().unwrap_or(line).trim())
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    sh::exists(program).then(|| PathBuf::from(program))
}

/// Depth-first search for an executable; wheels move theirs from release to release.
fn find_file(dir: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            if let Some(found) = find_file(&path, name) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|file| file == name) {
            return Some(path);
        }
    }
    None
}

/// Reads `ptxas -v`.
fn read_ptxas(text: &str) -> BTreeMap<String, Usage> {
    let mut out: BTreeMap<String, Usage> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((_, tail)) = line.split_once("Compiling entry function '") {
            current = tail.split('\'').next().unwrap_or_default().to_owned();
            out.entry(current.clone()).or_default();
        }
        let Some(usage) = out.get_mut(&current) else { continue };
        if line.contains("bytes stack frame") {
            let numbers = numbers(line);
            usage.stack = numbers.first().copied().unwrap_or_default();
            usage.spills = numbers.iter().skip(1).sum();
        }
        if let Some((_, tail)) = line.split_once("Used ") {
            usage.registers = numbers(tail).first().copied().unwrap_or_default();
        }
    }
    out
}

fn numbers(line: &str) -> Vec<u32> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// Counts instructions of each `.text.NAME` section of nvdisasm's output. NOPs are padding.
fn read_sass(text: &str) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim) {
        if let Some(tail) = line.strip_prefix(".section\t") {
            let name = tail.trim().split([',', '\t', ' ']).next().unwrap_or_default();
            current = name.trim_matches('"').strip_prefix(".text.").map(str::to_owned);
        }
        let code =
            line.strip_prefix("/*").and_then(|tail| tail.split_once("*/")).map(|(_, code)| code.trim());
        if let (Some(name), Some(code)) = (&current, code)
            && code.ends_with(';')
            && !code.starts_with("NOP")
        {
            *out.entry(name.clone()).or_default() += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptxas_output_is_read() {
        let text = "ptxas info    : 0 bytes gmem\n\
                    ptxas info    : Compiling entry function 'put' for 'sm_90'\n\
                    ptxas info    : Function properties for put\n\
                    \x20   8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
                    ptxas info    : Used 24 registers, used 0 barriers\n";
        let usage = read_ptxas(text);
        assert_eq!(usage["put"], Usage { registers: 24, stack: 8, spills: 16, sass: None });
    }

    #[test]
    fn sass_is_counted_by_kernel_without_padding() {
        let text = "\t.section\t.text.put,\"ax\",@progbits\n\
                    \t.sectioninfo\t@\"SHI_REGISTERS=26\"\n\
                    \x20       /*0000*/                   LDC R1, c[0x0][0x28] ;\n\
                    .L_x_1:\n\
                    \x20       /*0010*/              @!P0 BRA `(.L_x_1) ;\n\
                    \x20       /*0020*/                   NOP;\n\
                    \t.section\t.text.quiet,\"ax\",@progbits\n\
                    \x20       /*0000*/                   EXIT ;\n";
        let sass = read_sass(text);
        assert_eq!((sass["put"], sass["quiet"]), (2, 1));
    }
}
