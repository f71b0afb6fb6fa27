//! Two processes, an engine in each: data both ways, one of them killed, its place taken by another. Over Unix sockets,
//! and over UDP.

use crate::rig;
use crate::rig::{Card, End, Options, Rig, loopback};
use shunt_layout::mlx5::wqe::{Opcode, inline8};
use shunt_soft_nic::{Clock, Engine, Fabric, FabricConfig, NicConfig, UnixUplink};
use std::io::{BufReader, stdin, stdout};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Tells the other process how they meet: a runtime directory, or two addresses with a comma between.
const WAY: &str = "SHUNT_TEST_WAY";
/// Long enough for any machine; a test that waits so long fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages each way.
const ROUNDS: u64 = 50;
/// Bytes of a message; where it lies; the word that says it is there; the word that says what came back.
const BYTES: usize = 300_001;
const DATA: usize = 0x1000;
const SIGNAL: usize = 0;
const ANSWER: usize = 0x80;

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        thread::yield_now();
    }
}

/// One process: a NIC of PE `me`, joined to the fabric.
struct Side {
    rig: Rig,
    end: End,
}

/// The addresses of a way over UDP.
fn over_udp(way: &str) -> Option<[Ipv4Addr; 2]> {
    let (first, second) = way.split_once(',')?;
    Some([first.parse().ok()?, second.parse().ok()?])
}

impl Side {
    fn new(way: &str, me: u32) -> Self {
        let mut rig = match over_udp(way) {
            Some(addresses) => loopback::rig(me, loopback::options(addresses[me as usize])),
            None => {
                let mut rig = Rig::alone(me, 1, |_| {});
                let uplink = UnixUplink::open_in(Path::new(way), "two", &[]).unwrap();
                rig.fabric.attach(Box::new(uplink)).unwrap();
                rig
            }
        };
        let end = rig.end(0, Options { ack_timeout: 14, retry: 7, ..Options::default() });
        Self { rig, end }
    }

    fn start(&mut self, way: &str, peer: u32, card: Card) -> Engine {
        let config = match over_udp(way) {
            Some(addresses) => NicConfig::at_address("", addresses[peer as usize]),
            None => NicConfig::new("", peer, 0),
        };
        let nic = self.rig.hosts[0].nic;
        self.rig.command(nic, &rig::rst2init(&self.end), 16);
        self.rig.connect_to(&mut self.end, &config, card.qpn);
        let fabric = std::mem::replace(&mut self.rig.fabric, Fabric::new(FabricConfig::default()));
        Engine::spawn(fabric, Clock::new())
    }

    /// Sends a message and the word behind it.
    fn send(&mut self, card: Card, n: u64) {
        self.rig.hosts[0].heap.fill(DATA + BYTES, BYTES, n as u8);
        let data = self.rig.local(0, DATA + BYTES, BYTES as u32);
        self.end.post(Opcode::RdmaWrite, &[card.remote(DATA), data]);
        self.end.post(Opcode::RdmaWrite, &[card.remote(SIGNAL), inline8(n)]);
        self.rig.ring(&self.end);
    }

    /// Waits for a message and checks it.
    fn receive(&self, n: u64) {
        let heap = &self.rig.hosts[0].heap;
        wait("a message", || heap.get64(SIGNAL) == n);
        assert!(heap.holds(DATA, BYTES, n as u8), "message {n}");
    }

    fn completed(&mut self, count: usize) {
        for _ in 0..count {
            let mut done = None;
            wait("a completion", || {
                done = self.end.poll();
                done.is_some()
            });
            assert_eq!(done.map(|done| done.syndrome), Some(0));
        }
    }
}

/// The other process: answers each message with one. Started by the tests below; alone it has nothing to do.
#[test]
fn the_other_process() {
    let Ok(way) = std::env::var(WAY) else { return };
    let mut side = Side::new(&way, 1);
    Card::of(&side.rig, &side.end).write(stdout());
    let card = Card::read(stdin().lock());
    let _engine = side.start(&way, 0, card);
    for n in 1..=ROUNDS {
        side.receive(n);
        side.send(card, n + 100);
        side.completed(2);
    }
    // Until it is killed, it lives and takes what comes.
    thread::sleep(PATIENCE);
}

/// A child that does not outlive its test.
struct Other(Child);

impl Other {
    fn start(way: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "two_processes::the_other_process", "--nocapture"]).env(WAY, way);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn trade(&mut self, mine: Card) -> Card {
        mine.write(self.0.stdin.take().unwrap());
        Card::read(BufReader::new(self.0.stdout.as_mut().unwrap()))
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Talks to another process, kills it, and sees its queue pair fail.
fn talk_and_kill(way: &str) {
    let mut other = Other::start(way);
    let mut side = Side::new(way, 0);
    let card = other.trade(Card::of(&side.rig, &side.end));
    let engine = side.start(way, 1, card);
    for n in 1..=ROUNDS {
        if n % 10 == 0 {
            thread::sleep(Duration::from_millis(3)); // Let both engines fall asleep.
        }
        side.send(card, n);
        if n % 2 == 0 {
            engine.kick();
        }
        side.completed(2);
        side.receive(n + 100);
    }
    let counters = engine.fabric().with(|fabric| fabric.uplink_counters());
    assert_eq!((counters.vanished, counters.overflowed, counters.undecodable), (0, 0, 0), "{counters:?}");
    other.kill();
    side.end.post(Opcode::RdmaWrite, &[card.remote(ANSWER), inline8(1)]);
    side.rig.ring(&side.end);
    let mut syndrome = 0;
    wait("retries to end", || side.end.poll().map(|done| syndrome = done.syndrome).is_some());
    assert_eq!(syndrome, 0x15);
    drop(engine);
}

#[test]
fn data_both_ways_a_kill_and_another_in_its_place() {
    let runtime = std::env::temp_dir().join(format!("shunt-two-{}", std::process::id()));
    let way = runtime.to_str().unwrap();
    talk_and_kill(way);
    let socket = format!("fabric-two/{:032x}.sock", u128::from_be_bytes(NicConfig::new("", 1, 0).gid));
    assert!(runtime.join(socket).exists(), "what the killed process left");
    talk_and_kill(way);
    std::fs::remove_dir_all(&runtime).unwrap();
}

#[test]
fn the_same_over_udp() {
    let [first, second] = loopback::addresses();
    let way = format!("{first},{second}");
    talk_and_kill(&way);
    talk_and_kill(&way);
}
