//! What sender and receiver kernels have in common: waiting in slices, so that no wait outlives the run.

use shunt_device::platform::host::{Host, World};
use shunt_device::{Channel, CqCheck, Deadline, Device, Fault, FaultKind, Ticket};
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
}

/// What all kernels of a run share.
#[derive(Debug)]
pub struct Control {
    /// The stream begins.
    pub start_ns: u64,
    /// Senders stop posting.
    pub stop_ns: u64,
    /// Longest time a wait may make no progress.
    pub stall_ns: u64,
    /// One wait, before it is looked whether the run goes on. Longer than the device's patience: a wait that
    /// ends sooner would never find a silent path.
    pub slice_ns: u64,
    /// Receivers that have consumed everything and looked for ghosts.
    pub finished: AtomicU64,
    /// When the first kernel ended the run; the largest number while none has.
    aborted_ns: AtomicU64,
}

impl Control {
    /// A run from `start_ns` to `stop_ns` over devices that suspect a path after `suspect_ns`.
    pub fn new(start_ns: u64, stop_ns: u64, stall_ns: u64, suspect_ns: u64) -> Self {
        let slice_ns = (2 * suspect_ns).max(100_000_000);
        Self {
            start_ns,
            stop_ns,
            stall_ns,
            slice_ns,
            finished: AtomicU64::new(0),
            aborted_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// Ends every kernel of the run.
    pub fn abort(&self, now_ns: u64) {
        self.aborted_ns.fetch_min(now_ns, Ordering::AcqRel);
    }

    /// End of the stream: where it was to stop, or where a kernel ended it before.
    pub fn end_ns(&self) -> u64 {
        self.stop_ns.min(self.aborted_ns.load(Ordering::Acquire)).max(self.start_ns)
    }

    /// True once some kernel ended the run.
    pub fn aborted(&self) -> bool {
        self.aborted_ns.load(Ordering::Acquire) != u64::MAX
    }
}

/// Calls `attempt` with deadlines a slice apart until it answers, the run is aborted, `channel` is dead, or
/// `limit_ns` have passed.
pub fn patiently<T>(
    world: &dyn World,
    control: &Control,
    limit_ns: u64,
    what: &'static str,
    watch: Option<(Channel<'_, Host<'_>>, Ticket)>,
    mut attempt: impl FnMut(Deadline) -> Result<T, Fault>,
) -> Result<T, Stop> {
    let end = world.now_ns().saturating_add(limit_ns);
    loop {
        let slice = Deadline { at_ns: world.now_ns().saturating_add(control.slice_ns).min(end) };
        match attempt(slice) {
            Ok(answer) => return Ok(answer),
            Err(fault) if fault.kind != FaultKind::Overdue => return Err(Stop::Fault(fault)),
            Err(_) => {}
        }
        if control.aborted() {
            return Err(Stop::Aborted);
        }
        // A wait for a word says nothing of the channel that should bring it.
        if let Some((channel, ticket)) = watch
            && let CqCheck::Failed(fault) = channel.check(ticket, slice)
        {
            return Err(Stop::Fault(fault));
        }
        if world.now_ns() >= end {
            return Err(Stop::Stalled(what));
        }
    }
}

/// Waits for an instant.
pub fn wait_until(world: &dyn World, at_ns: u64) {
    while world.now_ns() < at_ns {
        world.relax();
    }
}
