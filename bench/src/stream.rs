//! The stream: a sender that never runs out of work and a receiver that believes nothing.
//!
//! Put `i` (or atomic `i`) goes to slot `i % window`. Its signal makes the stream's word `i + 1`, as a value or by an
//! add of one; or, where the receiver clears what it saw, adds `i + 1` to the slot's own word. The receiver checks a
//! put when its signal is seen, poisons the slot, and gives slots back half a window at a time.

use crate::gpu::Kernels;
use crate::hand::{Fetching, Hand};
use crate::heap::{HeapMap, HeapView};
use crate::job::board::Link;
use crate::kernel::{Dev, Kernel, Stop, wait_until};
use crate::options::{Mode, SignalKind};
use crate::uncertain_policy::Decided;
use shunt_device::platform::host::Host;
use shunt_device::{Channel, Deadline, Fault, FaultKind, HeapOffset, Put, Signal, Solo, Ticket};
use shunt_figures::timeline::{Gap, Timeline};
use shunt_kernels::Call;
use shunt_oracle::amo_model::{Model, Scripted};
use shunt_oracle::checker::{Check, Content, Findings, Flags, Slots};
use shunt_oracle::pattern::{Salt, fill, word};

/// What the two ends of one stream know of it.
#[derive(Clone, Copy)]
pub struct Stream<'r> {
    /// PE that puts.
    pub source: u32,
    /// PE that is put to.
    pub target: u32,
    /// Channel, and number of the block.
    pub channel: u32,
    /// What it is made of.
    pub mode: Mode,
    /// What its signals are.
    pub signal: SignalKind,
    /// Whether bytes are filled, checked and poisoned.
    pub verify: bool,
    /// Which run.
    pub seed: u64,
    /// Where everything lies.
    pub map: HeapMap,
    /// Longest time a packet may live in the network: what is drained is watched for ghosts that long and more.
    pub lifetime_ns: u64,
    /// What the harness says of this stream from end to end, beside the NIC.
    pub link: &'r Link,
    /// What was decided about operations whose fate nobody knows.
    pub decided: &'r Decided,
    /// The kernels that post and wait for the sender, and the threads of each, if they run on a GPU.
    pub kernels: Option<(&'r Kernels, u32)>,
}

/// What a sender did.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Puts (or signals alone) posted.
    pub puts: u64,
    /// Fetched values that are not what the word had held.
    pub misread: u64,
    /// Why it ended early, if it did.
    pub stop: Option<Stop>,
}

/// A fetching atomic under way, and where its answer goes.
#[derive(Clone, Copy)]
struct Fetch {
    last: Ticket,
    scripted: Scripted,
    result: HeapOffset,
}

/// What a receiver saw.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Checked puts.
    pub findings: Findings,
    /// Longest time between deliveries after warm-up.
    pub gap_ns: u64,
    /// Why it ended early, if it did.
    pub stop: Option<Stop>,
}

impl<'r> Stream<'r> {
    /// Payload bytes of one put.
    pub fn put_bytes(&self) -> u64 {
        self.map.slot_bytes()
    }

    fn salt(&self) -> Salt {
        Salt::new(self.seed, self.source, self.channel)
    }

    /// The signal of a put, and its word.
    fn signal(&self, put: u64) -> (HeapOffset, Signal) {
        let word = self.map.signal(self.channel);
        match self.signal {
            SignalKind::Monotone => (word, Signal::Monotone(put + 1)),
            SignalKind::Add => (word, Signal::Add(1)),
            SignalKind::Cleared => (self.flag(put), Signal::Cleared(put + 1)),
        }
    }

    fn flag(&self, put: u64) -> HeapOffset {
        HeapOffset(self.map.flags(self.channel).0 + put % self.map.window() * 8)
    }

