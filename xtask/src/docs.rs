//! `cargo xtask docs`: the tables and drawings of docs/ that come from the code, held against it.

use anyhow::{Result, bail};
use shunt_task::sh;
use std::io::ErrorKind;
use std::process::Command;

pub const SUMMARY: &str = "compare generated parts of docs/ with the code; --bless rewrites them";
pub const HELP: &str = "docs [--bless]

docs/FAILOVER.md holds the table and drawing of path health and of the steps of a switch as the code has them,
docs/ORDERING.md a row for every access of the device's platform. The test fails where they differ. Where `mdbook` is
installed the book is built from docs/book.toml into target/book; where it is not, a line says so.

  --bless  rewrite the generated parts of docs/FAILOVER.md";

pub fn run(args: &[String]) -> Result<()> {
    let mut command = sh::cargo();
    command.args(["test", "--quiet", "-p", "shunt-host", "--test", "suite", "docs::"]);
    match args {
        [] => {}
        [flag] if flag == "--bless" => {
            command.env("SHUNT_DOCS_BLESS", "1");
        }
        other => return sh::usage(format!("unknown arguments {other:?}")),
    }
    sh::run(&mut command)?;
    book()
}

/// The pages as a book.
fn book() -> Result<()> {
    let mut mdbook = Command::new("mdbook");
    mdbook.args(["build", "docs"]).current_dir(sh::root());
    match mdbook.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("mdbook build docs: {status}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("book: not built, mdbook is not installed (cargo install mdbook)");
            Ok(())
        }
        Err(error) => bail!("mdbook: {error}"),
    }
}
