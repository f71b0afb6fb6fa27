//! One run from start to report: the table, the stream with its faults, the gathering of what all processes found.

use crate::cluster::{Cluster, Unit, UpError, oversubscribed, suspect_ns};
use crate::faults::Faults;
use crate::heap::HeapMap;
use crate::interrupt::Interrupt;
use crate::job::board::Board;
use crate::job::book::{Book, Shape};
use crate::job::entry::Entry;
use crate::job::{Job, JobError};
use crate::kernel::{Control, Kernel, Span, Stop};
use crate::nics::Medium;
use crate::nics::source::Source;
use crate::options::{Mode, OnOff, Options, SignalKind};
use crate::progress::Progress;
use crate::report::{Ended, Failing, Raw};
use crate::sampler::Observer;
use crate::stream::{Received, Sent, Stream};
use crate::table::{Row, Table};
use crate::uncertain_policy::{Arbiter, Decided};
use shunt_device::HeapOffset;
use shunt_figures::timeline::{Timeline, WARM_UP_NS};
use shunt_soft_nic::WordWatch;
use shunt_soft_nic::fault::{Fault, Injection, PeFault};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between planning a stream and its start: the threads have to be there.
const LEAD_NS: u64 = 5_000_000;
/// How long a wait may make no progress, beyond the give-up time.
const STALL_NS: u64 = 8_000_000_000;
/// Pause of the thread that watches a stream.
const WATCH: Duration = Duration::from_millis(20);
/// How long the parts of other processes are awaited, beyond what their waits may take.
const GATHER: Duration = Duration::from_secs(3);

/// Why a table has no end.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// A PE did not come up.
    #[error("the PEs did not come up: {0}")]
    Up(#[from] UpError),
    /// The other processes cannot be reached.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A wait ended.
    #[error("{0}")]
    Ended(Ended),
}

fn stall_ns(options: &Options) -> u64 {
    STALL_NS + options.give_up()
}

/// The longest that a process may go on after another has ended.
pub fn longest_wait(options: &Options) -> Duration {
    Duration::from_nanos(stall_ns(options)) + GATHER
}

/// Measures the table on a cluster of its own, without faults.
///
/// # Errors
/// Why there is no table.
pub fn table(
    options: &Options,
    source: &Source,
    job: &dyn Job,
    row: impl FnMut(&Row) + Send,
) -> Result<(), TableError> {
    let map = HeapMap::new(options);
    let cluster = Cluster::start(options, source, job, map, options.max_size)?;
    let board = Arc::new(Board::new(0, options.pes()));
    job.begin(&board)?;
    let span = Span { start_ns: 0, stop_ns: u64::MAX };
    let suspect_ns = suspect_ns(options, source, options.max_size);
    let control = Control::new(span, board.clone(), stall_ns(options), suspect_ns);
    let heap = |pe: u32| cluster.has(pe).then(|| *cluster.unit(pe).heap());
    let table = Table {
        options,
        rail_gbps: source.rail_gbps(options),
        map,
        clock: cluster.clock(),
        source: heap(0),
        target: heap(1),
        control: &control,
    };
    let own = job.own().start;
    let unit = cluster.unit(own);
    let done = match own {
        0 => {
            let kernel = Kernel { pe: 0, world: unit.clock(), clock: cluster.clock(), control: &control };
            table.run(kernel, unit.device(), row)
        }
        1 => table.look_on(unit.device()),
        _ => table.sit_out(unit.device()),
    };
    match done {
        Ok(()) if own == 0 => board.end_table(),
        Ok(()) => {}
        // The one that looks on need not.
        Err(_) => board.abort(),
    }
    done.map_err(|stop| TableError::Ended(ended(options, job, unit, stop)))
}

fn ended(options: &Options, job: &dyn Job, unit: &Unit, stop: Stop) -> Ended {
    match stop {
        Stop::Fault(fault) => unit.describe(&fault, options.tolerant(), job.gone(fault.peer)),
        Stop::Stalled(what) => Ended::Stalled(format!("stalled: waited too long for {what}")),
        Stop::Aborted => Ended::Stalled("ended by another kernel".into()),
        Stop::Killed => Ended::Stalled("the PE was killed".into()),
    }
}

/// When each process was first seen to be gone, since the start of the stream.
type Deaths = BTreeMap<u32, u64>;

/// One end of a stream and what it found.
struct End {
    stream: u32,
    pe: u32,
    peer: u32,
    channel: u32,
    found: Found,
}

enum Found {
    Sent(Sent),
    Received(Received),
}

