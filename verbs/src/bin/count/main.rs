//! `shunt-verbs-count`: two processes that number everything they post, and check that it happened once, in order and
//! whole. It knows nothing of what may stand between it and libibverbs, which it opens by name.
//!
//! Each end sends a stream of numbers. An even one is a WRITE of a pattern into its slot at the other end, the odd one
//! behind it a SEND that says so. Who receives the SEND checks the slot and marks it as read: what is lost, doubled,
//! out of order or written again later is found. Now and then a READ fetches a pattern that never changes.

mod link;

use link::{Link, Memory};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Slots at each end: so many WRITEs may be unread.
const SLOTS: u64 = 64;
/// Bytes of a slot.
const SLOT: u64 = 256;
/// Requests that are not complete, at most.
const WINDOW: u64 = 48;
/// Every so manyeth pair is followed by a READ.
const READS: u64 = 8;
/// A stream that stands still for so long is given up.
const STUCK: Duration = Duration::from_secs(30);
/// Stands in a slot that was read.
const MARK: u64 = u64::MAX;

/// What was found.
#[derive(Debug, Default)]
struct Found {
    sent: u64,
    received: u64,
    reads: u64,
    doubled: u64,
    order: u64,
    wrong: u64,
    ghost: u64,
}

/// What a number looks like in memory, word by word.
const fn shape(number: u64, word: u64) -> u64 {
    (number ^ word << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5ec0
}

struct Options {
    device: String,
    gid: u8,
    duration: Duration,
    stream: TcpStream,
    leads: bool,
}

const USAGE: &str =
    "shunt-verbs-count (--listen PORT | --connect HOST:PORT) [--device NAME] [--gid INDEX] [--seconds N]";

fn options() -> Result<Options, String> {
    let mut words = std::env::args().skip(1);
    let (mut device, mut gid, mut seconds) = ("mlx5_0".to_owned(), 0, 4.0);
    let mut stream = None;
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: expected a value, got none; {USAGE}"))?;
        let bad = || format!("{word}: expected another value than {value:?}; {USAGE}");
        match word.as_str() {
            "--device" => device = value,
            "--gid" => gid = value.parse().map_err(|_| bad())?,
            "--seconds" => seconds = value.parse().map_err(|_| bad())?,
            "--listen" => {
                let port: u16 = value.parse().map_err(|_| bad())?;
                let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|error| error.to_string())?;
                stream = Some((listener.accept().map_err(|error| error.to_string())?.0, true));
            }
            "--connect" => stream = Some((reach(&value)?, false)),
            _ => return Err(format!("{word}: expected an option, got that; {USAGE}")),
        }
    }
    let (stream, leads) = stream.ok_or(USAGE)?;
    Ok(Options { device, gid, duration: Duration::from_secs_f64(seconds), stream, leads })
}

