//! What fault tolerance and brackets cost a MoE layer while nothing fails: walls of the kernels alone, paired and
//! interleaved, with their interval. Instructions, by callgrind, with all that is no kernel left out
//! (NICs move between kernels):
//!
//! ```sh
//! cargo build --release -p shunt-bench --example moe_cost
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='moe_cost::kernel' \
//!     target/release/examples/moe_cost on cleared 20
//! ```
//!
//! `on|off`: fault tolerance; `cleared|absolute`: counts and flags; then layers. Without arguments: the walls.

#[path = "../benches/rig/mod.rs"]
#[allow(dead_code)] // its other users
mod rig;

use rig::Rig;
use shunt_deep_ep_bridge::layer::{self, Manner};
use shunt_deep_ep_bridge::reference::Case;
use shunt_deep_ep_bridge::runner::in_turn;
use shunt_deep_ep_bridge::{Buffer, Format, PathName, Patience, Runner, Signals};
use shunt_device::{Device, Fault, Solo, Ticket};
use shunt_kernels::Outcome;
use shunt_kernels::moe::{MoeCall, Stage};
use shunt_layout::moe::Shape;
use std::cell::Cell;
use std::time::Instant;

/// Layers of one wall measurement, and pairs of them.
const LAYERS: u64 = 10;
const PAIRS: usize = 200;

struct Lane<'r> {
    rig: &'r Rig,
    rank: u32,
    wall_ns: &'r Cell<u64>,
}

/// A kernel: all that is counted.
#[inline(never)]
fn kernel(
    device: Device<'_, shunt_device::platform::host::Host<'_>>,
    stage: Stage,
    call: &MoeCall,
) -> Outcome {
    in_turn(call, |block| stage.run(device, Solo, block, call))
}

impl Runner for Lane<'_> {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn ranks(&self) -> u32 {
        2
    }
    fn heap_bytes(&self) -> u64 {
        self.rig.pe(self.rank).heap().bytes
    }
    fn address(&self, at: u64) -> u64 {
        self.rig.pe(self.rank).heap().address + at
    }
    fn run(&self, stage: Stage, call: &MoeCall) -> Outcome {
        // What is to come has come: kernels do not wait.
        (0..2).for_each(|_| self.rig.complete(Ticket(0)));
        let begin = Instant::now();
        let outcome = kernel(self.rig.device(self.rank), stage, call);
        self.wall_ns.set(self.wall_ns.get() + begin.elapsed().as_nanos() as u64);
        outcome
    }
    fn path(&self, _: &Fault) -> Option<PathName> {
        None
    }
}

/// Nanoseconds in kernels, of `layers` on both ranks.
fn layers(buffers: &mut [Buffer<Lane<'_>>; 2], case: &Case, layers: u64, wall_ns: &Cell<u64>) -> u64 {
    wall_ns.set(0);
    for _ in 0..layers {
        let sent = [0, 1].map(|rank| layer::send(&mut buffers[rank], case).expect("nothing fails"));
        let mut answers = Vec::new();
        for (buffer, sent) in buffers.iter_mut().zip(sent) {
            let received = buffer.receive_dispatch(sent).expect("nothing fails");
            answers.push(layer::answer(buffer, case, received, Manner::default()).expect("nothing fails"));
        }
        for (buffer, sent) in buffers.iter_mut().zip(answers) {
            let combined = buffer.receive_combine(sent).expect("nothing fails");
            let wrongs = layer::check_combined(buffer, case, &combined);
            assert!(wrongs.is_empty(), "{wrongs:?}");
        }
    }
    wall_ns.get()
}

fn case() -> Case {
    let shape = Shape::new(2, 4, 8, 1024).expect("sizes that can be");
    Case::random(shape, 2, Format::Fp8, 1)
}

fn buffers<'r>(rig: &'r Rig, signals: Signals, wall_ns: &'r Cell<u64>) -> [Buffer<Lane<'r>>; 2] {
    let (shape, patience) = (case().shape, Patience { signals, ..Patience::default() });
    [0, 1].map(|rank| {
        let lane = Lane { rig, rank, wall_ns };
        let experts = shape.experts() as u32;
        Buffer::new(lane, 4096, shape.tokens, shape.hidden, experts, patience).expect("there is room")
    })
}

/// Median of the differences of pairs in per cent of the second, and its interval of 95 % by ranks: a few pairs that
/// another program disturbed move neither.
fn differ(pairs: &[(u64, u64)]) -> [f64; 3] {
    let of = |(one, other): &(u64, u64)| (*one as f64 / *other as f64 - 1.0) * 100.0;
    let mut all: Vec<f64> = pairs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    let (middle, apart) = (all.len() / 2, (0.98 * (all.len() as f64).sqrt()).ceil() as usize);
    [middle.saturating_sub(apart), middle, (middle + apart).min(all.len() - 1)].map(|at| all[at])
}

fn walls() {
    let (case, wall_ns) = (case(), Cell::new(0));
    let kinds = [(true, Signals::Cleared), (false, Signals::Cleared), (true, Signals::Absolute)];
    let rigs = kinds.map(|(ft, signals)| (Rig::new(ft), signals));
    let mut all: [Vec<u64>; 3] = Default::default();
    let mut sets: Vec<_> = rigs.iter().map(|(rig, signals)| buffers(rig, *signals, &wall_ns)).collect();
    for round in 0..PAIRS + 10 {
        // Each goes first as often as the others.
        for turn in 0..3 {
            let which = (round + turn) % 3;
            let ns = layers(&mut sets[which], &case, LAYERS, &wall_ns);
            if round >= 10 {
                all[which].push(ns / LAYERS / 2);
            }
        }
    }
    let median = |ns: &[u64]| {
        let mut ns = ns.to_vec();
        ns.sort_unstable();
        ns[ns.len() / 2]
    };
    let pairs = |a: usize, b: usize| all[a].iter().copied().zip(all[b].iter().copied()).collect::<Vec<_>>();
    println!(
        "kernels of a layer on one rank, median: on {} ns, off {} ns, on with absolute signals {} ns",
        median(&all[0]),
        median(&all[1]),
        median(&all[2])
    );
    let [low, median, high] = differ(&pairs(0, 1));
    println!(
        "fault tolerance, on against off: {median:+.2} % ({low:+.2} to {high:+.2}; 95 %, {PAIRS} pairs)"
    );
    let [low, median, high] = differ(&pairs(0, 2));
    println!("brackets, cleared against absolute: {median:+.2} % ({low:+.2} to {high:+.2})");
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => walls(),
        [ft @ ("on" | "off"), signals @ ("cleared" | "absolute"), count] => {
            let signals = if signals == "cleared" { Signals::Cleared } else { Signals::Absolute };
            let (rig, wall_ns) = (Rig::new(ft == "on"), Cell::new(0));
            let count = count.parse().expect("layers: a number");
            layers(&mut buffers(&rig, signals, &wall_ns), &case(), count, &wall_ns);
        }
        _ => {
            eprintln!("moe_cost [on|off cleared|absolute LAYERS]");
            std::process::exit(2);
        }
    }
}
