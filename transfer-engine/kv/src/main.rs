//! `kv_disagg`: caches of prompts from prefillers to decoders, while ports fail and processes are killed and started
//! again, with a verdict.

mod decode;
mod model;
mod options;
mod prefill;
mod processes;
mod verdict;

use anyhow::Result;
use options::{Options, Role};
use processes::Processes;
use shunt::host::job::{Flags, Job};
use shunt::soft_nic::uplink::remove_unused_fabric;
use shunt_json::Document;
use shunt_transfer::{NoNode, Place, Source};
use shunt_transfer_program::start::{self, Outcome};
use std::process::ExitCode;
use std::sync::Arc;
use verdict::{Done, Told, Verdict};

fn main() -> ExitCode {
    start::main(run)
}

fn run(options: &Options, source: &Source) -> Result<Outcome> {
    match options.role {
        Role::All => all(options, source),
        Role::Decode => {
            let place = place(options, source)?;
            let listen = options.listen.as_deref().unwrap_or_default();
            let part = decode::run(options, &place, listen)?;
            let clock = place.nics.time_label().to_owned();
            if options.part {
                let text = serde_json::to_string(&Told { clock, part })?;
                return Ok(Outcome { text, is_first: true, is_printed: true, status: 0, why: String::new() });
            }
            Ok(judged(options, &[part], &Done { clock, ..Done::default() }))
        }
        Role::Prefill => {
            let (struck, met) = prefill::run(options, &place(options, source)?)?;
            let text = serde_json::to_string(&struck)?;
            // It has said why no decoder was there.
            let (status, why) = (u8::from(!met), String::new());
            Ok(Outcome { text, is_first: true, is_printed: options.part, status, why })
        }
    }
}

fn place(options: &Options, source: &Source) -> Result<Arc<Place>> {
    let fabric = std::env::var("SHUNT_FABRIC").unwrap_or_else(|_| shunt::host::job::FABRIC.to_owned());
    let place = Place::beside(source, options.end, &fabric)?;
    for line in &place.lines {
        shunt::host::complain!("kv_disagg: {line}");
    }
    Ok(Arc::new(place))
}

fn all(options: &Options, source: &Source) -> Result<Outcome> {
    if let Some(job) = Job::from_env(&Flags::default()).map_err(NoNode::from)?.filter(|job| job.world > 1) {
        let world = job.world;
        return Err(NoNode::Refused(format!(
            "--role: expected one process, which starts the others, got one of {world} of a launcher; start kv_disagg \
             by itself, or decoders with --role decode and prefillers with --role prefill"
        ))
        .into());
    }
    source.joins_processes()?;
    let mut settled = options.clone();
    settled.nics.nic = source.kind();
    if source.are_soft_nics() {
        // Software is the same for all processes: this one says why, for all of them.
        source.lines(1).iter().for_each(|line| shunt::host::complain!("kv_disagg: {line}"));
    }
    let processes = Processes::start(&settled)?;
    let fabric = processes.fabric().to_owned();
    let ran = processes.run();
    // While a process of the run is there it stays.
    let _ = remove_unused_fabric(&fabric);
    let (parts, done) = ran?;
    Ok(judged(options, &parts, &done))
}

fn judged(options: &Options, parts: &[verdict::Part], done: &Done) -> Outcome {
    let verdict = Verdict::of(options, parts, done);
    let (status, why) = (verdict.exit_status(), verdict.why(options, done));
    Outcome { text: Document::new(verdict).pretty(), is_first: true, is_printed: true, status, why }
}
