//! What only a GPU can show, one row a call: `gpu_check ROW`. `cargo xtask gpu run` calls all rows and prints a table.
//!
//! The last line of the output is what the row found. Exit status: 0 as it should be, 1 not, 2 no such row, 3 no GPU:
//! then nothing was run.
//!
//! PEs, NICs and kernels on a GPU come from [`shunt_bench`], scenarios and what they must come to from the crates that
//! have the kernels; here are the rows, and ranks of MoE layers that share one GPU.

mod gpu_moe;
mod watch;

use gpu_moe::GpuRank;
use shunt_bench::cluster::{Cluster, Unit, find_gpu, suspect_ns};
use shunt_bench::gpu::{Kernels, answered};
use shunt_bench::heap::HeapMap;
use shunt_bench::job::Job;
use shunt_bench::job::board::Board;
use shunt_bench::job::threads::Threads;
use shunt_bench::nics::source::Source;
use shunt_bench::options::Options;
use shunt_deep_ep_bridge::normal::NormalBuffer;
use shunt_deep_ep_bridge::scenarios::normal::{self, NormalScenario};
use shunt_deep_ep_bridge::scenarios::{self as moe, FAILS_BEFORE};
use shunt_deep_ep_bridge::staged::{Mode, Staged};
use shunt_deep_ep_bridge::{Buffer, Patience};
use shunt_device::HeapOffset;
use shunt_host::agent::reader::Cursor;
use shunt_kernels::scenarios::{self, Group, HEAP_BYTES, Launch, Machine};
use shunt_kernels::{Call, Outcome, STATUS_OK};
use shunt_layout::state::SwitchKind;
use shunt_soft_nic::RailAt;
use shunt_soft_nic::fault::{Fault, Injection};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a row found, or why it is not as it should be.
type Found = Result<String, String>;

/// A row, given what follows its name.
type Row = fn(&[String]) -> Found;

