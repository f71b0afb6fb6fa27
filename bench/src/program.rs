//! The program: what is printed, what is written, and the exit status.

use crate::cluster::{find_gpu, find_queues, oversubscribed, threads};
use crate::job::Job;
use crate::job::processes::Processes;
use crate::job::threads::Threads;
use crate::nics::settle::settle;
use crate::nics::source::Source;
use crate::options::{DeviceKind, Mode, OnOff, Options, SignalKind};
use crate::page;
use crate::progress::Progress;
use crate::report::{Ended, Report, Verdict};
use crate::runner::{self, TableError};
use crate::table::{self, Row};
use clap::ValueEnum;
use shunt_figures::outputs::Outputs;
use shunt_figures::plot;
use shunt_figures::rail_stats::Spread;
use shunt_figures::say;
use shunt_figures::stdout::stdout_error;
use shunt_figures::units::{show_size, show_time};
use shunt_host::config::FenceMode;
use shunt_host::events::{Logging, flush_log, timelines};
use shunt_json::Document;
use shunt_soft_nic::fault;
use std::io::IsTerminal;
use std::time::Duration;

/// A promise was broken, a fault was not exercised, or the run could not be made at all.
const BROKEN: u8 = 1;
/// The command line cannot be honoured.
const USAGE: u8 = 2;
/// No path left.
const NO_PATH: u8 = 3;

