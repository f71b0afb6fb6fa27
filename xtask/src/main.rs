//! The project's tasks. Each is one file with its own help; `cargo xtask` alone lists them.

mod abi;
mod bindings;
#[cfg(feature = "bindings")]
mod bindings_generate;
mod check;
mod ci;
mod docs;
mod explore;
mod first_day;
mod fuzz;
mod gpu;
mod mutate;
mod netns;
mod night;
mod prefix;
mod profiles;
mod ptx;
mod python;
mod pyverbs;
mod refusals;
mod run_scenarios;
mod scenarios;
mod scenarios_list;
mod sh;
mod soak;
mod soft_rdma;
mod soft_rdma_cases;
mod swarm;
mod tidy;
mod tidy_source;
mod transport;

use std::process::ExitCode;

/// One task: its name, a line for the list, its full help, and what it does with its arguments.
struct Task {
    name: &'static str,
    summary: &'static str,
    help: &'static str,
    run: fn(&[String]) -> anyhow::Result<()>,
}

const TASKS: &[Task] = &[
    Task { name: "ci", summary: ci::SUMMARY, help: ci::HELP, run: ci::run },
    Task { name: "check", summary: check::SUMMARY, help: check::HELP, run: check::run },
    Task { name: "tidy", summary: tidy::SUMMARY, help: tidy::HELP, run: tidy::run },
    Task { name: "abi", summary: abi::SUMMARY, help: abi::HELP, run: abi::run },
    Task { name: "docs", summary: docs::SUMMARY, help: docs::HELP, run: docs::run },
    Task { name: "bindings", summary: bindings::SUMMARY, help: bindings::HELP, run: bindings::run },
    Task { name: "swarm", summary: swarm::SUMMARY, help: swarm::HELP, run: swarm::run },
    Task { name: "explore", summary: explore::SUMMARY, help: explore::HELP, run: explore::run },
    Task { name: "fuzz", summary: fuzz::SUMMARY, help: fuzz::HELP, run: fuzz::run },
    Task { name: "night", summary: night::SUMMARY, help: night::HELP, run: night::run },
    Task { name: "mutate", summary: mutate::SUMMARY, help: mutate::HELP, run: mutate::run },
    Task { name: "profiles", summary: profiles::SUMMARY, help: profiles::HELP, run: profiles::run },
    Task { name: "prefix", summary: prefix::SUMMARY, help: prefix::HELP, run: prefix::run },
    Task { name: "soft-rdma", summary: soft_rdma::SUMMARY, help: soft_rdma::HELP, run: soft_rdma::run },
    Task { name: "soak", summary: soak::SUMMARY, help: soak::HELP, run: soak::run },
    Task { name: "pyverbs", summary: pyverbs::SUMMARY, help: pyverbs::HELP, run: pyverbs::run },
    Task { name: "transport", summary: transport::SUMMARY, help: transport::HELP, run: transport::run },
    Task { name: "ptx", summary: ptx::SUMMARY, help: ptx::HELP, run: ptx::run },
    Task { name: "gpu", summary: gpu::SUMMARY, help: gpu::HELP, run: gpu::run },
];

fn main() -> ExitCode {
    if let Some(status) = fuzz::as_compiler() {
        return status;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asks_for_help = |arg: &String| arg == "--help" || arg == "-h" || arg == "help";
    let Some(task) = args.first().and_then(|name| TASKS.iter().find(|task| task.name == *name)) else {
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
    for task in TASKS {
        println!("  {:9} {}", task.name, task.summary);
    }
}
