//! The table of invariants and rules in docs/TESTING.md: which breaks are caught and which tests hold each, made from
//! the code. `cargo xtask test --table --bless` writes it.

use crate::scenario_table::sources;
use shunt_tests::promises::{Promise, WITHOUT_A_BREAK, sample};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const BEGIN: &str = "<!-- promises -->\n";
const END: &str = "<!-- end of promises -->\n";

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// By name of a test as libtest prints it, or of a module of tests: the scenarios that it holds. What ends with `_` is
/// the beginning of some.
fn held() -> BTreeMap<String, Vec<String>> {
    let mut held = BTreeMap::<String, Vec<String>>::new();
    for (file, text) in sources() {
        let module = file.trim_end_matches(".rs");
        let mut name = String::new();
        for line in text.lines() {
            if let Some(begins) = line.strip_prefix("fn ").or_else(|| line.strip_prefix("mod ")) {
                let end = begins.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(begins.len());
                name = format!("{module}::{}", &begins[..end]);
                held.entry(name.clone()).or_default();
            }
            if line.contains("hold(") && !name.is_empty() {
                let names = line.split('"').skip(1).step_by(2).map(str::to_owned);
                held.entry(name.clone()).or_default().extend(names);
            }
        }
    }
    held
}

/// What is not run by `cargo xtask test`: a part of each name.
fn later() -> Vec<String> {
    let text = read("xtask/later.txt");
    let names = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The breaks of a promise, and the tests that hold it.
fn row(promise: Promise, held: &BTreeMap<String, Vec<String>>) -> (BTreeSet<&'static str>, BTreeSet<String>) {
    let holds = |scenario: &str, names: &[String]| {
        names.iter().any(|name| name == scenario || name.ends_with('_') && scenario.starts_with(name))
    };
    let mut breaks = BTreeSet::new();
    let mut tests = BTreeSet::new();
    for row in promise.rows() {
        breaks.insert(row.mutant.name());
        for scenario in row.scenarios {
            let of = held.iter().filter(|(_, names)| holds(scenario, names));
            tests.extend(of.map(|(test, _)| test.clone()));
        }
    }
    let others = WITHOUT_A_BREAK.iter().filter(|(other, _)| *other == promise).flat_map(|(_, tests)| *tests);
    tests.extend(others.map(|test| (*test).to_owned()));
    (breaks, tests)
}

fn table() -> String {
    let held = held();
    let mut table = "| promise | breaks that are caught | tests |\n| --- | --- | --- |\n".to_owned();
    for promise in Promise::all() {
        let (breaks, tests) = row(promise, &held);
        let breaks: Vec<&str> = breaks.into_iter().collect();
        let tests: Vec<String> = tests.iter().map(|test| format!("`{test}`")).collect();
        table += &format!("| {promise} | {} | {} |\n", breaks.join(", "), tests.join(", "));
    }
    table
}

#[test]
fn the_table_is_that_of_the_code() {
    let path = "docs/TESTING.md";
    let text = read(path);
    let begin = text.find(BEGIN).expect("the table begins") + BEGIN.len();
    let end = text.find(END).expect("the table ends");
    let table = table();
    if text[begin..end] != table {
        if std::env::var_os("SHUNT_TABLE_BLESS").is_some() {
            fs::write(at(path), text[..begin].to_owned() + &table + &text[end..])
                .expect("the file is written");
            return;
        }
        panic!("{path}: cargo xtask test --table --bless writes this table:\n{table}");
    }
}

/// Not later, and not by a sampler.
#[test]
fn each_promise_is_held_by_a_test_that_always_runs() {
    let (held, later) = (held(), later());
    for promise in Promise::all() {
        let (_, tests) = row(promise, &held);
        let runs = |test: &String| !later.iter().any(|part| test.contains(part.as_str()));
        assert!(tests.iter().any(runs), "{promise}: none of {tests:?} is run by cargo xtask test");
    }
}

#[test]
fn tests_without_a_break_exist() {
    let held = held();
    for (promise, tests) in WITHOUT_A_BREAK {
        assert!(promise.rows().next().is_none(), "{promise} has a break: it needs no entry");
        for test in *tests {
            assert!(held.contains_key(*test), "{promise}: there is no test {test}");
        }
    }
}

#[test]
fn the_sample_breaks_each_promise() {
    let broken: BTreeSet<Promise> =
        sample().iter().flat_map(|(row, _)| Promise::broken_by(row.mutant)).collect();
    for promise in Promise::all() {
        let excused = WITHOUT_A_BREAK.iter().any(|(other, _)| *other == promise);
        assert!(broken.contains(&promise) || excused, "{promise} has no break");
    }
}
