//! The kernels of a run: senders that fill, put and signal, receivers that check, poison and give credit back.

use shunt_device::{
    Channel, Deadline, Fault, FaultKind, HeapOffset, Lanes, Operation, Put, Resolution, Signal, Ticket,
};

use crate::echo::Echoes;
use crate::kernel::{Kernel, RESOLVE_NS};
use crate::oracle::{Kind, Stream, load};
use crate::sim::SimPlatform;
use crate::traffic::Traffic;

/// After this long on a fenced path nothing arrives any more.
const ARRIVED_NS: u64 = 20_000_000;

/// What a kernel of a stream did.
#[derive(Clone, Debug)]
pub struct Report {
    /// The stream.
    pub stream: Stream,
    /// Messages sent (sender) or consumed (receiver).
    pub messages: u64,
    /// Credits posted (receiver).
    pub credits: u64,
    /// Longest time between two messages.
    pub max_gap_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Why it ended early.
    pub fault: Option<Fault>,
    /// Its PE was killed: it ended nowhere.
    pub killed: bool,
}

/// The end of a stream that a kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It posts messages.
    Sender,
    /// It consumes them.
    Receiver,
}

impl Kernel {
    /// True if the kernel at the other end of `stream` gave up so long ago that nothing of it can come any more.
    fn is_abandoned(&self, (stream, side): (Stream, Side), abandoned_ns: u64) -> bool {
        let book = self.oracle.book(stream.id);
        let left = match side {
            Side::Sender => book.receiver_left_ns,
            Side::Receiver => book.sender_left_ns,
        };
        left.is_some_and(|left| self.world.sim().now() > left + abandoned_ns)
    }

    /// Waits for the word that the other end of `stream` writes, and ends early if `channel` is dead, or if the writer
    /// of the word has given up.
    fn wait_word<L: Lanes>(
        &self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        (stream, side): (Stream, Side),
        value: u64,
        traffic: &Traffic,
    ) -> Result<u64, Fault> {
        let device = self.device();
        let word = if side == Side::Sender { stream.credit() } else { stream.signal() };
        let deadline = self.deadline(traffic.wait_ns);
        loop {
            let taken_ns = self.taken_ns();
            let slice = Deadline { at_ns: deadline.at_ns.min(self.world.now() + self.slice_ns) };
            let fault = match device.wait_until_ge(lanes, HeapOffset(word), value, slice) {
                Ok(seen) => return Ok(seen),
                Err(fault) => fault,
            };
            self.check_late(slice, taken_ns, "wait for a word");
            let dead = channel.alive().err();
            // What the leader saw counts: lanes look at different instants.
            let ended =
                self.world.now() >= deadline.at_ns || self.is_abandoned((stream, side), traffic.abandoned_ns);
            let verdict = match (dead, ended) {
                (Some(_), _) => 1,
                (None, true) => 2,
                (None, false) => 0,
            };
            match lanes.broadcast(verdict, 0) {
                0 => {}
                1 => return Err(dead.unwrap_or(fault)),
                _ => return Err(fault),
            }
        }
    }

    /// Sends all messages of `stream`, then waits until all are done.
    pub fn send<L: Lanes>(&self, lanes: L, stream: Stream, traffic: &Traffic) -> Report {
        let mut report = self.report(stream);
        let device = self.device();
        let channel = device.channel(stream.to, stream.channel);
        let mut echoes = Echoes::new(self, stream, traffic);
        let mut last = self.world.now();
        for message in 0..traffic.messages {
            let sent = self.send_one(lanes, &channel, stream, traffic, message);
            report.messages += u64::from(sent.is_ok());
            match sent.and_then(|_| echoes.post(lanes, &channel, traffic, message)) {
                Ok(()) => {}
                Err(fault) => report.fault = Some(fault),
            }
            report.max_gap_ns = report.max_gap_ns.max(self.world.now() - last);
            last = self.world.now();
            if report.fault.is_some() {
                break;
            }
            if traffic.pace_ns > 0 {
                self.world.sleep(traffic.pace_ns + self.world.draw(traffic.pace_ns / 8 + 1));
            }
        }
        if report.fault.is_none() {
            self.world.note(|| format!("{stream}: quiet at the end"));
            let (deadline, taken_ns) = (self.deadline(traffic.wait_ns), self.taken_ns());
            report.fault = self.quiet(lanes, &channel, deadline).err();
            self.check_late(deadline, taken_ns, "quiet");
        }
        if report.fault.is_none() {
            report.fault = echoes.settle(lanes, &channel).err();
        }
        self.end(&mut report, Side::Sender);
        report
    }

