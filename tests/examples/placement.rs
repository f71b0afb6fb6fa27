//! What a put costs, and how long a failover takes, with queues in memory of the host and of the GPU.
//! `cargo run --profile test -p shunt-tests --example placement [-- FAILOVERS]`.
//!
//! Virtual time. A load or an atomic of a kernel takes a microsecond in the host's memory and 0.3 in the GPU's. Relaxed
//! loads are under way together, until the next access that orders anything or stores; a key that was read once is in
//! the L1. A store is posted and waits for nothing. A fence of the whole system takes 1.25 us, one of the GPU 0.4,
//! and so does the store that frees a lock.

use shunt_device::{Deadline, HeapOffset, Put, Signal, Solo};
use shunt_layout::state::SwitchKind;
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::run::{finish, start_streams};
use shunt_tests::sim::{Access, SimWorld};
use shunt_tests::spec::RunSpec;
use shunt_tests::traffic::Traffic;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// What a kernel waits for a word of the host.
const HOST_NS: u64 = 1_000;
/// The same of the GPU it runs on.
const OWN_NS: u64 = 300;
/// What a fence of the whole system takes.
const SYSTEM_FENCE_NS: u64 = 1_250;
/// The same of one of the GPU.
const OWN_FENCE_NS: u64 = 400;
/// Puts of which the rate is told.
const PUTS: u64 = 1_000;
/// Failovers of each placement, unless the command line says otherwise.
const FAILOVERS: u64 = 300;

/// Accesses by memory and kind.
#[derive(Default)]
struct Counted {
    by_kind: BTreeMap<(&'static str, &'static str), u64>,
    /// The piece of 16 bytes that was loaded last: one load of a GPU takes all of it.
    piece: u64,
    /// By actor: when all that it loads is there.
    there_at: BTreeMap<usize, u64>,
    /// Keys that were read.
    keys: BTreeSet<u64>,
}

impl Counted {
    /// How long an actor waits until `at`, and for what it loads. `on` says that it goes on without.
    fn waits(&mut self, world: &SimWorld, at: u64, on: bool) -> u64 {
        let there_at = self.there_at.entry(world.current().unwrap_or_default()).or_default();
        *there_at = at.max(*there_at);
        if on { 0 } else { there_at.saturating_sub(world.now()) }
    }
}

type Counts = Rc<RefCell<Counted>>;

fn kind(method: &str) -> &'static str {
    match method {
        "store" | "store_release" | "store32" | "store_segment" | "unlock" => "stores",
        "store_doorbell_record" | "store_register" => "doorbell stores",
        "fetch_add" | "fetch_or" | "fetch_and" | "compare_swap" | "try_lock" => "atomics",
        "load_acquire" | "load_cqe" => "ordered loads",
        "load_key" => "loads of keys",
        // Of these `load32`: a post's are the quarters of one load of 16 bytes.
        _ => "loads",
    }
}

/// Counts an access, and says how long its kernel waits.
fn charge(world: &SimWorld, counts: &Counts, access: Access) -> u64 {
    let kind = kind(access.method);
    let own = world.lies_on_a_device(access.address);
    let (latency, now) = (if own { OWN_NS } else { HOST_NS }, world.now());
    let mut counts = counts.borrow_mut();
    let piece = if kind == "loads" { access.address / 16 } else { 0 };
    if std::mem::replace(&mut counts.piece, piece) == piece && piece != 0 {
        return 0;
    }
    *counts.by_kind.entry((if own { "GPU" } else { "host" }, kind)).or_default() += 1;
    match kind {
        "loads" => counts.waits(world, now + latency, true),
        "loads of keys" if !counts.keys.insert(access.address) => 0,
        "loads of keys" => counts.waits(world, now + latency, true),
        "ordered loads" | "atomics" => counts.waits(world, now + latency, false),
        _ if access.method == "unlock" => counts.waits(world, now, false) + OWN_FENCE_NS,
        _ => counts.waits(world, now, false),
    }
}

/// Counts a barrier, and says how long it takes.
fn charge_barrier(world: &SimWorld, counts: &Counts, name: &str) -> u64 {
    let own = name == "own_stores_before_store";
    let mut counts = counts.borrow_mut();
    *counts.by_kind.entry((if own { "GPU" } else { "system" }, "fences")).or_default() += 1;
    counts.waits(world, world.now(), false) + if own { OWN_FENCE_NS } else { SYSTEM_FENCE_NS }
}

/// What one operation took, and its accesses.
fn measured<T>(kernel: &Kernel, counts: &Counts, work: impl FnOnce() -> T) -> (u64, String) {
    counts.borrow_mut().by_kind.clear();
    let began = kernel.world.now();
    work();
    let took = kernel.world.now() - began;
    let told = counts
        .borrow()
        .by_kind
        .iter()
        .map(|((place, kind), count)| format!("{count} {kind} on {place}"))
        .collect::<Vec<_>>();
    (took, told.join(", "))
}

