//! The table of the scenarios that must exist, in docs/TESTING.md, against the code: every test and every break that it
//! names exists, and of each scenario at least one test of its own catches one of its breaks.

use shunt_layout::mutant::Mutant;
use shunt_tests::mutations::TABLE;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const SCENARIOS: u32 = 23;

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One row.
struct Row {
    number: u32,
    tests: Vec<String>,
    breaks: Vec<String>,
}

/// What stands between backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn rows() -> Vec<Row> {
    let text = read(&at("../docs/TESTING.md"));
    let table = text.split("The scenarios that must exist, and what catches their breaks:").nth(1);
    let lines = table.expect("the table").lines().skip_while(|line| !line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "four columns: {line}");
        let number = cells[1].split(',').next()?.parse().ok()?;
        let breaks = cells[4].split(", ").map(str::to_owned).collect();
        Some(Row { number, tests: quoted(cells[3]), breaks })
    };
    lines.take_while(|line| line.starts_with('|')).filter_map(row).collect()
}

/// The sources of the tests, by file.
pub fn sources() -> BTreeMap<String, String> {
    let files = fs::read_dir(at("tests")).expect("this folder").filter_map(Result::ok);
    let rust = files.filter(|file| file.path().extension().is_some_and(|end| end == "rs"));
    rust.map(|file| (file.file_name().into_string().expect("a name"), read(&file.path()))).collect()
}

/// By name of a test, or of a module of tests: the names in quotes in it. What ends with `_` is the beginning of some.
fn held(sources: &BTreeMap<String, String>) -> BTreeMap<String, Vec<String>> {
    let mut held = BTreeMap::new();
    for line in sources.values() {
        let mut name = None;
        for line in line.lines() {
            let begins = line.strip_prefix("fn ").or_else(|| line.strip_prefix("mod "));
            if let Some(begins) = begins {
                let end = begins.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(begins.len());
                name = Some(begins[..end].to_owned());
                held.entry(begins[..end].to_owned()).or_insert_with(Vec::new);
            }
            if let Some(name) = name.as_ref().filter(|_| line.contains("hold(")) {
                let names = line.split('"').skip(1).step_by(2).map(str::to_owned);
                held.get_mut(name).expect("entered above").extend(names);
            }
        }
    }
    held
}

#[test]
fn every_scenario_has_its_row() {
    let mut numbers: Vec<u32> = rows().iter().map(|row| row.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=SCENARIOS).collect::<Vec<_>>());
}

#[test]
fn every_test_that_is_named_exists() {
    let sources = sources();
    let held = held(&sources);
    for row in rows() {
        let named = row.tests.iter().filter(|name| !name.contains('='));
        for name in named.filter(|name| !name.starts_with("cargo ") && !name.starts_with("lost-")) {
            let exists = match name.strip_suffix('*') {
                Some(begins) => held.keys().any(|test| test.starts_with(begins)),
                None if name.contains('/') => at("..").join(name).exists(),
                None if name.ends_with(".rs") => sources.contains_key(name),
                None => held.contains_key(name),
            };
            assert!(exists, "scenario {}: there is no {name}", row.number);
        }
    }
}

#[test]
fn every_scenario_catches_a_break_by_a_test_of_its_own() {
    let held = held(&sources());
    for row in rows() {
        let number = row.number;
        let own = format!("scenario_{number:02}_");
        let names: Vec<&String> =
            held.iter().filter(|(test, _)| test.starts_with(&own)).flat_map(|(_, names)| names).collect();
        let holds = |scenario: &str| {
            let is = |name: &&String| {
                scenario == **name || name.ends_with('_') && scenario.starts_with(name.as_str())
            };
            names.iter().any(is)
        };
        let mut caught = Vec::new();
        for name in &row.breaks {
            let mutant = Mutant::named(name);
            let mutant = mutant.unwrap_or_else(|| panic!("scenario {number}: no break is called {name}"));
            let rows = TABLE.iter().filter(|row| row.mutant == mutant);
            let scenarios: Vec<_> = rows.flat_map(|row| row.scenarios).collect();
            assert!(!scenarios.is_empty(), "scenario {number}: {name} is in no row");
            caught.extend(scenarios.into_iter().filter(|scenario| holds(scenario)).map(|_| name));
        }
        assert!(!caught.is_empty(), "scenario {number}: none of {:?} is caught by {own}*", row.breaks);
    }
}