    fn send_one<L: Lanes>(
        &self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        stream: Stream,
        traffic: &Traffic,
        message: u64,
    ) -> Result<Ticket, Fault> {
        if message >= stream.slots {
            let credit = message - stream.slots + 1;
            self.world.note(|| format!("{stream}: waiting for credit {credit}"));
            let waited = self.wait_word(lanes, channel, (stream, Side::Sender), credit, traffic)?;
            if waited > self.oracle.book(stream.id).credit {
                let what = format!("{stream}: credit {waited} that was not given, before message {message}");
                self.oracle.report(Kind::Invented, self.world.now(), what);
            }
            if traffic.quiet_before_reuse && message.is_multiple_of(stream.slots) {
                self.quiet(lanes, channel, self.deadline(traffic.wait_ns))?;
            }
        }
        // The lane that fills is not the leader, and nobody waits for it here: the post does.
        if lanes.rank() + 1 == lanes.size() {
            stream.fill(self.heap, message);
            self.oracle.note(stream.id, |book| book.begun = message + 1);
        }
        self.world.note(|| format!("{stream}: posting message {message}"));
        let pieces = split(stream.slot_bytes, traffic.puts);
        let mut ticket = Ticket(0);
        for (number, (offset, bytes)) in pieces.iter().enumerate() {
            let (dst, src) = (stream.destination(message) + offset, stream.source(message) + offset);
            let put = Put { dst: HeapOffset(dst), src: HeapOffset(src), bytes: *bytes };
            ticket = if number + 1 < pieces.len() {
                channel.put_nbi(lanes, put)?
            } else {
                let signal = match traffic.signals {
                    2 => Signal::Cleared(1),
                    3 => Signal::Add(1),
                    _ => Signal::Monotone(message + 1),
                };
                channel.put_signal_nbi(lanes, put, HeapOffset(stream.signal()), signal)?
            };
        }
        if traffic.signals != 1 && lanes.rank() == 0 {
            // A bracketed signal stands before its second ledger word.
            let behind = if traffic.signals == 2 { self.ledger_blocks } else { 0 };
            let signal = Ticket(ticket.0 - behind);
            self.oracle.note_add(stream.at(signal), stream.signal(), message + 1);
        }
        Ok(ticket)
    }

    /// Answers what channels of this PE ask, by what the receiver's memory holds, until `stop` is set.
    pub fn resolve_all(&self, channels: u32, stop: &std::cell::Cell<bool>) -> u64 {
        let device = self.device();
        let me = device.my_pe();
        let mut resolved = 0;
        while !stop.get() {
            for peer in (0..device.pe_count()).filter(|peer| *peer != me) {
                for number in 0..channels {
                    let channel = device.channel(peer, number);
                    let Some(fault) = channel.uncertain() else { continue };
                    let Some((word, value)) = self.oracle.added((me, peer, number, fault.at.0)) else {
                        continue;
                    };
                    // What is still on its way arrives, or never will: the path is fenced.
                    self.world.sleep(ARRIVED_NS);
                    let applied = load(self.heaps[peer as usize] + word) >= value;
                    let answer = if applied { Resolution::Applied } else { Resolution::NotApplied };
                    if applied && fault.operation() == Operation::Fetch {
                        self.oracle.note_lost((me, peer, number, fault.at.0));
                    }
                    resolved += channel.resolve(fault.at, answer).is_ok() as u64;
                }
            }
            self.world.sleep(RESOLVE_NS);
        }
        resolved
    }

