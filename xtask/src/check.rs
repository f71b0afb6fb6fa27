//! `cargo xtask check`: what a commit should pass: form, lints, house rules, the ABI table.

use crate::{abi, sh, tidy};
use anyhow::Result;

pub const SUMMARY: &str = "formatting, clippy without warnings, tidy, abi";
pub const HELP: &str = "check

Runs, in this order: cargo fmt --check, cargo clippy with warnings as errors, cargo xtask tidy, cargo xtask
abi.";

pub fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return sh::usage(format!("unknown arguments {args:?}"));
    }
    formatting()?;
    clippy()?;
    tidy::run(&[])?;
    abi::run(&[])
}

/// Every file as rustfmt would leave it.
pub fn formatting() -> Result<()> {
    sh::run(sh::cargo().args(["fmt", "--all", "--check"]))
}

/// No warnings, in code and in tests.
pub fn clippy() -> Result<()> {
    sh::run(sh::cargo().args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}
