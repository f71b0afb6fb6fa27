//! The program: what is printed, what is written, and the exit status.

use crate::cluster::{oversubscribed, threads};
use crate::options::{Mode, OnOff, Options};
use crate::outputs::Outputs;
use crate::plot;
use crate::progress::{Progress, say, stdout_error};
use crate::report::{Ended, Report, Verdict};
use crate::runner::{self, TableError};
use crate::table;
use crate::units::{show_size, show_time};
use clap::ValueEnum;
use shunt_soft_nic::FaultKind;
use std::io::IsTerminal;

/// A promise was broken, a fault was not exercised, or the run could not be made at all.
const BROKEN: u8 = 1;
/// The command line cannot be honoured.
const USAGE: u8 = 2;
/// No path left.
const NO_PATH: u8 = 3;

/// Runs what the command line asks for; answers with the exit status. Output that could not be written is
/// never status 0.
pub fn run(options: &Options) -> u8 {
    let status = dispatch(options);
    match stdout_error() {
        Some(error) => {
            eprintln!("error: stdout: {error}");
            status.max(BROKEN)
        }
        None => status,
    }
}

fn dispatch(options: &Options) -> u8 {
    if options.list_faults {
        list_faults();
        return 0;
    }
    let outputs = match Outputs::open(options.json.as_deref(), options.plot.as_deref()) {
        Ok(outputs) => outputs,
        Err(error) => {
            eprintln!("{error}");
            return USAGE;
        }
    };
    if options.threads_per_cta > 1 {
        say!("-t {}: with --device cpu a block is one lane", options.threads_per_cta);
    }
    let table_status = if options.iterations > 0 { print_table(options) } else { 0 };
    if table_status != 0 {
        return table_status;
    }
    introduce(options);
    match runner::stream(options, &Progress::shown()) {
        Ok(raw) => conclude(outputs, &Report::new(raw)),
        Err(error) => {
            eprintln!("error: the PEs did not come up: {error}");
            BROKEN
        }
    }
}

/// What rkey-revoked and some of cqe-error end in, whatever paths there are.
const PROGRAM_ERRORS: &str = "\
rkey-revoked (syndrome 0x13) and cqe-error with 0x01, 0x02, 0x04, 0x12 or 0x13 look like errors of the
program: they would fail on every path alike, so the channel fails at once, no other path is tried,
exit status 3";

fn list_faults() {
    say!("<time>:<pe>.<rail>:<fault>   [=T], [/T]: for how long, for ever if absent");
    for info in FaultKind::LIST {
        let mark = if info.sabotage { "SABOTAGE: " } else { "" };
        say!("  {:<26} {mark}{}", info.syntax, info.meaning);
    }
    say!("{PROGRAM_ERRORS}");
}

fn print_table(options: &Options) -> u8 {
    say!("{}", table::header(oversubscribed(options)));
    let machine = std::env::var("NVSHMEM_MACHINE_READABLE_OUTPUT").is_ok_and(|value| value == "1");
    let rows = runner::table(options, |row| {
        say!("{}", table::line(row));
        if machine {
            say!("{}", table::machine_line(row));
        }
    });
    match rows {
        Ok(rows) if rows.iter().all(|row| row.intact) => 0,
        Ok(_) => {
            eprintln!("error: a row of the table left wrong bytes at its target");
            BROKEN
        }
        Err(TableError::Ended(ended @ Ended::Failed(..))) => {
            eprintln!("error: {ended}");
            NO_PATH
        }
        Err(error) => {
            eprintln!("error: {error}");
            BROKEN
        }
    }
}

/// As it is written on the command line.
fn name(mode: Mode) -> String {
    mode.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn introduce(options: &Options) {
    // Apart from the table, if there is one.
    let gap = if options.iterations > 0 { "\n" } else { "" };
    let puts = match options.mode {
        Mode::Signal => "signal: monotone signals alone".to_owned(),
        mode => format!("{} of {} with monotone signals", name(mode), show_size(options.put_size())),
    };
    say!(
        "{gap}stream: {} PEs, {} rails each at {} Gb/s, {} channel(s), {puts}, \
         window {}, {};\n\
         fault tolerance {}; verify {}; seed {}; {} threads",
        options.pes,
        options.rails,
        options.rail_gbps,
        options.ctas,
        options.window,
        show_time(options.duration),
        if options.ft == OnOff::On { "on" } else { "off" },
        if options.verify == OnOff::On { "on" } else { "off" },
        options.seed,
        threads(options)
    );
    for injection in &options.inject {
        let mark = if injection.kind.is_sabotage() { "sabotage" } else { "fault" };
        say!("{mark}: {injection}");
    }
}

fn conclude(outputs: Outputs, report: &Report) -> u8 {
    let terminal = std::io::stdout().is_terminal();
    say!("\n{}\n", plot::text(&report.timeline, 100, terminal));
    for switch in &report.switches {
        say!("{switch}");
    }
    if !report.switches.is_empty() {
        say!("");
    }
    say!("{}", summary(report));
    if let Verdict::Failed(why, text) = &report.judged {
        eprintln!("error: {why}: {text}");
    }
    let mut status = report.judged.exit_status();
    for error in outputs.write(|| json(report), || plot::svg(report)) {
        eprintln!("error: {error}");
        status = status.max(BROKEN);
    }
    status
}

fn json(report: &Report) -> String {
    // Plain structures with string keys: serialisation has no way to fail.
    serde_json::to_string_pretty(report).expect("a report serialises")
}

fn summary(report: &Report) -> String {
    let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{rate:.3} GB/s"));
    let mut text = format!(
        "bytes posted {}  delivered {}  puts lost {}\n\
         signals posted {}  applied {}  duplicated {}  uncertain {}\n\
         order violations {}  ghost writes {}\nfailovers {}  switch-backs {}  longest gap {}\n\
         before the first fault {}  after the last switch-back {}  ({}; oversubscribed: {})\n",
        report.bytes_posted,
        report.bytes_delivered,
        report.puts_lost,
        report.signals_posted,
        report.signals_applied,
        report.signals_duplicated,
        report.uncertain,
        report.order_violations,
        report.ghost_writes,
        report.failovers,
        report.switchbacks,
        show_time((report.max_gap_us * 1e3) as u64),
        rate(report.gb_s_before),
        rate(report.gb_s_after),
        report.clock,
        if report.oversubscribed { "yes" } else { "no" }
    );
    for fault in &report.faults {
        text += &format!("fault {} ms {} {}: {} hits\n", fault.at_ms, fault.place, fault.kind, fault.hits);
    }
    text += &match &report.judged {
        Verdict::Clean => "verdict: clean".to_owned(),
        Verdict::Broken(what) => format!("verdict: BROKEN: {}", what.join("; ")),
        Verdict::NotExercised(what) => format!("verdict: not exercised: {}", what.join(", ")),
        Verdict::Failed(why, _) => format!("verdict: {why}"),
    };
    text
}
