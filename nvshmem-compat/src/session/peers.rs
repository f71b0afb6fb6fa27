//! The other PEs as host calls reach them: a channel to each, waits on it, and looks after it.

use super::access::Access;
use super::control::Control;
use super::describe;
use super::locks::lock;
use super::losses::Losses;
use super::waits::Watch;
use crate::failure::Failure;
use shunt_device::platform::host::{Host, World};
use shunt_device::{Channel, Deadline, Device, Fault, FaultKind, Get, Put, Solo, StallDetector, Ticket};
use shunt_host::agent::words::StateWords;
use shunt_host::pe::Pe;
use std::sync::{Arc, Mutex};

/// The channel of host calls at each peer: one, so that what is posted first arrives first.
pub(super) const HOST_CHANNEL: u32 = 0;

/// Looks of a wait between two in which it asks who is lost.
const LOOKS_BETWEEN: u32 = 256;

/// How far looks have come, and what each channel has shown.
#[derive(Default)]
struct Rounds {
    next: u32,
    patience: Vec<StallDetector>,
}

/// This PE's channels to the others.
pub struct Peers {
    words: StateWords,
    world: Arc<dyn World>,
    control: Arc<Control>,
    access: Arc<dyn Access>,
    rounds: Mutex<Rounds>,
    losses: Mutex<Losses>,
    /// Which channels the host looks after: how many, and how far apart their rows are.
    looked_after: (u32, u32),
    /// How long a call may take.
    deadline_ns: u64,
    /// Dropped last of what device code reaches: everything above points into it.
    pe: Arc<Pe>,
}

impl Peers {
    /// Those of a PE that is up. `kernels`: they look after channels of their own, and the host after its own alone.
    pub(super) fn new(
        pe: Arc<Pe>,
        words: StateWords,
        world: Arc<dyn World>,
        control: Arc<Control>,
        access: Arc<dyn Access>,
        (kernels, deadline_ns): (bool, u64),
    ) -> Self {
        let (pes, channels) = (words.root().pe_count, words.root().channels_per_pe);
        let looked_after = if kernels { (pes, channels) } else { (pes * channels, 1) };
        let (rounds, losses) = (Mutex::default(), Mutex::default());
        Self { words, world, control, access, rounds, losses, looked_after, deadline_ns, pe }
    }

    /// This PE.
    pub fn me(&self) -> u32 {
        self.words.root().my_pe
    }

    /// PEs of the job.
    pub fn count(&self) -> u32 {
        self.words.root().pe_count
    }