    /// Receives all messages of `stream`, giving credit back on the same channel number.
    pub fn receive<L: Lanes>(&self, lanes: L, stream: Stream, traffic: &Traffic) -> Report {
        let mut report = self.report(stream);
        let device = self.device();
        let channel = device.channel(stream.from, stream.channel);
        let (mut next, mut credited) = (0, 0);
        let mut last = self.world.now();
        while next < traffic.messages && report.fault.is_none() {
            self.world.note(|| format!("{stream}: waiting for message {next}"));
            let waited = (stream, Side::Receiver);
            let seen = self.wait_word(lanes, &channel, waited, next + 1, traffic);
            let now = self.world.now();
            let until = match seen {
                Ok(seen) if seen <= self.oracle.book(stream.id).begun => seen,
                Ok(seen) => {
                    let begun = self.oracle.book(stream.id).begun;
                    let what = format!("{stream}: signal shows {seen}, {begun} were started");
                    self.oracle.report(Kind::Invented, now, what);
                    // The word stays ahead of what was posted: time must pass all the same.
                    self.world.sleep(RESOLVE_NS);
                    begun
                }
                Err(fault) => {
                    report.fault = Some(fault);
                    break;
                }
            };
            report.max_gap_ns = report.max_gap_ns.max(now - last);
            last = now;
            if lanes.rank() == 0 {
                (next..until).for_each(|message| stream.consume(self.heap, message, &self.oracle, now));
            }
            next = until;
            report.messages = next;
            let lag = if next == traffic.messages { 0 } else { traffic.credit_lag.min(stream.slots - 1) };
            if next - credited > lag {
                match self.give_credit(lanes, &channel, stream, credited..next - lag) {
                    Ok(_) => {}
                    Err(fault) => report.fault = Some(fault),
                }
                credited = next - lag;
                report.credits += 1;
            }
        }
        if report.fault.is_none() {
            self.world.note(|| format!("{stream}: quiet at the end"));
            report.fault = self.quiet(lanes, &channel, self.deadline(traffic.wait_ns)).err();
        }
        self.end(&mut report, Side::Receiver);
        report
    }

    /// Notes when a kernel ended, and tells its counterpart if it gave up.
    fn end(&self, report: &mut Report, side: Side) {
        let now = self.world.sim().now();
        report.ended_ns = now;
        if report.fault.is_some() {
            self.oracle.note(report.stream.id, |book| match side {
                Side::Sender => book.sender_left_ns = Some(now),
                Side::Receiver => book.receiver_left_ns = Some(now),
            });
        }
    }

    fn give_credit<L: Lanes>(
        &self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        stream: Stream,
        messages: std::ops::Range<u64>,
    ) -> Result<Ticket, Fault> {
        if lanes.rank() == 0 {
            // Each slot was last consumed for the newest of its messages.
            let newest = messages.end.saturating_sub(stream.slots).max(messages.start)..messages.end;
            for message in newest {
                stream.check_poison(self.heap, message, &self.oracle, self.world.now());
            }
            self.oracle.note(stream.id, |book| {
                book.credit = messages.end;
                book.credits += 1;
            });
        }
        self.world.note(|| format!("{stream}: giving credit {}", messages.end));
        channel.signal_nbi(lanes, HeapOffset(stream.credit()), Signal::Monotone(messages.end))
    }

    fn report(&self, stream: Stream) -> Report {
        Report::new(stream)
    }
}

impl Report {
    /// Nothing done yet.
    pub fn new(stream: Stream) -> Self {
        Self { stream, messages: 0, credits: 0, max_gap_ns: 0, ended_ns: 0, fault: None, killed: false }
    }
}

/// Cuts `bytes` into `count` pieces of whole words: offset and length of each.
pub fn split(bytes: u64, count: u64) -> Vec<(u64, u64)> {
    let words = bytes / 8;
    let count = count.clamp(1, words);
    let edge = |number: u64| words * number / count * 8;
    (0..count).map(|number| (edge(number), edge(number + 1) - edge(number))).collect()
}

/// True if a fault says that the channel is dead for good, and not merely that a caller's patience ended.
pub fn is_final(fault: &Fault) -> bool {
    matches!(
        fault.kind,
        FaultKind::PeerLost | FaultKind::Completion | FaultKind::FenceUnproven | FaultKind::Uncertain
    )
}