/// The other end may still be starting.
fn reach(address: &str) -> Result<TcpStream, String> {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > until => return Err(format!("{address}: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn main() -> ExitCode {
    match options().and_then(run) {
        Ok(found) => {
            let Found { sent, received, reads, doubled, order, wrong, ghost } = found;
            println!(
                "{{\"sent\": {sent}, \"received\": {received}, \"reads\": {reads}, \"doubled\": {doubled}, \"order\": \
                 {order}, \"wrong\": {wrong}, \"ghost\": {ghost}}}"
            );
            ExitCode::from(u8::from(doubled + order + wrong + ghost > 0))
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Sends bytes and gets as many.
fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut answer = vec![0; bytes.len()];
    stream
        .write_all(bytes)
        .and_then(|()| stream.read_exact(&mut answer))
        .map_err(|error| error.to_string())?;
    Ok(answer)
}

/// One end.
struct End {
    link: Link,
    there: Memory,
    found: Found,
    /// The next number to post, and the first that is not complete.
    next: u64,
    done: u64,
    /// Number of the next SEND that is due, and how many pairs the other end has read.
    due: u64,
    read_there: u64,
    /// READs that are under way.
    reading: bool,
    /// Numbers, in the order in which they must complete.
    order: std::collections::VecDeque<u64>,
    moved: Instant,
}

/// The wr_id of a READ.
const READING: u64 = 1 << 40;

fn run(options: Options) -> Result<Found, String> {
    let Options { device, gid, duration, mut stream, leads } = options;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let link = Link::open(&device, gid, WINDOW as u32 + 16, SLOTS * SLOT)?;
    for slot in 0..SLOTS {
        link.store(slot * SLOT, MARK);
    }
    let there = link::meet(&exchange(&mut stream, &link.card())?)?;
    link.connect(&there)?;
    let mut end = End {
        link,
        there: there.memory,
        found: Found::default(),
        next: 0,
        done: 0,
        due: 1,
        read_there: 0,
        reading: false,
        order: Default::default(),
        moved: Instant::now(),
    };
    (0..WINDOW).try_for_each(|at| end.link.receive(at))?;
    exchange(&mut stream, b"go")?;
    let until = Instant::now() + duration;
    let mut total = u64::MAX;
    loop {
        let over = Instant::now() > until;
        if over && total == u64::MAX && end.next.is_multiple_of(2) {
            total = end.next;
            let theirs = exchange_total(&mut stream, total, leads, &mut end)?;
            finish(&mut end, total, theirs)?;
            break;
        }
        end.step(if total == u64::MAX { u64::MAX } else { total })?;
        std::thread::sleep(Duration::from_micros(20));
    }
    exchange(&mut stream, b"ok")?;
    // What comes late would be found here.
    std::thread::sleep(Duration::from_millis(300));
    end.found.ghost = (0..SLOTS).filter(|slot| end.link.load(slot * SLOT) != MARK).count() as u64;
    Ok(end.found)
}

/// Tells how many numbers there are, and learns of the other end's, while both streams go on.
fn exchange_total(stream: &mut TcpStream, total: u64, _leads: bool, end: &mut End) -> Result<u64, String> {
    let failed = |error: std::io::Error| error.to_string();
    stream.write_all(&total.to_be_bytes()).map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    let mut bytes = Vec::new();
    while bytes.len() < 8 {
        let mut one = [0];
        match stream.read(&mut one) {
            Ok(1) => bytes.push(one[0]),
            Ok(_) => return Err("the other end went away".into()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                end.step(total)?;
                std::thread::sleep(Duration::from_micros(20));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    stream.set_nonblocking(false).map_err(failed)?;
    Ok(u64::from_be_bytes(bytes.try_into().unwrap_or_default()))
}

fn finish(end: &mut End, total: u64, theirs: u64) -> Result<(), String> {
    while !end.order.is_empty() || end.due < theirs + 1 {
        end.step(total)?;
        std::thread::sleep(Duration::from_micros(20));
    }
    end.found.sent = end.done;
    end.found.received = (end.due - 1) / 2;
    Ok(())
}

impl End {
    /// Posts one pair if there is room, and takes what has come.
    fn step(&mut self, total: u64) -> Result<(), String> {
        let room = (self.order.len() as u64) + 3 <= WINDOW && self.next / 2 < self.read_there + SLOTS;
        if self.next < total && room {
            let number = self.next;
            let slot = number / 2 % SLOTS * SLOT;
            self.link.write(number, slot, self.there, |word| shape(number, word))?;
            // Beside the number: how far this end has read.
            self.link.send(number + 1, [number + 1, (self.due - 1) / 2])?;
            self.order.extend([number, number + 1]);
            self.next += 2;
            if (number / 2).is_multiple_of(READS) && !self.reading {
                self.link.read(READING, self.there)?;
                self.order.push_back(READING);
                self.reading = true;
            }
        }
        while let Some(number) = self.link.sent()? {
            self.moved = Instant::now();
            match self.order.pop_front() {
                Some(READING) if number == READING => {
                    self.reading = false;
                    self.found.reads += 1;
                    self.found.wrong += u64::from(!self.link.read_is_right());
                }
                Some(expected) if expected == number => self.done += 1,
                _ => self.found.order += 1,
            }
        }
        while let Some((buffer, [number, read])) = self.link.received()? {
            self.moved = Instant::now();
            self.read_there = self.read_there.max(read);
            if number < self.due {
                self.found.doubled += 1;
            } else {
                self.found.order += u64::from(number != self.due);
                self.look(number - 1);
                self.due = number + 2;
            }
            self.link.receive(buffer)?;
        }
        if self.moved.elapsed() > STUCK {
            return Err(format!(
                "nothing moved for {STUCK:?}: {} of {} done, {} due",
                self.done, self.next, self.due
            ));
        }
        Ok(())
    }

    /// Checks a slot, and marks it as read.
    fn look(&mut self, number: u64) {
        let slot = number / 2 % SLOTS * SLOT;
        let whole = (0..SLOT / 8).all(|word| self.link.load(slot + word * 8) == shape(number, word));
        self.found.wrong += u64::from(!whole);
        self.link.store(slot, MARK);
    }
}
