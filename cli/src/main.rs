//! `shunt`: the operator's program. Each subcommand is a file; this one parses and exits.

use clap::{Parser, Subcommand};
use std::process::ExitCode;

mod completions;
mod doctor;
mod env;
mod files;
mod first_day;
mod libraries;
mod path;
mod print;
mod run;
mod soft_rdma;
mod status;
mod store;
mod topology;
mod verbs;
mod view;

/// GPU-initiated RDMA that survives its NIC: the operator's tools.
#[derive(Parser)]
#[command(name = "shunt", version, disable_help_subcommand = true, max_term_width = 80)]
#[command(after_help = "Exit status: 0 clean, 1 a promise was broken or a run failed, 2 bad usage, \
                        3 no path left or a peer lost.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Topology(topology::Arguments),
    Doctor(doctor::Arguments),
    Env(env::Arguments),
    Status(status::Arguments),
    View(view::Arguments),
    Completions(completions::Completions),
    #[command(hide = true)]
    Man(completions::Man),
    #[command(subcommand)]
    Path(path::Command),
    #[command(name = "soft-rdma", subcommand)]
    SoftRdma(soft_rdma::Command),
    #[command(subcommand)]
    Verbs(verbs::Command),
    #[command(subcommand)]
    Store(store::Command),
}

fn main() -> ExitCode {
    shunt_json::begin::<Cli>();
    let command = match shunt_pages::parsed::<Cli>() {
        Ok(Cli { command }) => command,
        Err(status) => return ExitCode::from(status),
    };
    ExitCode::from(match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Topology(arguments) => topology::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Env(arguments) => env::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::View(arguments) => view::run(&arguments),
        Command::Completions(arguments) => completions::completions::<Cli>(&arguments),
        Command::Man(arguments) => completions::man::<Cli>(&arguments),
        Command::Path(command) => path::run(&command),
        Command::SoftRdma(command) => soft_rdma::run(&command),
        Command::Verbs(command) => verbs::run(&command),
        Command::Store(command) => store::run(&command),
    })
}
