//! One run: PEs of this process, a thread for each rank, and one that makes rails fail.

use super::options::{ModeKind, MoeOptions};
use super::rank::{Ended, Shared};
use super::trouble::{Trouble, Troubles};
use super::verdict::MoeReport;
use crate::options::OnOff;
use crate::progress::layers_bar;
use crate::report::{Bin, FaultLine};
use crate::timeline::{BIN_NS, Timeline, gb_s};
use shunt_deep_ep_bridge::Patience;
use shunt_deep_ep_bridge::reference::{Case, Chance};
use shunt_deep_ep_job::{Job, JobOptions, NoJob, RAILS};
use shunt_device::FaultKind;
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::Fault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Cases that layers are drawn from.
const CASES: u64 = 64;
/// Bins of the timeline at most: what comes later goes into the last one.
const LENGTH_NS: u64 = 3_600_000_000_000;
/// Pause of the thread that makes rails fail.
const TICK: Duration = Duration::from_millis(2);

/// Everything, from the first PE to the last layer.
///
/// # Errors
/// There was no run.
pub fn run(options: &MoeOptions) -> Result<MoeReport, NoJob> {
    let normal = (options.mode == ModeKind::Normal).then(|| options.normal_shape());
    let (channels, bytes, message) = match &normal {
        // One for what a part sends, one for the heads that it returns.
        Some(shape) => {
            let chunk = u64::from(shape.chunk) * shape.dispatch_stride().max(shape.combine_stride());
            (2 * shape.channels, shape.bytes(), chunk)
        }
        None => (options.local_experts, options.shape().bytes(), options.shape().dispatch_stride()),
    };
    let job = Job::start(&JobOptions {
        ranks: options.ranks,
        rails: RAILS,
        channels,
        bytes,
        message,
        seed: options.seed,
        tolerant: options.ft == OnOff::On,
    })?;
    let cases = cases(options);
    let start_ns = job.clock().now_ns();
    let timeline = Timeline::new(start_ns, LENGTH_NS);
    let shared = Shared {
        cases: &cases,
        iterations: options.iters,
        seed: options.seed,
        timeline: &timeline,
        clock: job.clock(),
        running: AtomicU64::new(u64::from(options.ranks)),
        ended: AtomicU64::new(0),
    };
    let patience = Patience {
        timeout_ns: options.timeout,
        slice_ns: job.slice_ns(),
        signals: options.signals(),
        ..Patience::default()
    };
    let mut struck = Vec::new();
    let ends: Vec<Ended> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.ranks)
            .map(|rank| {
                let (lane, shared) = (job.lane(rank), &shared);
                scope.spawn(move || match normal {
                    Some(shape) => shared.run_normal(lane, shape, patience),
                    None => shared.run(lane, patience),
                })
            })
            .collect();
        struck = strike(options, &job, &shared, start_ns);
        threads.into_iter().map(|thread| thread.join().expect("a rank's thread does not panic")).collect()
    });
    let end_ns = job.clock().now_ns();
    let mut report = judge(options, &job, ends);
    report.oversubscribed = job.oversubscribed();
    report.seconds = (end_ns - start_ns) as f64 / 1e9;
    report.timeline = bins(&timeline, end_ns - start_ns);
    let hits = job.nics().hits();
    report.faults = struck
        .into_iter()
        .map(|(at_ns, number, at, kind): (u64, usize, RailAt, String)| FaultLine {
            at_ms: (at_ns - start_ns) as f64 / 1e6,
            place: format!("{}.{}", at.pe, at.rail),
            kind,
            hits: hits.get(number).copied().unwrap_or(0),
        })
        .collect();
    report.verdict = report.told();
    Ok(report)
}

fn cases(options: &MoeOptions) -> Vec<Case> {
    let (shape, formats) = (options.shape(), options.formats());
    let mut chance = Chance::new(options.seed);
    (0..CASES.min(options.iters.max(1)))
        .map(|number| {
            let topk = 1 + chance.below(u64::from(options.topk)) as u32;
            Case::random(shape, topk, formats[number as usize % formats.len()], chance.draw())
        })
        .collect()
}

