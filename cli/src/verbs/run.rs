//! `shunt verbs run`: becomes the program, with the library in its environment.

use super::install;
use crate::print;
use crate::run::lookup;
use crate::soft_rdma::elf;
use clap::Args;
use shunt_verbs::settings::Mode;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Run a program whose reliable connections outlive a NIC.
///
/// The program is this process from then on. Both ends of a connection must run like this, on one machine or, with
/// SHUNT_VERBS_STORE, on two. What is protected, and what is not and why, is told by `shunt verbs status`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  shunt verbs run -- ib_write_bw -d mlx5_0
  shunt verbs run --mode observe -- ibv_rc_pingpong -d mlx5_0 -g 0
Static programs, and programs that run with another user's rights, are refused.
Exit status: the program's; 2 if it was not started.")]
pub struct Arguments {
    /// What is done for the program: on, observe (calls are counted), off [default: SHUNT_VERBS, or on]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<Mode>,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROG ARGS")]
    command: Vec<OsString>,
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::parse(text).ok_or_else(|| "expected one of on, observe, off".into())
}

/// Becomes the program; comes back with an exit status only if that fails.
pub fn run(arguments: &Arguments) -> u8 {
    let lookup = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    // Said now, not from inside a program whose output somebody reads by machine.
    let settings = match shunt_verbs::settings::Settings::read(&lookup) {
        Ok(settings) => settings,
        Err(error) => return print::usage(&error),
    };
    if let Err(error) = shunt_verbs_directory::check(&settings.store) {
        return print::usage(&error);
    }
    let program = match lookup::find(&arguments.command[0]) {
        Ok(program) => program,
        Err(error) => return print::usage(&error),
    };
    if let Err(error) = elf::check(&program) {
        return print::usage(&error);
    }
    let library = match install::of_this_user() {
        Ok(library) => library,
        Err(error) => return print::usage(&error),
    };
    let mut command = Command::new(&program);
    command.args(&arguments.command[1..]).arg0(&arguments.command[0]);
    command.env("LD_PRELOAD", install::preload(&library));
    if let Some(mode) = arguments.mode {
        command.env("SHUNT_VERBS", mode.name());
    }
    let cause = command.exec();
    print::usage(&format!("{program:?} cannot be started: {cause}"))
}
