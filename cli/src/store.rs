//! `shunt store`: where verbs programs of several machines find each other.

use crate::print;
use clap::{Args, Subcommand};
use shunt_verbs_directory::store::Store;
use std::net::SocketAddr;

/// Keep the place where verbs programs of several machines find each other.
#[derive(Subcommand)]
pub enum Command {
    Serve(Serve),
}

/// Serve the store until it is told to end.
///
/// Programs name it in SHUNT_VERBS_STORE. Each asks it once for each connection; those that have found each other go on
/// without it. All have the secret of SHUNT_SECRET or SHUNT_SECRET_FILE.
#[derive(Args)]
#[command(after_help = "\
Example:
  SHUNT_SECRET_FILE=~/.shunt-secret shunt store serve --listen 10.0.0.1:7700
  SHUNT_SECRET_FILE=~/.shunt-secret SHUNT_VERBS_STORE=tcp://10.0.0.1:7700 shunt verbs run -- ib_write_bw -d mlx5_0
Exit status: 1 if its address cannot be written, 2 if it cannot listen, or has no secret.")]
pub struct Serve {
    /// Address and port of this machine
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
}

/// Runs it; gives the exit status.
pub fn run(command: &Command) -> u8 {
    let Command::Serve(Serve { listen }) = command;
    let opened = Store::open(*listen).and_then(|store| store.address().map(|at| (store, at)));
    match opened {
        Ok((mut store, at)) => {
            let status = print::stdout(&format!("listens at {at}\n"), 0);
            if status != 0 {
                return status;
            }
            loop {
                store.carry_on(1000);
            }
        }
        Err(error) => print::usage(&error),
    }
}
