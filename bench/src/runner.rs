//! One run from start to report: the table, the stream with its faults, the counting.

use crate::cluster::{Cluster, RecordLog, Unit, oversubscribed, suspect_ns};
use crate::heap::HeapMap;
use crate::kernel::{Control, Stop};
use crate::options::{Mode, OnOff, Options};
use crate::progress::Progress;
use crate::report::{Counts, Ended, FaultLine, Raw};
use crate::stream::{Link, Received, Sent, Stream};
use crate::switches::{Planned, lines};
use crate::table::{Row, Table};
use crate::timeline::{Timeline, WARM_UP_NS};
use shunt_host::error::StartError;
use shunt_soft_nic::{FaultKind, FaultReport, RailAt};
use std::time::Duration;

/// Between planning a stream and its start: the threads have to be there.
const LEAD_NS: u64 = 5_000_000;
/// How long a wait may make no progress, beyond the give-up time.
const STALL_NS: u64 = 8_000_000_000;
/// Pause of the thread that watches a stream.
const WATCH: Duration = Duration::from_millis(20);

/// Why a table has no end.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A PE did not come up.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A wait ended.
    #[error("{0}")]
    Ended(Ended),
}

/// Measures the table on a cluster of its own, without faults.
///
/// # Errors
/// Why there is no table.
pub fn table(options: &Options, row: impl FnMut(&Row) + Send) -> Result<Vec<Row>, TableError> {
    let map = HeapMap::new(options);
    let cluster = Cluster::start(options, map, options.max_size)?;
    let (source, target) = (cluster.unit(0), cluster.unit(1));
    let control =
        Control::new(0, u64::MAX, STALL_NS + options.give_up(), suspect_ns(options, options.max_size));
    let table = Table {
        options,
        map,
        world: cluster.world(),
        source: *source.heap(),
        target: *target.heap(),
        control: &control,
    };
    let device = source.device(cluster.world());
    table.run(device, row).map_err(|stop| TableError::Ended(ended(options, source, stop)))
}

fn ended(options: &Options, unit: &Unit, stop: Stop) -> Ended {
    match stop {
        Stop::Fault(fault) => unit.describe(&fault, options.ft == OnOff::On),
        Stop::Stalled(what) => Ended::Stalled(format!("stalled: waited in vain for {what}")),
        Stop::Aborted => Ended::Stalled("ended by another kernel".into()),
    }
}

/// A stream, its ends and what they found.
struct Ends {
    source: u32,
    target: u32,
    channel: u32,
    sent: Sent,
    received: Received,
}

/// Runs the stream with its faults on a cluster of its own.
///
/// # Errors
/// A PE did not come up.
pub fn stream(options: &Options, progress: &Progress) -> Result<Raw, StartError> {
    let map = HeapMap::new(options);
    let cluster = Cluster::start(options, map, map.slot_bytes())?;
    let start_ns = cluster.world().now_ns() + LEAD_NS;
    let control = Control::new(
        start_ns,
        start_ns + options.duration,
        STALL_NS + options.give_up(),
        suspect_ns(options, map.slot_bytes()),
    );
    let timeline = Timeline::new(start_ns, options.duration + control.stall_ns);
    plan_faults(options, &cluster, start_ns);
    watch_words(options, &cluster, &map);
    let first_path = cluster.unit(0).primary(1, 0);
    let mut log = RecordLog::new(&cluster);
    let ends = run_kernels(options, &cluster, &control, &timeline, |now_ns| {
        log.drain(&cluster);
        progress.tick(now_ns, &control, &timeline);
    });
    log.drain(&cluster);
    progress.finish(log.lost);
    let switches = lines(&log.records, &planned(options, start_ns), &log.pathless);
    let counts = count(options, &cluster, &map, &ends);
    if options.watch {
        progress.counters(&cluster.counters());
    }
    Ok(Raw {
        counts,
        start_ns,
        end_ns: control.end_ns(),
        bins: timeline.bytes(),
        switches,
        faults: faults(options, &cluster, start_ns),
        first_path,
        ended: why_it_ended(options, &cluster, &ends),
        oversubscribed: oversubscribed(options),
        seed: options.seed,
    })
}

fn plan_faults(options: &Options, cluster: &Cluster, start_ns: u64) {
    cluster.fabric().with(|fabric| {
        for injection in &options.inject {
            let at = RailAt { pe: injection.pe, rail: injection.rail };
            fabric.plan(start_ns + injection.at_ns, at, injection.kind);
        }
    });
}

/// What a switch may notice: a port that comes up fails no path.
fn planned(options: &Options, start_ns: u64) -> Vec<Planned> {
    let harmful = options.inject.iter().filter(|injection| injection.kind != FaultKind::Up);
    harmful.map(|i| Planned { at_ns: start_ns + i.at_ns, pe: i.pe, rail: i.rail }).collect()
}

/// Streams of a run: PE 2k to PE 2k+1 on every channel.
fn streams(options: &Options) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
    let ctas = options.ctas;
    (0..options.pes)
        .step_by(2)
        .flat_map(move |source| (0..ctas).map(move |channel| (source, source + 1, channel)))
}

/// Every signal and credit word, tapped where NICs write it.
fn watch_words(options: &Options, cluster: &Cluster, map: &HeapMap) {
    cluster.fabric().with(|fabric| {
        for (source, target, channel) in streams(options) {
            fabric.watch_word(cluster.unit(target).address(map.signal(channel)));
            fabric.watch_word(cluster.unit(source).address(map.credit(channel)));
        }
    });
}

