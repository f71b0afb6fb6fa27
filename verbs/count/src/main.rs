//! `shunt-verbs-count`: two processes that number everything they post, and check that it happened once, in order and
//! whole. It knows nothing of what may stand between it and libibverbs, which it opens by name.
//!
//! Each end sends a stream of numbers. An even one is a WRITE of a pattern into its slot at the other end, the odd
//! one behind it a SEND, or a WRITE with immediate data, that says so. Who receives it checks the slot and marks it as
//! read: what is lost, doubled, out of order or written again later is found. Now and then a READ fetches a pattern
//! that never changes. By `--adds` an end adds to a word of the other as well, which must count what was done.
//!
//! Where a request fails, what comes back is counted: errors, and which was the first.

mod link;
mod options;
mod setups;
mod stream;

use link::{Card, Device, Has, Link, Memory};
use options::{Adds, Options, To, USAGE, options};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use stream::{exchange, two_ends};

/// Slots at each end: so many WRITEs may be unread.
const SLOTS: u64 = 64;
/// Bytes of a slot.
const SLOT: u64 = 256;
/// Requests that are not complete, at most.
const WINDOW: u64 = 48;
/// The message of every so manyeth pair is a WRITE with immediate data.
const IMMEDIATES: u64 = 4;
/// No number.
const NONE: u64 = u64::MAX;
/// Every so manyeth pair is followed by a READ.
const READS: u64 = 8;
/// A stream that stands still for so long is given up.
const STUCK: Duration = Duration::from_secs(30);
/// Stands in a slot that was read.
const MARK: u64 = u64::MAX;
/// An end that sleeps looks by itself after so many milliseconds.
const NAP: i32 = 4000;

/// What was found.
#[derive(Debug, Default)]
struct Found {
    sent: u64,
    received: u64,
    reads: u64,
    /// Messages that were left out.
    lost: u64,
    doubled: u64,
    order: u64,
    wrong: u64,
    ghost: u64,
    adds: u64,
    /// Completions that are errors, and no flushes.
    errors: u64,
    /// What the first of them is of.
    named: &'static str,
    /// Times that it slept on while something was there.
    missed: u64,
    /// Times that it was woken.
    woken: u64,
    /// Failures that it was told of by an event.
    events: u64,
    /// Longest time between two completions.
    gap: Duration,
}

/// What a number looks like in memory, word by word.
const fn shape(number: u64, word: u64) -> u64 {
    (number ^ word << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5ec0
}

fn main() -> ExitCode {
    if std::env::args().skip(1).any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match options() {
        Ok(Options { pairs: Some(pairs), device, gid, duration, stream, .. }) => {
            return match setups::run(&device, gid, pairs, stream, duration) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&error),
            };
        }
        options => options,
    };
    match options.and_then(ends) {
        Ok(found) => ExitCode::from(found.iter().map(told).max().unwrap_or_default()),
        Err(error) => failed(&error),
    }
}

fn failed(error: &str) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

/// Prints what an end found. The status that it makes.
fn told(found: &Found) -> u8 {
    let Found { sent, received, reads, adds, doubled, order, wrong, ghost, .. } = found;
    let Found { lost, missed, woken, errors, named, events, gap, .. } = found;
    let gap = gap.as_millis();
    println!(
        "{{\"sent\": {sent}, \"received\": {received}, \"reads\": {reads}, \"adds\": {adds}, \
         \"lost\": {lost}, \"doubled\": {doubled}, \"order\": {order}, \"wrong\": {wrong}, \"ghost\": {ghost}, \
         \"missed\": {missed}, \"woken\": {woken}, \"events\": {events}, \"longest_gap_ms\": {gap}, \
         \"errors\": {errors}, \"named\": \"{named}\"}}"
    );
    if *errors > 0 { 3 } else { u8::from(lost + doubled + order + wrong + ghost + missed > 0) }
}

/// Runs the ends of this process: one, unless both are here.
fn ends(mut options: Options) -> Result<Vec<Found>, String> {
    if options.to == To::Other {
        return run(options).map(|found| vec![found]);
    }
    // The other process does the same for itself, at the same time.
    exchange(&mut options.stream, b"go")?;
    let (one, mut other) = two_ends().map_err(|error| error.to_string())?;
    let Options {
        device,
        gid,
        duration,
        sleeps,
        shares,
        adds,
        to,
        immediates,
        reads,
        ack_timeout,
        lives,
        ..
    } = options;
    let end = |stream| Options {
        device: device.clone(),
        stream,
        gid,
        duration,
        sleeps,
        shares,
        adds,
        to,
        immediates,
        reads,
        ack_timeout,
        lives,
        pairs: None,
    };
    if to == To::Itself {
        // What it says is what the other end of it says.
        std::thread::spawn(move || std::io::copy(&mut other.try_clone()?, &mut other));
        return run(end(one)).map(|found| vec![found]);
    }
    let other = end(other);
    let other = std::thread::spawn(move || run(other));
    let found = run(end(one))?;
    let other = other.join().map_err(|_| "the other end of this process failed".to_owned())??;
    Ok(vec![found, other])
}

