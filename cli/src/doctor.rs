//! `shunt doctor`: what this machine has, what is missing and what to do.

use crate::files::Root;
use crate::first_day::{self, Found};
use crate::print::{self, wrap};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use shunt_doctor::{Area, Check, Machine, Verdict, examine};
use shunt_host::config::EnvConfig;
use shunt_host::discover::discover;
use shunt_host::error::NicError;
use shunt_host::topology::{self, select::Selection};
use shunt_json::Kind;
use shunt_soft_devx::{FenceProof, prove_on_soft_nic};

/// Check what this machine has for GPU-initiated RDMA, what is missing, and say what to do.
///
/// Reads files; of this machine, not of a copy, it also loads libibverbs and libmlx5 and opens each NIC once, to ask
/// what it can do. Nothing is changed.
#[derive(Args)]
#[command(after_help = "\
ok: as it should be; warn: works, less well than it could; missing: hardware cannot be used like this; \
look: cannot be read from here; n/a: says nothing on this machine.
Exit status: 0 if the soft NIC can be used, which needs none of this; 1 if --fence found that the fence does not hold, \
or with --hardware if something is missing, or with --first-day if a row failed; 2 if a variable or an argument makes \
no sense.")]
pub struct Arguments {
    #[command(flatten)]
    root: Root,
    /// Exit with 1 if something that hardware needs is missing.
    #[arg(long)]
    hardware: bool,
    /// Run the proof that a NIC's own count of executed requests is the truth after a fence.
    #[arg(long)]
    fence: bool,
    /// One JSON object.
    #[arg(long, conflicts_with = "first_day")]
    json: bool,
    #[command(flatten)]
    first_day: first_day::Arguments,
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    let root = match arguments.root.open() {
        Ok(root) => root,
        Err(error) => return print::usage(&error),
    };
    let lookup = |name: &str| std::env::var(name).ok();
    let (selection, config) = match (Selection::from_lookup(&lookup), EnvConfig::from_lookup(&lookup)) {
        (Ok(selection), Ok(config)) => (selection, config),
        (Err(error), _) | (_, Err(error)) => return print::usage(&error),
    };
    let inventory = discover(&root);
    let topology = match topology::rank(&inventory, &selection, config.backups) {
        Ok(topology) => topology,
        Err(error) => return print::usage(&error),
    };
    let (inventory, topology) = (&inventory, &topology);
    let machine = Machine { root: &root, lookup: &lookup, inventory, topology, selection: &selection };
    let checks = examine(&machine);
    if let Err(error) = arguments.root.keep(&root) {
        return print::usage(&error);
    }
    if arguments.first_day.asked() {
        return first_day::run(
            &arguments.first_day,
            &Found { root: &root, inventory, topology, checks: &checks },
        );
    }
    let fence = arguments.fence.then(prove_on_soft_nic);
    let broken = fence.as_ref().is_some_and(|fence| !fence_holds(fence));
    let missing = checks.iter().any(|check| check.verdict == Verdict::Missing);
    let status = u8::from(broken || (arguments.hardware && missing));
    let rails: Vec<&str> = topology.rails.iter().map(|rail| rail.name.as_str()).collect();
    let out = match arguments.json {
        true => json_object(&checks, fence.as_ref(), &rails),
        false => words(&checks, fence.as_ref(), &rails, &headline(&root)),
    };
    print::stdout(&out, status)
}

fn headline(root: &shunt_host::discover::SysRoot) -> String {
    let what = if root.is_machine() { "this machine" } else { "a copy of a machine's files" };
    format!(
        "{what}; the soft NIC needs none of the following: the checks say what a ConnectX and a GPU need\n"
    )
}

fn fence_holds(fence: &Result<FenceProof, NicError>) -> bool {
    fence.as_ref().is_ok_and(|proof| proof.holds && proof.liar_caught)
}

