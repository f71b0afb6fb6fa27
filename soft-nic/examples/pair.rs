//! How fast two processes are, each with a NIC of its own: `cargo run --release -p shunt-soft-nic --example pair`.
//!
//! The frames cross a Unix socket; with `--roce 127.0.0.1 --peer 127.0.0.2` they cross the kernel as RoCE v2, between
//! two addresses of this machine, `--pace 10` adding a rate in Gb/s. Without an engine each process is one thread that
//! posts, steps its NIC and takes completions; with engines each has a second thread that does the stepping, and four
//! threads share the machine: a producer that sleeps between its looks leaves its core to them, one that spins as a
//! kernel does shares it. What is printed is wall time; `lost` is what the receiver's socket did not hold.
#[allow(dead_code)] // the tests use the rest
#[path = "../tests/rig/mod.rs"]
mod rig;

use rig::{Card, End, Options, Rig, loopback};
use shunt_layout::mlx5::wqe::{Opcode, Segment, inline8};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, NicConfig, RoceOptions, UnixUplink};
use std::io::{BufRead, BufReader, Read, stdin, stdout};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Between two looks of a producer that sleeps.
const LOOK: Duration = Duration::from_micros(500);
/// Messages to a doorbell.
const BATCH: u64 = 32;
/// Queue pairs; most measurements use the first alone.
const PAIRS: usize = 4;
/// Bytes of the largest message.
const LARGE: u32 = 8 << 20;

/// What joins the two.
#[derive(Clone)]
enum Way {
    Unix(String),
    Roce { near: Ipv4Addr, far: Ipv4Addr, pace_gbps: Option<f64> },
}

impl Way {
    /// The NIC of this PE, attached.
    fn rig(&self, pe: u32) -> Rig {
        match self {
            Self::Unix(runtime) => {
                let mut rig = Rig::alone(pe, 1, |_| {});
                let uplink = UnixUplink::open_in(Path::new(runtime), "pair", &[]).unwrap();
                rig.fabric.attach(Box::new(uplink)).unwrap();
                rig
            }
            Self::Roce { near, far, pace_gbps } => {
                let address = if pe == 0 { *near } else { *far };
                loopback::rig(pe, RoceOptions { pace_gbps: *pace_gbps, ..RoceOptions::new([address]) })
            }
        }
    }

    /// How a PE is addressed.
    fn peer(&self, pe: u32) -> NicConfig {
        match self {
            Self::Unix(_) => NicConfig::new("", pe, 0),
            Self::Roce { near, far, .. } => NicConfig::at_address("", if pe == 0 { *near } else { *far }),
        }
    }

    fn args(&self) -> Vec<String> {
        match self {
            Self::Unix(runtime) => vec!["--runtime".into(), runtime.clone()],
            Self::Roce { near, far, pace_gbps } => {
                let mut args = vec!["--roce".into(), near.to_string(), "--peer".into(), far.to_string()];
                args.extend(pace_gbps.iter().flat_map(|gbps| ["--pace".into(), gbps.to_string()]));
                args
            }
        }
    }

    fn from_args(args: &[String]) -> Self {
        let of = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
        let address = |name: &str| of(name).map(|text| text.parse().expect("an IPv4 address"));
        match (address("--roce"), address("--peer")) {
            (Some(near), Some(far)) => {
                let pace_gbps = of("--pace").map(|text| text.parse().expect("Gb/s"));
                Self::Roce { near, far, pace_gbps }
            }
            (None, None) => {
                let own = std::env::temp_dir().join(format!("shunt-pair-{}", std::process::id()));
                Self::Unix(of("--runtime").cloned().unwrap_or_else(|| own.to_string_lossy().into_owned()))
            }
            _ => panic!("--roce and --peer go together"),
        }
    }
}

/// One process's NIC and queue pairs, and what steps it.
struct Side {
    rig: Rig,
    /// The host with the large heap: same NIC.
    large: usize,
    ends: Vec<End>,
    clock: Clock,
    engine: Option<Engine>,
}

impl Side {
    fn new(way: &Way, pe: u32) -> Self {
        let mut rig = way.rig(pe);
        let large = rig.larger_heap(0, LARGE as usize);
        let options = Options { log_depth: 10, log_cq: 10, ack_timeout: 16, ..Options::default() };
        let ends = (0..PAIRS).map(|_| rig.end(large, options)).collect();
        Self { rig, large, ends, clock: Clock::new(), engine: None }
    }

    fn cards(&self) -> Vec<Card> {
        self.ends.iter().map(|end| Card::of(&self.rig, end)).collect()
    }

    fn start(&mut self, peer: &NicConfig, cards: &[Card], engine: bool) {
        let nic = self.rig.hosts[0].nic;
        for (end, card) in self.ends.iter_mut().zip(cards) {
            self.rig.command(nic, &rig::rst2init(end), 16);
            self.rig.connect_to(end, peer, card.qpn);
        }
        if engine {
            let fabric = std::mem::replace(&mut self.rig.fabric, Fabric::new(FabricConfig::default()));
            self.engine = Some(Engine::spawn(fabric, self.clock));
        }
    }

    /// Packets sent again by this NIC, and datagrams that its socket did not hold.
    fn losses(&mut self) -> (u64, u64) {
        let nic = self.rig.hosts[0].nic;
        let of =
            |fabric: &mut Fabric| (fabric.nic(nic).counters().retransmits, fabric.uplink_counters().lost);
        match &self.engine {
            Some(engine) => engine.fabric().with(of),
            None => of(&mut self.rig.fabric),
        }
    }

