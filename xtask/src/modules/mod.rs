//! The module graph of each crate, and sizes: no circles, no type with more methods than [`METHODS_MAX`], no package
//! with more lines than `sizes` allows.
//!
//! The rule. Modules are files; an inline module belongs to its file. An arrow runs from the module that names
//! something, by `use` or by a path, to the module that *defines* it: re-exports are followed, so `use super::Name`
//! of a name that the parent passes on is an arrow to where it comes from. A re-export of what lies below (`pub use
//! child::Name`) is no arrow, it lists what a folder offers. A parent that uses a child itself is one, and with a
//! child that uses what its parent defines it is a circle. A circle is a largest set of modules each of which reaches
//! every other. Tests are left out.
//!
//! What there is today stands in `xtask/allowed.txt`, which may only get shorter.

mod allowed;
mod graph;
mod read;
mod sizes;
#[cfg(test)]
mod tests;

use crate::tidy_source::Finding;
use allowed::{ALLOWED, Allowed, METHODS_MAX};
use anyhow::{Context, Result};
use graph::{Circle, Found, Large};
use sizes::Packages;
use std::collections::BTreeMap;
use std::path::Path;

/// Compares what the tree holds with what is allowed. `files`: path and text of each file of the tree.
pub fn check(root: &Path, files: &BTreeMap<String, String>) -> Result<Vec<Finding>> {
    let (found, packages) = find(files);
    let text = std::fs::read_to_string(root.join(ALLOWED)).with_context(|| ALLOWED.to_owned())?;
    let mut findings = Allowed::read(&text).compare(&found);
    findings.extend(packages.too_large(files));
    Ok(findings)
}

/// Takes off the list what is gone or smaller. What is new or larger stays a finding.
pub fn shrink(root: &Path, files: &BTreeMap<String, String>) -> Result<()> {
    let path = root.join(ALLOWED);
    let text = std::fs::read_to_string(&path).with_context(|| ALLOWED.to_owned())?;
    std::fs::write(path, Allowed::read(&text).shrunk(&find(files).0))?;
    Ok(())
}

fn find(files: &BTreeMap<String, String>) -> (Found, Packages) {
    let (mut found, mut packages) = (Found::default(), Packages::default());
    for Root { folder, name, file } in roots(files) {
        let modules = read::Modules::read(&file, files);
        packages.add(&folder, &modules);
        let graph = graph::Graph::of(&modules);
        found.circles.extend(graph.circles().into_iter().map(|members| {
            let names: Vec<&str> = members.iter().map(|node| modules.name(*node)).collect();
            Circle {
                name: format!("{name}: {}", names.join(" ")),
                arrows: graph.arrows_among(&members, &modules),
            }
        }));
        let large = graph::methods(&modules).into_iter().filter(|(_, (methods, _))| *methods > METHODS_MAX);
        found.types.extend(large.map(|((module, ty), (methods, files))| {
            let module = modules.name(module);
            Large {
                name: format!("{name}::{module}::{ty}").replace("::root::", "::"),
                methods,
                files: files.len(),
            }
        }));
    }
    (found, packages)
}

/// A library or a program.
struct Root {
    /// Of its package.
    folder: String,
    /// A library's is the folder, a program has the file's name besides.
    name: String,
    /// The first file.
    file: String,
}

fn roots(files: &BTreeMap<String, String>) -> Vec<Root> {
    let mut roots = Vec::new();
    for (manifest, text) in files.iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let folder = manifest.trim_end_matches("/Cargo.toml");
        let source = format!("{folder}/src/");
        let named = text.lines().filter_map(|line| line.strip_prefix("path = \"")?.strip_suffix('"'));
        let named: Vec<String> = named.map(|path| format!("{folder}/{path}")).collect();
        for path in files.keys().filter(|path| path.starts_with(&source) && path.ends_with(".rs")) {
            let rest = &path[source.len()..];
            let program =
                rest == "main.rs" || rest.strip_prefix("bin/").is_some_and(|name| !name.contains('/'));
            let name = match rest {
                "lib.rs" => folder.to_owned(),
                _ if program || named.contains(path) => format!("{folder}/{}", rest.trim_end_matches(".rs")),
                _ => continue,
            };
            roots.push(Root { folder: folder.to_owned(), name, file: path.clone() });
        }
    }
    roots
}