/// One end.
struct End {
    link: Link,
    there: Memory,
    found: Found,
    /// By slot: the number that was read there last, if it has not been written again.
    read: [u64; SLOTS as usize],
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
    /// Completions so far.
    taken: u64,
    sleeps: bool,
    immediates: bool,
    reads: bool,
    adds: Adds,
    adding: bool,
    /// Adds that came back as errors.
    adds_failed: u64,
    /// The same of flushes.
    adds_flushed: u64,
    /// The queue pair is in ERR.
    failed: bool,
}

/// The wr_id of a READ, and of an add.
const READING: u64 = 1 << 40;
const ADDING: u64 = 1 << 41;
/// The status of what was flushed.
const FLUSHED: u32 = 5;

fn run(options: Options) -> Result<Found, String> {
    let (ack_timeout, lives) = (options.ack_timeout, options.lives);
    let Options { device, gid, duration, mut stream, sleeps, shares, adds, immediates, reads, .. } = options;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let link = Link::open(
        &Device::open(&device)?,
        gid,
        WINDOW as u32 + 16,
        SLOTS * SLOT,
        Has { channel: sleeps, shared: shares },
    )?;
    for slot in 0..SLOTS {
        link.store(slot * SLOT, MARK);
    }
    let there = link::meet(&exchange(&mut stream, &link.card())?)?;
    link.connect(&there, ack_timeout)?;
    let mut end = End {
        link,
        there: there.memory,
        found: Found::default(),
        read: [NONE; SLOTS as usize],
        next: 0,
        done: 0,
        due: 1,
        read_there: 0,
        reading: false,
        order: Default::default(),
        moved: Instant::now(),
        taken: 0,
        sleeps,
        immediates,
        reads,
        adds,
        adding: false,
        adds_failed: 0,
        adds_flushed: 0,
        failed: false,
    };
    let went = live(&mut end, &mut stream, (&there, ack_timeout), (lives, duration), shares);
    // One that was reset and takes nothing has no request that says so.
    if !end.failed || lives > 1 && end.found.errors == 0 {
        went?;
    }
    end.found.sent = end.done;
    end.found.received = (end.due - 1) / 2;
    stream.set_nonblocking(false).map_err(|error| error.to_string())?;
    // An add that fails was done: its answer is lost. One that was flushed may have been.
    let done = end.found.adds + end.adds_failed;
    let theirs = exchange(&mut stream, &[done, end.adds_flushed].map(u64::to_be_bytes).concat())?;
    let (done, flushed) = theirs.split_at(8);
    let read = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap_or_default());
    let counts = read(done)..=read(done) + read(flushed);
    end.found.wrong += u64::from(!counts.contains(&end.link.counted()));
    // What comes late would be found here.
    std::thread::sleep(Duration::from_millis(300));
    end.found.events = end.link.events();
    if end.failed {
        return Ok(end.found);
    }
    end.look_for_ghosts();
    Ok(end.found)
}

/// One connection behind the other, each as long as all of it by their number.
fn live(
    end: &mut End,
    stream: &mut TcpStream,
    (there, ack_timeout): (&Card, u8),
    (lives, duration): (u32, Duration),
    shares: bool,
) -> Result<(), String> {
    let sleeps = end.sleeps;
    for life in 0..lives {
        if life > 0 {
            // The other end has all that was sent to it.
            exchange(stream, b"on")?;
            end.link.connect(there, ack_timeout)?;
        }
        if life == 0 || !shares {
            // RESET forgets receives that are the queue pair's own.
            (0..WINDOW).try_for_each(|at| end.link.receive(at))?;
        }
        exchange(stream, b"go")?;
        end.sleeps = sleeps;
        go(end, stream, Instant::now() + duration / lives)?;
    }
    Ok(())
}

fn go(end: &mut End, stream: &mut TcpStream, until: Instant) -> Result<(), String> {
    while Instant::now() < until {
        end.step(u64::MAX)?;
        end.rest()?;
    }
    // What is left is polled for: the other end may have nothing more to say.
    end.sleeps = false;
    let total = end.next;
    let theirs = exchange_total(stream, total, end)?;
    finish(end, total, theirs)
}

/// Tells how many numbers there are, and learns of the other end's, while both streams go on.
fn exchange_total(stream: &mut TcpStream, total: u64, end: &mut End) -> Result<u64, String> {
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
    Ok(())
}

impl End {
    fn came(&mut self) {
        let now = Instant::now();
        if self.taken > 0 {
            self.found.gap = self.found.gap.max(now - self.moved);
        }
        self.moved = now;
        self.taken += 1;
    }

