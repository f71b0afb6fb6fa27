//! `transfer_bw`: pages and writes between two ends while ports fail, with a verdict.

mod cancels;
mod end;
mod ends;
mod options;
mod pattern;
mod phases;
mod rate;
mod receiver;
mod revoke;
mod run;
mod sender;
mod table;
mod verdict;

use anyhow::Result;
use ends::both;
use options::{Mode, Options};
use shunt_json::Document;
use shunt_transfer::Source;
use shunt_transfer_program::place::take;
use shunt_transfer_program::start::{self, Checked as _, Outcome};
use std::process::ExitCode;
use verdict::Verdict;

fn main() -> ExitCode {
    start::main(run)
}

fn run(options: &Options, source: &Source) -> Result<Outcome> {
    if let Some(to) = &options.sender {
        let text = serde_json::to_string(&revoke::send(options, source, to)?)?;
        return Ok(Outcome { text, is_first: true, is_printed: true, status: 0, why: String::new() });
    }
    if options.mode == Mode::Revoke {
        let (part, clock) = revoke::receive(options, source)?;
        let verdict = Verdict::of(options, clock, &part, &part);
        let (status, why) = (verdict.exit_status(), verdict.why(options));
        let text = Document::new(verdict).pretty();
        return Ok(Outcome { text, is_first: true, is_printed: true, status, why });
    }
    let place = take("transfer_bw", source, options.alike(), 2)?;
    let mut is_first = place.is_first();
    let (text, status, why) = if options.table {
        let table = table::run(options, &place)?;
        let (status, why) = (table.exit_status(), table.why());
        (Document::new(table).pretty(), status, why)
    } else {
        let own = options.clone();
        let parts = both(&place, move |member, nics| run::run(&own, member, nics))?;
        let [sender, receiver] = &parts[..] else { anyhow::bail!("ends: expected 2, got {}", parts.len()) };
        let verdict = Verdict::of(options, place.nics.time_label(), sender, receiver);
        let (status, why) = (verdict.exit_status(), verdict.why(options));
        is_first |= parts.iter().any(|part| part.is_alone);
        if is_first {
            let dropped = phases::left_out(verdict.part.phases_dropped);
            let lines = verdict.part.phases.iter().map(ToString::to_string).chain(dropped);
            lines.for_each(|line| shunt::host::complain!("transfer_bw: {line}"));
        }
        (Document::new(verdict).pretty(), status, why)
    };
    Ok(Outcome { text, is_first, is_printed: !options.table, status, why })
}