fn words(
    checks: &[Check],
    fence: Option<&Result<FenceProof, NicError>>,
    rails: &[&str],
    head: &str,
) -> String {
    let mut out = head.to_owned();
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or(0);
    for area in [Area::Nic, Area::Gpu, Area::System, Area::Fabric] {
        out += &format!("\n{area}\n");
        for check in checks.iter().filter(|check| check.area == area) {
            let first = format!("  {:<7}  {:<width$}  ", check.verdict, check.name);
            out += &wrap(&check.met, &first, &" ".repeat(first.chars().count()));
            if !check.fix.is_empty() {
                let indent = " ".repeat(width + 13);
                out += &wrap(&check.fix, &format!("{}-> ", &indent[..width + 13]), &format!("{indent}   "));
            }
        }
    }
    if let Some(fence) = fence {
        out += "\nfence\n";
        out += &fence_words(fence);
        for rail in rails {
            out +=
                &format!("  n/a      {rail}: not proved here: every rail is, when it is opened for a run\n");
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let hint = if fence.is_some() { "" } else { " (--fence proves its fence)" };
    out + &format!(
        "\nhardware: {} missing, {} warnings, {} to look at; soft NIC: can be used{hint}\n",
        count(Verdict::Missing),
        count(Verdict::Warn),
        count(Verdict::ByHand)
    )
}

fn fence_words(fence: &Result<FenceProof, NicError>) -> String {
    let proof = match fence {
        Ok(proof) => proof,
        Err(error) => {
            return wrap(&error.to_string(), "  broken   soft NIC: the proof could not run: ", "           ");
        }
    };
    let verdict = |good: bool| if good { "ok     " } else { "broken " };
    let says = if proof.holds { "holds" } else { "does not hold" };
    let mut out = wrap(
        &format!("soft NIC: {says}: {}", proof.detail),
        &format!("  {}  ", verdict(proof.holds)),
        "           ",
    );
    out += &wrap(
        "one request of each kind on a loopback pair, the responder moved to ERR, its count read before, after, and \
         once more behind a placement flush",
        "           done: ",
        "                 ",
    );
    let caught = if proof.liar_caught { "seen through" } else { "NOT seen through" };
    out + &wrap(
        &format!("a soft NIC that forgets its count at 2ERR: {caught}: {}", proof.liar_detail),
        &format!("  {}  ", verdict(proof.liar_caught)),
        "           ",
    )
}

/// What `shunt doctor --json` writes.
#[derive(JsonSchema, Serialize)]
struct Examined {
    checks: Vec<CheckJson>,
    /// With `--fence`.
    fence: Option<FenceJson>,
}

impl Kind for Examined {
    const NAME: &'static str = "shunt-doctor";
    const VERSION: u32 = 1;
}

#[derive(JsonSchema, Serialize)]
struct CheckJson {
    area: String,
    name: &'static str,
    /// `ok`, `warn`, `missing`, `look` or `n/a`.
    verdict: String,
    found: String,
    /// What to do; empty where nothing is to be done.
    fix: String,
}

/// The proof of the fence.
#[derive(JsonSchema, Serialize)]
struct FenceJson {
    on: &'static str,
    holds: bool,
    detail: String,
    /// A NIC that forgets its count failed the proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    forgetful_nic_caught: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forgetful_nic_detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_us: Option<u64>,
    /// Rails of this machine, which are proved when they are opened for a run.
    not_proved: Vec<String>,
}

impl FenceJson {
    fn new(fence: &Result<FenceProof, NicError>, rails: &[&str]) -> Self {
        let not_proved = rails.iter().map(|&rail| rail.to_owned()).collect();
        let (on, proof) = ("soft NIC", fence.as_ref().ok());
        let detail = fence.as_ref().map_or_else(ToString::to_string, |proof| proof.detail.clone());
        Self {
            on,
            holds: proof.is_some_and(|proof| proof.holds),
            detail,
            forgetful_nic_caught: proof.map(|proof| proof.liar_caught),
            forgetful_nic_detail: proof.map(|proof| proof.liar_detail.clone()),
            took_us: proof.map(|proof| proof.took_us),
            not_proved,
        }
    }
}

fn json_object(checks: &[Check], fence: Option<&Result<FenceProof, NicError>>, rails: &[&str]) -> String {
    let check = |check: &Check| CheckJson {
        area: check.area.to_string(),
        name: check.name,
        verdict: check.verdict.to_string(),
        found: check.met.clone(),
        fix: check.fix.clone(),
    };
    let checks = checks.iter().map(check).collect();
    print::document(Examined { checks, fence: fence.map(|fence| FenceJson::new(fence, rails)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_kept() {
        shunt_json::kept(Examined::NAME, &shunt_json::schema::<Examined>());
    }
}
