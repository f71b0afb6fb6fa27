//! `shunt soft-rdma`: RDMA devices for programs that know nothing of soft NICs.

pub(crate) mod elf;
mod fabric;
mod fault;
mod list;
mod run;

use clap::Subcommand;

/// Give unmodified RDMA programs soft NICs, and break those while they run.
#[derive(Subcommand)]
#[command(after_help = "\
Example, in two terminals:
  shunt soft-rdma run -- ib_write_bw -d mlx5_0 -D 10
  shunt soft-rdma run -- ib_write_bw -d mlx5_0 -D 10 localhost
and in a third, while they run:
  shunt soft-rdma list
  shunt soft-rdma fault --pid PID mlx5_0 down=300ms")]
pub enum Command {
    Run(run::Arguments),
    Fault(fault::Arguments),
    List(list::Arguments),
}

/// Runs it; gives the exit status.
pub fn run(command: &Command) -> u8 {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Fault(arguments) => fault::run(arguments),
        Command::List(arguments) => list::run(arguments),
    }
}