    /// All but this one.
    pub fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let me = self.me();
        (0..self.count()).filter(move |pe| *pe != me)
    }

    /// A PE that there is.
    pub fn check(&self, pe: i32) -> Result<u32, Failure> {
        let met = u32::try_from(pe).ok().filter(|pe| *pe < self.count());
        met.ok_or(Failure::NoPe { met: pe, pes: self.count() })
    }

    /// This PE's state and memory.
    pub(super) fn pe(&self) -> &Pe {
        &self.pe
    }

    pub(super) fn world(&self) -> &dyn World {
        &*self.world
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.world.now_ns()
    }

    /// How long a call may take.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    pub(super) fn device(&self) -> Device<'_, Host<'_>> {
        // SAFETY: uploaded by `Pe::start`, mapped while `self.pe` lives, and nobody writes the root.
        let device = unsafe { Device::attach(self.pe.host_state(), Host::new(self.world())) };
        device.expect("checked when the session began")
    }

    pub(super) fn channel(&self, pe: u32) -> Channel<'_, Host<'_>> {
        self.device().channel(pe, HOST_CHANNEL)
    }

    /// Channels to each PE, kernels' among them.
    pub(super) fn channels(&self) -> u32 {
        self.words.root().channels_per_pe
    }

    /// Generations that this PE's channels opened because of a fault, and by a switch-back.
    pub fn generations(&self) -> (u64, u64) {
        let root = self.words.root();
        let add = |(a, b): (u64, u64), row| {
            let (failovers, back) = self.words.generations(row);
            (a + failovers, b + back)
        };
        (0..root.pe_count * root.channels_per_pe).fold((0, 0), add)
    }

    /// Channels of this PE that are on their first path.
    pub fn on_primaries(&self) -> u32 {
        self.others().filter(|pe| self.words.active_slot(*pe, HOST_CHANNEL) == 0).count() as u32
    }

    /// One slice of a wait: long enough that silent paths are found out in it.
    pub(super) fn slice_ns(&self) -> u64 {
        (2 * self.pe.config().policy.suspect_ns).max(100_000_000)
    }

    /// Calls `attempt` with deadlines a slice apart until it answers otherwise than "not yet", or the call's time is
    /// over.
    pub(super) fn patiently<T>(
        &self,
        what: impl Fn() -> String,
        mut attempt: impl FnMut(Deadline) -> Result<T, Fault>,
    ) -> Result<T, Failure> {
        let since = self.now_ns();
        let end = since.saturating_add(self.deadline_ns);
        loop {
            let now = self.now_ns();
            match attempt(Deadline::after(now, self.slice_ns().min(end.saturating_sub(now)))) {
                Ok(answer) => return Ok(answer),
                Err(fault) if fault.kind != FaultKind::Overdue => return Err(self.failure(&fault)),
                Err(_) if self.now_ns() >= end => return Err(self.overdue(what(), self.now_ns() - since)),
                Err(_) => self.world.relax(),
            }
        }
    }

    pub(super) fn post_put(&self, pe: u32, put: Put) -> Result<Ticket, Failure> {
        let channel = self.channel(pe);
        self.patiently(|| format!("room for a put to PE {pe}"), |_| channel.put_nbi(Solo, put))
    }

    pub(super) fn post_get(&self, pe: u32, get: Get) -> Result<Ticket, Failure> {
        let channel = self.channel(pe);
        self.patiently(|| format!("room for a get from PE {pe}"), |_| channel.get_nbi(Solo, get))
    }

    /// One look at a channel's ticket until it is done.
    pub(super) fn finish(&self, pe: u32, ticket: Ticket) -> Result<(), Failure> {
        let channel = self.channel(pe);
        self.patiently(
            || format!("ticket {} to PE {pe}", ticket.0),
            |deadline| channel.wait(Solo, ticket, deadline),
        )
    }

    /// Waits until everything that the host posted to one PE is done.
    ///
    /// # Errors
    /// No such PE, or its channel carries nothing any more.
    pub fn quiet(&self, pe: i32) -> Result<(), Failure> {
        let pe = self.check(pe)?;
        if pe == self.me() {
            return Ok(());
        }
        let channel = self.channel(pe);
        self.patiently(|| format!("all that was sent to PE {pe}"), |until| channel.quiet(Solo, until))
    }

    /// What is posted before this arrives before what is posted after it: host calls to one PE take one channel, which
    /// keeps their order across switches. So there is nothing to wait for, but a channel that is dead is told.
    ///
    /// # Errors
    /// The first channel that carries nothing any more.
    pub fn fence(&self) -> Result<(), Failure> {
        self.others().try_for_each(|pe| self.alive(pe))
    }

    /// An error if the channel to a PE carries nothing any more.
    pub(super) fn alive(&self, pe: u32) -> Result<(), Failure> {
        self.channel(pe).alive().map_err(|fault| self.failure(&fault))
    }

    /// Peers whose channels carry nothing any more.
    pub fn lost(&self) -> Vec<u32> {
        self.others().filter(|pe| self.channel(*pe).alive().is_err()).collect()
    }

    /// The failure that a fault of a channel is.
    pub(super) fn failure(&self, fault: &Fault) -> Failure {
        if fault.channel == HOST_CHANNEL && self.channel(fault.peer).alive().is_err() {
            lock(&self.losses).tell(fault.peer);
        }
        describe::broken(&self.words, self.control.describe(fault.peer), fault)
    }

    /// A wait that was over.
    pub(super) fn overdue(&self, what: String, waited_ns: u64) -> Failure {
        let lost = match self.lost() {
            lost if lost.is_empty() => String::new(),
            lost => format!("; peers that are lost: {lost:?}"),
        };
        Failure::Overdue { what, waited_ms: waited_ns / 1_000_000, lost }
    }

    /// One look after the next of the channels that the host looks after. What each has shown is kept from call to
    /// call: so a path that falls silent is found out by the caller that waits, where no agent does it.
    pub(super) fn look(&self) {
        let (rows, step) = self.looked_after;
        let mut rounds = lock(&self.rounds);
        rounds.patience.resize(rows as usize, StallDetector::new(self.now_ns()));
        rounds.next = (rounds.next + 1) % rows;
        let row = rounds.next;
        self.words.attend_to(row * step, &mut rounds.patience[row as usize]);
    }

    /// Numbers of the words that hold now.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn held(&self, watch: &Watch<'_>) -> Result<Vec<u64>, Failure> {
        watch.held(&*self.access)
    }

    /// What NICs wrote into a device's memory before something that this host has seen is there, too: a read by each of
    /// them, because a write to one memory may overtake one to the other. A NIC that answers nothing is left out: what
    /// came by it is fenced by the agent, whose proof is such a read, before a switch goes on. Nothing where the host's
    /// memory is all there is.
    pub(super) fn settle_writes(&self) {
        if self.pe.config().split.is_some() {
            let answering = self.pe.rails().iter().filter(|rail| rail.devx.responsive());
            answering.for_each(|rail| _ = rail.flush());
        }
    }

    /// One look after a channel of each peer: who tests in a loop lets switches go on.
    ///
    /// # Errors
    /// A PE is lost ([`super::losses`]): such a loop would go on for ever.
    pub fn look_after(&self, watch: &Watch<'_>) -> Result<(), Failure> {
        for _ in 0..self.looked_after.0 {
            self.look();
        }
        self.world.relax();
        self.end_by_loss(watch, 1, 0)
    }

    /// Looks at the words until `enough` of those that count hold; answers with their numbers. Looks after this PE's
    /// channels meanwhile.
    ///
    /// # Errors
    /// The call's time is over, or a PE is lost ([`super::losses`]).
    pub fn wait_for(&self, watch: &Watch<'_>, enough: usize) -> Result<Vec<u64>, Failure> {
        let enough = enough.min(watch.numbers().count());
        let since = self.now_ns();
        let mut looks = 0u32;
        loop {
            let held = self.held(watch)?;
            if held.len() >= enough {
                return Ok(held);
            }
            looks = looks.wrapping_add(1);
            self.look();
            if looks.is_multiple_of(LOOKS_BETWEEN) {
                self.end_by_loss(watch, enough, held.len())?;
            }
            let waited = self.now_ns() - since;
            if waited > self.deadline_ns {
                let what =
                    format!("{enough} of {} words from {:#x} on, {} hold", watch.count, watch.at, held.len());
                return Err(self.overdue(what, waited));
            }
            self.world.relax();
        }
    }

    /// Fails where the loss of a PE ends a wait for these words.
    fn end_by_loss(&self, watch: &Watch<'_>, enough: usize, held: usize) -> Result<(), Failure> {
        let lost = self.lost();
        if lost.is_empty() {
            return Ok(());
        }
        // What the lost one sent is on its way for a packet lifetime; what others send is behind their own losses.
        let grace_ns = self.slice_ns() + self.words.root().policy.packet_lifetime_ns;
        let due = lock(&self.losses).due(&lost, self.count() - 1, self.now_ns(), grace_ns);
        let Some(fault) = due.and_then(|pe| self.channel(pe).alive().err()) else { return Ok(()) };
        let mut failure = self.failure(&fault);
        if let Failure::Channel(broken) = &mut failure {
            let what = format!(
                "waited for {enough} of {} words from {:#x} on, {held} hold; ",
                watch.count, watch.at
            );
            broken.text.insert_str(0, &what);
        }
        Err(failure)
    }
}
