//! The graph of small crates, and the list that only shrinks.

use super::*;

fn crate_of(modules: &[(&str, &str)]) -> BTreeMap<String, String> {
    let files = modules.iter().map(|(path, text)| (format!("a/src/{path}"), (*text).to_owned()));
    files.chain([("a/Cargo.toml".to_owned(), String::new())]).collect()
}

fn circles(modules: &[(&str, &str)]) -> Vec<String> {
    find(&crate_of(modules)).0.circles.into_iter().map(|circle| circle.name).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn two_modules_that_use_each_other_are_a_circle() {
    let lib = ("lib.rs", "mod b;\nmod c;");
    assert_eq!(circles(&[lib, ("b.rs", "use crate::c::C;"), ("c.rs", "use super::b::B;")]), ["a: b c"]);
    assert_eq!(circles(&[lib, ("b.rs", "use crate::c::C;"), ("c.rs", "struct C;")]), NONE);
    let (found, _) =
        find(&crate_of(&[lib, ("b.rs", "use crate::c::C;"), ("c.rs", "use crate::b::{self, B};")]));
    assert_eq!(found.circles[0].arrows, ["b -> c (crate::c::C)", "c -> b (crate::b)"]);
}

/// What the counter says of a package of these files.
fn too_large(folder: &str, modules: &[(&str, &str)]) -> Vec<String> {
    let files = crate_of(modules).into_iter();
    let files =
        files.map(|(path, text)| (format!("{folder}{}", path.trim_start_matches('a')), text)).collect();
    find(&files).1.too_large(&files).into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn a_package_of_more_lines_than_allowed_without_its_tests() {
    let lib = "mod b;\n#[cfg(test)]\nmod many;\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n";
    let of = |lines: usize| {
        format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "// one\n".repeat(lines), "\n".repeat(90))
    };
    let tests = "\n".repeat(5_000);
    let package = |lines: usize| {
        let main = "fn main() {}\n".repeat(1_000);
        let files = [
            ("lib.rs", lib),
            ("b.rs", &of(lines)),
            ("many.rs", &tests),
            ("b_tests.rs", &tests),
            ("main.rs", &main),
        ];
        [too_large("a", &files), too_large("tests/a", &files)]
    };
    assert_eq!(package(7_999), [NONE; 2], "one line, and a program of 1000");
    let [found, in_tests] = package(8_000);
    assert_eq!(found.len(), 1, "{found:?}");
    let text = "a/Cargo.toml:1: lines of Rust without tests: expected at most 9000, got 9001; ";
    assert!(found[0].starts_with(text), "{found:?}");
    assert_eq!(in_tests, NONE, "a package of tests");
}

#[test]
fn paths_in_functions_types_and_macros_are_arrows() {
    let lib = ("lib.rs", "mod b;\nmod c;");
    let b = ("b.rs", "pub struct B; use crate::c::C;");
    for text in [
        "fn f() { crate::b::go(); }",
        "fn f() { { use crate::b::go; go() } }",
        "struct C { b: Option<crate::b::B> }",
        "fn f() { assert!(crate::b::go(1), \"text\"); }",
        "use crate::b; fn f() { b::go() }",
        "impl From<crate::b::B> for C {}",
        "#[error(\"at most {}\", crate::b::MAX)] struct C;",
    ] {
        assert_eq!(circles(&[lib, b, ("c.rs", text)]), ["a: b c"], "{text}");
    }
}

#[test]
fn a_parent_and_a_child_that_need_each_other_are_a_circle() {
    let lib = ("lib.rs", "mod b;");
    let child = ("b/c.rs", "use super::B; pub struct C;");
    assert_eq!(circles(&[lib, child, ("b/mod.rs", "mod c; use c::C; pub struct B;")]), ["a: b b::c"]);
    assert_eq!(circles(&[lib, child, ("b.rs", "mod c; pub struct B { c: c::C }")]), ["a: b b::c"]);
}

#[test]
fn what_a_parent_passes_on_is_no_arrow_and_leads_to_where_it_is_defined() {
    let lib = ("lib.rs", "mod b; pub use b::C;");
    let parent = ("b/mod.rs", "mod c; mod d; pub use c::C; pub(crate) use d::*; pub struct B;");
    assert_eq!(circles(&[lib, parent, ("b/c.rs", "use super::B; pub struct C;"), ("b/d.rs", "")]), NONE);
    let (c, d) = (("b/c.rs", "use crate::b::D; pub struct C;"), ("b/d.rs", "use super::C; pub struct D;"));
    assert_eq!(circles(&[lib, parent, c, d]), ["a: b::c b::d"]);
}

#[test]
fn what_comes_from_another_crate_is_no_arrow() {
    let lib = ("lib.rs", "mod b; use other::tool; fn f() { b::go() }");
    assert_eq!(
        circles(&[lib, ("b.rs", "use crate::tool; use crate::tool::Part; fn f() { tool::go() }")]),
        NONE
    );
    let own = ("lib.rs", "mod b; fn tool() { b::go() }");
    assert_eq!(circles(&[own, ("b.rs", "use crate::tool;")]), ["a: root b"]);
}

#[test]
fn tests_and_inline_modules_make_no_arrows_of_their_own() {
    let lib = ("lib.rs", "mod b; mod c;");
    let b = ("b.rs", "use crate::c::C;");
    for text in [
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(all(test, unix))] use crate::b::B;",
        "struct C; impl C { #[cfg(test)] fn f() { crate::b::go() } }",
        "#[test] fn f() { crate::b::go() }",
    ] {
        assert_eq!(circles(&[lib, b, ("c.rs", text)]), NONE, "{text}");
    }
    // What an inline module uses its file uses; what it defines is the file's.
    assert_eq!(circles(&[lib, b, ("c.rs", "mod inner { use crate::b::B; }")]), ["a: b c"]);
    assert_eq!(
        circles(&[lib, ("b.rs", "use crate::c::inner::C;"), ("c.rs", "mod inner { use super::X; }")]),
        NONE
    );
}

