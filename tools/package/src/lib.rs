//! `cargo xtask package` and `man`: a Debian package of the programs, the library and what goes with them.
//!
//! | module | what it is |
//! | --- | --- |
//! | `pages` | man pages and completions, written by the programs themselves |
//! | `tree` | the files of the package, and where they go |
//! | `control` | what Debian's tools read of a package; pure |
//! | `symbols` | programs without their symbols, and the symbols in files beside |
//! | `deb` | the packages, made of those |
//! | `crates` | the crates that users of the facade need, built from what would be published |
//! | `semver` | their API against that of a commit, and what the version says of it |
//! | `trial` | a package used: unpacked, or installed in a bare system |

mod control;
mod crates;
mod deb;
mod pages;
mod semver;
mod symbols;
mod tree;
mod trial;

use shunt_task::Task;

pub use crates::night as crates_night;
pub use trial::{night, stage};

/// The tasks.
pub const TASKS: [Task; 2] = [
    Task { name: "package", summary: deb::SUMMARY, help: deb::HELP, run: deb::run },
    Task { name: "man", summary: pages::SUMMARY, help: pages::HELP, run: pages::run },
];
