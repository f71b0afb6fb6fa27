//! What a put costs with its queues in memory of the host and of the GPU.
//! `cargo run --profile test -p shunt-tests --example placement`.
//!
//! Virtual time. A load or an atomic of a kernel waits a microsecond for the host's memory and 0.3 for the GPU's, each
//! behind the one before; a store is posted and waits for nothing, and barriers are not charged.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use shunt_device::{Deadline, HeapOffset, Put, Signal, Solo};
use shunt_tests::cluster::Cluster;
use shunt_tests::kernel::Kernel;
use shunt_tests::sim::{Access, SimWorld};
use shunt_tests::spec::RunSpec;

/// What a kernel waits for a word of the host.
const HOST_NS: u64 = 1_000;
/// The same of the GPU it runs on.
const OWN_NS: u64 = 300;
/// Puts of which the rate is told.
const PUTS: u64 = 1_000;

/// Accesses by memory and kind, and the piece of 16 bytes that was loaded last: one load of a GPU takes all of it.
#[derive(Default)]
struct Counted {
    by_kind: BTreeMap<(&'static str, &'static str), u64>,
    piece: u64,
}

type Counts = Rc<RefCell<Counted>>;

fn kind(method: &str) -> &'static str {
    match method {
        "store" | "store_release" | "store32" | "store_segment" | "unlock" => "stores",
        "store_doorbell_record" | "store_register" => "doorbell stores",
        "fetch_add" | "fetch_or" | "fetch_and" | "compare_swap" | "try_lock" => "atomics",
        _ => "loads",
    }
}

/// Counts an access, and says how long its kernel waits for it.
fn charge(world: &SimWorld, counts: &Counts, access: Access) -> u64 {
    let kind = kind(access.method);
    let own = world.lies_on_a_device(access.address);
    let mut counts = counts.borrow_mut();
    let piece = if kind == "loads" { access.address / 16 } else { 0 };
    if std::mem::replace(&mut counts.piece, piece) == piece && piece != 0 {
        return 0;
    }
    *counts.by_kind.entry((if own { "GPU" } else { "host" }, kind)).or_default() += 1;
    match kind {
        "loads" | "atomics" => {
            if own {
                OWN_NS
            } else {
                HOST_NS
            }
        }
        _ => 0,
    }
}

/// What one operation took, and its accesses.
fn measured<T>(kernel: &Kernel, counts: &Counts, work: impl FnOnce() -> T) -> (u64, String) {
    counts.take();
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
    let (world, counted): (Arc<SimWorld>, _) = (cluster.sim.world(), counts.clone());
    let hook = move |access| charge(&world, &counted, access);
    cluster.interference.hook.replace(Some(Box::new(hook)));
    let task = cluster.spawn("puts", 0, move |kernel| table(kernel, &counts));
    cluster.sim.finish(&task)
}

fn main() {
    let (host, gpu) = (run(false), run(true));
    println!("virtual time; host's memory {HOST_NS} ns, the GPU's {OWN_NS} ns a load or atomic\n");
    for ((what, host_ns, host_told), (_, gpu_ns, gpu_told)) in host.iter().zip(&gpu) {
        let ratio = *host_ns as f64 / (*gpu_ns).max(1) as f64;
        println!("{what}: {host_ns} ns with queues on the host, {gpu_ns} ns on the GPU: {ratio:.1} times");
        println!("  host: {host_told}\n  GPU:  {gpu_told}");
    }
    let rate =
        |rows: &[(String, u64, String)]| rows.last().map_or(0.0, |(_, ns, _)| 1e3 / (*ns).max(1) as f64);
    println!("\nputs of one channel, M/s: {:.2} host, {:.2} GPU", rate(&host), rate(&gpu));
}
