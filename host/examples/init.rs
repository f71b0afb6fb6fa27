//! What it takes to bring a job up: firmware commands, memory and time, for so many PEs, without and with fault
//! tolerance: `cargo run --profile test -p shunt-host --example init -- [--svg FILE] [PES...]`.
//!
//! Every PE is a thread with two soft NICs; all NICs are run by one more thread. Commands are what counts on hardware,
//! where each takes its time; the time on the wall is this machine's, and says how many threads shared how many cores.

use shunt_device::platform::host::World;
use shunt_host::agent::supervisor::Supervisor;
use shunt_host::agent::words::{Place, StateWords};
use shunt_host::config::EnvConfig;
use shunt_host::connect::bootstrap::InMemory;
use shunt_host::connect::oob::{LATENCY_NS, OobNet};
use shunt_host::devx::Devx;
use shunt_host::error::GpuError;
use shunt_host::gpu::{GpuMemory, HeapMemory, Placement, Span};
use shunt_host::pe::{Bringup, Pe, PeConfig};
use shunt_layout::state::PathState;
use shunt_soft_devx::{SoftClock, SoftDevx};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, NicConfig, NicId, RailAt, SharedFabric, SoftNic};
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const RAILS: u32 = 2;
/// Small rings, so that many PEs fit a machine: commands do not depend on it.
const LOG_DEPTH: u32 = 6;
const HEAP_BYTES: u64 = 1 << 20;
const COMMAND_NS: u64 = 60_000_000_000;
/// The agents of all PEs share one thread here: of more PEs they are not waited for.
const ARMED_MOST: u32 = 32;
/// Agents that have not made all backups by then never will.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Memory that counts what it gave, heap aside.
#[derive(Default)]
struct Counting {
    memory: HeapMemory,
    control: AtomicU64,
}

impl GpuMemory for Counting {
    fn alloc(&self, bytes: u64, placement: Placement) -> Result<Span, GpuError> {
        if placement == Placement::Control {
            self.control.fetch_add(bytes, Ordering::Relaxed);
        }
        self.memory.alloc(bytes, placement)
    }
    unsafe fn free(&self, span: Span) {
        // SAFETY: forwarded to the caller.
        unsafe { self.memory.free(span) }
    }
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), GpuError> {
        self.memory.write(address, bytes)
    }
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.memory.read(address, bytes)
    }
}

/// Real time, in which who waits sleeps the longer the more threads there are: polled by all of them, the one thread
/// that all wait for would not get to run.
struct Patient {
    below: SoftClock,
    nap: Duration,
}

impl World for Patient {
    fn now_ns(&self) -> u64 {
        self.below.now_ns()
    }

    fn relax(&self) {
        std::thread::sleep(self.nap);
    }

    fn doorbell(&self) {
        self.below.doorbell();
    }
}

/// One job.
struct Outcome {
    pes: u32,
    tolerant: bool,
    /// Commands of the busiest NIC, and of all NICs of a PE, when the last PE's init returned.
    busiest: u64,
    each: u64,
    /// Commands of a PE after that, by its agent, and how long until every backup was ready; none where nobody looked.
    later: Option<(u64, f64)>,
    /// Bytes of a PE's memory, heap aside.
    control: u64,
    init_ms: f64,
    /// NICs whose count is not believed, and what the first of them said.
    refused: (usize, Option<String>),
}

/// Commands of each NIC.
fn commands(fabric: &SharedFabric, nics: &[NicId]) -> Vec<u64> {
    fabric.with(|fabric| nics.iter().map(|nic| fabric.nic(*nic).counters().commands).collect())
}

fn config(tolerant: bool) -> PeConfig {
    let env = EnvConfig {
        fault_tolerance: tolerant,
        channels_per_pe: 1,
        log_depth: LOG_DEPTH,
        // Silence says nothing where so many threads share few cores.
        suspect_ns: 600_000_000_000,
        suspect_floor_ns: 600_000_000_000,
        ..EnvConfig::default()
    };
    // On a PE's own thread: all PEs of this program would share the threads of one pool.
    PeConfig { bringup: Bringup::Sequential, ..PeConfig::new(&env, HEAP_BYTES) }
}

