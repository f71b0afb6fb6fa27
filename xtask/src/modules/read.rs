//! The modules of one crate, read with `syn`: what each defines, imports and names.

use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// A path, segment by segment.
pub type Path = Vec<String>;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Module(usize),
    /// Something that a module defines.
    Item(usize, String),
}

impl Target {
    pub fn module(&self) -> usize {
        match self {
            Self::Module(module) | Self::Item(module, _) => *module,
        }
    }
}

/// A path that a module names.
pub struct Named {
    pub path: Path,
    /// Passed on by a `use` with a visibility.
    pub exported: bool,
}

/// Methods of one inherent `impl` block.
pub struct Impl {
    pub ty: Path,
    pub methods: usize,
}

#[derive(Default)]
pub struct Module {
    name: String,
    file: String,
    parent: Option<usize>,
    /// The module of its file: itself, but for inline modules.
    node: usize,
    children: BTreeMap<String, usize>,
    /// Names that `use` brings in.
    aliases: BTreeMap<String, Path>,
    globs: Vec<Path>,
    items: BTreeSet<String>,
    pub named: Vec<Named>,
    pub impls: Vec<Impl>,
}

/// All modules of a crate; the first is its root.
pub struct Modules {
    modules: Vec<Module>,
    /// Macros with `#[macro_export]`, which paths find in the root.
    macros: BTreeMap<String, usize>,
}

/// Re-exports that are followed one after the other, so that one that leads to itself ends.
const DEPTH_MAX: usize = 16;

impl Modules {
    /// Reads the crate whose first file is `root`.
    pub fn read(root: &str, files: &BTreeMap<String, String>) -> Self {
        let mut modules = Self { modules: vec![], macros: BTreeMap::new() };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        modules.file(None, "root".to_owned(), root.to_owned(), &folder, files);
        modules
    }

    pub fn all(&self) -> impl Iterator<Item = (usize, &Module)> {
        self.modules.iter().enumerate()
    }

    pub fn name(&self, module: usize) -> &str {
        &self.modules[module].name
    }

    pub fn node(&self, module: usize) -> usize {
        self.modules[module].node
    }

    pub fn file_of(&self, module: usize) -> &str {
        &self.modules[module].file
    }

    /// True if `module` lies below `above`.
    pub fn is_below(&self, module: usize, above: usize) -> bool {
        let mut at = self.modules[module].parent;
        while let Some(parent) = at {
            if parent == above {
                return true;
            }
            at = self.modules[parent].parent;
        }
        false
    }

    /// A module with a file of its own; its children with files lie in `folder`.
    fn file(
        &mut self,
        parent: Option<usize>,
        name: String,
        file: String,
        folder: &str,
        files: &BTreeMap<String, String>,
    ) -> usize {
        let this = self.modules.len();
        self.modules.push(Module { name, file: file.clone(), parent, node: this, ..Module::default() });
        let parsed = files.get(&file).and_then(|text| syn::parse_file(text).ok());
        self.items(this, &parsed.map(|file| file.items).unwrap_or_default(), folder, files);
        this
    }

    fn items(&mut self, this: usize, items: &[syn::Item], folder: &str, files: &BTreeMap<String, String>) {
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            match item {
                syn::Item::Mod(item) => self.child(this, item, folder, files),
                syn::Item::Use(item) => self.imports(this, item),
                item => {
                    if let syn::Item::Macro(item) = item
                        && item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"))
                        && let Some(name) = &item.ident
                    {
                        self.macros.insert(name.to_string(), this);
                    }
                    let module = &mut self.modules[this];
                    module.items.extend(name_of(item));
                    Walk { module }.visit_item(item);
                }
            }
        }
    }

    fn child(&mut self, this: usize, item: &syn::ItemMod, folder: &str, files: &BTreeMap<String, String>) {
        let ident = item.ident.to_string();
        let above = &self.modules[this].name;
        let name = if above == "root" { ident.clone() } else { format!("{above}::{ident}") };
        let below = format!("{folder}/{ident}");
        let child = match &item.content {
            Some((_, items)) => {
                let child = self.modules.len();
                let Module { file, node, .. } = &self.modules[this];
                let (file, node) = (file.clone(), *node);
                self.modules.push(Module { name, file, parent: Some(this), node, ..Module::default() });
                self.modules[this].children.insert(ident, child);
                return self.items(child, items, &below, files);
            }
            None => {
                let asked = path_attribute(&item.attrs).map(|path| format!("{folder}/{path}"));
                let beside = [format!("{below}.rs"), format!("{below}/mod.rs")];
                let file = asked.or_else(|| beside.into_iter().find(|file| files.contains_key(file)));
                let Some(file) = file else { return };
                // Its number is known before it is read, so that paths in it that lead back find it.
                let child = self.modules.len();
                self.modules[this].children.insert(ident, child);
                self.file(Some(this), name, file, &below, files)
            }
        };
        debug_assert_eq!(self.modules[child].parent, Some(this));
    }

    fn imports(&mut self, this: usize, item: &syn::ItemUse) {
        let exported = !matches!(item.vis, syn::Visibility::Inherited);
        let module = &mut self.modules[this];
        for Leaf { path, alias } in leaves(&item.tree) {
            match alias {
                Some(alias) => drop(module.aliases.insert(alias, path.clone())),
                None => module.globs.push(path.clone()),
            }
            module.named.push(Named { path, exported });
        }
    }

    /// Where a path leads that `at` names: `None` out of the crate.
    pub fn resolve(&self, at: usize, path: &[String]) -> Option<Target> {
        self.resolve_to(at, path, 0)
    }

    fn resolve_to(&self, at: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, mut rest) = path.split_first()?;
        let mut from = match first.as_str() {
            "crate" => 0,
            "self" => at,
            "super" => self.modules[at].parent?,
            name => return self.walk(self.find(at, name, depth + 1)?, rest, depth + 1),
        };
        while let Some(("super", more)) = rest.split_first().map(|(first, more)| (first.as_str(), more)) {
            (from, rest) = (self.modules[from].parent?, more);
        }
        self.walk(Target::Module(from), rest, depth + 1)
    }

    /// Goes on from `from`. What a module does not show, such as what a macro makes, it is taken to define.
    fn walk(&self, mut from: Target, path: &[String], depth: usize) -> Option<Target> {
        for segment in path {
            let Target::Module(module) = from else { break };
            from = match self.find(module, segment, depth) {
                Some(target) => target,
                // It comes from another crate.
                None if self.modules[module].aliases.contains_key(segment) => return None,
                None => Target::Item(module, segment.clone()),
            };
        }
        Some(from)
    }

    /// What `name` means in a module.
    fn find(&self, module: usize, name: &str, depth: usize) -> Option<Target> {
        if depth > DEPTH_MAX {
            return None;
        }
        let here = &self.modules[module];
        if let Some(child) = here.children.get(name) {
            return Some(Target::Module(*child));
        }
        if here.items.contains(name) {
            return Some(Target::Item(module, name.to_owned()));
        }
        if let Some(path) = here.aliases.get(name)
            && let Some(target) = self.resolve_to(module, path, depth + 1)
        {
            return Some(target);
        }
        let through = |path: &Path| match self.resolve_to(module, path, depth + 1)? {
            Target::Module(other) if other != module => self.find(other, name, depth + 1),
            _ => None,
        };
        if let Some(target) = here.globs.iter().find_map(through) {
            return Some(target);
        }
        let exported = self.macros.get(name).filter(|_| module == 0)?;
        Some(Target::Item(*exported, name.to_owned()))
    }
}

