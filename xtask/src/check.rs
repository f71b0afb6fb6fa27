//! `cargo xtask check`: what a commit should pass: form, lints, house rules, the module graph, the ABI table.

use crate::{abi, tidy};
use anyhow::{Result, bail};
use shunt_task::sh;
use std::time::Instant;

pub const SUMMARY: &str = "before a commit: formatting, clippy without warnings, tidy, abi";
pub const HELP: &str = "check

Runs cargo fmt --check, cargo clippy with warnings as errors, cargo xtask tidy (house rules and module graph) and cargo
xtask abi. One that fails does not stop the others.";

/// A step: its name, and what it does.
type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] =
    &[("format", formatting), ("tidy", || tidy::run(&[])), ("clippy", clippy), ("abi", || abi::run(&[]))];

pub fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return sh::usage(format!("unknown arguments {args:?}"));
    }
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        let start = Instant::now();
        if let Err(error) = step() {
            println!("{name}: {error:#}");
            failed.push(*name);
        }
        println!("{name}: {:.1} s", start.elapsed().as_secs_f64());
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Every file as rustfmt would leave it.
fn formatting() -> Result<()> {
    sh::run(sh::cargo().args(["fmt", "--all", "--check"]))
}

/// No warnings, in code and in tests; nor in the facade and all below it without features, which the workspace's hide.
fn clippy() -> Result<()> {
    for which in [&["--workspace", "--all-targets"][..], &["--package", "shunt", "--no-default-features"]] {
        sh::run(sh::cargo().args(["clippy", "--quiet"]).args(which).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