    fn slots<'h>(&self, heap: &'h HeapView, at: HeapOffset) -> Slots<'h> {
        Slots::new(heap.words(at, self.map.window_words()), (self.map.slot_bytes() / 8) as usize)
    }

    /// The sending kernel.
    pub fn send(&self, kernel: Kernel<'_>, device: Dev<'_>, heap: &HeapView) -> Sent {
        let slots = self.slots(heap, self.map.sources(self.channel));
        let channel = device.channel(self.target, self.channel);
        let told = Call {
            peer: self.target,
            channel: self.channel,
            timeout_ns: kernel.control.stall_ns,
            ..Call::default()
        };
        let hand = match self.kernels {
            None => Hand::Thread(device, channel),
            Some((kernels, threads)) => Hand::Gpu(kernels, threads, told),
        };
        let mut sender = Sender {
            stream: self,
            kernel,
            device,
            channel,
            hand,
            slots,
            tickets: vec![None; slots.count() as usize],
            fetches: vec![None; slots.count() as usize],
            model: Model::new(self.salt(), slots.count()),
            credits: 0,
            puts: 0,
            misread: 0,
            last: None,
        };
        let stop = sender.run().err().map(|stop| kernel.ended(stop));
        if !matches!(stop, None | Some(Stop::Killed)) {
            kernel.control.abort(kernel.now_ns());
        }
        Sent { puts: sender.puts, misread: sender.misread, stop }
    }

    /// The receiving kernel.
    pub fn receive(
        &self,
        kernel: Kernel<'_>,
        device: Dev<'_>,
        heap: &HeapView,
        timeline: &Timeline,
        warm_up_ns: u64,
    ) -> Received {
        let slots = self.slots(heap, self.map.slots(self.channel));
        let content = match self.mode {
            _ if !self.verify => Content::Nothing,
            Mode::Signal => Content::Nothing,
            Mode::Amo => Content::Script(Model::new(self.salt(), slots.count())),
            Mode::Write | Mode::P => Content::Pattern(self.salt()),
        };
        let flags = Flags(heap.words(self.map.flags(self.channel), self.map.window()));
        let flags = (self.signal == SignalKind::Cleared).then_some(flags);
        let mut receiver = Receiver {
            stream: self,
            kernel,
            device,
            channel: device.channel(self.source, self.channel),
            check: Check::new(slots, content, flags),
            timeline,
            gap: Gap::new(kernel.control.start_ns + warm_up_ns),
            last_credit: None,
        };
        self.link.set_ready();
        let stop = receiver.run().err().map(|stop| kernel.ended(stop));
        // A slot is only known to be nobody's once everything was consumed.
        let findings = match stop {
            None => receiver.check.finish(),
            Some(Stop::Killed) => receiver.check.findings(),
            Some(_) => {
                kernel.control.abort(kernel.now_ns());
                receiver.check.findings()
            }
        };
        if !matches!(stop, Some(Stop::Killed)) {
            self.link.set_finished();
        }
        Received { findings, gap_ns: receiver.gap.longest_ns(), stop }
    }
}

struct Sender<'a, 'w> {
    stream: &'a Stream<'a>,
    kernel: Kernel<'a>,
    device: Dev<'w>,
    channel: Channel<'w, Host<'w>>,
    hand: Hand<'a, 'w>,
    slots: Slots<'a>,
    /// The last ticket that reads each source slot.
    tickets: Vec<Option<Ticket>>,
    /// What each slot's atomic fetches, until it was looked at.
    fetches: Vec<Option<Fetch>>,
    model: Model,
    credits: u64,
    puts: u64,
    misread: u64,
    last: Option<Ticket>,
}

impl Sender<'_, '_> {
    fn run(&mut self) -> Result<(), Stop> {
        let (kernel, control) = (self.kernel, self.kernel.control);
        wait_until(kernel.clock, control.start_ns);
        while !self.stream.link.ready() {
            kernel.go_on()?;
            if kernel.now_ns() > control.start_ns.saturating_add(control.stall_ns) {
                return Err(Stop::Stalled("the receiver to start"));
            }
            kernel.clock.relax();
        }
        let posted = self.post_until_stop();
        // Whatever happened but death: the receiver learns how much there is to wait for.
        if !matches!(posted, Err(Stop::Killed)) {
            self.stream.link.set_posted(self.puts);
        }
        posted?;
        self.patiently("a quiet after the last put", |s, slice| s.hand.quiet(slice, s.now()))?;
        (0..self.fetches.len()).for_each(|slot| self.look_at_the_answer(slot));
        self.linger()
    }

    fn post_until_stop(&mut self) -> Result<(), Stop> {
        let (kernel, control) = (self.kernel, self.kernel.control);
        while kernel.now_ns() < control.stop_ns() {
            kernel.go_on()?;
            self.wait_for_credit()?;
            if kernel.now_ns() >= control.stop_ns() {
                break;
            }
            let slot = (self.puts % self.slots.count()) as usize;
            if let Some(ticket) = self.tickets[slot] {
                self.patiently("a source slot", |s, slice| s.hand.wait(ticket, slice, s.now()))?;
                self.look_at_the_answer(slot);
            }
            let ticket = self.post(self.puts).map_err(Stop::Fault)?;
            (self.tickets[slot], self.last) = (Some(ticket), Some(ticket));
            self.puts += 1;
        }
        Ok(())
    }

