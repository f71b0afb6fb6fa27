//! A program from its command line to its exit status.

use crate::alike::{Alike, option};
use crate::options::NicOptions;
use crate::place;
use anyhow::Result;
use clap::Parser;
use shunt::host::events::{Logging, flush_log, timelines};
use shunt_figures::outputs::Outputs;
use shunt_figures::say;
use shunt_figures::stdout::stdout_error;
use shunt_transfer::{NoNode, Source};
use std::fmt::Display;
use std::process::ExitCode;

/// No program has more ends.
const ENDS_MAX: u32 = 128;

/// What a program's options say of themselves.
pub trait Checked: Parser {
    /// Those that all programs have.
    fn nics(&self) -> &NicOptions;

    /// What is wrong with them, if something is.
    ///
    /// # Errors
    /// What was expected, and what was typed.
    fn check(&self) -> Result<(), String>;

    /// Those of its own that all ends of a run must have alike.
    fn own_alike(&self) -> Alike;

    /// All that all ends of a run must have alike.
    fn alike(&self) -> Alike {
        [vec![option("--rails", &self.nics().rails)], self.own_alike()].concat()
    }

    /// Whether rows of a table are made, on each number of rails of a list.
    fn makes_rows(&self) -> bool {
        false
    }
}

/// What came of a run.
pub struct Outcome {
    /// The verdict, JSON.
    pub text: String,
    /// Whether this process says and writes it for all.
    pub is_first: bool,
    /// Whether it is printed: a table was, row by row.
    pub is_printed: bool,
    /// 0 clean, 1 broken, 3 a peer was lost.
    pub status: u8,
    /// Why it is not clean: a sentence for standard error. Empty where it is, or where it was said already.
    pub why: String,
}

/// What a verdict's word comes to: 0 clean, 3 where no rail was left or the fate of a write is not known, else 1.
pub fn exit_status(verdict: &str) -> u8 {
    match verdict {
        "clean" => 0,
        "peer lost" | "uncertain" => 3,
        _ => 1,
    }
}

/// Answers `--man` and completions, reads and checks the options, runs, and tells what came of it. Exit status 2 for
/// options that cannot be honoured, 1 for a run that failed, else the run's.
pub fn main<O: Checked>(run: impl FnOnce(&O, &Source) -> Result<Outcome>) -> ExitCode {
    if let Some(status) = shunt_pages::answered::<O>(std::env::args_os()) {
        return ExitCode::from(status);
    }
    shunt_json::begin::<O>();
    let options = match shunt_pages::parsed::<O>() {
        Ok(options) => options,
        Err(status) => return ExitCode::from(status),
    };
    let refused = |error: &dyn Display| {
        shunt::host::complain!("{error}");
        ExitCode::from(2)
    };
    let rails = if options.makes_rows() { Ok(()) } else { options.nics().check_rails() };
    if let Err(error) = rails.and_then(|()| options.check()) {
        return refused(&format!("error: {error}"));
    }
    // SAFETY: this is the first thread, and none was started yet: the log is the first to have one.
    unsafe { place::prepare(options.nics()) };
    if let Err(error) = Logging::install_if_asked() {
        return refused(&format!("error: {error}"));
    }
    // A run is not made for nothing: the file is tried before.
    let files = match Outputs::open(&[("--json", options.nics().json.as_deref())], &timelines(ENDS_MAX)) {
        Ok(files) => files,
        Err(error) => return refused(&error),
    };
    let source = match place::source(options.nics()) {
        Ok(source) => source,
        Err(error) => return refused(&format!("error: {error:#}")),
    };
    let told = run(&options, &source).and_then(|outcome| tell(O::command().get_name(), outcome, files));
    flush_log();
    match told {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            shunt::host::complain!("error: {error:#}");
            // What was typed or set makes no job, or asks what its transport cannot do.
            let is_usage = matches!(error.downcast_ref(), Some(NoNode::Refused(_) | NoNode::Job(_)));
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

fn tell(program: &str, outcome: Outcome, files: Outputs) -> Result<u8> {
    if outcome.is_first {
        if outcome.is_printed {
            say!("{}", outcome.text);
        }
        if !outcome.why.is_empty() {
            shunt::host::complain!("{program}: {}", outcome.why);
        }
        if let Some(lost) = stdout_error() {
            anyhow::bail!("stdout: {lost}");
        }
        let lost = files.write(|_| format!("{}\n", outcome.text));
        anyhow::ensure!(lost.is_empty(), "--json {}", lost.join("; "));
    }
    Ok(outcome.status)
}