#[test]
fn files_are_found_where_the_compiler_finds_them() {
    let lib = ("lib.rs", "#[path = \"other.rs\"] mod b; mod c { mod d; } mod e;");
    let d = ("c/d.rs", "use crate::b::B; use crate::e::E;");
    assert_eq!(circles(&[lib, ("other.rs", "use crate::c::d::D;"), d, ("e.rs", "")]), ["a: b c::d"]);
}

#[test]
fn methods_are_counted_over_all_blocks_and_files() {
    let methods = |count: usize, name: &str| -> String {
        (0..count).map(|number| format!("fn {name}{number}(&self) {{}}\n")).collect()
    };
    let lib = "mod b; pub struct Big; impl Big { ".to_owned() + &methods(40, "x") + "}";
    let of = |more: usize, block: &str| {
        let b = format!("use crate::Big; {block} {{ {} #[cfg(test)] fn t() {{}} }}", methods(more, "y"));
        find(&crate_of(&[("lib.rs", &lib), ("b.rs", &b)])).0.types
    };
    assert!(of(20, "impl Big").is_empty());
    let types = of(21, "impl Big");
    assert_eq!((types[0].name.as_str(), types[0].methods, types[0].files), ("a::Big", 61, 2));
    assert!(of(21, "impl Trait for Big").is_empty());
}

/// What is found, and the list.
fn findings(circles: &[&str], types: &[(&str, usize)], list: &str) -> Vec<String> {
    let found = found(circles, types);
    Allowed::read(list).compare(&found).into_iter().map(|finding| finding.text).collect()
}

fn found(circles: &[&str], types: &[(&str, usize)]) -> Found {
    let circle = |name: &&str| Circle { name: (*name).to_owned(), arrows: vec!["b -> c (c::C)".to_owned()] };
    let large =
        |(name, methods): &(&str, usize)| Large { name: (*name).to_owned(), methods: *methods, files: 2 };
    Found { circles: circles.iter().map(circle).collect(), types: types.iter().map(large).collect() }
}

#[test]
fn the_list_may_only_shrink() {
    let list = "circle a: b c d\ntype a::Big: 70\n";
    assert_eq!(findings(&["a: b c d"], &[("a::Big", 70)], list), NONE);
    for (circles, types, text) in [
        (&["a: b c d", "a: x y"][..], &[("a::Big", 70)][..], "a new circle, a: x y"),
        (&["a: b c d e"], &[("a::Big", 70)], "a new circle, a: b c d e"),
        (&["b: b c d"], &[("a::Big", 70)], "a new circle, b: b c d"),
        (&["a: b c"], &[("a::Big", 70)], "smaller than listed"),
        (&[], &[("a::Big", 70)], "is gone"),
        (&["a: b c d"], &[("a::Big", 71)], "71 methods in 2 files, at most 70"),
        (&["a: b c d"], &[("a::Big", 69)], "69 methods, 70 listed"),
        (&["a: b c d"], &[], "has no more than 60"),
        (&["a: b c d"], &[("a::Big", 70), ("a::New", 61)], "at most 60"),
    ] {
        let found = findings(circles, types, list);
        assert!(found.iter().any(|found| found.contains(text)), "{text:?} not in {found:?}");
    }
}

#[test]
fn a_list_that_shrinks_takes_in_nothing_new() {
    let list = "# why\ncircle a: b c d\ncircle a: x y\ntype a::Big: 70\ntype a::Old: 90\n";
    let now = found(&["a: b c", "a: new other"], &[("a::Big", 75), ("a::New", 99)]);
    assert_eq!(Allowed::read(list).shrunk(&now), "# why\ncircle a: b c\ntype a::Big: 70\n");
}

#[test]
fn the_crates_of_the_tree_are_found() {
    let mut files =
        crate_of(&[("lib.rs", ""), ("main.rs", ""), ("bin/other.rs", ""), ("bin/other/part.rs", "")]);
    files.insert("a/src/third.rs".to_owned(), String::new());
    files
        .insert("a/Cargo.toml".to_owned(), "[[bin]]\nname = \"third\"\npath = \"src/third.rs\"\n".to_owned());
    let names: Vec<String> = roots(&files).into_iter().map(|root| root.name).collect();
    assert_eq!(names, ["a/bin/other", "a", "a/main", "a/third"]);
}