fn run(pes: u32, tolerant: bool) -> Outcome {
    let clock = Clock::new();
    let mut fabric = Fabric::new(FabricConfig { link_ns: 2_000, seed: 1 });
    let mut nics = Vec::new();
    for (pe, rail) in (0..pes).flat_map(|pe| (0..RAILS).map(move |rail| (pe, rail))) {
        let nic = SoftNic::new(NicConfig::new(format!("mlx5_{rail}"), pe, rail));
        nics.push(fabric.add(nic, RailAt { pe, rail }));
    }
    let engine = Arc::new(Engine::spawn(fabric, clock));
    let fabric = engine.fabric();
    let nap = Duration::from_micros(u64::from(pes) * 10);
    let world: Arc<dyn World> = Arc::new(Patient { below: SoftClock::new(clock, engine), nap });
    let net = OobNet::new(pes, LATENCY_NS, world.clone());
    let memory = Arc::new(Counting::default());
    let begin = Instant::now();
    let up: Vec<Pe> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..pes)
            .zip(InMemory::group(pes, &world))
            .map(|(pe, bootstrap)| {
                let bootstrap = bootstrap.with_patience(PATIENCE.as_nanos() as u64);
                let own = &nics[(pe * RAILS) as usize..((pe + 1) * RAILS) as usize];
                let open = |nic: &NicId| {
                    Arc::new(SoftDevx::new(fabric.clone(), *nic, world.clone(), COMMAND_NS)) as Arc<dyn Devx>
                };
                let rails: Vec<_> = own.iter().map(open).collect();
                let (gpu, oob, world) = (memory.clone(), Box::new(net.end(pe)), world.clone());
                scope.spawn(move || {
                    Pe::start(config(tolerant), rails, gpu, &bootstrap, oob, world)
                        .expect("soft NICs are well")
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("bring-up does not panic")).collect()
    });
    let init_ms = begin.elapsed().as_secs_f64() * 1e3;
    let at_init = commands(&fabric, &nics);
    let mut disbelieved = up.iter().flat_map(Pe::rails).filter(|rail| !rail.truth_holds);
    let why = disbelieved.next().map(|rail| rail.truth_detail.clone());
    let refused = (why.iter().count() + disbelieved.count(), why);
    let up: Vec<Arc<Pe>> = up.into_iter().map(Arc::new).collect();
    let each = |sum: u64| sum / u64::from(pes);
    let sum: u64 = at_init.iter().sum();
    let later = (tolerant && pes <= ARMED_MOST).then(|| {
        let begin = Instant::now();
        arm(&up);
        let armed_ms = begin.elapsed().as_secs_f64() * 1e3;
        (each(commands(&fabric, &nics).iter().sum::<u64>() - sum), armed_ms)
    });
    // Each by a thread of its own, as they came up: one after another they would take hours.
    std::thread::scope(|scope| up.into_iter().for_each(|pe| drop(scope.spawn(move || drop(pe)))));
    Outcome {
        pes,
        tolerant,
        busiest: at_init.iter().copied().max().unwrap_or_default(),
        each: each(sum),
        later,
        control: each(memory.control.load(Ordering::Relaxed)),
        init_ms,
        refused,
    }
}

/// Runs all agents, one after another, until every path of every PE is ready.
fn arm(up: &[Arc<Pe>]) {
    let agent = |pe: &Arc<Pe>| Some(Supervisor::new(pe.agent().expect("host and example are one build")?));
    let mut agents: Vec<_> = up.iter().map(|pe| (pe, agent(pe).expect("the first"))).collect();
    // SAFETY: the state is mapped as long as the PE, which is in `up`.
    let words = |pe: &Arc<Pe>| unsafe { StateWords::new(pe.host_state(), pe.world().clone()) };
    let mut waiting: Vec<_> = up.iter().map(|pe| words(pe).expect("of this build")).collect();
    let begin = Instant::now();
    while !waiting.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{} PEs have backups that are not made", waiting.len());
        for (pe, supervisor) in &mut agents {
            supervisor.step(pe);
        }
        // The last ones are looked at first, and most looks end there.
        while waiting.last().is_some_and(is_armed) {
            waiting.pop();
        }
    }
}

/// True if every path of a PE is ready.
fn is_armed(words: &StateWords) -> bool {
    let root = words.root();
    let peers = (0..root.pe_count).filter(|peer| *peer != root.my_pe);
    let mut places = peers.flat_map(|peer| (0..root.slots).map(move |slot| Place { peer, channel: 0, slot }));
    places.all(|at| words.path_state(at) == PathState::Ready)
}

