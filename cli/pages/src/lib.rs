//! What clap knows of a program's options: completions for shells, pages for `man`.
//!
//! A program with subcommands offers these as commands (`shunt completions`, `shunt man`). One without offers two
//! hidden options, which [`answered`] takes: `PROGRAM --completions SHELL` and `PROGRAM --man [DIR]`.
//!
//! [`parsed`] reads the options of every program: a help that cannot be written is told.

use clap::{CommandFactory, Parser, ValueEnum};
pub use clap_complete::Shell;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

mod man;

/// The completions of a shell for this program.
pub fn completions<C: CommandFactory>(shell: Shell) -> String {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes a page (roff, section 1) for this program, and one for each of its commands, into `folder`, which is made if
/// it is not there.
///
/// # Errors
///
/// Those of making the folder and of writing its files.
pub fn write_man<C: CommandFactory>(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    man::write(C::command(), folder)
}

/// Prints completions or a page if the arguments (the program's name first) ask for them, and gives the exit status: 0,
/// 1 where stdout takes no more, 2 for a shell that is unknown.
pub fn answered<C: CommandFactory>(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Option<u8> {
    Some(match asked::<C>(arguments)? {
        Ok(text) => {
            status_of(&io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()), 0)
        }
        Err(text) => {
            shunt_settings::complain!("{text}");
            2
        }
    })
}

/// The options of this process.
///
/// # Errors
/// The exit status, once [`shown`] has told what clap says instead.
pub fn parsed<C: Parser>() -> Result<C, u8> {
    C::try_parse().map_err(|error| shown(&error))
}

/// Tells what clap says: a help or a version on stdout, what was typed wrongly on stderr. The exit status: 0, or 2 for
/// the latter; 1 where stdout takes no more.
pub fn shown(error: &clap::Error) -> u8 {
    status_of(&error.print().and_then(|()| io::stdout().flush()), error.exit_code() as u8)
}

/// This status, or 1 for words that were lost: that is told. A reader that has seen enough and closed the pipe lost
/// none.
fn status_of(written: &io::Result<()>, status: u8) -> u8 {
    match written {
        Err(lost) if lost.kind() != io::ErrorKind::BrokenPipe => {
            shunt_settings::complain!("error: stdout: {lost}");
            1
        }
        _ => status,
    }
}

/// What they ask for; `Err` is a sentence for stderr.
fn asked<C: CommandFactory>(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Option<Result<String, String>> {
    let mut arguments = arguments.into_iter().skip(1);
    let first = arguments.next()?;
    let second = arguments.next();
    let second = second.as_ref().map(|word| word.as_ref().to_string_lossy().into_owned());
    match first.as_ref().to_str()? {
        "--man" => Some(second.map_or_else(page::<C>, |folder| pages::<C>(&folder))),
        "--completions" => Some(shell_of(second.as_deref()).map(completions::<C>)),
        _ => None,
    }
}

fn page<C: CommandFactory>() -> Result<String, String> {
    let out = man::page(C::command()).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn pages<C: CommandFactory>(folder: &str) -> Result<String, String> {
    let written = write_man::<C>(Path::new(folder));
    written.map(|()| String::new()).map_err(|error| format!("error: --man: {folder}: {error}; name a folder"))
}

fn shell_of(word: Option<&str>) -> Result<Shell, String> {
    let met = word.unwrap_or("nothing");
    Shell::from_str(met, false).map_err(|_| {
        let shells: Vec<String> = Shell::value_variants().iter().map(ToString::to_string).collect();
        format!("error: --completions: expected one of {}, got {met}", shells.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves bytes.
    #[derive(Parser)]
    #[command(name = "mover")]
    struct Mover {
        /// How many
        #[arg(long)]
        count: u32,
    }

    fn said(words: &[&str]) -> Option<Result<String, String>> {
        asked::<Mover>(words)
    }

    #[test]
    fn pages_and_completions_name_the_options() {
        for words in [
            &["mover", "--man"][..],
            &["mover", "--completions", "bash"],
            &["mover", "--completions", "fish"],
        ] {
            let text = said(words).expect("asked").expect("a page");
            assert!(text.contains("count"), "{words:?}: {text}");
        }
    }

    #[test]
    fn pages_are_written_into_a_folder_and_what_is_none_is_named() {
        let folder = std::env::temp_dir().join(format!("shunt-pages-{}", std::process::id()));
        let text = said(&["mover", "--man", &folder.display().to_string()]).expect("asked");
        assert_eq!(text, Ok(String::new()));
        assert!(std::fs::read_to_string(folder.join("mover.1")).expect("a page").contains("count"));
        std::fs::remove_dir_all(folder).expect("removed");
        let error = said(&["mover", "--man", "/dev/null/pages"]).expect("asked").expect_err("no folder");
        assert!(
            error.starts_with("error: --man: /dev/null/pages: ") && error.ends_with("name a folder"),
            "{error}"
        );
    }

    #[test]
    fn a_shell_that_clap_does_not_know_is_named() {
        let said_of = |words: &[&str]| said(words).expect("asked").expect_err("no such shell");
        assert!(said_of(&["mover", "--completions", "dash"]).ends_with("got dash"));
        assert!(said_of(&["mover", "--completions"]).ends_with("got nothing"));
    }

    #[test]
    fn words_that_are_lost_are_no_success_and_a_reader_that_left_lost_none() {
        let lost = |kind: io::ErrorKind| Err(io::Error::from(kind));
        let all = [Ok(()), lost(io::ErrorKind::BrokenPipe), lost(io::ErrorKind::StorageFull)];
        assert_eq!(all.each_ref().map(|written| status_of(written, 0)), [0, 0, 1]);
        assert_eq!(all.map(|written| status_of(&written, 2)), [2, 2, 1]);
    }

    #[test]
    fn other_arguments_are_the_programs_own() {
        assert!(said(&["mover"]).is_none());
        assert!(said(&["mover", "--count", "3"]).is_none());
        assert!(said(&["mover", "--count", "3", "--man"]).is_none());
    }
}