/// One path of a `use`; no alias for a glob.
struct Leaf {
    path: Path,
    alias: Option<String>,
}

fn leaves(tree: &syn::UseTree) -> Vec<Leaf> {
    let mut out = Vec::new();
    gather(tree, &mut Vec::new(), &mut out);
    out
}

fn gather(tree: &syn::UseTree, prefix: &mut Path, out: &mut Vec<Leaf>) {
    let mut leaf = |path: &Path, alias: Option<String>| out.push(Leaf { path: path.clone(), alias });
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            gather(&path.tree, prefix, out);
            prefix.pop();
        }
        syn::UseTree::Name(name) if name.ident == "self" => leaf(prefix, prefix.last().cloned()),
        syn::UseTree::Rename(name) if name.ident == "self" => leaf(prefix, Some(name.rename.to_string())),
        syn::UseTree::Name(name) => {
            let name = name.ident.to_string();
            leaf(&[prefix.as_slice(), std::slice::from_ref(&name)].concat(), Some(name));
        }
        syn::UseTree::Rename(name) => {
            let path = [prefix.as_slice(), &[name.ident.to_string()]].concat();
            leaf(&path, Some(name.rename.to_string()));
        }
        syn::UseTree::Glob(_) => leaf(prefix, None),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| gather(tree, prefix, out)),
    }
}

/// Takes up the paths of one item, those in functions and macros among them.
struct Walk<'m> {
    module: &'m mut Module,
}

impl Walk<'_> {
    fn names(&mut self, path: Path) {
        // One word alone names what `use` brought in, and counts there.
        if path.len() > 1 {
            self.module.named.push(Named { path, exported: false });
        }
    }
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none()
            && let syn::Type::Path(ty) = &*item.self_ty
        {
            let is_method = |item: &&syn::ImplItem| match item {
                syn::ImplItem::Fn(item) => !is_test(&item.attrs),
                _ => false,
            };
            let methods = item.items.iter().filter(is_method).count();
            self.module.impls.push(Impl { ty: segments(&ty.path), methods });
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for Leaf { path, .. } in leaves(&item.tree) {
            self.module.named.push(Named { path, exported: false });
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.names(segments(path));
        visit::visit_path(self, path);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {
        // `pub(in crate::agent)` uses nothing.
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            for path in paths_of_tokens(&list.tokens.to_string()) {
                self.names(path);
            }
        }
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.names(segments(&item.path));
        for path in paths_of_tokens(&item.tokens.to_string()) {
            self.names(path);
        }
    }
}

fn segments(path: &syn::Path) -> Path {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Paths in the text of a macro's tokens: `crate :: agent :: Pair`.
fn paths_of_tokens(text: &str) -> Vec<Path> {
    let mut paths = Vec::new();
    let mut path = Path::new();
    let mut joined = false;
    let spaced = text.replace("::", " :: ");
    for word in spaced.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':') {
        if word == "::" {
            joined = !path.is_empty();
        } else if !word.is_empty() {
            if !joined {
                paths.push(std::mem::take(&mut path));
            }
            path.push(word.to_owned());
            joined = false;
        }
    }
    paths.push(path);
    paths.retain(|path| path.len() > 1);
    paths
}

fn name_of(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[test]`, `#[cfg(test)]` or `#[cfg(all(test, ..))]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string().replace(' ', ""),
            _ => return attribute.path().is_ident("test"),
        };
        text == "test" || text.starts_with("all(test,") || text.starts_with("all(test)")
    })
}

/// The file of `#[path = "file"]`.
fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let syn::Meta::NameValue(syn::MetaNameValue { value: syn::Expr::Lit(value), .. }) = &attribute.meta
    else {
        return None;
    };
    let syn::Lit::Str(text) = &value.lit else { return None };
    Some(text.value())
}