fn table(outcomes: &[Outcome]) -> String {
    let mut out = String::from(
        "| PEs | fault tolerance | commands of a PE until init returns | of its busiest NIC | by its agent later | \
         control memory of a PE, KiB | init, ms on the wall | backups, ms on the wall | NICs whose proof failed |\n\
         | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for one in outcomes {
        let ft = if one.tolerant { "on" } else { "off" };
        let (each, busiest, kib) = (one.each, one.busiest, one.control / 1024);
        let none = if one.tolerant { "not taken" } else { "none" };
        let later = one.later.map_or(none.into(), |(commands, _)| commands.to_string());
        let armed = one.later.map_or(none.into(), |(_, ms)| format!("{ms:.0}"));
        let row = format!(
            "| {} | {ft} | {each} | {busiest} | {later} | {kib} | {:.0} | {armed} | {} |",
            one.pes, one.init_ms, one.refused.0
        );
        out += &row;
        out.push('\n');
    }
    out
}

/// A line of the picture: name, colour, of which jobs, of what.
type Line = (&'static str, &'static str, bool, fn(&Outcome) -> Option<u64>);

/// Commands against PEs, both on scales of doublings.
fn picture(outcomes: &[Outcome]) -> String {
    const WIDTH: f64 = 560.0;
    const HEIGHT: f64 = 300.0;
    const LEFT: f64 = 70.0;
    const TOP: f64 = 30.0;
    let most = outcomes.iter().map(|one| one.each).max().unwrap_or(1).max(1024) as f64;
    let widest = outcomes.iter().map(|one| one.pes).max().unwrap_or(2).max(2) as f64;
    let x = |pes: f64| LEFT + WIDTH * pes.log2() / widest.log2();
    let y = |commands: f64| TOP + HEIGHT * (1.0 - commands.max(1.0).log2() / most.log2());
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"700\" height=\"390\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<text x=\"{LEFT}\" y=\"18\">Firmware commands of a PE against PEs, soft NIC</text>\n"
    );
    for power in 0..=most.log2() as u32 {
        let at = y(f64::from(1u32 << power));
        let _ = writeln!(
            out,
            "<text x=\"60\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at + 4.0,
            1u32 << power
        );
        let _ = writeln!(out, "<path d=\"M{LEFT} {at:.1}h{WIDTH}\" stroke=\"#ddd\"/>");
    }
    for one in outcomes.iter().filter(|one| !one.tolerant) {
        let at = x(f64::from(one.pes));
        let _ = writeln!(out, "<text x=\"{at:.1}\" y=\"348\" text-anchor=\"middle\">{}</text>", one.pes);
    }
    let lines: [Line; 3] = [
        ("until init returns, off", "#777", false, |one| Some(one.each)),
        ("until init returns, on", "#06c", true, |one| Some(one.each)),
        ("with what the agent makes later, on", "#c60", true, |one| {
            one.later.map(|(commands, _)| one.each + commands)
        }),
    ];
    for (number, (name, colour, tolerant, of)) in lines.iter().enumerate() {
        let of_kind = outcomes.iter().filter(|one| one.tolerant == *tolerant);
        let point = |one: &Outcome| Some(format!("{:.1},{:.1}", x(f64::from(one.pes)), y(of(one)? as f64)));
        let points: Vec<String> = of_kind.filter_map(point).collect();
        let _ =
            writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", points.join(" "));
        let at = 366 + 11 * number;
        let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{at}\" fill=\"{colour}\">{name}</text>");
    }
    out + "</svg>\n"
}

fn main() -> ExitCode {
    let (mut svg, mut counts) = (None, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), arg.parse()) {
            ("--svg", _) => svg = args.next(),
            (_, Ok(pes)) if pes > 1 => counts.push(pes),
            _ => {
                eprintln!("'{arg}' is neither --svg nor a number of PEs, from 2 on");
                return ExitCode::from(2);
            }
        }
    }
    if counts.is_empty() {
        counts = (1..10).map(|power| 1 << power).collect();
    }
    let mut outcomes = Vec::new();
    for pes in counts {
        for tolerant in [false, true] {
            outcomes.push(run(pes, tolerant));
            // As it grows: the large ones take minutes.
            eprintln!("{}", table(&outcomes[outcomes.len() - 1..]).lines().last().unwrap_or_default());
            if let Some(why) = &outcomes[outcomes.len() - 1].refused.1 {
                eprintln!("  the first of {}: {why}", outcomes[outcomes.len() - 1].refused.0);
            }
        }
        if let Some(file) = &svg
            && let Err(error) = std::fs::write(file, picture(&outcomes))
        {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{}\nA thread for each PE and one for all NICs, on {cores} cores.", table(&outcomes));
    ExitCode::SUCCESS
}
