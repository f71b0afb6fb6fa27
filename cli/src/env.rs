//! `shunt env`: every variable that is read, its value in force, and where that came from.

use crate::print::{self, columns, wrap, wrap_to};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_host::config;
use shunt_host::job::{Flags, Job, Launcher, pmix};
use shunt_json::Kind;
use shunt_nvshmem::env_table::TABLE;
use shunt_soft_machine::settings::{self, Settings};
use std::collections::BTreeMap;

/// List every variable that is read: value in force, where it came from, and what it means.
#[derive(Args)]
#[command(
    after_help = "Exit status: 0, or 2 if a variable holds what makes no sense, alone or beside the others."
)]
pub struct Arguments {
    /// Say also what each may hold.
    #[arg(long, conflicts_with = "json")]
    long: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// Variables that hold what nobody else should see.
const SECRET: &str = "SHUNT_SECRET";

/// A variable that is read.
struct Variable {
    name: &'static str,
    meaning: String,
    values: String,
    default: &'static str,
}

/// A variable and what it holds.
struct Line {
    variable: Variable,
    /// What the environment says.
    set: Option<String>,
    /// What is wrong with it.
    error: Option<String>,
}

impl Line {
    fn shown(&self) -> String {
        match &self.set {
            Some(_) if self.variable.name == SECRET => "(hidden)".into(),
            Some(value) => value.clone(),
            None if self.variable.default.is_empty() => "(not set)".into(),
            None => self.variable.default.to_owned(),
        }
    }

    fn source(&self) -> String {
        let default = self.variable.default;
        match (&self.set, &self.error) {
            (_, Some(_)) => "BAD".into(),
            (Some(_), None) if default.is_empty() => "environment".into(),
            (Some(_), None) => format!("environment (default {default})"),
            (None, None) if default.is_empty() => String::new(),
            (None, None) => "default".into(),
        }
    }
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    // Names and values that are no UTF-8 are shown as well as they can be; no parser takes them.
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    let lines: Vec<Line> = known().map(|variable| line(variable, &environment)).collect();
    let others = others(&environment);
    let mut errors: Vec<String> = lines.iter().filter_map(|line| line.error.clone()).collect();
    let mut place = None;
    if errors.is_empty() {
        // Each makes sense alone: do they together name a place in a job?
        match Job::from_lookup(&Flags::default(), &|name| environment.get(name).cloned()) {
            Ok(job) => place = job,
            Err(error) => errors.push(error.to_string()),
        }
        pmix::end();
        let soft = Settings::read(|name| environment.get(name).map(Into::into));
        errors.extend(soft.err().map(|error| error.to_string()));
    }
    let out = match arguments.json {
        true => as_json(&lines, &others, place.as_ref()),
        false => as_text(&lines, &others, arguments.long, print::width()) + &place_text(place.as_ref()),
    };
    let status = print::stdout(&out, if errors.is_empty() { 0 } else { print::USAGE });
    for error in errors {
        shunt_host::complain!("error: {error}");
    }
    status
}

/// Every variable that is read: by the library and its programs, by the library in NVSHMEM's place, and by the
/// preloaded one.
fn known() -> impl Iterator<Item = Variable> {
    let host = config::VARIABLES.iter().map(|host| Variable {
        name: host.name,
        meaning: host.meaning.into(),
        values: host.values.into(),
        default: host.default,
    });
    let theirs = TABLE.iter().map(|theirs| Variable {
        name: theirs.name,
        meaning: match theirs.outcome().as_str() {
            "honoured" => theirs.meaning.into(),
            outcome => format!("{}; {outcome}", theirs.meaning),
        },
        values: theirs.values.text(),
        default: theirs.default,
    });
    let soft = settings::VARIABLES.into_iter().map(|soft| Variable {
        name: soft.name,
        meaning: soft.meaning.into(),
        values: soft.values.into(),
        default: soft.default,
    });
    host.chain(theirs).chain(soft)
}

/// What is wrong with a value by itself.
fn wrong(name: &str, value: &str) -> Option<String> {
    if let Some(theirs) = shunt_nvshmem::env::known(name) {
        return theirs.check(value).err().map(|error| error.to_string());
    }
    match settings::VARIABLES.iter().any(|soft| soft.name == name) {
        true => Settings::check(name, value).err().map(|error| error.to_string()),
        false => {
            let alone = |asked: &str| (asked == name).then(|| value.to_owned());
            let checked = config::check(name, value);
            let checked = checked.and_then(|()| shunt_verbs::settings::Settings::read(&alone).map(|_| ()));
            checked.err().map(|error| error.to_string())
        }
    }
}

fn line(variable: Variable, environment: &BTreeMap<String, String>) -> Line {
    let set = environment.get(variable.name).cloned();
    let error = set.as_ref().and_then(|value| wrong(variable.name, value));
    Line { variable, error, set }
}

/// A variable that looks like ours and is not read.
struct Other {
    name: String,
    /// The name it may have been meant to be; only for our own prefix.
    meant: Option<&'static str>,
    ours: bool,
}

fn others(environment: &BTreeMap<String, String>) -> Vec<Other> {
    let unread = environment.keys().filter(|name| known().all(|variable| variable.name != **name));
    let unread = unread.filter(|name| name.starts_with("SHUNT_") || name.starts_with("NVSHMEM_"));
    unread
        .map(|name| Other { ours: name.starts_with("SHUNT_"), meant: nearest(name), name: name.clone() })
        .collect()
}

fn nearest(name: &str) -> Option<&'static str> {
    config::nearest(name, known().map(|variable| variable.name))
}

