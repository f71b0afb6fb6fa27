//! `moe_pressure`: DeepEP's layer, of low latency or of normal mode, again and again, on all ranks, threads of one
//! process or processes, while rails fail; every byte of every layer is held against a plain reference.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`options`] | the command line |
//! | [`rank`] | one rank and its loop |
//! | [`trouble`] | which faults strike when; from the seed |
//! | [`part`] | what one process tells the others of its ranks |
//! | [`verdict`] | what came of it, in JSON and in one word; pure |
//! | [`run`] | one run |
//!
//! The crate owns the layers and their verdict. Ranks and NICs come from [`shunt_deep_ep_job`], the kernels of a layer
//! and the reference from [`shunt_deep_ep_bridge`]; it touches no queue pair.

pub mod options;
pub mod part;
pub mod rank;
pub mod run;
pub mod trouble;
pub mod verdict;

use options::MoeOptions;
use shunt_figures::outputs::Outputs;
use shunt_figures::plot::{self, Picture};
use shunt_figures::say;
use shunt_figures::stdout::stdout_error;
use shunt_host::events::{Logging, flush_log, timelines};
use shunt_json::Document;
use std::ffi::OsString;
use verdict::{BROKEN, MoeReport, USAGE};

/// The program: answers with its exit status.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    shunt_json::begin::<MoeOptions>();
    let options = match MoeOptions::read(arguments) {
        Ok(options) => options,
        Err((text, status)) => {
            if status == 0 {
                say!("{}", text.trim_end());
                return if stdout_error().is_some() { BROKEN } else { 0 };
            }
            shunt_host::complain!("{}", text.trim_end());
            return status;
        }
    };
    if let Err(error) = Logging::install_if_asked() {
        shunt_host::complain!("error: {error}");
        return USAGE;
    }
    if !options.is_first() {
        let outcome = run::run(&options);
        flush_log();
        return match outcome {
            Ok(report) => report.exit_status(),
            Err(error) => {
                shunt_host::complain!("error: {error}");
                error.exit_status()
            }
        };
    }
    let wanted = [("--json", options.json.as_deref()), ("--plot", options.plot.as_deref())];
    let outputs = match Outputs::open(&wanted, &timelines(options.ranks)) {
        Ok(outputs) => outputs,
        Err(error) => {
            shunt_host::complain!("{error}");
            return USAGE;
        }
    };
    say!("{}", options.describe());
    let outcome = run::run(&options);
    flush_log();
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            shunt_host::complain!("error: {error}");
            return error.exit_status();
        }
    };
    say!("{report}");
    written(outputs, &report)
}

/// Writes what was asked for; the exit status.
fn written(outputs: Outputs, report: &MoeReport) -> u8 {
    let mut status = report.exit_status();
    let json = || Document::new(report.clone()).pretty();
    let picture = || {
        let caption = format!(
            "MoE layers, payload in GB/s per 10 ms; {} ranks; {}; seed {}; oversubscribed: {}",
            report.ranks,
            report.clock,
            report.seed,
            if report.oversubscribed { "yes" } else { "no" }
        );
        plot::draw(&Picture { caption, bins: &report.timeline, faults: &report.faults })
    };
    for error in outputs.write(|option| if option == "--json" { json() } else { picture() }) {
        shunt_host::complain!("error: {error}");
        status = status.max(BROKEN);
    }
    if let Some(error) = stdout_error() {
        shunt_host::complain!("error: stdout: {error}");
        status = status.max(BROKEN);
    }
    status
}
