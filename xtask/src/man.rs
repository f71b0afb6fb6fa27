//! `cargo xtask man`: man pages of `shunt`.

use anyhow::Result;
use shunt_task::sh;

pub const SUMMARY: &str = "man pages of shunt, in target/man";
pub const HELP: &str = "man

Builds shunt and has it write a page for each command into target/man: man -l target/man/shunt-view.1.";

pub fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return sh::usage(format!("unknown arguments {args:?}"));
    }
    let folder = sh::root().join("target/man");
    let mut shunt = sh::cargo();
    shunt.args(["run", "--quiet", "--release", "-p", "shunt-cli", "--", "man"]).arg(&folder);
    sh::run(&mut shunt)?;
    println!("{}", folder.display());
    Ok(())
}