/// Those that most jobs need, in the order in which they are listed.
const FIRST: [&str; 14] = [
    "NVSHMEM_IBGDA_ENABLE_FAULT_TOLERANCE",
    "SHUNT_NIC",
    "NVSHMEM_HCA_LIST",
    "NVSHMEM_SYMMETRIC_SIZE",
    "SHUNT_BACKUPS",
    "SHUNT_GIVE_UP",
    "SHUNT_SUSPECT",
    "SHUNT_RECOVERY_WINDOW",
    "SHUNT_FETCH",
    "SHUNT_POLLED_PUTS",
    "SHUNT_QUEUES",
    "SHUNT_LOG",
    "SHUNT_EVENTS",
    "SHUNT_METRICS",
];
/// What the others are about, by how their names begin: the first that fits.
const GROUPS: [(&str, &[&str]); 6] = [
    ("verbs programs", &["SHUNT_VERBS"]),
    ("NICs in software", &["SHUNT_SOFT"]),
    (
        "log and metrics",
        &["SHUNT_LOG", "SHUNT_STATUS", "SHUNT_STEP_RECORDS", "NVSHMEM_DEBUG", "NVSHMEM_INFO"],
    ),
    (
        "processes of a job",
        &[
            "SHUNT_RANK",
            "SHUNT_WORLD",
            "SHUNT_LOCAL_RANK",
            "SHUNT_ROOT",
            "SHUNT_SECRET",
            "SHUNT_FABRIC",
            "NVSHMEM_BOOTSTRAP",
        ],
    ),
    ("paths and failover", &["SHUNT_"]),
    ("NVSHMEM", &["NVSHMEM_"]),
];

/// Where a variable is listed: its group, and its place among the first.
fn place(name: &str) -> (usize, usize) {
    match FIRST.iter().position(|first| *first == name) {
        Some(at) => (0, at),
        None => {
            let fits = |(_, starts): &(_, &[&str])| starts.iter().any(|start| name.starts_with(start));
            (1 + GROUPS.iter().position(fits).unwrap_or(GROUPS.len()), 0)
        }
    }
}

fn heading(group: usize) -> &'static str {
    match group.checked_sub(1) {
        None => "what most jobs need",
        Some(group) => GROUPS.get(group).map_or("others", |(name, _)| name),
    }
}

/// The table: a line a variable, or where a terminal is too narrow for that, the meaning below.
fn table(lines: &[&Line], long: bool, width: Option<usize>) -> String {
    let row = |line: &&Line| vec![line.variable.name.into(), line.shown(), line.source()];
    let mut rows: Vec<Vec<String>> = lines.iter().map(row).collect();
    let beside = |rows: &[Vec<String>]| {
        let with = |(row, line): (&Vec<String>, &&Line)| {
            row.iter().cloned().chain([line.variable.meaning.clone()]).collect()
        };
        columns(&rows.iter().zip(lines).map(with).collect::<Vec<_>>(), "")
    };
    let wide = beside(&rows);
    let narrow = width.filter(|width| wide.lines().any(|line| line.chars().count() > *width));
    let below =
        |text: &str| narrow.map_or(format!("    {text}\n"), |width| wrap_to(width, text, "    ", "    "));
    let heads = if narrow.is_some() { columns(&std::mem::take(&mut rows), "") } else { wide };
    let mut out = String::new();
    let mut above = None;
    for (head, line) in heads.lines().zip(lines) {
        let (group, _) = place(line.variable.name);
        if above.replace(group) != Some(group) {
            let gap = if out.is_empty() { "" } else { "\n" };
            out += &format!("{gap}{}:\n", heading(group));
        }
        out += &format!("{head}\n");
        if narrow.is_some() {
            out += &below(&line.variable.meaning);
        }
        if long {
            out += &below(&format!("may hold: {}", line.variable.values));
        }
    }
    out
}

fn as_text(lines: &[Line], others: &[Other], long: bool, width: Option<usize>) -> String {
    let mut sorted: Vec<&Line> = lines.iter().collect();
    sorted.sort_by_key(|line| place(line.variable.name));
    let mut out = table(&sorted, long, width);
    let (ours, theirs): (Vec<&Other>, Vec<&Other>) = others.iter().partition(|other| other.ours);
    for other in ours {
        let meant = other.meant.map_or(String::new(), |name| format!(", did you mean {name}?"));
        out += &wrap(&format!("{} is not read{meant}", other.name), "\nunknown: ", "  ");
    }
    let name = |other: &&Other| match other.meant {
        Some(meant) => format!("{} (did you mean {meant}?)", other.name),
        None => other.name.clone(),
    };
    let theirs: Vec<String> = theirs.iter().map(name).collect();
    if !theirs.is_empty() {
        out += &wrap(&theirs.join(", "), "\nset for NVSHMEM and not read by Shunt: ", "  ");
    }
    out
}

