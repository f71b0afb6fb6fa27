//! ptxas and nvdisasm: from PTX to a relocatable object, and what each function of it takes.

use super::sass::{self, Code};
use super::wheels::Toolkit;
use anyhow::{Context, Result};
use shunt_task::sh;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What ptxas says of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Registers of a thread; 0 if ptxas does not say.
    pub registers: u32,
    /// Bytes of stack.
    pub stack: u32,
    /// Bytes spilled, stores and loads.
    pub spills: u32,
}

/// A relocatable object and what is known of its functions.
pub struct Object {
    /// The file.
    pub path: PathBuf,
    /// By symbol.
    pub usage: BTreeMap<String, Usage>,
    /// By symbol.
    pub code: BTreeMap<String, Code>,
}

impl Object {
    /// Bytes of each function's own stack frame.
    pub fn frames(&self) -> BTreeMap<String, u32> {
        self.usage.iter().map(|(name, usage)| (name.clone(), usage.stack)).collect()
    }
}

/// Assembles one PTX file.
///
/// Relocatable, as a library is: the slow paths stay functions of their own. ptxas left to see a whole program would
/// copy all of them into each kernel, and what it says of a kernel then says nothing of its no-fault path.
pub fn assemble(toolkit: &Toolkit, ptx: &Path, arch: &str) -> Result<Object> {
    let path = ptx.with_extension("o");
    let mut command = toolkit.program("ptxas");
    command.args(["-c", "-v", "-arch", arch]).arg(ptx).arg("-o").arg(&path);
    let output = sh::capture(&mut command)?;
    let usage = read_ptxas(&String::from_utf8_lossy(&output.stderr));
    let listing = sh::stdout_of(toolkit.program("nvdisasm").arg("-c").arg(&path))
        .with_context(|| format!("nvdisasm cannot read {}", path.display()))?;
    std::fs::write(ptx.with_extension("sass"), &listing)?;
    Ok(Object { path, usage, code: sass::read(&listing) })
}

/// Links an object into a cubin that a driver loads.
pub fn link(toolkit: &Toolkit, object: &Object, arch: &str) -> Result<PathBuf> {
    let cubin = object.path.with_extension("cubin");
    let mut command = toolkit.program("nvlink");
    command.args(["-arch", arch]).arg(&object.path).arg("-o").arg(&cubin);
    sh::capture(&mut command)?;
    Ok(cubin)
}

/// Reads `ptxas -v`.
fn read_ptxas(text: &str) -> BTreeMap<String, Usage> {
    let mut out: BTreeMap<String, Usage> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            current = name.trim().to_owned();
        }
        if current.is_empty() {
            continue;
        }
        let usage = out.entry(current.clone()).or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptxas_output_is_read() {
        let text = "ptxas info    : 0 bytes gmem\n\
                    ptxas info    : Function properties for cold\n\
                    \x20   16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                    ptxas info    : Compiling entry function 'put' for 'sm_90'\n\
                    ptxas info    : Function properties for put\n\
                    \x20   8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n\
                    ptxas info    : Used 24 registers, used 0 barriers\n";
        let usage = read_ptxas(text);
        assert_eq!(usage["put"], Usage { registers: 24, stack: 8, spills: 16 });
        assert_eq!(usage["cold"], Usage { registers: 0, stack: 16, spills: 0 });
    }
}