const ROWS: &[(&str, Row)] = &[
    ("kernels", kernels),
    ("moe", moe_layers),
    ("normal", normal_layers),
    ("graph", graph),
    ("rates", rates),
    ("switch", switch),
    ("watch", watch::word),
];
/// Rows that take `--each`.
const EACH: &str = "kernels, moe and normal take it";
const STATUS: &str = "Exit status: 0 as it should be, 1 not, 2 no such row, 3 no GPU: nothing was run";
/// Patience of every wait.
const PATIENCE_NS: u64 = 2_000_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let row = arguments.first().and_then(|name| ROWS.iter().find(|(row, _)| row == name));
    let Some((_, row)) = row else {
        let names: Vec<&str> = ROWS.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        let met = arguments.first().map_or("nothing", String::as_str);
        if ["-h", "--help"].contains(&met) {
            println!(
                "usage: gpu_check ROW [--each]\n\nROW: {names}\n--each: a scenario of each kind; {EACH}\n{STATUS}"
            );
            return ExitCode::SUCCESS;
        }
        eprintln!("error: row: expected one of {names}, got {met}; see gpu_check --help");
        return ExitCode::from(2);
    };
    if let Err(error) = find_gpu(&options(2, 1)) {
        println!("not run: {error}");
        return ExitCode::from(3);
    }
    match row(&arguments[1..]) {
        Ok(text) => println!("{text}"),
        Err(text) => {
            println!("{text}");
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}

fn options(pes: u32, channels: u32) -> Options {
    let arguments =
        format!("gpu_check --device gpu --pes {pes} -c {channels} --rails 2 --rail-gbps 100 --watch");
    Options::from_arguments(arguments.split(' ')).expect("a command line of our own")
}

/// PEs on soft NICs, and what keeps their agents in step.
struct Rig {
    cluster: Cluster,
    _job: Threads,
}

impl Rig {
    fn start(options: &Options) -> Result<Self, String> {
        let map = HeapMap::new(options);
        Self::with(options, map, map.slot_bytes())
    }

    /// On heaps of another map, whose largest message is `message` bytes long.
    fn with(options: &Options, map: HeapMap, message: u64) -> Result<Self, String> {
        let (source, job) = (Source::Soft, Threads::new(options.pes()));
        let cluster = Cluster::start(options, &source, &job, map, message);
        let cluster = cluster.map_err(|error| format!("the PEs did not come up: {error}"))?;
        job.begin(&Arc::new(Board::new(0, options.pes()))).map_err(|error| error.to_string())?;
        Ok(Self { cluster, _job: job })
    }

    fn unit(&self, pe: u32) -> &Unit {
        self.cluster.unit(pe)
    }

    fn kernels(&self, pe: u32) -> &Kernels {
        self.unit(pe).kernels().expect("every PE of this program's has kernels on the GPU")
    }

    /// One block of a kernel on PE 0; its outcome if all went well.
    fn run(&self, kernel: &str, group: Group, call: Call) -> Result<Outcome, String> {
        let outcomes = self.kernels(0).run(kernel, group, 1, group.threads(), call);
        let outcome = outcomes.map_err(|error| format!("{kernel}: {error}"))?[0];
        if outcome.status == 0 { Ok(outcome) } else { Err(format!("{kernel}: {outcome:?}")) }
    }

    /// The same of a kernel that puts eight bytes by a warp, again and again: they are there when it has ended, and
    /// were not before.
    fn run_and_look(&self, kernel: &str, call: Call, bytes: u64) -> Result<Outcome, String> {
        let word = |pe: u32, at: u64| &self.unit(pe).heap().words(HeapOffset(at), 1)[0];
        word(0, call.src).store(bytes, Ordering::Release);
        word(call.peer, call.dst).store(!bytes, Ordering::Release);
        let outcome = self.run(kernel, Group::Warp, call)?;
        let met = word(call.peer, call.dst).load(Ordering::Acquire);
        match met == bytes {
            true => Ok(outcome),
            false => Err(format!("{kernel}: expected {bytes:#x} at the target, got {met:#x}")),
        }
    }

    /// Plans a fault for now.
    fn inject(&self, rail: u32, fault: &str) -> Result<(), String> {
        let injection: Injection =
            format!("0ms:0.{rail}:{fault}").parse().map_err(|error| format!("{error}"))?;
        let Fault::Nic(kind) = injection.fault else { return Err(format!("{fault} is none of a NIC")) };
        let now = self.cluster.clock().now_ns();
        self.cluster.nics().inject(now, RailAt { pe: 0, rail }, kind).map(|_| ())
    }

    /// Has kernels look after PE 0's channels for a while: only kernels switch.
    fn linger(&self, ns: u64) -> Result<(), String> {
        let never = Call { word: 0, value: u64::MAX, timeout_ns: ns, ..Call::default() };
        let outcomes = self.kernels(0).run("wait_until", Group::Thread, 1, 1, never);
        outcomes.map(|_| ()).map_err(|error| error.to_string())
    }
}

impl Machine for Rig {
    fn fill(&mut self, pe: u32, bytes: &[u8]) {
        let words = self.unit(pe).heap().words(HeapOffset(0), HEAP_BYTES as u64 / 8);
        for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().expect("eight bytes")), Ordering::Release);
        }
    }

    fn heap(&mut self, pe: u32) -> Vec<u8> {
        let words = self.unit(pe).heap().words(HeapOffset(0), HEAP_BYTES as u64 / 8);
        words.iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes()).collect()
    }

    fn launch(&mut self, launches: &[Launch]) -> Vec<Vec<Outcome>> {
        let one = |launch: &Launch| {
            let (group, blocks) = (launch.group, launch.blocks);
            let outcomes =
                self.kernels(launch.pe).run(launch.kernel, group, blocks, group.threads(), launch.call);
            // None: the scenario says what it missed.
            outcomes.inspect_err(|error| println!("{}: {error}", launch.kernel)).unwrap_or_default()
        };
        let one = &one;
        std::thread::scope(|scope| {
            let running: Vec<_> = launches.iter().map(|launch| scope.spawn(move || one(launch))).collect();
            running.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        })
    }
}

