//! The stream: a sender that never runs out of work and a receiver that believes nothing.
//!
//! Put `i` goes to slot `i % window`; its signal takes the value `i + 1`. The receiver checks a put when its
//! signal is seen, poisons the slot, and gives slots back half a window at a time.

use crate::heap::{HeapMap, HeapView};
use crate::kernel::{Control, Dev, Stop, patiently, wait_until};
use crate::options::Mode;
use crate::pattern::{Salt, fill, word};
use crate::timeline::{Gap, Timeline};
use crate::verify::{Check, Findings, Slots};
use shunt_device::platform::host::{Host, World};
use shunt_device::{Channel, Deadline, Fault, FaultKind, HeapOffset, Put, Solo, Ticket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A sender that has not ended.
const RUNNING: u64 = u64::MAX;

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
    /// Whether bytes are filled, checked and poisoned.
    pub verify: bool,
    /// Which run.
    pub seed: u64,
    /// Where everything lies.
    pub map: HeapMap,
    /// Start, stop and abort.
    pub control: &'r Control,
    /// The clock.
    pub world: &'r dyn World,
    /// What the harness says of this stream from end to end, beside the NIC.
    pub link: &'r Link,
}

/// How sender and receiver learn that the other has begun or ended. Not part of what is tested.
#[derive(Debug)]
pub struct Link {
    /// The receiver's slots are poisoned: nothing may come before.
    ready: AtomicBool,
    posted: AtomicU64,
}

impl Default for Link {
    fn default() -> Self {
        Self { ready: AtomicBool::new(false), posted: AtomicU64::new(RUNNING) }
    }
}

/// What a sender did.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Puts (or signals alone) posted.
    pub puts: u64,
    /// Why it ended early, if it did.
    pub stop: Option<Stop>,
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

    fn slots<'h>(&self, heap: &'h HeapView, at: HeapOffset) -> Slots<'h> {
        Slots::new(heap.words(at, self.map.window_words()), (self.map.slot_bytes() / 8) as usize)
    }

    /// The sending kernel.
    pub fn send(&self, device: Dev<'_>, heap: &HeapView, receivers: u64) -> Sent {
        let slots = self.slots(heap, self.map.sources(self.channel));
        let mut sender = Sender {
            stream: self,
            device,
            channel: device.channel(self.target, self.channel),
            slots,
            tickets: vec![None; slots.count() as usize],
            credits: 0,
            puts: 0,
            last: None,
        };
        let stop = sender.run(receivers).err();
        if stop.is_some() {
            self.control.abort(self.world.now_ns());
        }
        Sent { puts: sender.puts, stop }
    }

    /// The receiving kernel.
    pub fn receive(
        &self,
        device: Dev<'_>,
        heap: &HeapView,
        timeline: &Timeline,
        warm_up_ns: u64,
    ) -> Received {
        let slots = self.slots(heap, self.map.slots(self.channel));
        let data = self.verify && self.mode != Mode::Signal;
        let mut receiver = Receiver {
            stream: self,
            device,
            channel: device.channel(self.source, self.channel),
            check: Check::new(slots, self.salt(), data),
            timeline,
            gap: Gap::new(self.control.start_ns + warm_up_ns),
            last_credit: None,
        };
        self.link.ready.store(true, Ordering::Release);
        let stop = receiver.run().err();
        // A slot is only known to be nobody's once everything was consumed.
        let findings = if stop.is_some() {
            self.control.abort(self.world.now_ns());
            receiver.check.findings()
        } else {
            receiver.check.finish()
        };
        self.control.finished.fetch_add(1, Ordering::AcqRel);
        Received { findings, gap_ns: receiver.gap.longest_ns(), stop }
    }
}

struct Sender<'a, 'w> {
    stream: &'a Stream<'a>,
    device: Dev<'w>,
    channel: Channel<'w, Host<'w>>,
    slots: Slots<'a>,
    /// The last ticket that reads each source slot.
    tickets: Vec<Option<Ticket>>,
    credits: u64,
    puts: u64,
    last: Option<Ticket>,
}

impl Sender<'_, '_> {
    fn run(&mut self, receivers: u64) -> Result<(), Stop> {
        let control = self.stream.control;
        wait_until(self.stream.world, control.start_ns);
        while !self.stream.link.ready.load(Ordering::Acquire) {
            if self.stream.world.now_ns() > control.start_ns.saturating_add(control.stall_ns) {
                return Err(Stop::Stalled("the receiver to start"));
            }
            self.stream.world.relax();
        }
        let posted = self.post_until_stop();
        // Whatever happened: the receiver learns how much there is to wait for.
        self.stream.link.posted.store(self.puts, Ordering::Release);
        posted?;
        self.patiently("a quiet after the last put", |s, slice| s.channel.quiet(Solo, slice))?;
        self.linger(receivers)
    }

