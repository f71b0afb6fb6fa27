//! A whole run of a [`RunSpec`], and its verdict.

use std::cell::Cell;
use std::rc::Rc;

use shunt_device::Solo;

use crate::adder::Adder;
use crate::cluster::Cluster;
use crate::echo;
use crate::oracle::{Kind, Stream, load};
use crate::outcome::Outcome;
use crate::sharer::Sharer;
use crate::sim::Task;
use crate::spec::RunSpec;
use crate::workload::{Report, Side};

/// Runs `spec` to its end.
pub fn run(spec: &RunSpec) -> Outcome {
    let cluster = Cluster::start(spec);
    spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let tasks = start_streams(&cluster);
    finish(&cluster, tasks)
}

/// Senders and receivers of a run.
pub struct Streams {
    resolvers: Vec<Task<u64>>,
    ended: Rc<Cell<bool>>,
    adders: Vec<Adder>,
    sharers: Vec<Sharer>,
    senders: Vec<Task<Report>>,
    receivers: Vec<Task<Report>>,
}

impl Streams {
    /// True once all of them have returned.
    pub fn done(&self) -> bool {
        self.senders.iter().chain(&self.receivers).all(Task::is_done)
    }
}

/// Starts the sender and the receiver of every stream.
pub fn start_streams(cluster: &Cluster) -> Streams {
    assert!(cluster.streams().len() < 200, "the pattern tells 200 streams apart");
    let (adders, sharers) = (cluster.start_adders(), cluster.start_sharers());
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for stream in cluster.streams().iter().copied() {
        cluster.watch(stream.to, stream.signal());
        cluster.watch(stream.from, stream.credit());
        let traffic = cluster.spec.traffic.clone();
        let name = format!("send{}", stream.id);
        senders.push(cluster.spawn(&name, stream.from, move |kernel| kernel.send(Solo, stream, &traffic)));
        let traffic = cluster.spec.traffic.clone();
        let name = format!("receive{}", stream.id);
        receivers.push(cluster.spawn(&name, stream.to, move |kernel| kernel.receive(Solo, stream, &traffic)));
    }
    let ended = Rc::new(Cell::new(false));
    let resolvers = start_resolvers(cluster, &ended);
    Streams { resolvers, ended, adders, sharers, senders, receivers }
}

/// One more kernel on each PE, which answers for its streams' signals where nobody else can know.
fn start_resolvers(cluster: &Cluster, ended: &Rc<Cell<bool>>) -> Vec<Task<u64>> {
    if cluster.spec.traffic.signals == 1 && cluster.spec.traffic.fetches == 0 {
        return Vec::new();
    }
    let channels = cluster.spec.channels;
    let resolver = |pe| {
        let ended = ended.clone();
        cluster.spawn("resolve", pe, move |kernel| kernel.resolve_all(channels, &ended))
    };
    (0..cluster.spec.pes).map(resolver).collect()
}

/// The reports of one side, once all that still live have returned. What a killed kernel did is in the books.
fn collect(cluster: &Cluster, tasks: &[Task<Report>], side: Side) -> Vec<Report> {
    let at = |stream: &Stream| if side == Side::Sender { stream.from } else { stream.to };
    let gone = |stream: &Stream| cluster.pe_faults.killed_ns(at(stream));
    let pending = |(task, stream): (&Task<Report>, &Stream)| !task.is_done() && gone(stream).is_none();
    cluster.sim.run_until(|| !tasks.iter().zip(cluster.streams()).any(pending));
    let report = |(task, stream): (&Task<Report>, &Stream)| {
        task.take().unwrap_or_else(|| {
            let book = cluster.oracle.book(stream.id);
            let messages = if side == Side::Sender { book.begun } else { book.credit };
            let ended_ns = gone(stream).unwrap_or(0);
            Report { messages, credits: book.credits, ended_ns, killed: true, ..Report::new(*stream) }
        })
    };
    tasks.iter().zip(cluster.streams()).map(report).collect()
}