fn table(kernel: &Kernel, counts: &Counts) -> Vec<(String, u64, String)> {
    let channel = kernel.device().channel(1, 0);
    let put = Put { dst: HeapOffset(1024), src: HeapOffset(0), bytes: 64 };
    let until = || Deadline::after(kernel.world.now(), 1_000_000_000);
    let quiet = || channel.quiet(Solo, until()).expect("a healthy path");
    channel.put_nbi(Solo, put).expect("room");
    quiet();
    let mut rows = Vec::new();
    let mut row = |what: &str, (took, told)| rows.push((what.to_owned(), took, told));
    row("put", measured(kernel, counts, || channel.put_nbi(Solo, put).expect("room")));
    quiet();
    let signal = || channel.put_signal_nbi(Solo, put, HeapOffset(64), Signal::Monotone(1)).expect("room");
    row("put with signal", measured(kernel, counts, signal));
    kernel.world.sleep(50_000);
    row("quiet, all delivered", measured(kernel, counts, quiet));
    row(
        "look that finds nothing",
        measured(kernel, counts, || channel.progress(until()).expect("a healthy path")),
    );
    let (took, told) = measured(kernel, counts, || {
        (0..PUTS).for_each(|_| _ = channel.put_nbi(Solo, put).expect("room"));
    });
    row(&format!("{PUTS} puts, each"), (took / PUTS, told));
    rows
}

fn run(on_device: bool) -> Vec<(String, u64, String)> {
    let spec = RunSpec { log_depth: 12, ..RunSpec::default() }.with_queues(on_device);
    let cluster = Cluster::start(&spec);
    let counts = Counts::default();
    charge_all(&cluster, &counts);
    let task = cluster.spawn("puts", 0, move |kernel| table(kernel, &counts));
    cluster.sim.finish(&task)
}

/// The heap of each PE counts as the GPU's, where queues are.
fn own_heaps(cluster: &Cluster) {
    for pe in 0..cluster.spec.pes {
        let root = cluster.pe(pe).state().cast_mut();
        // SAFETY: mapped as long as the cluster is; no kernel runs yet.
        unsafe {
            if cluster.spec.queues_on_device {
                (*root).own_end = (*root).heap_bytes + 1;
            }
        }
    }
}

/// Charges each access of kernels from here on.
fn charge_all(cluster: &Cluster, counts: &Counts) {
    own_heaps(cluster);
    let (world, counted) = (cluster.sim.world(), counts.clone());
    cluster.interference.ask(move |access| charge(&world, &counted, access));
    let (world, counted) = (cluster.sim.world(), counts.clone());
    cluster.interference.ask_of_barriers(move |name| charge_barrier(&world, &counted, name));
}

/// A port of the sender goes down under steady traffic, at an instant that the seed decides: how long until the
/// sender's channel is open on another path, and the longest time between two deliveries.
fn failover(seed: u64, on_device: bool) -> [u64; 2] {
    let at_ns = 3_000_000 + seed * 7_919 % 1_000_000;
    let spec = RunSpec {
        seed,
        both_ways: true,
        traffic: Traffic { messages: 150, pace_ns: 50_000, ..Traffic::default() },
        faults: vec![format!("{at_ns}ns:0.0:down").parse().expect("a fault")],
        ..RunSpec::default()
    };
    let cluster = Cluster::start(&spec.with_queues(on_device));
    charge_all(&cluster, &Counts::default());
    cluster.spec.faults.iter().for_each(|fault| cluster.inject(fault));
    let streams = start_streams(&cluster);
    let outcome = finish(&cluster, streams);
    outcome.assert_clean();
    outcome.assert_exercised();
    let sender = outcome.records.iter().find(|(pe, r)| *pe == 0 && r.kind == SwitchKind::Failover as u32);
    let opened = sender.expect("the sender fails over").1.stamps[5];
    [opened.saturating_sub(outcome.began_ns + at_ns), outcome.max_gap_ns()]
}

fn failovers(runs: u64) {
    println!("\n{runs} port-downs in each placement, microseconds\n");
    println!("| from the port's end | queues | p50 | p99 | longest |\n| --- | --- | ---: | ---: | ---: |");
    let all =
        [false, true].map(|on_device| (0..runs).map(|seed| failover(seed, on_device)).collect::<Vec<_>>());
    for (which, what) in ["to an open channel", "longest gap between deliveries"].iter().enumerate() {
        for (queues, runs) in ["host", "GPU"].iter().zip(&all) {
            let mut span: Vec<u64> = runs.iter().map(|run| run[which]).collect();
            span.sort_unstable();
            let at = |share: f64| span[((span.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
            println!("| {what} | {queues} | {:.1} | {:.1} | {:.1} |", at(0.5), at(0.99), at(1.0));
        }
    }
}

fn main() {
    let runs = std::env::args().nth(1).map_or(FAILOVERS, |text| text.parse().expect("a number of failovers"));
    let (host, gpu) = (run(false), run(true));
    println!(
        "virtual time; a load or atomic: {HOST_NS} ns in the host's memory, {OWN_NS} ns in the GPU's; a fence: \
         {SYSTEM_FENCE_NS} ns of the system, {OWN_FENCE_NS} ns of the GPU\n"
    );
    for ((what, host_ns, host_told), (_, gpu_ns, gpu_told)) in host.iter().zip(&gpu) {
        let ratio = *host_ns as f64 / (*gpu_ns).max(1) as f64;
        println!("{what}: {host_ns} ns with queues on the host, {gpu_ns} ns on the GPU: {ratio:.1} times");
        println!("  host: {host_told}\n  GPU:  {gpu_told}");
    }
    let rate =
        |rows: &[(String, u64, String)]| rows.last().map_or(0.0, |(_, ns, _)| 1e3 / (*ns).max(1) as f64);
    println!("\nputs of one channel, M/s: {:.2} host, {:.2} GPU", rate(&host), rate(&gpu));
    failovers(runs.max(1));
}