    /// Lets some time pass, until there is something to do if it sleeps.
    fn rest(&mut self) -> Result<(), String> {
        if !self.sleeps {
            std::thread::sleep(Duration::from_micros(20));
            return Ok(());
        }
        self.link.arm()?;
        let before = self.taken;
        self.take()?;
        // What came before the queues were armed makes no event, by verbs' rules. This end posts again first.
        if self.taken != before {
            return Ok(());
        }
        let woken = self.link.sleep(NAP)?;
        self.take()?;
        self.found.woken += u64::from(woken);
        self.found.missed += u64::from(!woken && self.taken != before);
        Ok(())
    }

    /// Posts one pair if there is room, and takes what has come.
    fn step(&mut self, total: u64) -> Result<(), String> {
        let room = (self.order.len() as u64) + 4 <= WINDOW && self.next / 2 < self.read_there + SLOTS;
        if self.next < total && room && !self.failed {
            let number = self.next;
            let slot = number / 2 % SLOTS * SLOT;
            self.link.write(number, slot, self.there, |word| shape(number, word))?;
            if self.immediates && (number / 2).is_multiple_of(IMMEDIATES) {
                self.link.write_immediate(number + 1, slot, self.there, |word| shape(number, word))?;
            } else {
                // Beside the number: how far this end has read.
                self.link.send(number + 1, [number + 1, (self.due - 1) / 2])?;
            }
            self.order.extend([number, number + 1]);
            self.next += 2;
            if self.reads && (number / 2).is_multiple_of(READS) && !self.reading {
                self.link.read(READING, self.there)?;
                self.order.push_back(READING);
                self.reading = true;
            }
            if self.adds != Adds::No && !self.adding {
                self.link.add(ADDING, self.there)?;
                self.order.push_back(ADDING);
                self.adding = true;
            }
        }
        self.take()
    }

    /// Takes what has come.
    fn take(&mut self) -> Result<(), String> {
        while let Some(wc) = self.link.poll(false)? {
            self.came();
            let number = wc.wr_id;
            if wc.status != 0 || self.failed {
                self.came_back(number, wc.status);
                continue;
            }
            match self.order.pop_front() {
                Some(ADDING) if number == ADDING => {
                    self.adding = false;
                    let seen = self.adds == Adds::Blind || self.link.before_add() == self.found.adds;
                    self.found.wrong += u64::from(!seen);
                    self.found.adds += 1;
                }
                Some(READING) if number == READING => {
                    self.reading = false;
                    self.found.reads += 1;
                    self.found.wrong += u64::from(!self.link.read_is_right());
                }
                Some(expected) if expected == number => self.done += 1,
                _ => self.found.order += 1,
            }
        }
        while let Some(wc) = self.link.poll(true)? {
            if wc.status != 0 {
                self.failed = true;
                continue;
            }
            self.came();
            let (number, read) = self.link.message(&wc)?;
            self.read_there = self.read_there.max(read.unwrap_or_default());
            if number < self.due {
                self.found.doubled += 1;
            } else {
                self.found.lost += (number - self.due) / 2;
                self.found.order += u64::from(number != self.due);
                self.look(number - 1);
                self.due = number + 2;
            }
            self.link.receive(wc.wr_id)?;
        }
        self.look_for_ghosts();
        if self.failed && self.order.is_empty() {
            return Err("the queue pair failed, and all that was posted came back".into());
        }
        if self.moved.elapsed() > STUCK {
            return Err(format!(
                "nothing moved for {STUCK:?}: {} of {} done, {} due",
                self.done, self.next, self.due
            ));
        }
        Ok(())
    }

    /// A request came back, done or not, after one has failed.
    fn came_back(&mut self, number: u64, status: u32) {
        self.failed = true;
        self.order.retain(|one| *one != number);
        if status == 0 || status == FLUSHED {
            self.adds_flushed += u64::from(number == ADDING);
            return;
        }
        if self.found.errors == 0 {
            self.found.named = match number {
                ADDING => "add",
                READING => "read",
                _ => "message",
            };
        }
        self.found.errors += 1;
        self.adds_failed += u64::from(number == ADDING);
    }

    /// What was read and is there once more was written again. The other end writes the next number there only when it
    /// knows that this one was read.
    fn look_for_ghosts(&mut self) {
        for (slot, read) in (0..).zip(&mut self.read) {
            if *read != NONE && self.link.load(slot * SLOT) == shape(*read, 0) {
                self.found.ghost += 1;
                *read = NONE;
            }
        }
    }

    /// Checks a slot, and marks it as read.
    fn look(&mut self, number: u64) {
        self.read[(number / 2 % SLOTS) as usize] = number;
        let slot = number / 2 % SLOTS * SLOT;
        let whole = (0..SLOT / 8).all(|word| self.link.load(slot + word * 8) == shape(number, word));
        self.found.wrong += u64::from(!whole);
        self.link.store(slot, MARK);
    }
}
