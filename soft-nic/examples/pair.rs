//! How fast two processes are, each with a NIC of its own: `cargo run --release -p shunt-soft-nic --example pair`.
//!
//! The frames cross a Unix socket. Without an engine each process is one thread that posts, steps its NIC and takes
//! completions; with engines each has a second thread that does the stepping, and four threads share the machine: a
//! producer that sleeps between its looks leaves its core to them, one that spins as a kernel does shares it.
//! What is printed is wall time.
#[path = "../tests/rig/mod.rs"]
mod rig;

use rig::{Card, End, Options, Rig};
use shunt_layout::mlx5::wqe::{Opcode, Segment, inline8};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, NicConfig, UnixUplink};
use std::io::{BufReader, Read, stdin, stdout};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks of a producer that sleeps.
const LOOK: Duration = Duration::from_micros(500);
/// Messages to a doorbell.
const BATCH: u64 = 32;

/// One process's NIC and queue pair, and what steps it.
struct Side {
    rig: Rig,
    end: End,
    clock: Clock,
    engine: Option<Engine>,
}

impl Side {
    fn new(runtime: &Path, pe: u32) -> Self {
        let mut rig = Rig::alone(pe, 1, |_| {});
        rig.fabric.attach(Box::new(UnixUplink::open_in(runtime, "pair", &[]).unwrap())).unwrap();
        let options = Options { log_depth: 10, log_cq: 10, ack_timeout: 18, ..Options::default() };
        let end = rig.end(0, options);
        Self { rig, end, clock: Clock::new(), engine: None }
    }

    fn start(&mut self, peer: u32, card: Card, engine: bool) {
        let nic = self.rig.hosts[0].nic;
        self.rig.command(nic, &rig::rst2init(&self.end), 16);
        self.rig.connect_to(&mut self.end, &NicConfig::new("", peer, 0), card.qpn);
        if engine {
            let fabric = std::mem::replace(&mut self.rig.fabric, Fabric::new(FabricConfig::default()));
            self.engine = Some(Engine::spawn(fabric, self.clock));
        }
    }

    /// Lets the NIC work, or whoever works it.
    fn relax(&mut self) {
        if self.engine.is_some() || !self.rig.fabric.round(self.clock.now_ns()) {
            thread::yield_now();
        }
    }

    /// Posts `total` messages and takes their completions; nanoseconds it took.
    fn drive(&mut self, total: u64, spin: bool, body: impl Fn(&Rig, u64) -> [Segment; 2]) -> f64 {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < total {
            while posted < total && posted - done < 900 {
                for _ in 0..BATCH.min(total - posted) {
                    let segments = body(&self.rig, posted);
                    self.end.post(Opcode::RdmaWrite, &segments);
                    posted += 1;
                }
                self.rig.ring(&self.end);
            }
            match spin || self.engine.is_none() {
                true => self.relax(),
                false => thread::sleep(LOOK),
            }
            while let Some(one) = self.end.poll() {
                assert_eq!(one.syndrome, 0);
                done += 1;
            }
        }
        start.elapsed().as_nanos() as f64
    }

    /// Bounces a word between the processes; nanoseconds of a round trip, in the middle of many.
    fn bounce(&mut self, card: Card, rounds: u64, first: bool) -> f64 {
        let mut took = Vec::new();
        for n in 1..=rounds {
            let start = Instant::now();
            for turn in 0..2 {
                if (turn == 0) == first {
                    self.end.post(Opcode::RdmaWrite, &[card.remote(0), inline8(n)]);
                    self.rig.ring(&self.end);
                    if let Some(engine) = &self.engine {
                        engine.kick();
                    }
                } else {
                    while self.rig.hosts[0].heap.get64(0) != n {
                        self.relax();
                        while self.end.poll().is_some() {}
                    }
                }
            }
            took.push(start.elapsed().as_nanos() as f64);
        }
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    }
}

fn far(runtime: &Path, engine: bool) {
    let mut side = Side::new(runtime, 1);
    Card::of(&side.rig, &side.end).write(stdout());
    let card = Card::read(stdin().lock());
    side.start(0, card, engine);
    side.bounce(card, 2_000, false);
    // From here on it only serves; the end of input ends it.
    let ended = thread::spawn(|| stdin().lock().read_to_end(&mut Vec::new()));
    while !ended.is_finished() {
        match side.engine {
            Some(_) => thread::sleep(Duration::from_millis(10)),
            None => side.relax(),
        }
    }
}

fn near(runtime: &Path, engine: bool) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg(runtime).arg(if engine { "engine" } else { "step" });
    let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a second process");
    let mut side = Side::new(runtime, 0);
    let mut input = other.stdin.take().expect("piped");
    Card::of(&side.rig, &side.end).write(&mut input);
    let card = Card::read(BufReader::new(other.stdout.as_mut().expect("piped")));
    side.start(1, card, engine);
    println!("{}", if engine { "two processes, an engine in each:" } else { "two processes, stepped:" });
    println!("  round trip of a word: {:.1} us (median)", side.bounce(card, 2_000, true) / 1e3);
    let total = 1 << 18;
    let took = side.drive(total, true, |_, n| [card.remote((n as usize & 0xff) * 8), inline8(n)]);
    println!("  8 B inline: {:.2} M WQE/s", total as f64 * 1e3 / took);
    for (bytes, spin) in [(4096u32, true), (65_536, true), (65_536, false), (1 << 20, true), (1 << 20, false)]
    {
        if !(spin || engine) {
            continue;
        }
        let total = (2u64 << 30) / bytes as u64;
        let took = side.drive(total, spin, |rig, _| [card.remote(0), rig.local(0, 0, bytes)]);
        let how = if spin { "" } else { ", producer sleeping" };
        println!("  {bytes} B{how}: {:.2} GB/s", (total * bytes as u64) as f64 / took);
    }
    drop(input);
    other.wait().expect("the second process ends");
}

fn main() {
    let mut args = std::env::args().skip(1);
    if let (Some(runtime), Some(how)) = (args.next(), args.next()) {
        return far(Path::new(&runtime), how == "engine");
    }
    let runtime = std::env::temp_dir().join(format!("shunt-pair-{}", std::process::id()));
    near(&runtime, false);
    near(&runtime, true);
    std::fs::remove_dir_all(&runtime).expect("the directory made above");
}