/// The list of scenarios, on fresh random heaps, every byte looked at. Each has a cluster of its own. With `--each` the
/// first of each entry point.
fn kernels(arguments: &[String]) -> Found {
    let list = match arguments {
        [flag] if flag == "--each" => scenarios::each(),
        [] => scenarios::all(),
        other => return Err(format!("expected --each or nothing behind the row, got {}", other.join(" "))),
    };
    let mut options = options(4, scenarios::CHANNELS);
    (options.gpu_everywhere, options.log2_chunk) = (true, Some(12));
    let mut wrongs = Vec::new();
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |age| age.as_nanos() as u64);
    for (number, scenario) in list.iter().enumerate() {
        let mut rig = Rig::start(&options)?;
        let seed = seed.wrapping_add(number as u64);
        wrongs.extend(
            scenarios::run(scenario, &mut rig, seed).err().map(|wrong| format!("seed {seed}: {wrong}")),
        );
    }
    wrongs.iter().for_each(|wrong| println!("{wrong}"));
    let (run, all) = (list.len(), scenarios::all().len());
    match wrongs.len() {
        0 => Ok(format!("{run} of {all} scenarios, every byte right")),
        wrong => Err(format!("{wrong} of {run} scenarios wrong")),
    }
}

/// Layers of MoE among ranks that share the GPU: launches, and graphs that are replayed; while a port fails as well.
/// Every byte is held against the reference. With `--each` the first scenario of each group of threads.
fn moe_layers(arguments: &[String]) -> Found {
    let list = match arguments {
        [flag] if flag == "--each" => {
            [Group::Warp, Group::Block].map(|group| moe::of(group).swap_remove(0)).to_vec()
        }
        [] => moe::all(),
        other => return Err(format!("expected --each or nothing behind the row, got {}", other.join(" "))),
    };
    let mut wrongs = Vec::new();
    for (seed, scenario) in (1..).zip(&list) {
        let wrong = play(scenario, seed).unwrap_or_else(|error| vec![error]);
        wrongs.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", scenario.name)));
    }
    wrongs.iter().for_each(|wrong| println!("{wrong}"));
    let (run, all) = (list.len(), moe::all().len());
    match wrongs.len() {
        0 => Ok(format!("{run} of {all} scenarios of MoE, every byte right")),
        wrong => Err(format!("{wrong} wrongs in {run} scenarios of MoE")),
    }
}

/// Where buffers begin.
const BASE: u64 = 4096;

/// All ranks play their parts; what is wrong.
fn play(scenario: &moe::Scenario, seed: u64) -> Result<Vec<String>, String> {
    let shape = scenario.shape;
    let message = shape.dispatch_stride().max(shape.combine_stride());
    let (rig, slice_ns) = rig_of(shape.ranks, shape.local_experts, shape.bytes(), message)?;
    let (blocks, signals) = (scenario.blocks, scenario.signals);
    let patience = Patience { timeout_ns: 10 * PATIENCE_NS, slice_ns, mask_lost: false, blocks, signals };
    let cases = scenario.cases(seed);
    let part = |rank: u32| -> Result<Vec<String>, String> {
        let machine = GpuRank::new(&rig.cluster, rank, (shape.ranks, scenario.locals), scenario.group);
        let (staged, experts) = (Staged::new(machine, &shape, scenario.mode), shape.experts() as u32);
        let buffer = Buffer::new(staged, BASE, shape.tokens, shape.hidden, experts, patience);
        let mut buffer = buffer.map_err(|error| error.to_string())?;
        let mut refused = None;
        let fail = |layer| {
            if rank == 0 && scenario.fails && layer == FAILS_BEFORE {
                refused = rig.inject(0, "down").err();
            }
        };
        let wrongs = scenario.play(&mut buffer, &cases, fail).map_err(|error| error.to_string())?;
        refused.map_or(Ok(wrongs), Err)
    };
    Ok(play_all(&rig, shape.ranks, scenario.fails, &part))
}

