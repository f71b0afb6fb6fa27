//! The kernels of a run: senders that fill, put and signal, receivers that check, poison and give credit back.

use std::rc::Rc;
use std::sync::Arc;

use shunt_device::{
    Channel, Deadline, Device, Fault, FaultKind, HeapOffset, Lanes, Operation, Put, Resolution, Signal,
    Ticket,
};
use shunt_layout::state::DeviceState;

use crate::echo::Echoes;
use crate::oracle::{Kind, Oracle, Stream, load};
use crate::sim::{Interference, PeWorld, SimPlatform};

/// A look may take this long beyond a deadline: one poll interval of a quiet world, and one interference.
pub const LATE_SLACK_NS: u64 = 500_000;

/// How often what is uncertain is looked for.
const RESOLVE_NS: u64 = 500_000;
/// After this long on a fenced path nothing arrives any more.
const ARRIVED_NS: u64 = 20_000_000;

/// A kernel that waits for a word asks this often whether its channel still lives.
pub const SLICE_NS: u64 = 10_000_000;

/// What a stream's kernels do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Messages of each stream.
    pub messages: u64,
    /// Slots of each stream.
    pub slots: u64,
    /// Bytes of a message.
    pub slot_bytes: u64,
    /// Puts a message is cut into; the last one carries the signal.
    pub puts: u64,
    /// Kind of their signals: 1 an absolute value, 2 adds of a single writer, 3 adds. Credits are kind 1.
    pub signals: u32,
    /// A get with every so many messages; 0: none.
    pub gets: u64,
    /// A fetching atomic with every so many messages; 0: none.
    pub fetches: u64,
    /// Pause of the sender between messages.
    pub pace_ns: u64,
    /// Messages the receiver keeps before it gives their credit back; below `slots`.
    pub credit_lag: u64,
    /// Wait for `quiet` before a source slot is filled again. If not, credit alone allows it (invariant 5).
    pub quiet_before_reuse: bool,
    /// Deadline of each single wait.
    pub wait_ns: u64,
    /// A kernel that waits for a word asks this often whether its channel still lives; four suspect times at least.
    pub slice_ns: u64,
    /// How long after its counterpart gave up a kernel goes on waiting: longer than what is under way takes to arrive.
    pub abandoned_ns: u64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            messages: 200,
            slots: 8,
            slot_bytes: 256,
            puts: 2,
            signals: 1,
            gets: 0,
            fetches: 0,
            pace_ns: 0,
            credit_lag: 2,
            quiet_before_reuse: false,
            wait_ns: 10_000_000_000,
            slice_ns: SLICE_NS,
            abandoned_ns: 500_000_000,
        }
    }
}

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

/// A kernel's surroundings.
#[derive(Clone)]
pub struct Kernel {
    /// The world it lives in, by the clock of its PE.
    pub world: Arc<PeWorld>,
    /// The state of its PE; mapped as long as the run lasts.
    pub state: *const DeviceState,
    /// First address of its PE's heap.
    pub heap: u64,
    /// First address of each PE's heap.
    pub heaps: Rc<Vec<u64>>,
    /// A wait for a word is cut into waits of this length.
    pub slice_ns: u64,
    /// How it is disturbed.
    pub interference: Rc<Interference>,
    /// Where broken promises go.
    pub oracle: Oracle,
    /// Tickets of a ledger word.
    pub ledger_blocks: u64,
}

impl Kernel {
    /// The device of this kernel's PE.
    pub fn device(&self) -> Device<'_, SimPlatform<'_>> {
        let platform = SimPlatform::new(&self.world, &self.interference);
        // SAFETY: the cluster keeps the state mapped until every kernel has ended, and only uploads write the root.
        unsafe { Device::attach(self.state, platform) }.expect("the host wrote a state of this version")
    }

    fn deadline(&self, span_ns: u64) -> Deadline {
        Deadline::after(self.world.now(), span_ns)
    }

    /// What was taken from this kernel so far: by a clock that jumped, by stops of its process.
    fn taken_ns(&self) -> u64 {
        self.world.ahead_ns() + self.world.stopped_ns()
    }

    /// Invariant 6: a wait that was given `deadline` has just ended. `taken_ns` is what had been taken as it began.
    fn check_late(&self, deadline: Deadline, taken_ns: u64, what: &str) {
        let now = self.world.now();
        let taken_ns = self.taken_ns() - taken_ns;
        if let Some(late_ns) = late_ns(now, deadline, taken_ns)
            && self.interference.one_in.get() == 0
        {
            self.oracle.report(Kind::Late, now, format!("{what} ended {late_ns} ns after its deadline"));
        }
    }

    /// True if the kernel at the other end of `stream` gave up so long ago that nothing of it can come any more.
    fn is_abandoned(&self, (stream, side): (Stream, Side), abandoned_ns: u64) -> bool {
        let book = self.oracle.book(stream.id);
        let left = match side {
            Side::Sender => book.receiver_left_ns,
            Side::Receiver => book.sender_left_ns,
        };
        left.is_some_and(|left| self.world.sim().now() > left + abandoned_ns)
    }

    /// Waits for the word that the other end of `stream` writes, and ends early if `channel` is dead, or if whoever
    /// writes the word has given up.
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
        // Whoever fills is not the leader, and nobody waits for it here: the post does.
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

    /// Quiet, over what is uncertain for a while: somebody else resolves it.
    fn quiet<L: Lanes>(
        &self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        deadline: Deadline,
    ) -> Result<(), Fault> {
        self.over_uncertain(channel, deadline, || channel.quiet(lanes, deadline))
    }

    /// Waits for a ticket, over what is uncertain for a while.
    pub(crate) fn wait<L: Lanes>(
        &self,
        lanes: L,
        channel: &Channel<'_, SimPlatform<'_>>,
        ticket: Ticket,
        span_ns: u64,
    ) -> Result<(), Fault> {
        let (deadline, taken_ns) = (self.deadline(span_ns), self.taken_ns());
        let waited = self.over_uncertain(channel, deadline, || channel.wait(lanes, ticket, deadline));
        self.check_late(deadline, taken_ns, "wait for a ticket");
        waited
    }

    fn over_uncertain(
        &self,
        channel: &Channel<'_, SimPlatform<'_>>,
        deadline: Deadline,
        mut wait: impl FnMut() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        loop {
            match wait() {
                Err(fault) if fault.kind == FaultKind::Uncertain && channel.alive().is_ok() => {
                    if self.world.now() > deadline.at_ns {
                        return Err(fault);
                    }
                    self.world.sleep(RESOLVE_NS);
                }
                other => return other,
            }
        }
    }

    /// Answers whatever channels of this PE ask, by what the receiver's memory holds, until `stop` is set.
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
                    let what = format!("{stream}: signal shows {seen}, {begun} were begun");
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

/// How long after its deadline a wait ended, if that is too long. Who is stopped ends nothing, and whose clock jumps is
/// late by that at once: what was taken from the kernel during this wait is granted, and nothing from before it.
pub fn late_ns(now: u64, deadline: Deadline, taken_ns: u64) -> Option<u64> {
    let late_ns = now.saturating_sub(deadline.at_ns);
    (late_ns > taken_ns.saturating_add(LATE_SLACK_NS)).then_some(late_ns)
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
