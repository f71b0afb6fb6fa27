//! Lines of each package. What is counted: every line of the Rust files that its library and its programs are made of,
//! comments and blank lines among them. What is not: items and modules under `#[cfg(test)]`, what a generator wrote,
//! and packages of tests.

use super::read::Modules;
use crate::tidy_source::{Finding, is_generated, lines_without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// No package has more lines.
const PACKAGE_MAX: usize = 9_000;
/// Packages in here are tests.
const TESTS: &str = "tests";

/// Files that each package is made of, by its folder.
#[derive(Default)]
pub struct Packages(BTreeMap<String, BTreeSet<String>>);

impl Packages {
    /// The files of one library or program; a file that two of a package have counts once.
    pub fn add(&mut self, folder: &str, modules: &Modules) {
        let files = modules.all().map(|(module, _)| modules.file_of(module).to_owned());
        self.0.entry(folder.to_owned()).or_default().extend(files);
    }

    /// Packages with more than [`PACKAGE_MAX`] lines.
    pub fn too_large(&self, files: &BTreeMap<String, String>) -> Vec<Finding> {
        let is_test = |folder: &str| folder.split('/').next() == Some(TESTS);
        let own = self.0.iter().filter(|(folder, _)| !is_test(folder));
        let sizes = own.map(|(folder, sources)| {
            let own = sources.iter().filter(|path| !is_generated(path));
            let lines = own.filter_map(|path| files.get(path)).map(|text| lines_without_tests(text));
            (folder, lines.sum::<usize>())
        });
        let too_large = sizes.filter(|(_, lines)| *lines > PACKAGE_MAX);
        too_large
            .map(|(folder, lines)| Finding {
                path: format!("{folder}/Cargo.toml"),
                line: 1,
                text: format!(
                    "lines of Rust without tests: expected at most {PACKAGE_MAX}, got {lines}; make a part of it that \
                     owns something a crate below it (docs/ARCHITECTURE.md)"
                ),
            })
            .collect()
    }
}