    /// Lets the NIC work, or the one that works it.
    fn relax(&mut self) {
        if self.engine.is_some() || !self.rig.fabric.round(self.clock.now_ns()) {
            thread::yield_now();
        }
    }

    /// Posts `total` messages on the first `pairs` queue pairs and takes their completions; nanoseconds it took.
    fn drive(
        &mut self,
        (total, pairs): (u64, usize),
        spin: bool,
        body: impl Fn(&Rig, u64) -> (Opcode, [Segment; 2]),
    ) -> f64 {
        let start = Instant::now();
        let (mut posted, mut done) = (0, 0);
        while done < total {
            while posted < total && posted - done < 900 {
                let end = &mut self.ends[posted as usize / BATCH as usize % pairs];
                for _ in 0..BATCH.min(total - posted) {
                    let (opcode, segments) = body(&self.rig, posted);
                    end.post(opcode, &segments);
                    posted += 1;
                }
                self.rig.ring(end);
            }
            match spin || self.engine.is_none() {
                true => self.relax(),
                false => thread::sleep(LOOK),
            }
            for end in &mut self.ends[..pairs] {
                while let Some(one) = end.poll() {
                    assert_eq!(one.syndrome, 0);
                    done += 1;
                }
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
                    self.ends[0].post(Opcode::RdmaWrite, &[card.remote(0), inline8(n)]);
                    self.rig.ring(&self.ends[0]);
                    if let Some(engine) = &self.engine {
                        engine.kick();
                    }
                } else {
                    while self.rig.hosts[self.large].heap.get64(0) != n {
                        self.relax();
                        while self.ends[0].poll().is_some() {}
                    }
                }
            }
            took.push(start.elapsed().as_nanos() as f64);
        }
        took.sort_by(f64::total_cmp);
        took[took.len() / 2]
    }
}

fn far(way: &Way, engine: bool) {
    let mut side = Side::new(way, 1);
    side.cards().iter().for_each(|card| card.write(stdout()));
    let cards: Vec<Card> = (0..PAIRS).map(|_| Card::read(&mut stdin().lock())).collect();
    side.start(&way.peer(0), &cards, engine);
    side.bounce(cards[0], 2_000, false);
    // From here on it only serves; the end of input ends it.
    let ended = thread::spawn(|| stdin().lock().read_to_end(&mut Vec::new()));
    while !ended.is_finished() {
        match side.engine {
            Some(_) => thread::sleep(Duration::from_millis(10)),
            None => side.relax(),
        }
    }
    println!("losses of the other: {:?}", side.losses());
}

/// Messages of several sizes, written and read.
fn sizes(side: &mut Side, cards: &[Card], engine: bool) {
    let (card, large) = (cards[0], side.large);
    let total = 1 << 18;
    let took = side.drive((total, 1), true, |_, n| {
        (Opcode::RdmaWrite, [card.remote((n as usize & 0xff) * 8), inline8(n)])
    });
    println!("  8 B inline: {:.2} M WQE/s", total as f64 * 1e3 / took);
    let mut one = |bytes: u32, pairs: usize, opcode: Opcode, spin: bool| {
        if !(spin || engine) {
            return;
        }
        let total = (2u64 << 30) / bytes as u64;
        let before = side.losses();
        let took =
            side.drive((total, pairs), spin, |rig, _| (opcode, [card.remote(0), rig.local(large, 0, bytes)]));
        let after = side.losses();
        let how = if spin { "" } else { ", producer sleeping" };
        println!(
            "  {opcode:?} {bytes} B, {pairs} queue pairs{how}: {:.2} GB/s; {} sent again, {} lost here",
            (total * bytes as u64) as f64 / took,
            after.0 - before.0,
            after.1 - before.1
        );
    };
    for (bytes, spin) in [(4096, true), (65_536, true), (65_536, false), (1 << 20, true), (1 << 20, false)] {
        one(bytes, 1, Opcode::RdmaWrite, spin);
    }
    for spin in [true, false] {
        one(LARGE, PAIRS, Opcode::RdmaWrite, spin);
        one(LARGE, PAIRS, Opcode::RdmaRead, spin);
    }
}

fn near(way: &Way, engine: bool) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--far", if engine { "engine" } else { "step" }]).args(way.args());
    let mut other = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a second process");
    let mut side = Side::new(way, 0);
    let mut input = other.stdin.take().expect("piped");
    side.cards().iter().for_each(|card| card.write(&mut input));
    let mut output = BufReader::new(other.stdout.take().expect("piped"));
    let cards: Vec<Card> = (0..PAIRS).map(|_| Card::read(&mut output)).collect();
    side.start(&way.peer(1), &cards, engine);
    println!("{}", if engine { "two processes, an engine in each:" } else { "two processes, stepped:" });
    println!("  round trip of a word: {:.1} us (median)", side.bounce(cards[0], 2_000, true) / 1e3);
    sizes(&mut side, &cards, engine);
    drop(input);
    let last = output.lines().map_while(Result::ok).last();
    println!("  (sent again, lost) {}", last.unwrap_or_default());
    other.wait().expect("the second process ends");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let way = Way::from_args(&args);
    if args.first().is_some_and(|arg| arg == "--far") {
        return far(&way, args[1] == "engine");
    }
    near(&way, false);
    near(&way, true);
    if let Way::Unix(runtime) = &way {
        std::fs::remove_dir_all(runtime).expect("the directory made above");
    }
}
