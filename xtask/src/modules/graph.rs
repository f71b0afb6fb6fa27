//! Arrows among the modules of one crate, the circles they make, and the methods of its types.

use super::read::{Modules, Target};
use std::collections::{BTreeMap, BTreeSet};

/// A set of modules that reach each other, and the arrows among them.
pub struct Circle {
    /// `host: agent agent::fence`: the crate and its modules in order.
    pub name: String,
    /// `from -> to (what is named there)`.
    pub arrows: Vec<String>,
}

/// A type with many methods.
pub struct Large {
    pub name: String,
    pub methods: usize,
    pub files: usize,
}

/// What was found in all crates.
#[derive(Default)]
pub struct Found {
    pub circles: Vec<Circle>,
    pub types: Vec<Large>,
}

/// From each module with a file, to which it leads and what it names there.
#[derive(Default)]
pub struct Graph {
    arrows: BTreeMap<usize, BTreeMap<usize, String>>,
}

impl Graph {
    pub fn of(modules: &Modules) -> Self {
        let mut graph = Self::default();
        for (at, module) in modules.all() {
            let from = modules.node(at);
            for named in &module.named {
                let Some(target) = modules.resolve(at, &named.path) else { continue };
                let to = modules.node(target.module());
                // What lies below is passed on: it shows what the folder offers.
                let offers = named.exported && modules.is_below(to, from);
                if to != from && !offers {
                    let arrows = graph.arrows.entry(from).or_default();
                    arrows.entry(to).or_insert_with(|| named.path.join("::"));
                }
            }
        }
        graph
    }

    fn from(&self, node: usize) -> impl Iterator<Item = usize> {
        self.arrows.get(&node).into_iter().flat_map(|to| to.keys().copied())
    }

    /// All that can be reached from a module, by one arrow or more.
    fn reached(&self, node: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<usize> = self.from(node).collect();
        while let Some(next) = open.pop() {
            if reached.insert(next) {
                open.extend(self.from(next));
            }
        }
        reached
    }

    /// Largest sets of modules that reach each other; single modules left out.
    pub fn circles(&self) -> Vec<Vec<usize>> {
        let reached: BTreeMap<usize, BTreeSet<usize>> =
            self.arrows.keys().map(|node| (*node, self.reached(*node))).collect();
        let mut circles = BTreeSet::new();
        for (node, reaches) in &reached {
            let back = |other: &&usize| reached.get(other).is_some_and(|reaches| reaches.contains(node));
            let circle: Vec<usize> = reaches.iter().filter(back).copied().collect();
            if circle.len() > 1 {
                circles.insert(circle);
            }
        }
        circles.into_iter().collect()
    }

    /// Arrows among these modules, as text.
    pub fn arrows_among(&self, members: &[usize], modules: &Modules) -> Vec<String> {
        let within = |from: usize| {
            let to = self.arrows.get(&from).into_iter().flatten().filter(|(to, _)| members.contains(to));
            to.map(move |(to, named)| format!("{} -> {} ({named})", modules.name(from), modules.name(*to)))
        };
        members.iter().flat_map(|from| within(*from)).collect()
    }
}

/// Methods of each type over all its inherent `impl` blocks, and the files that hold these. What a trait asks for is
/// the trait's size, not the type's.
pub fn methods(modules: &Modules) -> BTreeMap<(usize, String), (usize, BTreeSet<String>)> {
    let mut types = BTreeMap::<(usize, String), (usize, BTreeSet<String>)>::new();
    for (at, module) in modules.all() {
        for block in module.impls.iter().filter(|block| block.methods > 0) {
            let key = match modules.resolve(at, &block.ty) {
                Some(Target::Item(module, name)) => (module, name),
                _ => (at, block.ty.join("::")),
            };
            let (methods, files) = types.entry(key).or_default();
            *methods += block.methods;
            files.insert(modules.file_of(at).to_owned());
        }
    }
    types
}
