//! One run: ranks of this process, a thread for each, and one that makes rails fail; then what came of all ranks.

use crate::options::{ModeKind, MoeOptions};
use crate::part::{End, How, NicBytes, Part};
use crate::rank::{Ended, Shared};
use crate::trouble::{Trouble, Troubles};
use crate::verdict::{BROKEN, MoeReport, USAGE};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shunt_deep_ep_bridge::Patience;
use shunt_deep_ep_bridge::reference::{Case, Chance};
use shunt_deep_ep_job::{Job, JobOptions, NoJob, RAILS};
use shunt_figures::lines::{Bin, FaultLine};
use shunt_figures::timeline::{BIN_NS, Timeline, gb_s};
use shunt_figures::units::OnOff;
use shunt_layout::moe_normal::NormalShape;
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::Fault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Cases that layers are drawn from.
const CASES: u64 = 64;
/// Bins of the timeline at most: what comes later goes into the last one.
const LENGTH_NS: u64 = 3_600_000_000_000;
/// Pause of the thread that makes rails fail.
const TICK: Duration = Duration::from_millis(2);
/// Ranks end their last layer together, but for a kernel that hangs: beyond that nobody is waited for.
const REPORT: Duration = Duration::from_secs(60);

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum NoRun {
    /// No ranks.
    #[error(transparent)]
    Job(#[from] NoJob),
    /// They do not fail as asked.
    #[error(
        "--faults {0}: expected none, got NICs that are hardware: only soft NICs fail on request; `shunt soft-rdma \
         run` gives a program soft NICs"
    )]
    Hardware(Trouble),
}

impl NoRun {
    /// 2 where what was typed or set cannot be honoured here, else 1.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Hardware(_)
            | Self::Job(NoJob::Machine(_) | NoJob::Queues(_) | NoJob::Disagree { .. } | NoJob::Node(_)) => {
                USAGE
            }
            Self::Job(_) => BROKEN,
        }
    }
}

/// Brings up the ranks of this process.
fn start(options: &MoeOptions, normal: Option<&NormalShape>) -> Result<Arc<Job>, NoRun> {
    let (channels, bytes, message) = match normal {
        // One for what a part sends, one for the heads that it returns.
        Some(shape) => {
            let chunk = u64::from(shape.chunk) * shape.dispatch_stride().max(shape.combine_stride());
            (2 * shape.channels, shape.bytes(), chunk)
        }
        None => (options.local_experts, options.shape().bytes(), options.shape().dispatch_stride()),
    };
    let made_of = JobOptions {
        ranks: options.ranks,
        rails: RAILS,
        channels,
        bytes,
        message,
        seed: options.seed,
        tolerant: options.ft == OnOff::On,
        nic: options.nic,
        locals: Some(options.locals()),
    };
    let job = match &options.place {
        None => Job::start(&made_of)?,
        Some(place) => Job::join(&made_of, place.join().map_err(NoJob::from)?)?,
    };
    if options.faults != Trouble::None && !job.nics().are_soft() {
        return Err(NoRun::Hardware(options.faults.clone()));
    }
    Ok(job)
}

/// Everything, from the first PE to the last layer. Each process of a job answers with the same report.
///
/// # Errors
/// There was no run.
pub fn run(options: &MoeOptions) -> Result<MoeReport, NoRun> {
    let normal = (options.mode == ModeKind::Normal).then(|| options.normal_shape());
    let job = start(options, normal.as_ref())?;
    let mine = part(options, &job, normal);
    let patience = REPORT + Duration::from_nanos(2 * options.timeout);
    let told = job.gather(&serde_json::to_vec(&mine).expect("a part serialises"), patience);
    let missing = told.as_ref().err().map(|error| format!("some ranks did not report: {error}"));
    let read = |bytes: Vec<u8>| serde_json::from_slice::<Part>(&bytes).ok();
    let parts = told.map_or_else(|_| vec![mine], |all| all.into_iter().filter_map(read).collect());
    let mut report = judge(options, &parts);
    report.failed += u64::from(missing.is_some());
    report.wrongs.extend(missing);
    report.verdict = report.told();
    Ok(report)
}

