//! `shunt completions` and `shunt man`: what clap knows of the commands, for shells and for `man`.

use crate::print;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// Print the completions of a shell: `source <(shunt completions bash)`
#[derive(Args)]
pub struct Completions {
    /// Shell
    shell: Shell,
}

/// Write a man page for each command
#[derive(Args)]
pub struct Man {
    /// Folder of the pages; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints them; gives the exit status.
pub fn completions<C: CommandFactory>(arguments: &Completions) -> u8 {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    let mut out = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut out);
    print::stdout(&String::from_utf8_lossy(&out), 0)
}

/// Writes them; gives the exit status.
pub fn man<C: CommandFactory>(arguments: &Man) -> u8 {
    match write(C::command(), &arguments.folder) {
        Ok(()) => 0,
        Err(error) => {
            let folder = arguments.folder.display();
            eprintln!(
                "error: {folder}: {error}; name a folder that exists or can be made, and may be written"
            );
            1
        }
    }
}

fn write(command: clap::Command, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)
}