/// Who this process would be in a job, who says so, and who would have been asked before and after.
fn place_text(place: Option<&Job>) -> String {
    let order =
        Launcher::ALL.map(|launcher| format!("{} ({})", launcher.name(), launcher.variables().join(", ")));
    let who = match place {
        Some(job) => {
            let [first, second] = job.launcher.variables();
            format!("rank {} of {}, by {first} and {second}", job.rank, job.world)
        }
        None => "by itself: no launcher names more than one process".to_owned(),
    };
    let order = wrap(&order.join(", "), "looked for in this order: ", "  ");
    format!("\nplace in a job: {who}\n{order}")
}

/// What `shunt env --json` writes.
#[derive(JsonSchema, Serialize)]
struct EnvironmentJson {
    variables: Vec<VariableJson>,
    /// Variables that look like ours and are not read.
    unknown: Vec<UnknownJson>,
    /// The place that a launcher gave this process.
    place: Option<PlaceJson>,
    /// In the order in which they are looked for.
    launchers: Vec<&'static str>,
}

impl Kind for EnvironmentJson {
    const NAME: &'static str = "shunt-env";
    const VERSION: u32 = 1;
}

#[derive(JsonSchema, Serialize)]
struct VariableJson {
    name: &'static str,
    /// In force; `(hidden)` for a secret.
    value: Option<String>,
    /// `environment` or `default`.
    source: &'static str,
    default: Option<String>,
    meaning: String,
    values: String,
    error: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct UnknownJson {
    name: String,
    did_you_mean: Option<String>,
}

#[derive(JsonSchema, Serialize)]
struct PlaceJson {
    rank: u32,
    world: u32,
    by: &'static str,
}

fn as_json(lines: &[Line], others: &[Other], place: Option<&Job>) -> String {
    let variable = |line: &Line| {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let hidden = line.variable.name == SECRET && line.set.is_some();
        let value = line.set.clone().or_else(|| some(line.variable.default));
        VariableJson {
            name: line.variable.name,
            value: if hidden { Some("(hidden)".into()) } else { value },
            source: if line.set.is_some() { "environment" } else { "default" },
            default: some(line.variable.default),
            meaning: line.variable.meaning.clone(),
            values: line.variable.values.clone(),
            error: line.error.clone(),
        }
    };
    let unknown = |other: &Other| UnknownJson {
        name: other.name.clone(),
        did_you_mean: other.meant.map(str::to_owned),
    };
    print::document(EnvironmentJson {
        variables: lines.iter().map(variable).collect(),
        unknown: others.iter().map(unknown).collect(),
        place: place.map(|job| PlaceJson { rank: job.rank, world: job.world, by: job.launcher.name() }),
        launchers: Launcher::ALL.map(Launcher::name).to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(EnvironmentJson::NAME, &shunt_json::schema::<EnvironmentJson>());
    }

    #[test]
    fn each_variable_has_a_group_and_those_that_matter_exist() {
        for first in FIRST {
            assert!(known().any(|variable| variable.name == first), "{first} is read by nothing");
        }
        for variable in known() {
            assert!(place(variable.name).0 <= GROUPS.len(), "{}", variable.name);
        }
        assert_eq!((heading(0), heading(1), heading(9)), ("what most jobs need", "verbs programs", "others"));
        assert_eq!((place("SHUNT_NIC"), place("SHUNT_VERBS_RULE").0, place("SHUNT_MPL").0), ((0, 1), 1, 5));
    }

    #[test]
    fn typing_errors_find_their_name() {
        assert_eq!(nearest("SHUNT_BACKUP"), Some("SHUNT_BACKUPS"));
        assert_eq!(nearest("SHUNT_GIVEUP"), Some("SHUNT_GIVE_UP"));
        assert_eq!(nearest("NVSHMEM_HCA_PE_MAPING"), Some("NVSHMEM_HCA_PE_MAPPING"));
        assert_eq!(nearest("SHUNT_WHATEVER_ELSE"), None);
        assert_eq!(nearest("NVSHMEM_SYMETRIC_SIZE"), Some("NVSHMEM_SYMMETRIC_SIZE"));
        assert_eq!(nearest("NVSHMEM_WHATEVER_ELSE"), None);
    }

    /// Programs say at their start what nothing reads: their list of names is this command's.
    #[test]
    fn no_variable_of_this_command_is_unread_to_a_program() {
        assert_eq!(config::unread(known().map(|variable| variable.name.to_owned())), Vec::<String>::new());
        for name in config::ELSEWHERE {
            assert!(known().any(|variable| variable.name == *name), "{name} is read by nothing");
        }
    }
}