/// Ranks that share the GPU, with room for a buffer in each heap; and how long a slice of a wait is.
fn rig_of(ranks: u32, channels: u32, bytes: u64, message: u64) -> Result<(Rig, u64), String> {
    let mut options = options(ranks, channels);
    options.gpu_everywhere = true;
    let rig = Rig::with(&options, HeapMap::plain(BASE + bytes), message)?;
    Ok((rig, (4 * suspect_ns(&options, &Source::Soft, message)).max(100_000_000)))
}

/// Runs the part of each rank at the same time; what is wrong. Where a rail `fails`, somebody must have switched.
fn play_all(
    rig: &Rig,
    ranks: u32,
    fails: bool,
    part: &(impl Fn(u32) -> Result<Vec<String>, String> + Sync),
) -> Vec<String> {
    let said: Vec<Result<Vec<String>, String>> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || part(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|_| Err("it panicked".into()))).collect()
    });
    let mut wrongs = Vec::new();
    for (rank, said) in said.into_iter().enumerate() {
        let said = said.unwrap_or_else(|error| vec![error]);
        wrongs.extend(said.into_iter().map(|wrong| format!("rank {rank}: {wrong}")));
    }
    if fails && (0..ranks).all(|rank| rig.unit(rank).generations().0 == 0) {
        wrongs.push("a rail failed and no channel switched".to_owned());
    }
    wrongs
}

/// Layers of normal mode between two nodes of two ranks, all of which share the GPU: a node's ranks reach each other's
/// heaps, those of different nodes have soft NICs between them. Without a fault, and while a rail fails. Every byte is
/// held against the reference. With `--each` the first scenario of each group of threads.
fn normal_layers(arguments: &[String]) -> Found {
    let list = match arguments {
        [flag] if flag == "--each" => {
            [Group::Warp, Group::Block].map(|group| normal::of(group).swap_remove(0)).to_vec()
        }
        [] => normal::all(),
        other => return Err(format!("expected --each or nothing behind the row, got {}", other.join(" "))),
    };
    let mut wrongs = Vec::new();
    for (seed, scenario) in (1..).zip(&list) {
        let wrong = play_normal(scenario, seed).unwrap_or_else(|error| vec![error]);
        wrongs.extend(wrong.into_iter().map(|wrong| format!("{}: {wrong}", scenario.name)));
    }
    wrongs.iter().for_each(|wrong| println!("{wrong}"));
    let (run, all) = (list.len(), normal::all().len());
    match wrongs.len() {
        0 => Ok(format!("{run} of {all} scenarios of normal mode, every byte right")),
        wrong => Err(format!("{wrong} wrongs in {run} scenarios of normal mode")),
    }
}

/// All ranks play their parts in normal mode; what is wrong.
fn play_normal(scenario: &NormalScenario, seed: u64) -> Result<Vec<String>, String> {
    let shape = scenario.shape;
    let message = u64::from(shape.chunk) * shape.dispatch_stride().max(shape.combine_stride());
    // A channel for what each part sends, and one for the heads that it returns.
    let (rig, slice_ns) = rig_of(shape.ranks(), 2 * shape.channels, shape.bytes(), message)?;
    let blocks = scenario.blocks;
    let patience = Patience { timeout_ns: 10 * PATIENCE_NS, slice_ns, blocks, ..Patience::default() };
    let cases = scenario.cases(seed);
    let part = |rank: u32| -> Result<Vec<String>, String> {
        let machine = GpuRank::new(&rig.cluster, rank, (shape.ranks(), shape.locals), scenario.group);
        let staged = Staged::new(machine, &scenario.low(), Mode::Launch);
        let buffer = NormalBuffer::new(staged, BASE, shape, patience);
        let mut buffer = buffer.map_err(|error| error.to_string())?;
        let mut refused = None;
        let fail = |fault: &str| {
            if rank == 0 {
                refused = rig.inject(0, fault).err();
            }
        };
        let wrongs = scenario.play(&mut buffer, &cases, fail).map_err(|error| error.to_string())?;
        refused.map_or(Ok(wrongs), Err)
    };
    Ok(play_all(&rig, shape.ranks(), scenario.fault.is_some(), &part))
}

