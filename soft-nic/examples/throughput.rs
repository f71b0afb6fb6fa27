//! How fast the soft NIC is, beside what the machine itself does, in one run and one table:
//!
//! * in process: a producer, both NICs and a consumer in one thread, next to `memcpy` of as many bytes;
//! * WQEs a second of that one core;
//! * RoCE v2: two processes over UDP of the loopback interface, next to iperf3's UDP over the same.
//!
//! `cargo run --release -p shunt-soft-nic --example throughput [--seconds N] [--only PART]`; parts: memcpy, in-process,
//! wqe, roce, iperf3. What is printed is wall time. `--count N [--size BYTES]` sends N messages, of 8 bytes if nobody
//! says, and does nothing else: instructions under callgrind, of which two counts give those of one message.

#[allow(dead_code)] // the tests use the rest
#[path = "../tests/rig/mod.rs"]
mod rig;

use rig::{Card, End, Options, Rig, loopback, rst2init};
use serde_json::Value;
use shunt_layout::mlx5::wqe::{Opcode, Segment, inline8};
use shunt_soft_nic::{Clock, NicConfig, RoceOptions};
use std::hint::black_box;
use std::io::{BufReader, Read, stdin, stdout};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PARTS: &[&str] = &["memcpy", "in-process", "wqe", "roce", "iperf3"];
/// Payload of a packet: what is compared is cut into pieces of this size.
const PACKET: usize = 4096;
/// Bytes of a large message.
const LARGE: usize = 1 << 20;
/// Where the two processes are.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 83, 71, 1), Ipv4Addr::new(127, 83, 71, 2)];

/// What is done until the time is over: gives units done and seconds.
fn until(seconds: u64, mut batch: impl FnMut() -> u64) -> (f64, f64) {
    batch();
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        done += batch();
    }
    (done as f64, start.elapsed().as_secs_f64())
}

/// GB/s of copies of `size` bytes, the target being another place than the source.
fn memcpy(seconds: u64, size: usize) -> f64 {
    let (source, mut target) = (vec![7u8; LARGE], vec![0u8; LARGE]);
    let (bytes, took) = until(seconds, || {
        for (from, to) in source.chunks_exact(size).zip(target.chunks_exact_mut(size)) {
            black_box(to).copy_from_slice(black_box(from));
        }
        LARGE as u64
    });
    bytes / took / 1e9
}

/// Two NICs of one process, and the sending end of a queue pair between them.
fn pair() -> (Rig, End) {
    let mut rig = Rig::new(1);
    let options = Options { log_depth: 10, log_cq: 10, ack_timeout: 18, ..Options::default() };
    let (end, _) = rig.pair(0, 1, options);
    (rig, end)
}

/// Posts messages, 32 to a doorbell, steps both NICs in virtual time, and takes the completions.
fn drive(rig: &mut Rig, end: &mut End, count: u64, body: impl Fn(&Rig, u64) -> [Segment; 2]) {
    let (mut posted, mut done) = (0, 0);
    while done < count {
        while posted < count && posted - done < 900 {
            for _ in 0..32.min(count - posted) {
                let segments = body(rig, posted);
                end.post(Opcode::RdmaWrite, &segments);
                posted += 1;
            }
            rig.ring(end);
        }
        rig.run_for(2_500);
        while let Some(one) = end.poll() {
            assert_eq!(one.syndrome, 0, "a write failed");
            done += 1;
        }
    }
}

/// GB/s of writes of `size` bytes from one NIC to another.
fn in_process(seconds: u64, size: usize) -> f64 {
    let (mut nics, mut end) = pair();
    let count = (LARGE / size).max(32) as u64;
    let (bytes, took) = until(seconds, || {
        drive(&mut nics, &mut end, count, |rig, _| [rig.remote(1, 0), rig.local(0, 0, size as u32)]);
        count * size as u64
    });
    bytes / took / 1e9
}

fn small(nics: &mut Rig, end: &mut End, count: u64, inline: bool) {
    drive(nics, end, count, |rig, n| {
        let at = (n as usize & 0xff) * 8;
        [rig.remote(1, at), if inline { inline8(n) } else { rig.local(0, at, 8) }]
    });
}