    fn post_until_stop(&mut self) -> Result<(), Stop> {
        let control = self.stream.control;
        while self.stream.world.now_ns() < control.stop_ns {
            if control.aborted() {
                return Err(Stop::Aborted);
            }
            self.wait_for_credit()?;
            if self.stream.world.now_ns() >= control.stop_ns {
                break;
            }
            let slot = (self.puts % self.slots.count()) as usize;
            if let Some(ticket) = self.tickets[slot] {
                self.patiently("a source slot", |s, slice| s.channel.wait(Solo, ticket, slice))?;
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
            self.credits = self.patiently("a credit from the receiver", |s, d| {
                s.device.wait_until_ge(Solo, word, need, d)
            })?;
        }
        Ok(())
    }

    fn post(&self, put: u64) -> Result<Ticket, Fault> {
        let (stream, slot_bytes) = (self.stream, self.stream.map.slot_bytes());
        let offset = put % self.slots.count() * slot_bytes;
        let signal = stream.map.signal(stream.channel);
        let dst = HeapOffset(stream.map.slots(stream.channel).0 + offset);
        match stream.mode {
            Mode::Write => {
                if stream.verify {
                    fill(self.slots.of(put), stream.salt(), put);
                }
                let src = HeapOffset(stream.map.sources(stream.channel).0 + offset);
                self.channel.put_signal_nbi(Solo, Put { dst, src, bytes: slot_bytes }, signal, put + 1)
            }
            Mode::P => {
                self.channel.p_nbi(Solo, dst, word(stream.salt(), put, 0), 8)?;
                self.channel.signal_set_nbi(Solo, signal, put + 1)
            }
            Mode::Signal | Mode::Amo => self.channel.signal_set_nbi(Solo, signal, put + 1),
        }
    }

    /// Looks after this PE's channels until every receiver is done: their credits may need a switch from us.
    fn linger(&mut self, receivers: u64) -> Result<(), Stop> {
        let control = self.stream.control;
        let until = self.stream.world.now_ns() + control.stall_ns;
        while control.finished.load(Ordering::Acquire) < receivers && !control.aborted() {
            let now = self.stream.world.now_ns();
            if now >= until {
                return Ok(());
            }
            let word = self.stream.map.credit(self.stream.channel);
            let slice = Deadline::after(now, 10_000_000);
            let _ = self.device.wait_until_ge(Solo, word, u64::MAX, slice);
        }
        Ok(())
    }

    fn patiently<T>(
        &self,
        what: &'static str,
        mut attempt: impl FnMut(&Self, Deadline) -> Result<T, Fault>,
    ) -> Result<T, Stop> {
        let (world, control) = (self.stream.world, self.stream.control);
        let watch = self.last.map(|ticket| (self.channel, ticket));
        patiently(world, control, control.stall_ns, what, watch, |deadline| attempt(self, deadline))
    }
}

struct Receiver<'a, 'w> {
    stream: &'a Stream<'a>,
    device: Dev<'w>,
    channel: Channel<'w, Host<'w>>,
    check: Check<'a>,
    timeline: &'a Timeline,
    gap: Gap,
    last_credit: Option<Ticket>,
}

impl Receiver<'_, '_> {
    fn run(&mut self) -> Result<(), Stop> {
        let consumed = self.consume();
        if self.check.seen() < self.stream.link.posted.load(Ordering::Acquire) {
            // Nothing more came: the silence up to here is a gap too.
            let now = self.stream.world.now_ns();
            self.gap.delivery(now.min(self.stream.control.stop_ns));
        }
        consumed?;
        if let Some(ticket) = self.last_credit {
            let (world, control) = (self.stream.world, self.stream.control);
            let channel = self.channel;
            patiently(world, control, control.stall_ns, "the last credit", None, |slice| {
                channel.wait(Solo, ticket, slice)
            })?;
        }
        self.watch_for_ghosts();
        Ok(())
    }

    fn consume(&mut self) -> Result<(), Stop> {
        let (world, control) = (self.stream.world, self.stream.control);
        let signal = self.stream.map.signal(self.stream.channel);
        let mut progress = world.now_ns().max(control.start_ns);
        while self.check.seen() < self.stream.link.posted.load(Ordering::Acquire) {
            let now = world.now_ns();
            let slice = Deadline::after(now, control.slice_ns);
            match self.device.wait_until_ge(Solo, signal, self.check.seen() + 1, slice) {
                Ok(value) => {
                    self.take(value);
                    self.give_back()?;
                    progress = world.now_ns();
                }
                Err(fault) if fault.kind != FaultKind::Overdue => return Err(Stop::Fault(fault)),
                Err(_) => self.look_at_the_silence(signal, progress)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, value: u64) {
        let (world, timeline) = (self.stream.world, self.timeline);
        let (gap, bytes) = (&mut self.gap, self.stream.put_bytes());
        self.check.cover(value, world, || {
            let now = world.now_ns();
            timeline.add(now, bytes);
            gap.delivery(now);
        });
    }

    /// No signal for a slice: has the word gone backwards, is the run over, is our own channel dead?
    fn look_at_the_silence(&mut self, signal: HeapOffset, progress: u64) -> Result<(), Stop> {
        let (world, control) = (self.stream.world, self.stream.control);
        self.take(self.device.load(signal));
        if control.aborted() {
            return Err(Stop::Aborted);
        }
        if let Some(ticket) = self.last_credit {
            let now = Deadline { at_ns: world.now_ns() };
            if let shunt_device::CqCheck::Failed(fault) = self.channel.check(ticket, now) {
                return Err(Stop::Fault(fault));
            }
        }
        let silent = world.now_ns().saturating_sub(progress);
        if silent > control.stall_ns { Err(Stop::Stalled("the next signal")) } else { Ok(()) }
    }

    fn give_back(&mut self) -> Result<(), Stop> {
        if let Some(credit) = self.check.credit_due() {
            let word = self.stream.map.credit(self.stream.channel);
            let ticket = self.channel.signal_set_nbi(Solo, word, credit).map_err(Stop::Fault)?;
            self.last_credit = Some(ticket);
        }
        Ok(())
    }

    /// Everything has come. Whatever still lives in the network has this long to show itself.
    fn watch_for_ghosts(&mut self) {
        let signal = self.stream.map.signal(self.stream.channel);
        let until = Deadline::after(self.stream.world.now_ns(), crate::verify::GHOST_NS);
        let seen = self.check.seen();
        // Any larger value is wild: everything that was posted has been seen.
        if let Ok(value) = self.device.wait_until_ge(Solo, signal, seen + 1, until) {
            self.check.wild(value);
        }
        let value = self.device.load(signal);
        if value < seen {
            self.take(value);
        }
    }
}