/// What it launches, in order.
const GRAPH: [&str; 3] = ["put", "signal_cleared", "quiet"];
/// Bytes of the graph's put.
const GRAPH_BYTES: u64 = 4096;
const GRAPH_SRC: u64 = 16 << 10;
const GRAPH_DST: u64 = 32 << 10;
const GRAPH_WORD: u64 = 8 << 10;

/// One replay: bytes that no other has, all of them there afterwards, and the word counts replays.
fn replay_once(rig: &Rig, number: u64, replay: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let words = GRAPH_BYTES / 8;
    let pattern = |at: u64| (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at;
    let source = rig.unit(0).heap().words(HeapOffset(GRAPH_SRC), words);
    (0..).zip(source).for_each(|(at, word)| word.store(pattern(at), Ordering::Release));
    rig.kernels(0).poison(3);
    replay()?;
    for (kernel, outcome) in GRAPH.iter().zip(rig.kernels(0).outcomes(3)) {
        let outcome = answered(kernel, outcome).map_err(|error| format!("replay {number}: {error}"))?;
        if outcome.status != STATUS_OK {
            return Err(format!("replay {number}: {kernel}: {outcome:?}"));
        }
    }
    let target = rig.unit(1).heap().words(HeapOffset(GRAPH_DST), words);
    let wrong = (0..).zip(target).find(|(at, word)| word.load(Ordering::Acquire) != pattern(*at));
    if let Some((at, _)) = wrong {
        return Err(format!("replay {number}: word {at} of the put is not there after its quiet"));
    }
    let count = rig.unit(1).heap().words(HeapOffset(GRAPH_WORD), 1)[0].load(Ordering::Acquire);
    if count == number + 1 { Ok(()) } else { Err(format!("{count} signals after {} replays", number + 1)) }
}

/// A graph captured once replays across a fault and a switch-back.
fn graph(_: &[String]) -> Found {
    let rig = Rig::start(&options(2, 1))?;
    let call = Call { peer: 1, timeout_ns: PATIENCE_NS, ..Call::default() };
    let put = Call { src: GRAPH_SRC, dst: GRAPH_DST, bytes: GRAPH_BYTES, ..call };
    let signal = Call { word: GRAPH_WORD, value: 1, ..call };
    let kernels = rig.kernels(0);
    // Code is loaded before a graph is made.
    rig.run("quiet", Group::Warp, call)?;
    let graph = kernels.capture(|| {
        let each = (0..).zip(GRAPH.into_iter().zip([put, signal, call]));
        each.into_iter()
            .try_for_each(|(at, (kernel, call))| kernels.launch_at(at, kernel, Group::Warp, (1, 32), call))
    });
    let graph = graph.map_err(|error| format!("capture: {error}"))?;
    let (mut number, start) = (0, Instant::now());
    let mut replays = |until: &dyn Fn(u64) -> bool| -> Result<(), String> {
        let begun = number;
        while !until(number - begun) {
            replay_once(&rig, number, || kernels.replay(&graph).map_err(|error| error.to_string()))?;
            number += 1;
            rig.linger(100_000)?;
            if start.elapsed() > Duration::from_secs(60) {
                let (failovers, back) = rig.unit(0).generations();
                return Err(format!("after a minute: {failovers} failovers, {back} switch-backs"));
            }
        }
        Ok(())
    };
    replays(&|count| count == 50)?;
    rig.inject(0, "down")?;
    replays(&|count| count >= 50 && rig.unit(0).generations().0 > 0)?;
    rig.inject(0, "up")?;
    replays(&|count| count >= 50 && rig.unit(0).generations().1 > 0)?;
    replays(&|count| count == 50)?;
    let (failovers, back) = rig.unit(0).generations();
    Ok(format!(
        "captured once, {number} replays, {failovers} failovers, {back} switch-backs, every byte right"
    ))
}

/// Rate and latency of puts of eight bytes by a warp, with and without fault tolerance in turn; the median of five.
fn rates(_: &[String]) -> Found {
    let rig = Rig::start(&options(2, 1))?;
    let call =
        Call { peer: 1, src: 16 << 10, dst: 32 << 10, bytes: 8, timeout_ns: PATIENCE_NS, ..Call::default() };
    let mut figures: [[Vec<f64>; 2]; 2] = Default::default();
    for turn in 1..=5 {
        // Another one each time.
        let bytes = |of: u64| (2 * turn + of).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (at, suffix) in ["", "_ft_off"].into_iter().enumerate() {
            let rounds = 20_000;
            let bw = Call { rounds, window: 32, ..call };
            let ns = rig.run_and_look(&format!("put_bw{suffix}"), bw, bytes(0))?.ns;
            figures[0][at].push(rounds as f64 * 1e3 / ns.max(1) as f64);
            let rounds = 2_000;
            let latency = Call { rounds, ..call };
            let value = rig.run_and_look(&format!("put_latency{suffix}"), latency, bytes(1))?.value;
            figures[1][at].push(value as f64 / rounds as f64 / 1e3);
        }
    }
    let median = |list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list[list.len() / 2]
    };
    let [[rate, rate_off], [latency, latency_off]] =
        figures.each_mut().map(|pair| pair.each_mut().map(median));
    Ok(format!(
        "GPU kernels on a soft NIC: {rate:.3} M puts/s with FT, {rate_off:.3} without; \
         latency {latency:.2} us with, {latency_off:.2} without"
    ))
}