/// Millions of WQEs a second.
fn wqes(seconds: u64, inline: bool) -> f64 {
    let (mut nics, mut end) = pair();
    let (count, took) = until(seconds, || {
        small(&mut nics, &mut end, 4096, inline);
        4096
    });
    count / took / 1e6
}

/// One of two processes: its NIC, and a queue pair.
struct Side {
    rig: Rig,
    host: usize,
    end: End,
    clock: Clock,
}

impl Side {
    fn new(pe: usize) -> Self {
        let mut rig = loopback::rig(pe as u32, RoceOptions::new([ADDRESSES[pe]]));
        let host = rig.larger_heap(0, LARGE);
        let end = rig.end(host, Options { log_depth: 10, log_cq: 10, ack_timeout: 16, ..Options::default() });
        Self { rig, host, end, clock: Clock::new() }
    }

    fn connect(&mut self, pe: usize, card: Card) {
        let nic = self.rig.hosts[0].nic;
        self.rig.command(nic, &rst2init(&self.end), 16);
        self.rig.connect_to(&mut self.end, &NicConfig::at_address("", ADDRESSES[pe]), card.qpn);
    }

    fn step(&mut self) {
        if !self.rig.fabric.round(self.clock.now_ns()) {
            thread::yield_now();
        }
    }

    /// Writes `count` messages, 16 to a doorbell.
    fn write(&mut self, card: Card, count: u64, size: usize) {
        let (mut posted, mut done) = (0, 0);
        while done < count {
            while posted < count && posted - done < 512 {
                for _ in 0..16.min(count - posted) {
                    let body = match size {
                        8 => [card.remote(0), inline8(posted)],
                        _ => [card.remote(0), self.rig.local(self.host, 0, size as u32)],
                    };
                    self.end.post(Opcode::RdmaWrite, &body);
                    posted += 1;
                }
                self.rig.ring(&self.end);
            }
            self.step();
            while let Some(one) = self.end.poll() {
                assert_eq!(one.syndrome, 0, "a write failed");
                done += 1;
            }
        }
    }
}

/// The other process: steps its NIC until its input ends.
fn far() {
    let mut side = Side::new(1);
    Card::of(&side.rig, &side.end).write(stdout());
    let card = Card::read(&mut stdin().lock());
    side.connect(0, card);
    let ended = thread::spawn(|| stdin().lock().read_to_end(&mut Vec::new()));
    while !ended.is_finished() {
        side.step();
    }
}

/// GB/s of writes of these sizes between two processes, and millions of writes of 8 bytes a second.
fn roce(seconds: u64, sizes: &[usize]) -> Vec<f64> {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let mut other = command.arg("--far").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("far");
    let mut side = Side::new(0);
    let mut input = other.stdin.take().expect("piped");
    Card::of(&side.rig, &side.end).write(&mut input);
    let card = Card::read(BufReader::new(other.stdout.take().expect("piped")));
    side.connect(1, card);
    let rates = sizes.iter().map(|size| {
        let count = (LARGE / size).clamp(16, 4096) as u64;
        let (bytes, took) = until(seconds, || {
            side.write(card, count, *size);
            count * if *size == 8 { 1000 } else { *size as u64 }
        });
        bytes / took / 1e9
    });
    let rates = rates.collect();
    drop(input);
    other.wait().expect("the other process ends");
    rates
}

/// Ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// GB/s that were sent, and percent that were lost, of iperf3's UDP with datagrams of `size` bytes.
fn iperf3(seconds: u64, size: usize) -> Result<(f64, f64), String> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = port.map_err(|error| error.to_string())?.port().to_string();
    let mut server = Command::new("iperf3");
    server.args(["-s", "-p", &port]).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Server(server.spawn().map_err(|error| format!("not measured: iperf3: {error}"))?);
    let at = Instant::now();
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        if at.elapsed() > Duration::from_secs(10) {
            return Err("not measured: iperf3 does not listen".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    // The connection that was tried counts as a test that failed: it is over a moment later.
    thread::sleep(Duration::from_millis(500));
    let (size, seconds) = (size.to_string(), seconds.to_string());
    let client = ["-c", "127.0.0.1", "-p", &port, "-u", "-b", "0", "-l", &size, "-t", &seconds, "-J"];
    let output = Command::new("iperf3").args(client).output().map_err(|error| error.to_string())?;
    let json: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let sum = &json["end"]["sum"];
    let figures = sum["bits_per_second"].as_f64().zip(sum["lost_percent"].as_f64());
    let (bits, lost) = figures.ok_or_else(|| format!("not measured: iperf3 says {}", json["error"]))?;
    Ok((bits / 8e9, lost))
}

/// What a call asks for: seconds of each row, one part if not all, messages to count and their size.
fn asked() -> (u64, Option<String>, Option<u64>, usize) {
    let (mut seconds, mut only, mut count, mut size) = (2, None, None, 8);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        match (arg.as_str(), value.parse::<u64>()) {
            ("--seconds", Ok(number)) if number > 0 => seconds = number,
            ("--count", Ok(number)) => count = Some(number),
            ("--size", Ok(number @ 1..=0x10_0000)) => size = number as usize,
            ("--only", _) if PARTS.contains(&value.as_str()) => only = Some(value),
            _ => {
                eprintln!(
                    "expected [--seconds N] [--only {}] [--count N [--size BYTES]], got '{arg} {value}'",
                    PARTS.join("|")
                );
                std::process::exit(2);
            }
        }
    }
    (seconds, only, count, size)
}

fn row(what: &str, figure: &str, label: &str) {
    println!("| {what} | {figure} | {label} |");
}

fn main() {
    if std::env::args().nth(1).is_some_and(|arg| arg == "--far") {
        return far();
    }
    let (seconds, only, count, size) = asked();
    if let Some(count) = count {
        let (mut nics, mut end) = pair();
        return match size {
            8 => small(&mut nics, &mut end, count, true),
            _ => drive(&mut nics, &mut end, count, |rig, _| [rig.remote(1, 0), rig.local(0, 0, size as u32)]),
        };
    }
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{cores} cores, load {}, {seconds} s a row", load.split(' ').next().unwrap_or("unknown"));
    println!("| what | figure | |\n| --- | ---: | --- |");
    let two = if cores < 2 { "soft NIC, 2 threads, oversubscribed" } else { "soft NIC, 2 threads" };
    let of = |figure: f64, whole: Option<f64>, name: &str| match whole {
        Some(whole) => format!("{figure:.2} GB/s, {:.0} % of {name}", 100.0 * figure / whole),
        None => format!("{figure:.2} GB/s"),
    };
    for size in [PACKET, LARGE] {
        let copy = wanted("memcpy").then(|| memcpy(seconds, size));
        if let Some(copy) = copy {
            row(&format!("memcpy of {size} B"), &of(copy, None, ""), "1 thread");
        }
        if wanted("in-process") {
            let figure = of(in_process(seconds, size), copy, "memcpy");
            row(&format!("in process, WRITE of {size} B"), &figure, "soft NIC, 1 thread");
        }
    }
    for (name, inline) in [("inline", true), ("from memory", false)] {
        if wanted("wqe") {
            let figure = format!("{:.2} M WQE/s", wqes(seconds, inline));
            row(&format!("in process, WRITE of 8 B, {name}"), &figure, "soft NIC, 1 thread");
        }
    }
    let udp = wanted("iperf3").then(|| iperf3(seconds, PACKET));
    match &udp {
        None => {}
        Some(Ok((rate, lost))) => {
            let came = rate * (1.0 - lost / 100.0);
            let figure = format!("{rate:.2} GB/s sent, {lost:.1} % lost: {came:.2} GB/s came");
            row(&format!("iperf3 UDP, datagrams of {PACKET} B"), &figure, "2 processes");
        }
        Some(Err(why)) => row("iperf3 UDP", why, ""),
    }
    if wanted("roce") {
        let udp = udp.and_then(Result::ok).map(|(rate, lost)| rate * (1.0 - lost / 100.0));
        let sizes = [PACKET, LARGE, 8];
        for (size, rate) in sizes.into_iter().zip(roce(seconds, &sizes)) {
            let figure = match size {
                8 => format!("{rate:.2} M WQE/s"),
                _ => of(rate, udp, "what came of iperf3's"),
            };
            row(&format!("RoCE v2, WRITE of {size} B"), &figure, two);
        }
    }
}