/// Runs what the command line asks for; answers with the exit status. Output that could not be written is
/// never status 0.
pub fn run(options: &Options) -> u8 {
    if let Err(error) = Logging::install_if_asked() {
        shunt_host::complain!("error: {error}");
        return USAGE;
    }
    let status = dispatch(options);
    flush_log();
    match stdout_error() {
        Some(error) => {
            shunt_host::complain!("error: stdout: {error}");
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
    // Only who writes them opens them, and before anybody is kept waiting.
    let files = match options.job.as_ref().is_none_or(|place| place.rank == 0) {
        true => {
            let wanted = [
                ("--json", options.json.as_deref()),
                ("--plot", options.plot.as_deref()),
                ("--report", options.report.as_deref()),
                ("--trace", options.trace.as_deref()),
            ];
            Outputs::open(&wanted, &timelines(options.pes()))
        }
        false => Ok(Outputs::default()),
    };
    let outputs = match files {
        Ok(outputs) => outputs,
        Err(error) => {
            shunt_host::complain!("{error}");
            return USAGE;
        }
    };
    let (options, source) = match settle(options) {
        Ok(settled) => settled,
        Err(error) => {
            shunt_host::complain!("error: {error}");
            return error.exit_status();
        }
    };
    let (options, source) = (&options, &source);
    let gpu = match find_gpu(options) {
        Ok(gpu) => gpu,
        Err(error) => {
            shunt_host::complain!("error: --device gpu: {error}");
            return USAGE;
        }
    };
    if let Some(gpu) = &gpu {
        say!("kernels of the senders: {}", gpu.describe());
    }
    match find_queues(options, source, gpu.as_ref()) {
        Ok((_, said)) => said.iter().for_each(|said| say!("{said}")),
        Err(error) => {
            shunt_host::complain!("error: {error}");
            return USAGE;
        }
    }
    match &options.job {
        None => lead(options, source, &Threads::new(options.pes()), outputs),
        Some(place) => match Processes::join(options, place) {
            Err(refused) => {
                shunt_host::complain!("error: {refused}");
                refused.exit_status()
            }
            Ok(job) if place.rank == 0 => lead(options, source, &job, outputs),
            Ok(job) => follow(options, source, &job),
        },
    }
}

/// The process that prints, judges and writes.
fn lead(options: &Options, source: &Source, job: &dyn Job, outputs: Outputs) -> u8 {
    if options.threads_per_cta > 1 && options.device == DeviceKind::Cpu {
        say!("-t {}: with --device cpu a block is one lane", options.threads_per_cta);
    }
    let mut rows = Vec::new();
    let table_status = if options.iterations > 0 { print_table(options, source, job, &mut rows) } else { 0 };
    if table_status != 0 {
        return tell(job, table_status);
    }
    introduce(options, source);
    match runner::stream(options, source, job, &mut Progress::shown(options.watch)) {
        Ok(raw) => {
            let report = Report { table: rows, ..Report::new(raw) };
            tell(job, conclude(outputs, &report, options.watch))
        }
        Err(error) => {
            shunt_host::complain!("error: the PEs did not come up: {error}");
            tell(job, BROKEN)
        }
    }
}

/// How long a status is told, or awaited, beyond what a run may take.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Tells the others how it ended.
fn tell(job: &dyn Job, status: u8) -> u8 {
    job.conclude(status, LAST_WORD);
    status
}

/// A process that takes part and leaves the talking to rank 0, unless rank 0 is gone.
fn follow(options: &Options, source: &Source, job: &dyn Job) -> u8 {
    let (rank, world) = (job.rank(), options.processes());
    say!("rank {rank} of {world}: PE {rank}, {} rails; rank 0 prints", options.rails);
    let failed = |text: String| {
        shunt_host::complain!("error: rank {rank}: {text}");
        BROKEN
    };
    if options.iterations > 0
        && let Err(error) = runner::table(options, source, job, |_| ())
    {
        let lost = matches!(error, TableError::Ended(Ended::Failed(..)));
        let own = failed(error.to_string()).max(if lost { NO_PATH } else { BROKEN });
        return job.conclude(own, LAST_WORD).unwrap_or(own);
    }
    let raw = match runner::stream(options, source, job, &mut Progress::hidden()) {
        Ok(raw) => raw,
        Err(error) => {
            let own = failed(format!("the PEs did not come up: {error}"));
            return job.conclude(own, LAST_WORD).unwrap_or(own);
        }
    };
    // Rank 0 has as long to gather as any wait of its own may take.
    let patience = runner::longest_wait(options) + LAST_WORD;
    let ended = raw.ended.clone();
    if let Some(status) = job.conclude(0, patience) {
        if let (3, Some(Ended::Failed(why, text))) = (status, &ended) {
            shunt_host::complain!("error: rank {rank}: {why}: {text}");
        }
        return status;
    }
    let gone = job.gone(0).unwrap_or_else(|| "rank 0 gave no verdict in time".to_owned());
    match Verdict::weigh_alone(&raw) {
        Verdict::Failed(why, text) => shunt_host::complain!("error: rank {rank}: {why}: {text}"),
        Verdict::Broken(what) => {
            return failed(format!("{}; {gone}", what.join("; ")));
        }
        _ if job.gone(0).is_none() => return failed(gone),
        _ => shunt_host::complain!("error: rank {rank}: {gone}: no rank judges the run"),
    }
    NO_PATH
}

/// What rkey-revoked and some of cqe-error end in, whatever paths there are.
const PROGRAM_ERRORS: &str = "\
rkey-revoked (syndrome 0x13) and cqe-error with 0x01, 0x02, 0x04, 0x12 or 0x13 look like errors of the
program: they would fail on every path alike, so the channel fails at once, no other path is tried,
exit status 3";

fn list_faults() {
    say!("<time>:<pe>.<rail>:<fault>   [=T], [/T]: for how long; without it until the end");
    for info in fault::list().filter(|info| !info.whole_pe) {
        let mark = if info.sabotage { "SABOTAGE: " } else { "" };
        say!("  {:<26} {mark}{}", info.syntax, info.meaning);
    }
    say!("<time>:<pe>:<fault>   of a whole PE");
    for info in fault::list().filter(|info| info.whole_pe) {
        let mark = if info.sabotage { "SABOTAGE: " } else { "" };
        say!("  {:<26} {mark}{}", info.syntax, info.meaning);
    }
    say!("{PROGRAM_ERRORS}");
}

fn print_table(options: &Options, source: &Source, job: &dyn Job, rows: &mut Vec<Row>) -> u8 {
    say!("{}", table::header(source.medium(), oversubscribed(options)));
    let mut intact = true;
    let done = runner::table(options, source, job, |row| {
        say!("{}", table::line(row));
        if options.environment.machine_readable {
            say!("{}", table::machine_line(row));
        }
        intact &= row.intact;
        rows.push(*row);
    });
    match done {
        Ok(()) if intact => 0,
        Ok(()) => {
            shunt_host::complain!("error: a row of the table left wrong bytes at its target");
            BROKEN
        }
        Err(TableError::Ended(ended @ Ended::Failed(..))) => {
            shunt_host::complain!("error: {ended}");
            NO_PATH
        }
        Err(error) => {
            shunt_host::complain!("error: {error}");
            BROKEN
        }
    }
}

/// As it is written on the command line.
fn name(mode: Mode) -> String {
    mode.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn introduce(options: &Options, source: &Source) {
    // Apart from the table, if there is one.
    let gap = if options.iterations > 0 { "\n" } else { "" };
    let where_ = if options.job.is_some() { ", each a process" } else { "" };
    let signals = match options.signal {
        SignalKind::Monotone => "monotone signals",
        SignalKind::Cleared => "signals that are cleared",
        SignalKind::Add => "signals that add",
    };
    let puts = match options.mode {
        Mode::Signal => format!("signal: {signals} alone"),
        Mode::Amo => format!("amo: atomics with {signals}"),
        mode => format!("{} of {} with {signals}", name(mode), show_size(options.put_size())),
    };
    say!(
        "{gap}stream: {} PEs{where_}, {} rails each {}, {} channel(s), {puts}, \
         window {}, {};\n\
         fault tolerance {}; fence {}; verify {}; seed {}; {} threads",
        options.pes(),
        options.rails,
        source.describe(options),
        options.ctas,
        options.window,
        show_time(options.duration),
        if options.tolerant() { "on" } else { "off" },
        if options.fence() == FenceMode::Time { "time" } else { "strict" },
        if options.verify == OnOff::On { "on" } else { "off" },
        options.seed,
        threads(options)
    );
    for injection in &options.inject {
        let mark = if injection.fault.is_sabotage() { "sabotage" } else { "fault" };
        say!("{mark}: {injection}");
    }
}

fn conclude(outputs: Outputs, report: &Report, watched: bool) -> u8 {
    let terminal = std::io::stdout().is_terminal();
    say!("\n{}\n", plot::text(&report.timeline, 100, terminal));
    // The one that watched has seen them.
    if !watched && !report.switches.is_empty() {
        report.switches.iter().for_each(|switch| say!("{switch}"));
        say!("");
    }
    if !report.rails.is_empty() {
        say!("{}\n", Spread { phases: report.phases.clone(), rails: report.rails.clone() });
    }
    say!("{}", summary(report));
    if let Verdict::Failed(why, text) = &report.judged {
        shunt_host::complain!("error: {why}: {text}");
    }
    let mut status = report.judged.exit_status();
    let text = |option| match option {
        "--json" => json(report),
        "--plot" => plot::draw(&report.picture()),
        "--trace" => shunt_view::trace(&page::run(report)),
        _ => shunt_view::html(&page::run(report)),
    };
    for error in outputs.write(text) {
        shunt_host::complain!("error: {error}");
        status = status.max(BROKEN);
    }
    status
}

fn json(report: &Report) -> String {
    Document::new(report.clone()).pretty()
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
        report.signals_duplicated.map_or("unknown".to_owned(), |count| count.to_string()),
        report.uncertain,
        report.order_violations,
        report.ghost_writes,
        report.failovers,
        report.switchbacks,
        report.max_gap_us.map_or("-".to_owned(), |gap_us| show_time((gap_us * 1e3) as u64)),
        rate(report.gb_s_before),
        rate(report.gb_s_after),
        report.clock,
        if report.oversubscribed { "yes" } else { "no" }
    );
    if report.fetches_wrong > 0 {
        text += &format!("fetched values wrong {}\n", report.fetches_wrong);
    }
    if !report.medium.counts_placements() {
        text += "signals are counted by the value their receiver saw: hardware does not tell how often it wrote\n";
    }
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
