//! What sender and receiver kernels have in common: waiting in slices, so that no wait outlives the run.

use crate::job::board::Board;
use shunt_device::platform::host::{Host, World};
use shunt_device::{Channel, CqCheck, Deadline, Device, Fault, FaultKind, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Device code of this program.
pub type Dev<'w> = Device<'w, Host<'w>>;

/// Why a kernel ended before its work was done.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// A channel said so.
    Fault(Fault),
    /// No progress within the limit, although no channel reported anything.
    Stalled(&'static str),
    /// Another kernel ended the run.
    Aborted,
    /// Its PE was killed.
    Killed,
}

/// What all kernels of a run share. All times are those of the process's clock, not of a PE's, which may jump.
#[derive(Debug)]
pub struct Control {
    /// The stream begins.
    pub start_ns: u64,
    /// Longest time a wait may make no progress.
    pub stall_ns: u64,
    /// One wait, before it is looked whether the run goes on. Longer than the device's patience: a wait that
    /// ends sooner would never find a silent path.
    pub slice_ns: u64,
    /// What the ends know of each other.
    pub board: Arc<Board>,
    /// Senders stop posting.
    stop_ns: AtomicU64,
    /// When the first kernel ended the run; the largest number while none has.
    aborted_ns: AtomicU64,
}

/// A run's two instants on the process's clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The stream begins.
    pub start_ns: u64,
    /// Senders stop posting.
    pub stop_ns: u64,
}

impl Control {
    /// A run over devices that suspect a path after `suspect_ns`.
    pub fn new(span: Span, board: Arc<Board>, stall_ns: u64, suspect_ns: u64) -> Self {
        Self {
            start_ns: span.start_ns,
            stall_ns,
            slice_ns: (2 * suspect_ns).max(100_000_000),
            board,
            stop_ns: AtomicU64::new(span.stop_ns),
            aborted_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// When senders stop posting.
    pub fn stop_ns(&self) -> u64 {
        self.stop_ns.load(Ordering::Acquire)
    }

    /// Senders stop posting now, if they have not before; everything else goes its way.
    pub fn stop_now(&self, now_ns: u64) {
        self.stop_ns.fetch_min(now_ns.max(self.start_ns), Ordering::AcqRel);
        self.board.stop();
    }

    /// Ends every kernel of the run.
    pub fn abort(&self, now_ns: u64) {
        self.aborted_ns.fetch_min(now_ns, Ordering::AcqRel);
        self.board.abort();
    }

    /// End of the stream: where it was to stop, or where a kernel ended it before.
    pub fn end_ns(&self) -> u64 {
        self.stop_ns().min(self.aborted_ns.load(Ordering::Acquire)).max(self.start_ns)
    }

    /// True once some kernel ended the run, here or in another process.
    pub fn aborted(&self) -> bool {
        self.board.aborted()
    }

    /// Follows what other processes say: their end of the run is ours.
    pub fn follow(&self, now_ns: u64) {
        if self.board.stopping() {
            self.stop_now(now_ns);
        }
        if self.board.aborted() {
            self.abort(now_ns);
        }
    }
}

/// A kernel's surroundings.
#[derive(Clone, Copy)]
pub struct Kernel<'r> {
    /// Its PE.
    pub pe: u32,
    /// The PE's clock, which deadlines are read against.
    pub world: &'r dyn World,
    /// The process's clock, which the run is measured with.
    pub clock: &'r dyn World,
    /// What ends it.
    pub control: &'r Control,
}

impl Kernel<'_> {
    /// Now, on the clock the run is measured with.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// A deadline of the PE's clock.
    pub fn deadline(&self, after_ns: u64) -> Deadline {
        Deadline::after(self.world.now_ns(), after_ns)
    }

    /// Whether the kernel may go on.
    pub fn go_on(&self) -> Result<(), Stop> {
        if self.control.board.killed(self.pe) {
            return Err(Stop::Killed);
        }
        if self.control.aborted() { Err(Stop::Aborted) } else { Ok(()) }
    }

    /// What ended the kernel: nothing that a PE meets after its death counts.
    pub fn ended(&self, stop: Stop) -> Stop {
        if self.control.board.killed(self.pe) { Stop::Killed } else { stop }
    }

    /// Calls `attempt` with deadlines a slice apart until it answers, `between` ends it, the run is over, or `limit_ns`
    /// have passed. An operation that is uncertain is the arbiter's business: meanwhile this waits.
    pub fn patiently<T>(
        &self,
        limit_ns: u64,
        what: &'static str,
        mut between: impl FnMut() -> Result<(), Stop>,
        mut attempt: impl FnMut(Deadline) -> Result<T, Fault>,
    ) -> Result<T, Stop> {
        let end = self.now_ns().saturating_add(limit_ns);
        loop {
            let slice = self.control.slice_ns.min(end.saturating_sub(self.now_ns()));
            match attempt(self.deadline(slice)) {
                Ok(answer) => return Ok(answer),
                Err(fault) if fault.kind == FaultKind::Uncertain => self.clock.relax(),
                Err(fault) if fault.kind != FaultKind::Overdue => return Err(Stop::Fault(fault)),
                Err(_) => {}
            }
            self.go_on()?;
            between()?;
            if self.now_ns() >= end {
                return Err(Stop::Stalled(what));
            }
        }
    }

    /// Whether a channel lives. A wait for a word says nothing of the channel that should bring it, and who only waits
    /// has no ticket to ask about.
    pub fn alive(&self, channel: Channel<'_, Host<'_>>, last: Option<Ticket>) -> Result<(), Stop> {
        channel.alive().map_err(Stop::Fault)?;
        match last.map(|ticket| channel.check(ticket, self.deadline(0))) {
            Some(CqCheck::Failed(fault)) if fault.kind != FaultKind::Uncertain => Err(Stop::Fault(fault)),
            _ => Ok(()),
        }
    }
}

/// Waits for an instant.
pub fn wait_until(clock: &dyn World, at_ns: u64) {
    while clock.now_ns() < at_ns {
        clock.relax();
    }
}
