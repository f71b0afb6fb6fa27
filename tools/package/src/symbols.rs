//! Programs without their symbols, and the symbols in files beside, where gdb looks for them.

use anyhow::Result;
use shunt_task::sh;
use std::fs;
use std::path::Path;

/// Writes `from` without symbols to `to`, and its symbols to `symbols`, which `to` names with their checksum.
pub fn split(from: &Path, to: &Path, symbols: &Path) -> Result<()> {
    for path in [to, symbols] {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    }
    sh::capture(objcopy(&["--only-keep-debug", "--compress-debug-sections"]).args([from, symbols]))?;
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    sh::capture(objcopy(&["--strip-unneeded", &link]).args([from, to]))?;
    Ok(())
}

fn objcopy(args: &[&str]) -> std::process::Command {
    let mut command = sh::command("objcopy");
    command.args(args);
    command
}
