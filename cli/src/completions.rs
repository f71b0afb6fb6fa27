//! `shunt completions` and `shunt man`: what clap knows of the commands, for shells and for `man`.

use crate::print;
use clap::{Args, CommandFactory};
use shunt_pages::Shell;
use std::path::PathBuf;

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
    print::stdout(&shunt_pages::completions::<C>(arguments.shell), 0)
}

/// Writes them; gives the exit status.
pub fn man<C: CommandFactory>(arguments: &Man) -> u8 {
    match shunt_pages::write_man::<C>(&arguments.folder) {
        Ok(()) => 0,
        Err(error) => {
            let folder = arguments.folder.display();
            shunt_host::complain!(
                "error: {folder}: {error}; name a folder that exists or can be made, and may be written"
            );
            1
        }
    }
}
