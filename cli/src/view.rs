//! `shunt view`: event files as a page and as a trace.

use crate::files;
use crate::print;
use clap::Args;
use shunt_view::{events, html, trace};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Draw what happened in a job: channels, switches with their stages, rails
#[derive(Args)]
#[command(
    after_help = "Exit status: 0 written, 1 a file cannot be read or written, or holds no events, 2 bad usage.\n\
                        Events are written where the job has SHUNT_EVENTS=FILE; % in FILE is the number of the PE."
)]
pub struct Arguments {
    /// Event files of the PEs of one job
    #[arg(value_name = "EVENTS", required = true)]
    events: Vec<PathBuf>,
    /// Write the page here
    #[arg(short, long, value_name = "FILE.html")]
    out: PathBuf,
    /// Write a trace for Perfetto or chrome://tracing here
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
}

/// Runs it; gives the exit status.
pub fn run(arguments: &Arguments) -> u8 {
    match draw(arguments) {
        Ok(text) => print::stdout(&text, 0),
        Err(error) => {
            shunt_host::complain!("error: {error}");
            1
        }
    }
}

/// Device and inode of a regular file that is there.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let data = std::fs::metadata(path).ok().filter(|data| data.is_file())?;
    Some((data.dev(), data.ino()))
}

/// What would be written over, if something would.
fn clash(arguments: &Arguments) -> Option<String> {
    let outputs = [Some(("-o", &arguments.out)), arguments.trace.as_ref().map(|path| ("--trace", path))];
    let outputs: Vec<(&str, &PathBuf)> = outputs.into_iter().flatten().collect();
    let same = |one: &Path, other: &Path| {
        identity(one).map_or(one == other && !one.exists(), |one| identity(other) == Some(one))
    };
    for (option, path) in &outputs {
        if arguments.events.iter().any(|events| same(events, path)) {
            return Some(format!(
                "{option} {}: expected another file than those of events, got one of them",
                path.display()
            ));
        }
    }
    let [(_, one), (_, other)] = outputs.as_slice() else { return None };
    let both = format!("-o and --trace: expected two files, got {} for both", one.display());
    same(one, other).then_some(both)
}

fn draw(arguments: &Arguments) -> Result<String, String> {
    if let Some(clash) = clash(arguments) {
        return Err(clash);
    }
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!("{}: {error}; name the files that SHUNT_EVENTS of the job named", path.display())
        })?;
        Ok((path.display().to_string(), text))
    };
    // A file that is named twice is one.
    let mut seen = Vec::new();
    let fresh = |path: &&PathBuf| {
        let file = identity(path);
        let is_fresh = file.is_none() || !seen.contains(&file);
        seen.push(file);
        is_fresh
    };
    let files: Vec<(String, String)> =
        arguments.events.iter().filter(fresh).map(read).collect::<Result<_, String>>()?;
    let run = events::read(&files).map_err(|error| error.to_string())?;
    let mut written = vec![&arguments.out];
    files::save(&arguments.out, &html(&run)).map_err(|error| error.to_string())?;
    if let Some(path) = &arguments.trace {
        files::save(path, &trace(&run)).map_err(|error| error.to_string())?;
        written.push(path);
    }
    let verdict = run.verdict.map_or(String::new(), |(text, _)| format!(": {text}"));
    let names: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    Ok(format!("{}{verdict}\n", names.join(", ")))
}