/// All layers of the ranks of this process.
fn part(options: &MoeOptions, job: &Arc<Job>, normal: Option<NormalShape>) -> Part {
    let cases = cases(options);
    let start_ns = job.clock().now_ns();
    let timeline = Timeline::new(start_ns, LENGTH_NS);
    let (own, before) = (job.own(), job.sent());
    let shared = Shared {
        cases: &cases,
        iterations: options.iters,
        locals: options.locals(),
        seed: options.seed,
        timeline: &timeline,
        clock: job.clock(),
        running: AtomicU64::new(own.len() as u64),
        ended: AtomicU64::new(0),
    };
    let patience = Patience {
        timeout_ns: options.timeout,
        slice_ns: job.slice_ns(),
        signals: options.signals(),
        ..Patience::default()
    };
    let mut struck = Vec::new();
    let ends: Vec<(u32, Ended)> = std::thread::scope(|scope| {
        let threads: Vec<_> = own
            .clone()
            .map(|rank| {
                let (lane, shared) = (job.lane(rank), &shared);
                scope.spawn(move || {
                    let _running = shared.running();
                    match normal {
                        Some(shape) => shared.run_normal(lane, shape, patience),
                        None => shared.run(lane, patience),
                    }
                })
            })
            .collect();
        struck = strike(options, job, &shared, start_ns);
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Ended::panicked()));
        own.zip(ended).collect()
    });
    let end_ns = job.clock().now_ns();
    let hits = job.nics().hits().unwrap_or_default();
    let nics = job.sent().into_iter().zip(before).map(|((at, now), (_, before))| NicBytes {
        place: format!("{}.{}", at.pe, at.rail),
        bytes: now.saturating_sub(before),
    });
    let line = |(at_ns, number, at, kind): (u64, usize, RailAt, String)| FaultLine {
        at_ms: (at_ns - start_ns) as f64 / 1e6,
        place: format!("{}.{}", at.pe, at.rail),
        kind,
        hits: hits.get(number).copied().unwrap_or(0),
    };
    Part {
        ends: ends.into_iter().map(|(rank, ended)| End::of(rank, ended)).collect(),
        switches: job.switches(),
        posted_on_node: job.posted_on_node(),
        nics: nics.collect(),
        faults: struck.into_iter().map(line).collect(),
        bins: timeline.range(0..((end_ns - start_ns) / BIN_NS) as usize + 1),
        seconds: (end_ns - start_ns) as f64 / 1e9,
        oversubscribed: job.oversubscribed(),
        clock: job.nics().time_label().to_owned(),
    }
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
        // All processes draw the same; each has its own rails fail.
        for (at, kind) in troubles.due(now_ns).into_iter().filter(|(at, _)| job.own().contains(&at.pe)) {
            match job.inject(at, kind) {
                Ok(number) => struck.push((now_ns, number, at, Fault::Nic(kind).to_string())),
                Err(error) => shunt_host::complain!("{at}: {error}"),
            }
            bar.set_message(format!("{} faults", struck.len()));
        }
        std::thread::sleep(TICK);
    }
    bar.finish_and_clear();
    struck
}

/// A bar over layers on stderr; hidden where that is no terminal.
fn layers_bar(layers: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} layers  {elapsed}, {eta} left  {msg}");
    let bar = ProgressBar::with_draw_target(Some(layers), ProgressDrawTarget::stderr());
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn judge(options: &MoeOptions, parts: &[Part]) -> MoeReport {
    let ends: Vec<&End> = parts.iter().flat_map(|part| &part.ends).collect();
    let mut report = MoeReport {
        mode: match options.mode {
            ModeKind::LowLatency => "low-latency",
            ModeKind::Normal => "normal",
        },
        ranks: options.ranks,
        processes: parts.len() as u32,
        seed: options.seed,
        clock: parts.first().map_or_else(String::new, |part| part.clock.clone()),
        oversubscribed: parts.iter().any(|part| part.oversubscribed),
        asked: options.iters,
        iterations: ends.iter().map(|end| end.layers).min().unwrap_or(0),
        mismatches: ends.iter().map(|end| end.mismatches).sum(),
        failovers: parts.iter().map(|part| part.switches.0).sum(),
        switchbacks: parts.iter().map(|part| part.switches.1).sum(),
        ranks_per_node: options.locals(),
        bytes_by_nic: parts.iter().flat_map(|part| &part.nics).map(|nic| nic.bytes).sum(),
        bytes_by_mapping: ends.iter().map(|end| end.mapped).sum(),
        bytes_for_other_nodes: ends.iter().map(|end| end.crossing).sum(),
        posted_on_node: parts.iter().map(|part| part.posted_on_node).sum(),
        nics: parts.iter().flat_map(|part| part.nics.iter().cloned()).collect(),
        masked_ranks: ends.iter().map(|end| end.masked).max().unwrap_or(0),
        planned: options.faults != Trouble::None,
        every_ns: options.every(),
        seconds: parts.iter().map(|part| part.seconds).fold(0.0, f64::max),
        layer_us: ends.first().map_or([0.0; 3], |end| end.layer_us),
        faults: parts.iter().flat_map(|part| part.faults.iter().cloned()).collect(),
        timeline: bins(parts),
        wrongs: ends.iter().flat_map(|end| end.wrongs.iter().cloned()).collect(),
        ..MoeReport::default()
    };
    report.faults.sort_by(|a, b| a.at_ms.total_cmp(&b.at_ms));
    // Who waited for a rank that had ended for another reason does not hang.
    let excused = ends.iter().any(|end| !matches!(end.how, How::Through | How::Overdue));
    for end in &ends {
        match end.how {
            How::Through => {}
            How::Overdue if excused => {}
            How::Overdue => report.hangs += 1,
            How::PeerLost => report.lost += 1,
            How::Uncertain => report.uncertain += 1,
            How::Completion if options.ft == OnOff::Off => report.lost += 1,
            How::Completion | How::Other => report.failed += 1,
        }
    }
    report
}

fn bins(parts: &[Part]) -> Vec<Bin> {
    let length = parts.iter().map(|part| part.bins.len()).max().unwrap_or(0);
    let bytes = |number: usize| -> u64 { parts.iter().filter_map(|part| part.bins.get(number)).sum() };
    let bin = |number: usize| Bin {
        t_ms: number as f64 * BIN_NS as f64 / 1e6,
        gb_s: gb_s(bytes(number), BIN_NS),
        path: "all ranks".to_owned(),
    };
    (0..length).map(bin).collect()
}