/// Switches that are timed.
const SWITCHES: usize = 50;

/// From an error completion that a kernel saw to the doorbell on the backup, which the same kernels ring.
fn switch(_: &[String]) -> Found {
    let mut taken = Vec::new();
    let mut attempts = 0;
    while taken.len() < SWITCHES {
        attempts += 1;
        if attempts > 2 * SWITCHES {
            return Err(format!("{} of {attempts} faults were survived by a switch", taken.len()));
        }
        let rig = Rig::start(&options(2, 1))?;
        let call = Call {
            peer: 1,
            src: 16 << 10,
            dst: 32 << 10,
            bytes: 64,
            word: 8 << 10,
            value: 1,
            rounds: 2_000,
            window: 16,
            timeout_ns: PATIENCE_NS,
            ..Call::default()
        };
        rig.inject(0, "cqe-error=0x15")?;
        rig.run("drill", Group::Warp, call)?;
        let (records, ..) = rig.unit(0).records_since(&mut Cursor::default());
        let failovers = records.iter().filter(|record| record.kind == SwitchKind::Failover as u32);
        taken.extend(failovers.map(|record| record.stamps[4].saturating_sub(record.stamps[0])).take(1));
    }
    taken.sort_unstable();
    let at = |part: usize| taken[(taken.len() - 1) * part / 100] as f64 / 1e3;
    Ok(format!(
        "error CQE to first backup doorbell, strict fence, soft NIC: p50 {:.1} us, p99 {:.1} us, {SWITCHES} switches",
        at(50),
        at(99)
    ))
}