/// Runs to the end of all kernels, lets the rest settle, and judges.
pub fn finish(cluster: &Cluster, streams: Streams) -> Outcome {
    let senders = collect(cluster, &streams.senders, Side::Sender);
    let receivers = collect(cluster, &streams.receivers, Side::Receiver);
    let lasted_ns = cluster.sim.now() - cluster.began_ns();
    streams.ended.set(true);
    cluster.sim.run_for(cluster.spec.settle_ns);
    cluster.judge_adders(&streams.adders);
    cluster.judge_sharers(&streams.sharers);
    let resolved = streams.resolvers.iter().filter_map(Task::take).sum();
    for (sent, received) in senders.iter().zip(&receivers) {
        judge(cluster, sent, received);
    }
    Outcome {
        spec: cluster.spec.clone(),
        senders,
        receivers,
        oracle: cluster.oracle.clone(),
        records: cluster.records(),
        faults: cluster.faults(),
        first_paths: cluster.first_paths().clone(),
        paths: cluster.paths(),
        notes: cluster.notes(),
        resolved,
        trace: cluster.sim.trace_hash(),
        steps: cluster.sim.steps(),
        began_ns: cluster.began_ns(),
        lasted_ns,
    }
}

/// What can only be said of a stream at the end: nothing lost, nothing twice, no ghost since.
fn judge(cluster: &Cluster, sent: &Report, received: &Report) {
    let (oracle, now, stream) = (&cluster.oracle, cluster.sim.now(), sent.stream);
    let well = [sent, received].iter().all(|report| report.fault.is_none() && !report.killed);
    if well && received.messages != sent.messages {
        let what = format!("{stream}: {} sent, {} received", sent.messages, received.messages);
        oracle.report(Kind::Lost, now, what);
    }
    let book = oracle.book(stream.id);
    if !received.killed {
        let heap = cluster.pe(stream.to).heap().address;
        let visible = load(heap + stream.signal());
        for message in received.messages.saturating_sub(stream.slots)..received.messages {
            // A message that the receiver did not live to consume lies over the one before it in its slot.
            if visible <= message + stream.slots {
                stream.check_at_end(heap, message, oracle, now);
            }
        }
        for message in received.messages..visible.min(book.begun) {
            stream.consume(heap, message, oracle, now);
        }
    }
    let signal = Word {
        name: "signal",
        pe: stream.to,
        offset: stream.signal(),
        posts: book.begun,
        highest: book.begun,
    };
    let credit = Word {
        name: "credit",
        pe: stream.from,
        offset: stream.credit(),
        posts: book.credits,
        highest: book.credit,
    };
    let heap = |pe: u32, gone: bool| (!gone).then(|| cluster.pe(pe).heap().address);
    let heaps = [heap(stream.from, sent.killed), heap(stream.to, received.killed)];
    let asks = cluster.spec.traffic.gets + cluster.spec.traffic.fetches > 0;
    if asks {
        echo::judge(&stream, heaps, well, oracle, now);
    }
    for (word, gone) in [(signal, received.killed), (credit, sent.killed)] {
        if !gone {
            word.judge(cluster, &stream, well);
        }
    }
}

/// A word that one kernel writes and another waits for.
struct Word {
    name: &'static str,
    pe: u32,
    offset: u64,
    /// Writes that were begun.
    posts: u64,
    /// The highest value that was begun.
    highest: u64,
}

impl Word {
    fn judge(&self, cluster: &Cluster, stream: &Stream, well: bool) {
        let (oracle, now) = (&cluster.oracle, cluster.sim.now());
        let watched = cluster.watched(self.pe, self.offset);
        let value = load(cluster.pe(self.pe).heap().address + self.offset);
        let met = format!(
            "{stream}: {} started {} times up to {}, applied {} times, reads {value}, {} not increasing",
            self.name, self.posts, self.highest, watched.writes, watched.not_increasing
        );
        if watched.not_increasing > 0 || watched.writes > self.posts {
            oracle.report(Kind::Duplicate, now, met.clone());
        }
        if value > self.highest {
            oracle.report(Kind::Invented, now, met.clone());
        }
        if well && (watched.writes < self.posts || value != self.highest) {
            oracle.report(Kind::Lost, now, met);
        }
    }
}
