//! The list of circles and large types that are there today. It may only get shorter: what is new or larger is refused,
//! and so is an entry for what is gone or smaller.

use super::graph::{Circle, Found, Large};
use crate::tidy_source::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// Methods of a type, over all its inherent `impl` blocks.
pub const METHODS_MAX: usize = 60;
/// What is allowed to stay for now.
pub const ALLOWED: &str = "xtask/allowed.txt";

/// `circle host: agent agent::fence` and `type device::channel::Channel: 237`, one a line.
#[derive(Default)]
pub struct Allowed {
    /// Comments at its head.
    head: String,
    circles: BTreeSet<String>,
    types: BTreeMap<String, usize>,
}

/// Modules of a circle, its crate among them, so that those of two crates share nothing.
fn members(circle: &str) -> BTreeSet<(&str, &str)> {
    let (name, members) = circle.split_once(": ").unwrap_or((circle, ""));
    members.split(' ').map(|member| (name, member)).collect()
}

impl Allowed {
    pub fn read(text: &str) -> Self {
        let mut allowed = Self::default();
        for line in text.lines() {
            if line.starts_with('#') {
                allowed.head += &format!("{line}\n");
            }
            if let Some(circle) = line.strip_prefix("circle ") {
                allowed.circles.insert(circle.trim().to_owned());
            }
            if let Some((name, methods)) = line.strip_prefix("type ").and_then(|line| line.rsplit_once(": "))
            {
                // What cannot be read allows nothing.
                allowed.types.insert(name.to_owned(), methods.trim().parse().unwrap_or(0));
            }
        }
        allowed
    }

    /// A listed circle that this one is a part of.
    fn above(&self, circle: &Circle) -> Option<&String> {
        let found = members(&circle.name);
        self.circles.iter().find(|listed| found.is_subset(&members(listed)))
    }

    pub fn compare(&self, found: &Found) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut find = |text| findings.push(Finding { path: ALLOWED.to_owned(), line: 0, text });
        for circle in &found.circles {
            let Circle { name, arrows } = circle;
            match self.above(circle) {
                Some(listed) if listed == name => {}
                Some(_) => find(format!("circle {name}: smaller than listed; cargo xtask tidy --shrink")),
                None => find(format!("a new circle, {name}:\n    {}", arrows.join("\n    "))),
            }
        }
        for listed in &self.circles {
            let remains = found.circles.iter().any(|circle| self.above(circle) == Some(listed));
            if !remains {
                find(format!("circle {listed}: is gone; cargo xtask tidy --shrink"));
            }
        }
        for Large { name, methods, files } in &found.types {
            match self.types.get(name).copied().unwrap_or(METHODS_MAX) {
                listed if listed == *methods => {}
                listed if listed > *methods => {
                    find(format!("{name}: {methods} methods, {listed} listed; cargo xtask tidy --shrink"));
                }
                listed => find(format!("{name}: {methods} methods in {files} files, at most {listed}")),
            }
        }
        for listed in self.types.keys().filter(|listed| !found.types.iter().any(|ty| ty.name == **listed)) {
            find(format!("type {listed}: has no more than {METHODS_MAX} methods; cargo xtask tidy --shrink"));
        }
        findings
    }

    /// The list without what is gone or smaller.
    pub fn shrunk(&self, found: &Found) -> String {
        let mut text = self.head.clone();
        for circle in found.circles.iter().filter(|circle| self.above(circle).is_some()) {
            text += &format!("circle {}\n", circle.name);
        }
        for (name, listed) in &self.types {
            if let Some(ty) = found.types.iter().find(|ty| ty.name == *name) {
                text += &format!("type {name}: {}\n", ty.methods.min(*listed));
            }
        }
        text
    }
}