impl End {
    fn stop(&self) -> Option<Stop> {
        match &self.found {
            Found::Sent(sent) => sent.stop,
            Found::Received(received) => received.stop,
        }
    }
}

/// A phase that is up: everything its functions share.
struct Run<'r> {
    options: &'r Options,
    medium: Medium,
    job: &'r dyn Job,
    cluster: &'r Cluster,
    map: HeapMap,
    control: &'r Control,
    timeline: &'r Timeline,
}

/// Runs the stream with its faults on a cluster of its own.
///
/// # Errors
/// A PE did not come up.
pub fn stream(
    options: &Options,
    source: &Source,
    job: &dyn Job,
    progress: &mut Progress,
) -> Result<Raw, UpError> {
    let map = HeapMap::new(options);
    let cluster = Cluster::start(options, source, job, map, map.slot_bytes())?;
    let board = Arc::new(Board::new(streams(options).count(), options.pes()));
    let interrupt = Interrupt::catch();
    job.begin(&board)?;
    let start_ns = cluster.clock().now_ns() + LEAD_NS;
    let span = Span { start_ns, stop_ns: start_ns + options.duration };
    let suspect_ns = suspect_ns(options, source, map.slot_bytes());
    let control = Control::new(span, board.clone(), stall_ns(options), suspect_ns);
    let timeline = Timeline::new(start_ns, options.duration + control.stall_ns);
    let medium = source.medium();
    let run = Run { options, medium, job, cluster: &cluster, map, control: &control, timeline: &timeline };
    let decided = Decided::default();
    let arbiter = Arbiter::new(&cluster, &control, run.doubtful(), options.uncertain(), &decided);
    let mut faults = Faults::plan(&options.inject, &cluster, job, &board, start_ns);
    run.watch_words();
    let mut book = Book::new(run.shape());
    let mut deaths = Deaths::new();
    let mut observer = Observer::new(&cluster, &control, &timeline);
    if cluster.has(0) {
        run.report(&mut book, Entry::FirstPath(cluster.unit(0).primary(1, 0)));
    }
    let ends = run.kernels(&decided, |now_ns| {
        if interrupt.asked() {
            control.stop_now(now_ns);
        }
        control.follow(now_ns);
        faults.tick(now_ns);
        arbiter.look(now_ns).into_iter().for_each(|entry| run.report(&mut book, entry));
        run.look_for_the_dead(&mut deaths);
        observer.look(now_ns, &faults).into_iter().for_each(|entry| run.report(&mut book, entry));
        run.collect(&mut book);
        progress.tick(now_ns, &control, &book);
        faults.next_due().map_or(WATCH, |due| WATCH.min(Duration::from_nanos(due.saturating_sub(now_ns))))
    });
    faults.finish();
    let over_ns = cluster.clock().now_ns();
    observer.last(over_ns, &faults).into_iter().for_each(|entry| run.report(&mut book, entry));
    run.report_ends(&mut book, &ends);
    run.gather(&mut book, &deaths);
    progress.finish(&book);
    Ok(book.raw())
}

/// Streams of a run: PE 2k to PE 2k+1 on every channel.
fn streams(options: &Options) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
    let ctas = options.ctas;
    (0..options.pes())
        .step_by(2)
        .flat_map(move |source| (0..ctas).map(move |channel| (source, source + 1, channel)))
}

/// What of the start does not count for gaps.
fn warm_up_ns(options: &Options) -> u64 {
    WARM_UP_NS.min(options.duration / 10)
}

/// Whether a process that is gone since `gone_ns` of the stream met the death that was planned for it: one that died
/// before its time did so by itself.
fn planned_death(injection: &Injection, pe: u32, gone_ns: u64) -> bool {
    matches!(injection.fault, Fault::Pe(PeFault::PeerKilled))
        && injection.pe == pe
        && gone_ns.saturating_add(LEAD_NS) >= injection.at_ns
}

