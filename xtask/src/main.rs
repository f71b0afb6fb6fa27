//! The project's tasks. Each is one file with its own help; `cargo xtask` alone lists them.

mod aarch64;
mod abi;
mod bindings;
#[cfg(feature = "bindings")]
mod bindings_generate;
mod bindings_home;
mod check;
mod ci;
mod docs;
mod doors;
mod explore;
mod facade;
mod first_day;
mod fuzz;
mod library;
mod links;
mod modules;
mod mutate;
mod netns;
mod night;
mod pages;
mod profiles;
mod python;
mod refusals;
mod run_scenarios;
mod scenarios;
mod scenarios_list;
mod sentences;
mod swarm;
mod test;
mod tidy;
mod tidy_source;
#[cfg(test)]
mod trees;
mod verbs_hosts;
mod wheels;
mod words;

use shunt_task::{Task, sh};
use std::process::ExitCode;

/// Those of this package.
const TASKS: &[Task] = &[
    Task { name: "check", summary: check::SUMMARY, help: check::HELP, run: check::run },
    Task { name: "test", summary: test::SUMMARY, help: test::HELP, run: test::run },
    Task { name: "ci", summary: ci::SUMMARY, help: ci::HELP, run: ci::run },
    Task { name: "night", summary: night::SUMMARY, help: night::HELP, run: night::run },
    Task { name: "tidy", summary: tidy::SUMMARY, help: tidy::HELP, run: tidy::run },
    Task { name: "abi", summary: abi::SUMMARY, help: abi::HELP, run: abi::run },
    Task { name: "docs", summary: docs::SUMMARY, help: docs::HELP, run: docs::run },
    Task { name: "bindings", summary: bindings::SUMMARY, help: bindings::HELP, run: bindings::run },
    Task { name: "swarm", summary: swarm::SUMMARY, help: swarm::HELP, run: swarm::run },
    Task { name: "explore", summary: explore::SUMMARY, help: explore::HELP, run: explore::run },
    Task { name: "fuzz", summary: fuzz::SUMMARY, help: fuzz::HELP, run: fuzz::run },
    Task { name: "mutate", summary: mutate::SUMMARY, help: mutate::HELP, run: mutate::run },
    Task {
        name: "verbs-two-hosts",
        summary: verbs_hosts::SUMMARY,
        help: verbs_hosts::HELP,
        run: verbs_hosts::run,
    },
    Task { name: "profiles", summary: profiles::SUMMARY, help: profiles::HELP, run: profiles::run },
];

/// All of them.
fn tasks() -> impl Iterator<Item = &'static Task> {
    let tools =
        shunt_gpu_tool::TASKS.iter().chain(&shunt_soft_rdma_tool::TASKS).chain(&shunt_package_tool::TASKS);
    TASKS.iter().chain(tools).chain([&shunt_soak_tool::TASK])
}

fn main() -> ExitCode {
    if let Some(status) = fuzz::as_compiler() {
        return status;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asks_for_help = |arg: &String| arg == "--help" || arg == "-h" || arg == "help";
    let Some(task) = args.first().and_then(|name| tasks().find(|task| task.name == *name)) else {
        list();
        return match args.first() {
            None => ExitCode::SUCCESS,
            Some(first) if asks_for_help(first) => ExitCode::SUCCESS,
            Some(first) => {
                eprintln!("no task is called '{first}'");
                ExitCode::from(2)
            }
        };
    };
    if args[1..].iter().any(asks_for_help) {
        println!("cargo xtask {}", task.help);
        return ExitCode::SUCCESS;
    }
    match (task.run)(&args[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{} failed: {error:#}", task.name);
            ExitCode::from(sh::status_of(&error))
        }
    }
}

fn list() {
    println!("cargo xtask <task> [--help]\n");
    for task in tasks() {
        println!("  {:9} {}", task.name, task.summary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_usage_is_a_status_of_its_own() {
        for (name, args) in [
            ("ci", &["--only", "nonsense"][..]),
            ("ci", &["--only"]),
            ("tidy", &["extra"]),
            ("check", &["extra"]),
            ("abi", &["extra"]),
            ("gpu", &["--arch", "sm_10"]),
        ] {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            let task = tasks().find(|task| task.name == name).unwrap();
            assert_eq!(sh::status_of(&(task.run)(&args).unwrap_err()), 2, "{name} {args:?}");
        }
    }

    #[test]
    fn names_of_tasks_differ() {
        let mut names: Vec<&str> = tasks().map(|task| task.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