    fn wait_for_credit(&mut self) -> Result<(), Stop> {
        let need = (self.puts + 1).saturating_sub(self.slots.count());
        if self.credits < need {
            let word = self.stream.map.credit(self.stream.channel);
            self.credits = self.patiently("a credit from the receiver", |s, slice| {
                s.hand.wait_until_ge(word, need, slice, s.now())
            })?;
        }
        Ok(())
    }

    fn post(&mut self, put: u64) -> Result<Ticket, Fault> {
        let (stream, slot_bytes) = (self.stream, self.stream.map.slot_bytes());
        let offset = put % self.slots.count() * slot_bytes;
        let (word_at, signal) = stream.signal(put);
        let dst = HeapOffset(stream.map.slots(stream.channel).0 + offset);
        let src = HeapOffset(stream.map.sources(stream.channel).0 + offset);
        match stream.mode {
            Mode::Write => {
                if stream.verify {
                    fill(self.slots.of(put), stream.salt(), put);
                }
                return self.hand.put_signal(Put { dst, src, bytes: slot_bytes }, word_at, signal);
            }
            Mode::P => {
                self.hand.p(dst, word(stream.salt(), put, 0), 8)?;
            }
            Mode::Amo => self.post_atomic(put, dst, src)?,
            Mode::Signal => {}
        }
        self.hand.signal(word_at, signal)
    }

    /// Atomic `put` of the script. What it fetches goes to the source slot, which nobody sends from.
    fn post_atomic(&mut self, put: u64, dst: HeapOffset, result: HeapOffset) -> Result<(), Fault> {
        let scripted = self.model.next(put);
        let at = HeapOffset(dst.0 + scripted.offset);
        if !scripted.fetch {
            return self.hand.amo(at, scripted.amo).map(|_| ());
        }
        let last = match self.hand.fetch(at, scripted.amo, result)? {
            Fetching::Posted(last) => last,
            Fetching::Answered(value) => {
                self.misread += u64::from(self.stream.verify && value != scripted.old);
                return Ok(());
            }
        };
        let slot = (put % self.slots.count()) as usize;
        self.fetches[slot] = Some(Fetch { last, scripted, result });
        Ok(())
    }

    /// The slot's operations are done: what was fetched is what the word had held, unless the answer is known to be
    /// lost.
    fn look_at_the_answer(&mut self, slot: usize) {
        let Some(Fetch { last, scripted, result }) = self.fetches[slot].take() else { return };
        let first = last.0 + 1 - scripted.amo.blocks();
        let lost = self.stream.decided.holds(self.stream.source, self.stream.channel, first..last.0 + 1);
        if self.stream.verify && !lost && self.device.fetched(scripted.amo, result) != scripted.old {
            self.misread += 1;
        }
    }

    /// Now, on the clock that deadlines are read against.
    fn now(&self) -> u64 {
        self.kernel.world.now_ns()
    }

    /// Looks after this PE's channels until every receiver is done: their credits may need a switch from us.
    fn linger(&mut self) -> Result<(), Stop> {
        let (kernel, control) = (self.kernel, self.kernel.control);
        let until = kernel.now_ns() + control.stall_ns;
        while !control.board.all_finished() && !control.aborted() {
            if kernel.now_ns() >= until {
                return Ok(());
            }
            if control.board.killed(kernel.pe) {
                return Err(Stop::Killed);
            }
            // A receiver that is gone never finishes.
            self.channel.alive().map_err(Stop::Fault)?;
            let word = self.stream.map.credit(self.stream.channel);
            let _ = self.hand.wait_until_ge(word, u64::MAX, kernel.deadline(10_000_000), self.now());
        }
        Ok(())
    }

    fn patiently<T>(
        &self,
        what: &'static str,
        mut attempt: impl FnMut(&Self, Deadline) -> Result<T, Fault>,
    ) -> Result<T, Stop> {
        let kernel = self.kernel;
        // A look at a ticket carries a switch on, which is the business of who posts.
        let last = self.last.filter(|_| self.hand.is_thread());
        let alive = || kernel.alive(self.channel, last);
        kernel.patiently(kernel.control.stall_ns, what, alive, |deadline| attempt(self, deadline))
    }
}

struct Receiver<'a, 'w> {
    stream: &'a Stream<'a>,
    kernel: Kernel<'a>,
    device: Dev<'w>,
    channel: Channel<'w, Host<'w>>,
    check: Check<'a>,
    timeline: &'a Timeline,
    gap: Gap,
    last_credit: Option<Ticket>,
}

