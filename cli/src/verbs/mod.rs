//! `shunt verbs`: unmodified verbs programs whose reliable connections outlive a NIC.

mod install;
mod run;
mod status;

use clap::Subcommand;

/// Run unmodified verbs programs so that their reliable connections outlive a NIC.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  shunt verbs run -- ib_write_bw -d mlx5_0
  shunt soft-rdma run --nics 2 -- shunt verbs run -- ib_send_bw -d mlx5_0
  shunt verbs install DIR; LD_PRELOAD=DIR/libibverbs.so.1 PROG
  shunt verbs status")]
pub enum Command {
    Run(run::Arguments),
    Install(install::Arguments),
    Env(install::EnvArguments),
    Status(status::Arguments),
}

/// Runs it; gives the exit status.
pub fn run(command: &Command) -> u8 {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Install(arguments) => install::run(arguments),
        Command::Env(arguments) => install::env(arguments),
        Command::Status(arguments) => status::run(arguments),
    }
}