fn run_kernels(
    options: &Options,
    cluster: &Cluster,
    control: &Control,
    timeline: &Timeline,
    mut tick: impl FnMut(u64),
) -> Vec<Ends> {
    let ids: Vec<_> = streams(options).collect();
    let links: Vec<Link> = ids.iter().map(|_| Link::default()).collect();
    let warm_up_ns = WARM_UP_NS.min(options.duration / 10);
    let world = cluster.world();
    std::thread::scope(|scope| {
        let start = |(&(source, target, channel), link)| {
            let stream = Stream {
                source,
                target,
                channel,
                mode: options.mode,
                verify: options.verify == OnOff::On,
                seed: options.seed,
                map: cluster.unit(source).map(),
                control,
                world,
                link,
            };
            let receivers = ids.len() as u64;
            let kernel = |pe: u32| (cluster.unit(pe).device(world), *cluster.unit(pe).heap());
            let ((device, heap), (peer_device, peer_heap)) = (kernel(source), kernel(target));
            let send = scope.spawn(move || stream.send(device, &heap, receivers));
            let receive = scope.spawn(move || stream.receive(peer_device, &peer_heap, timeline, warm_up_ns));
            (source, target, channel, send, receive)
        };
        let threads: Vec<_> = ids.iter().zip(&links).map(start).collect();
        while threads.iter().any(|(.., send, receive)| !send.is_finished() || !receive.is_finished()) {
            std::thread::sleep(WATCH);
            tick(world.now_ns());
        }
        let join =
            |(source, target, channel, send, receive): (_, _, _, std::thread::ScopedJoinHandle<Sent>, _)| {
                let receive: std::thread::ScopedJoinHandle<Received> = receive;
                let sent = send.join().expect("senders do not panic");
                let received = receive.join().expect("receivers do not panic");
                Ends { source, target, channel, sent, received }
            };
        threads.into_iter().map(join).collect()
    })
}

fn count(options: &Options, cluster: &Cluster, map: &HeapMap, ends: &[Ends]) -> Counts {
    let mut counts = Counts::default();
    let bytes = map.slot_bytes();
    for end in ends {
        let found = end.received.findings;
        let posted = end.sent.puts;
        let missing = posted.saturating_sub(found.puts);
        counts.bytes_posted += posted * bytes;
        counts.bytes_delivered += (found.puts.min(posted) - found.lost) * bytes;
        if options.mode != Mode::Signal {
            counts.puts_lost += missing + found.lost;
        }
        counts.signals_posted += posted;
        counts.signals_wild += found.wild;
        counts.order_violations += found.late;
        counts.ghost_writes += found.ghosts;
        counts.max_gap_ns = counts.max_gap_ns.max(end.received.gap_ns);
        let (signal, credit) = cluster.fabric().with(|fabric| {
            let signal = cluster.unit(end.target).address(map.signal(end.channel));
            let credit = cluster.unit(end.source).address(map.credit(end.channel));
            (fabric.watched(signal), fabric.watched(credit))
        });
        counts.signals_applied += signal.writes - signal.not_increasing;
        // What the tap saw and what the receiver saw may be the same event: the larger count is the truth.
        counts.signals_duplicated += signal.not_increasing.max(found.backwards) + credit.not_increasing;
    }
    for pe in 0..options.pes {
        let (failovers, switchbacks) = cluster.unit(pe).generations();
        counts.failovers += failovers;
        counts.switchbacks += switchbacks;
    }
    counts
}

fn faults(options: &Options, cluster: &Cluster, start_ns: u64) -> Vec<FaultLine> {
    let line = |report: FaultReport| FaultLine {
        at_ms: report.at_ns.saturating_sub(start_ns) as f64 / 1e6,
        place: format!("{}.{}", report.at.pe, report.at.rail),
        kind: report.kind.to_string(),
        hits: report.hits,
    };
    let reports = cluster.fabric().with(|fabric| fabric.faults());
    debug_assert_eq!(reports.len(), options.inject.len());
    reports.into_iter().map(line).collect()
}

/// The first reason that is not "another one ended it": faults before stalls. Without fault tolerance nobody
/// but the NIC reports a dead path; a NIC that is gone reports nothing, and the wait that ran out is the
/// report.
fn why_it_ended(options: &Options, cluster: &Cluster, ends: &[Ends]) -> Option<Ended> {
    let mut worst: Option<(u8, Ended)> = None;
    for end in ends {
        for (pe, peer, stop) in
            [(end.source, end.target, end.sent.stop), (end.target, end.source, end.received.stop)]
        {
            let Some(stop) = stop else { continue };
            let unit = cluster.unit(pe);
            let (rank, why) = match stop {
                Stop::Stalled(what) if options.ft == OnOff::Off => {
                    (1, unit.describe_silence(peer, end.channel, what))
                }
                Stop::Fault(_) => (0, ended(options, unit, stop)),
                Stop::Stalled(_) => (1, ended(options, unit, stop)),
                Stop::Aborted => (2, ended(options, unit, stop)),
            };
            if worst.as_ref().is_none_or(|(before, _)| rank < *before) {
                worst = Some((rank, why));
            }
        }
    }
    worst.map(|(_, why)| why)
}