/// Makes rails fail until all ranks have ended; what struck: when, its number at the NICs, where and what.
fn strike(
    options: &MoeOptions,
    job: &Job,
    shared: &Shared<'_>,
    start_ns: u64,
) -> Vec<(u64, usize, RailAt, String)> {
    let mut troubles =
        Troubles::new(&options.faults, options.seed, options.ranks, RAILS, options.every(), start_ns);
    let mut struck = Vec::new();
    let bar = layers_bar(options.iters);
    while shared.running.load(Ordering::Acquire) > 0 {
        let now_ns = job.clock().now_ns();
        bar.set_position(shared.ended.load(Ordering::Relaxed));
        for (at, kind) in troubles.due(now_ns) {
            let number = job.nics().plan(now_ns, at, kind);
            struck.push((now_ns, number, at, Fault::Nic(kind).to_string()));
            bar.set_message(format!("{} faults", struck.len()));
        }
        std::thread::sleep(TICK);
    }
    bar.finish_and_clear();
    struck
}

fn judge(options: &MoeOptions, job: &Job, ends: Vec<Ended>) -> MoeReport {
    let mut report = MoeReport {
        mode: match options.mode {
            ModeKind::LowLatency => "low-latency",
            ModeKind::Normal => "normal",
        },
        ranks: options.ranks,
        seed: options.seed,
        clock: "soft NIC, wall time",
        asked: options.iters,
        iterations: ends.iter().map(|end| end.layers).min().unwrap_or(0),
        mismatches: ends.iter().map(|end| end.mismatches).sum(),
        masked_ranks: ends.iter().map(|end| end.masked).max().unwrap_or(0),
        planned: options.faults != Trouble::None,
        every_ns: options.every(),
        ..MoeReport::default()
    };
    (report.failovers, report.switchbacks) = job.switches();
    // Who waited for a rank that had ended for another reason does not hang.
    let ended_before = |end: &Ended| end.fault.is_some() && end.kind() != Some(FaultKind::Overdue);
    let excused = ends.iter().any(ended_before);
    for (rank, end) in ends.iter().enumerate() {
        match end.kind() {
            Some(FaultKind::Overdue) if excused => {}
            Some(FaultKind::Overdue) => report.hangs += 1,
            Some(FaultKind::PeerLost) => report.lost += 1,
            Some(FaultKind::Uncertain) => report.uncertain += 1,
            Some(FaultKind::Completion) if options.ft == OnOff::Off => report.lost += 1,
            Some(_) => report.failed += 1,
            None if end.fault.is_some() => report.failed += 1,
            None => {}
        }
        report.wrongs.extend(end.wrongs.iter().cloned());
        report.wrongs.extend(end.fault.iter().map(|fault| format!("rank {rank}: {fault}")));
    }
    if let Some(first) = ends.first() {
        report.layer_us = percentiles(first.layer_ns.clone());
    }
    report
}

fn percentiles(mut ns: Vec<u64>) -> [f64; 3] {
    ns.sort_unstable();
    let at = |part: f64| ns.get(((ns.len() as f64 * part) as usize).min(ns.len().saturating_sub(1)));
    [0.5, 0.99, 1.0].map(|part| at(part).map_or(0.0, |ns| *ns as f64 / 1e3))
}

fn bins(timeline: &Timeline, length_ns: u64) -> Vec<Bin> {
    let bytes = timeline.range(0..(length_ns / BIN_NS) as usize + 1);
    let bin = |(number, bytes): (usize, &u64)| Bin {
        t_ms: number as f64 * BIN_NS as f64 / 1e6,
        gb_s: gb_s(*bytes, BIN_NS),
        path: "all ranks".to_owned(),
    };
    bytes.iter().enumerate().map(bin).collect()
}