impl Run<'_> {
    fn shape(&self) -> Shape {
        Shape {
            processes: self.options.processes(),
            device: self.options.device,
            streams: streams(self.options).count(),
            put_bytes: self.map.slot_bytes(),
            warm_up_ns: warm_up_ns(self.options),
            puts: self.options.mode != Mode::Signal,
            signal: self.options.signal,
            plan: self.options.inject.clone(),
            seed: self.options.seed,
            oversubscribed: oversubscribed(self.options),
            medium: self.medium,
        }
    }

    /// To our own book, and to the process that judges.
    fn report(&self, book: &mut Book, entry: Entry) {
        self.job.publish(&entry);
        book.take(self.job.rank(), entry);
    }

    fn collect(&self, book: &mut Book) {
        for (rank, entry) in self.job.collect() {
            book.take(rank, entry);
        }
    }

    /// Every signal and credit word, tapped where NICs write it, with its stream; credits are `true`.
    fn words(&self) -> impl Iterator<Item = (u32, bool, u64)> + '_ {
        (0..).zip(streams(self.options)).flat_map(move |(stream, (source, target, channel))| {
            let flags = (0..self.map.window()).map(move |slot| self.map.flags(channel).0 + 8 * slot);
            let signals: Vec<HeapOffset> = match self.options.signal {
                SignalKind::Cleared => flags.map(HeapOffset).collect(),
                _ => vec![self.map.signal(channel)],
            };
            let signals = signals.into_iter().map(move |word| (stream, false, target, word));
            let own = signals.chain([(stream, true, source, self.map.credit(channel))]);
            own.filter(|(_, _, pe, _)| self.cluster.has(*pe))
                .map(|(stream, credit, pe, word)| (stream, credit, self.cluster.unit(pe).address(word)))
        })
    }

    /// Sending channels of this process on which something may be uncertain.
    fn doubtful(&self) -> Vec<(u32, u32, u32)> {
        let doubtful = self.options.may_be_uncertain();
        streams(self.options).filter(|(source, ..)| doubtful && self.cluster.has(*source)).collect()
    }

    fn watch_words(&self) {
        let addresses: Vec<u64> = self.words().map(|(_, _, address)| address).collect();
        self.cluster.nics().watch(&addresses);
    }

    /// Runs the kernels of this process; `tick` looks on, and says how long it can do without a look.
    fn kernels(&self, decided: &Decided, mut tick: impl FnMut(u64) -> Duration) -> Vec<End> {
        let options = self.options;
        let (control, cluster, timeline) = (self.control, self.cluster, self.timeline);
        let warm_up_ns = warm_up_ns(options);
        let kernel =
            |pe: u32| Kernel { pe, world: cluster.unit(pe).clock(), clock: cluster.clock(), control };
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (number, (source, target, channel)) in (0..).zip(streams(options)) {
                let stream = Stream {
                    source,
                    target,
                    channel,
                    mode: options.mode,
                    signal: options.signal,
                    decided,
                    verify: options.verify == OnOff::On,
                    seed: options.seed,
                    map: self.map,
                    lifetime_ns: options.environment.config.packet_lifetime_ns,
                    link: control.board.link(number as usize),
                    kernels: cluster
                        .has(source)
                        .then(|| cluster.unit(source).kernels())
                        .flatten()
                        .map(|kernels| (kernels, options.threads_per_cta)),
                };
                let end = move |pe, peer, found| End { stream: number, pe, peer, channel, found };
                if cluster.has(source) {
                    let (kernel, unit) = (kernel(source), cluster.unit(source));
                    let (device, heap) = (unit.device(), *unit.heap());
                    threads.push(
                        scope.spawn(move || {
                            end(source, target, Found::Sent(stream.send(kernel, device, &heap)))
                        }),
                    );
                }
                if cluster.has(target) {
                    let (kernel, unit) = (kernel(target), cluster.unit(target));
                    let (device, heap) = (unit.device(), *unit.heap());
                    threads.push(scope.spawn(move || {
                        let received = stream.receive(kernel, device, &heap, timeline, warm_up_ns);
                        end(target, source, Found::Received(received))
                    }));
                }
            }
            let mut pause = Duration::ZERO;
            while threads.iter().any(|thread| !thread.is_finished()) {
                std::thread::sleep(pause);
                pause = tick(cluster.clock().now_ns());
            }
            threads.into_iter().map(|thread| thread.join().expect("kernels do not panic")).collect()
        })
    }

    /// What only shows when all kernels of this process have ended.
    fn report_ends(&self, book: &mut Book, ends: &[End]) {
        for end in ends {
            let stream = end.stream;
            match (&end.found, end.stop()) {
                // The dead tell nothing.
                (_, Some(Stop::Killed)) => {}
                (Found::Sent(sent), _) => {
                    self.report(book, Entry::Sent { stream, puts: sent.puts, misread: sent.misread })
                }
                (Found::Received(received), _) => {
                    let Received { findings, gap_ns, .. } = *received;
                    self.report(book, Entry::Received { stream, findings, gap_ns });
                }
            }
            if let Some((weight, why)) = self.why_it_ended(end) {
                self.report(book, Entry::Ended(weight, why));
            }
        }
        let addresses: Vec<u64> = self.words().map(|(_, _, address)| address).collect();
        let watched = self.cluster.nics().watched(&addresses).unwrap_or_default();
        let mut words: BTreeMap<(u32, bool), WordWatch> = BTreeMap::new();
        for ((stream, credit, _), watch) in self.words().zip(watched) {
            let sum = words.entry((stream, credit)).or_default();
            sum.writes += watch.writes;
            sum.last = watch.last;
            sum.not_increasing += watch.not_increasing;
        }
        for ((stream, credit), watch) in words {
            self.report(book, Entry::Word { stream, credit, watch });
        }
        self.report(book, Entry::End(self.control.end_ns() - self.control.start_ns));
        self.job.close();
    }

    /// The best reason is the first that is not "another one ended it": faults before stalls. Without fault tolerance
    /// nobody but the NIC reports a dead path; a NIC that is gone reports nothing, and the wait that ran out is the
    /// report.
    fn why_it_ended(&self, end: &End) -> Option<(u8, Ended)> {
        let stop = end.stop()?;
        let (options, unit) = (self.options, self.cluster.unit(end.pe));
        let gone = |pe| self.gone(pe);
        Some(match stop {
            Stop::Killed => return None,
            Stop::Stalled(what) if !options.tolerant() => {
                (1, unit.describe_silence(end.peer, end.channel, what, gone(end.peer)))
            }
            Stop::Fault(fault) => (0, unit.describe(&fault, options.tolerant(), gone(fault.peer))),
            Stop::Stalled(_) => (1, ended(options, self.job, unit, stop)),
            Stop::Aborted => (3, ended(options, self.job, unit, stop)),
        })
    }

    /// Looks only where a death is planned: nobody else's time matters.
    fn look_for_the_dead(&self, deaths: &mut Deaths) {
        let planned = self.options.inject.iter().filter(|i| i.fault == Fault::Pe(PeFault::PeerKilled));
        for pe in planned.map(|injection| injection.pe) {
            if !deaths.contains_key(&pe) && self.job.gone(pe).is_some() {
                deaths.insert(pe, self.since_start_ns());
            }
        }
    }

    /// What is known of a PE's death: naming alone, nothing is decided by it.
    fn gone(&self, pe: u32) -> Option<String> {
        let killed = self.control.board.killed(pe);
        if killed { Some(format!("PE {pe} was killed (peer-killed)")) } else { self.job.gone(pe) }
    }

    /// Waits for the parts of all processes that can still give theirs; what is missing is said.
    fn gather(&self, book: &mut Book, deaths: &Deaths) {
        let until = Instant::now() + Duration::from_nanos(self.control.stall_ns) + GATHER;
        while self.job.rank() == 0 && !self.job.awaited().is_empty() && Instant::now() < until {
            self.collect(book);
            std::thread::sleep(Duration::from_millis(2));
        }
        self.collect(book);
        for rank in self.job.missing() {
            let why = match self.job.gone(rank) {
                Some(gone) => {
                    Ended::Failed(Failing::Gone, format!("rank {rank} left without its report: {gone}"))
                }
                None => Ended::Stalled(format!("rank {rank} gave no report in time")),
            };
            self.report(book, Entry::Ended(2, why));
            self.count_the_death(book, rank, deaths.get(&rank).copied());
        }
    }

    fn since_start_ns(&self) -> u64 {
        self.cluster.clock().now_ns().saturating_sub(self.control.start_ns)
    }

    /// A process that was to be killed and is gone since then was killed, even if its last report never came.
    fn count_the_death(&self, book: &mut Book, pe: u32, gone_ns: Option<u64>) {
        let Some(gone_ns) = gone_ns.or_else(|| self.job.gone(pe).map(|_| self.since_start_ns())) else {
            return;
        };
        for (number, injection) in (0..).zip(&self.options.inject) {
            if planned_death(injection, pe, gone_ns) {
                self.report(book, Entry::Hits { fault: number, hits: 1 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_dies_before_its_time_was_not_killed_by_plan() {
        let injection: Injection = "300ms:1:peer-killed".parse().unwrap();
        assert!(planned_death(&injection, 1, 300_000_000));
        assert!(planned_death(&injection, 1, 800_000_000));
        assert!(!planned_death(&injection, 1, 100_000_000), "it died by itself");
        assert!(!planned_death(&injection, 0, 300_000_000));
        assert!(!planned_death(&"300ms:1:agent-killed".parse().unwrap(), 1, 300_000_000));
    }
}