impl Receiver<'_, '_> {
    fn run(&mut self) -> Result<(), Stop> {
        let kernel = self.kernel;
        let consumed = self.consume();
        if self.check.seen() < self.stream.link.posted() {
            // Nothing more came: the silence up to here is a gap too.
            self.gap.delivery(kernel.now_ns().min(kernel.control.stop_ns()));
        }
        consumed?;
        if let Some(ticket) = self.last_credit {
            let channel = self.channel;
            kernel.patiently(
                kernel.control.stall_ns,
                "the last credit",
                || Ok(()),
                |slice| channel.wait(Solo, ticket, slice),
            )?;
        }
        self.watch_for_ghosts();
        Ok(())
    }

    fn consume(&mut self) -> Result<(), Stop> {
        let kernel = self.kernel;
        let mut progress = kernel.now_ns().max(kernel.control.start_ns);
        while self.check.seen() < self.stream.link.posted() {
            let slice = kernel.deadline(kernel.control.slice_ns);
            let (signal, value) = self.awaited();
            match self.device.wait_until_ge(Solo, signal, value, slice) {
                Ok(value) => {
                    self.take(value);
                    self.give_back()?;
                    progress = kernel.now_ns();
                    // Busy is not immortal.
                    if kernel.control.board.killed(kernel.pe) {
                        return Err(Stop::Killed);
                    }
                }
                Err(fault) if fault.kind != FaultKind::Overdue => return Err(Stop::Fault(fault)),
                Err(_) => self.look_at_the_silence(signal, progress)?,
            }
        }
        Ok(())
    }

    /// The word that tells of the next put, and the least that it says then.
    fn awaited(&self) -> (HeapOffset, u64) {
        let seen = self.check.seen();
        match self.stream.signal {
            SignalKind::Cleared => (self.stream.flag(seen), 1),
            _ => (self.stream.map.signal(self.stream.channel), seen + 1),
        }
    }

    fn take(&mut self, value: u64) {
        let (clock, timeline) = (self.kernel.clock, self.timeline);
        let (gap, bytes) = (&mut self.gap, self.stream.put_bytes());
        let delivered = || {
            let now = clock.now_ns();
            timeline.add(now, bytes);
            gap.delivery(now);
        };
        match self.stream.signal {
            SignalKind::Cleared => self.check.flag(clock, delivered),
            SignalKind::Monotone => {
                self.check.cover(value, clock, delivered);
            }
            // A word that counts too far is looked at when all is there: nothing more was posted.
            SignalKind::Add => {
                let most = self.stream.link.posted().min(self.check.reach());
                self.check.cover(value.min(most), clock, delivered);
            }
        }
    }

    /// No signal for a slice: has the word gone backwards, is the run over, is the sender or our own channel dead?
    fn look_at_the_silence(&mut self, signal: HeapOffset, progress: u64) -> Result<(), Stop> {
        let kernel = self.kernel;
        self.take(self.device.load(signal));
        kernel.go_on()?;
        kernel.alive(self.channel, self.last_credit)?;
        let silent = kernel.now_ns().saturating_sub(progress);
        if silent > kernel.control.stall_ns { Err(Stop::Stalled("the next signal")) } else { Ok(()) }
    }

    fn give_back(&mut self) -> Result<(), Stop> {
        if let Some(credit) = self.check.credit_due() {
            let word = self.stream.map.credit(self.stream.channel);
            let ticket =
                self.channel.signal_nbi(Solo, word, Signal::Monotone(credit)).map_err(Stop::Fault)?;
            self.last_credit = Some(ticket);
        }
        Ok(())
    }

    /// The packet lifetime and half as much.
    fn ghost_ns(&self) -> u64 {
        self.stream.lifetime_ns + self.stream.lifetime_ns / 2
    }

    /// Everything has come. Whatever still lives in the network has this long to show itself.
    fn watch_for_ghosts(&mut self) {
        let until = self.kernel.deadline(self.ghost_ns());
        let (signal, value) = self.awaited();
        let seen = self.check.seen();
        // Everything that was posted has been seen: any larger value is wild, or an add too many. A flag that is up is
        // found by the last look at all of them.
        let more = self.device.wait_until_ge(Solo, signal, value, until);
        match (self.stream.signal, more) {
            (SignalKind::Monotone, Ok(value)) => self.check.wild(value),
            (SignalKind::Add, Ok(value)) => self.check.again(value - seen),
            _ => {}
        }
        let value = self.device.load(signal);
        if self.stream.signal != SignalKind::Cleared && value < seen {
            self.take(value);
        }
    }
}
